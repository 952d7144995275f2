"""Shaping: what may move a candidate after fusion, by what is known of its document.

Each signal is a small pure function from the candidates and their facts to a `Column`: what every score is multiplied
by and what is added. Where a signal has nothing to work on, be it for one candidate or for all, it changes nothing. A
weight `w` from 0 to 1 says how much a factor `f` counts: `1 + w * (f - 1)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from service.model import Facts, Query, RankingOptions, ShapingOptions
from service.ranking.woven import Column, Ranking

Known: TypeAlias = Sequence[Facts | None]
"""The facts of each candidate in the order of `Ranking.base`; None for one that PostgreSQL no longer has."""


def needs_facts(options: RankingOptions) -> bool:
    """Whether anything has to be known of the candidates' documents: a round trip that most searches do without."""
    shaping = options.shaping
    return bool(shaping.confidence)


def shape(ranking: Ranking, facts: Mapping[str, Facts] | None, query: Query) -> Ranking:
    """The ranking with every signal applied that is on and has something to say. Without facts it stays as it is."""
    if facts is None:
        return ranking
    return ranking.adjusted(*_columns([facts.get(id_) for id_ in ranking.base], query.ranking.shaping))


def _columns(known: Known, options: ShapingOptions) -> Iterator[Column]:
    if options.confidence:
        yield from _factors("confidence", known, options.confidence, confidence)


def confidence(facts: Facts) -> float | None:
    """`0.4 + 0.6 * confidence` (Ormah): even a document nobody trusts keeps two fifths of its score."""
    return None if facts.confidence is None else 0.4 + 0.6 * facts.confidence


def _factors(name: str, known: Known, weight: float, factor: Callable[[Facts], float | None]) -> Iterator[Column]:
    """A column of weighted factors; none where no candidate has one."""
    factors = [None if facts is None else factor(facts) for facts in known]
    if any(each is not None for each in factors):
        multiply = [1.0 if each is None else 1 + weight * (each - 1) for each in factors]
        yield Column(name, multiply, inputs={"factor": factors, "weight": [weight] * len(known)})
