"""Fusion: the answers of several tiers woven into one ranking that can explain itself.

A fusion is a pure function from answers and weights to ranked candidates; `FUSIONS` names them all. Linear
combination of min-max scores: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval" (2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from service.model import Contribution, Hit, Ranked, TierAnswer
from service.ranking.normalise import finite, in_order, minmax

Fusion = Callable[[Sequence[TierAnswer], Mapping[str, float]], list[Ranked]]


def weighted(answers: Sequence[TierAnswer], weights: Mapping[str, float]) -> list[Ranked]:
    """Rank by the sum of weight x normalised score; a tier that lacks a candidate adds nothing to it."""
    shares: dict[str, dict[str, Contribution]] = {}
    places: dict[str, int] = {}
    for tier, hits in _usable(answers, weights):
        contributions = _contributions(hits, weights[tier])
        for hit, place, share in zip(hits, _places(hits), contributions, strict=True):
            shares.setdefault(hit.id, {})[tier] = share
            places[hit.id] = min(place, places.get(hit.id, place))
    return _sorted((_ranked(id_, tiers) for id_, tiers in shares.items()), places)


FUSIONS: Mapping[str, Fusion] = {"weighted": weighted}


def _usable(answers: Sequence[TierAnswer], weights: Mapping[str, float]) -> list[tuple[str, list[Hit]]]:
    """The clean hits of every tier that answered and counts, in the order of the weights."""
    by_tier: dict[str, list[Hit]] = {tier: [] for tier, weight in weights.items() if weight > 0}
    for answer in answers:
        if answer.tier in by_tier and answer.status.answered:
            by_tier[answer.tier].extend(finite(answer.hits)[0])
    return [(tier, in_order(hits)) for tier, hits in by_tier.items()]


def _contributions(hits: Sequence[Hit], weight: float) -> list[Contribution]:
    normalised = minmax([hit.score for hit in hits])
    return [
        Contribution(rank, hit.score, value, weight, weight * value, rule, hit.path)
        for rank, (hit, (value, rule)) in enumerate(zip(hits, normalised, strict=True), start=1)
    ]


def _places(hits: Sequence[Hit]) -> list[int]:
    """How many hits of the tier are strictly better: like a rank, but equal scores share a place."""
    places: list[int] = []
    for index, hit in enumerate(hits):
        tied = index > 0 and hit.score == hits[index - 1].score
        places.append(places[-1] if tied else index)
    return places


def _ranked(id_: str, tiers: dict[str, Contribution]) -> Ranked:
    return Ranked(id_, math.fsum([share.contribution for share in tiers.values()]), tiers)


def _sorted(candidates: Iterable[Ranked], places: Mapping[str, int]) -> list[Ranked]:
    """By falling score; ties by the best single tier, then id.

    Where the floor or near-equal scores hide a difference, the place within a tier still shows it: one tier alone
    keeps its own order.
    """
    return sorted(candidates, key=lambda each: (-each.score, -_best(each), places[each.id], each.id))


def _best(candidate: Ranked) -> float:
    return max([share.normalised for share in candidate.tiers.values()])
