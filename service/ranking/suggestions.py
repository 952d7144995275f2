"""Suggestions of several kinds, woven into one list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, zip_longest

from service.model import Suggestion

KINDS = ("entity", "title", "term")
"""The kinds in the order in which they take turns: names first, as they say most."""


def woven(found: Sequence[Suggestion], typed: str, limit: int) -> list[Suggestion]:
    """The kinds take turns, each with its most common, so that none crowds out the others. What a search would take
    for the same comes once. A term completes the last word only, and comes with what was typed before it.
    """
    before = typed[: len(typed) - len(typed.rsplit(" ", maxsplit=1)[-1])]
    kinds = ([each for each in found if each.kind == kind] for kind in KINDS)
    turns = (each for each in chain.from_iterable(zip_longest(*kinds)) if each is not None)
    whole = (replace(each, text=before + each.text) if each.kind == "term" else each for each in turns)
    return list(islice(_once(whole), limit))


def _once(suggestions: Iterable[Suggestion]) -> Iterator[Suggestion]:
    seen: set[str] = set()
    for each in suggestions:
        if each.text.lower() not in seen:
            seen.add(each.text.lower())
            yield each
