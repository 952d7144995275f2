"""Fusion: the answers of several tiers woven into one ranking that can explain itself.

A fusion is a pure function from answers and weights to a `Ranking`; `FUSIONS` names them all. It decides what each hit
of a tier is worth, a `Strand` a tier; the `Ranking` adds that up for each candidate. Linear combination of min-max
scores: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval" (2023).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import overload

from service.model import Contribution, Hit, Ranked, TierAnswer
from service.ranking.normalise import Normalised, finite, in_order, minmax


def weighted(answers: Sequence[TierAnswer], weights: Mapping[str, float]) -> Ranking:
    """Rank by the sum of weight x normalised score; a tier that lacks a candidate adds nothing to it."""
    clean = usable(answers, weights)
    return Ranking([Strand(tier, weights[tier], hits, minmax([h.score for h in hits])) for tier, hits in clean.items()])


Fusion = Callable[[Sequence[TierAnswer], Mapping[str, float]], "Ranking"]

FUSIONS: Mapping[str, Fusion] = {"weighted": weighted}


def usable(answers: Sequence[TierAnswer], weights: Mapping[str, float]) -> dict[str, list[Hit]]:
    """The clean hits, in order, of every tier that answered and counts."""
    by_tier: dict[str, list[Hit]] = {tier: [] for tier, weight in weights.items() if weight > 0}
    for answer in answers:
        if answer.tier in by_tier and answer.status.answered:
            by_tier[answer.tier].extend(finite(answer.hits)[0])
    return {tier: in_order(hits) for tier, hits in by_tier.items()}


@dataclass(frozen=True, slots=True)
class Strand:
    """One tier's hits in order, and what they are worth: `weight` times their normalised scores."""

    tier: str
    weight: float
    hits: Sequence[Hit]
    worth: Normalised

    def standings(self) -> Iterator[tuple[float, int, str, float]]:
        """Every hit as a tuple that sorts best first, by value, place and id; what it contributes comes last."""
        values = self.worth.values
        ids = [hit.id for hit in self.hits]
        contributions = [self.weight * value for value in values]
        return zip([-value for value in values], self._places(), ids, contributions, strict=True)

    def explain(self, at: int) -> Contribution:
        hit, value, rule = self.hits[at], self.worth.values[at], self.worth.rules[at]
        return Contribution(at + 1, hit.score, value, self.weight, self.weight * value, rule, hit.path)

    def _places(self) -> list[int]:
        """How many hits are strictly better than each: like a rank, but equal scores share a place."""
        first: dict[float, int] = {}
        return [first.setdefault(hit.score, at) for at, hit in enumerate(self.hits)]


class Ranking(Sequence[Ranked]):
    """The candidates of all strands, best first. Each is explained when it is looked at, as few of them ever are.

    By falling score; ties by the best single tier, then id. Where the floor or near-equal scores hide a difference,
    the place within a tier still shows it: one tier alone keeps its own order.
    """

    def __init__(self, strands: Sequence[Strand]) -> None:
        shares: defaultdict[str, list[float]] = defaultdict(list)
        for _, _, id_, contribution in sorted(chain.from_iterable(strand.standings() for strand in strands)):
            shares[id_].append(contribution)
        self._scores = {id_: math.fsum(some) for id_, some in shares.items()}
        # Sorting is stable: what ties stays in the order of its best standing.
        self._ids = sorted(self._scores, key=self._scores.__getitem__, reverse=True)
        self._indexed = [(strand, {hit.id: at for at, hit in enumerate(strand.hits)}) for strand in strands]

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, at: int) -> Ranked: ...
    @overload
    def __getitem__(self, at: slice) -> list[Ranked]: ...
    def __getitem__(self, at: int | slice) -> Ranked | list[Ranked]:
        return [self._explain(id_) for id_ in self._ids[at]] if isinstance(at, slice) else self._explain(self._ids[at])

    def _explain(self, id_: str) -> Ranked:
        tiers = {strand.tier: strand.explain(index[id_]) for strand, index in self._indexed if id_ in index}
        return Ranked(id_, self._scores[id_], tiers)
