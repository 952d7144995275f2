"""Hits that can be: whatever an engine made up must not get as far as PostgreSQL or the answer's JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from service.model import Hit

MOST_ID_CHARS = 512
_UNSOUND = (TypeError, ValueError, AttributeError, OverflowError)


def sound(found: Sequence[Hit]) -> tuple[tuple[Hit, ...], int]:
    """The hits with an id that a document can have and a score that is a number, and how many had not."""
    if _all_sound(found):  # as good as always: one look at all of them, not one at each
        return tuple(found), 0
    kept = tuple(hit for hit in found if _all_sound([hit]))
    return kept, len(found) - len(kept)


def _all_sound(hits: Sequence[Hit]) -> bool:
    try:
        finite = all(math.isfinite(hit.score) for hit in hits)
        lengths = all(0 < len(hit.id) <= MOST_ID_CHARS for hit in hits)
        text = "".join(_texts(hits))
        text.encode()  # lone surrogates
    except _UNSOUND:
        return False
    return finite and lengths and "\0" not in text


def _texts(hits: Sequence[Hit]) -> Iterator[str]:
    for hit in hits:
        yield hit.id
        for step in hit.path:
            yield step.via
            yield step.to
