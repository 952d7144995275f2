"""Fusion: the answers of several tiers woven into one ranking that can explain itself.

A method decides what a hit is worth by its place in its tier and by its normalised score: its share. A candidate's
score is the sum of weight x share over the tiers that found it; a tier that did not adds nothing. `FUSIONS` names the
methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from service.model import FusionOptions, Hit, TierAnswer
from service.ranking.normalise import BOUNDS, NORMALISERS, Normalised, finite, in_order
from service.ranking.woven import Column, Ranking, Strand, weave

Shares: TypeAlias = Callable[[Normalised, int], Sequence[float]]


def linear(worth: Normalised, k: int) -> Sequence[float]:
    """The normalised score itself."""
    return worth.values


def reciprocal(worth: Normalised, k: int) -> Sequence[float]:
    """`1 / (k + rank)`: Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet" (SIGIR 2009)."""
    return [1 / (k + rank) for rank in range(1, len(worth.values) + 1)]


def scored_reciprocal(worth: Normalised, k: int) -> Sequence[float]:
    """`(0.5 + score) / (k + rank)`: as above, but a clear winner counts more than a narrow one."""
    return [(0.5 + value) / (k + rank) for rank, value in enumerate(worth.values, 1)]


@dataclass(frozen=True, slots=True)
class Method:
    """One way to fuse: what a hit's share is, the normaliser that goes with it, whether the tiers' weights count,
    whether another normaliser may be chosen, and whether what several tiers found is multiplied by their number.
    """

    shares: Shares = linear
    normaliser: str = "minmax"
    weighs: bool = True
    takes_normaliser: bool = True
    multiplies: bool = False


FUSIONS: Mapping[str, Method] = {
    # A convex combination of normalised scores: Bruch, Gai and Ingber (ACM TOIS 2023).
    "weighted": Method(),
    "rrf": Method(reciprocal, weighs=False, takes_normaliser=False),
    "weighted_rrf": Method(reciprocal, takes_normaliser=False),
    "scored_rrf": Method(scored_reciprocal),
    # CombSUM and CombMNZ: Fox and Shaw, "Combination of Multiple Searches" (TREC-2, 1994).
    "combsum": Method(weighs=False),
    "combmnz": Method(weighs=False, multiplies=True),
    "dbsf": Method(normaliser="dbsf", takes_normaliser=False),
    "zscore": Method(normaliser="zscore", takes_normaliser=False),
    "l2": Method(normaliser="l2", takes_normaliser=False),
}


def fuse(
    answers: Sequence[TierAnswer],
    weights: Mapping[str, float],
    options: FusionOptions = FusionOptions(),  # noqa: B008 - frozen
) -> Ranking:
    """Weave the answers into one ranking. Only tiers that answered and have a weight count."""
    method = FUSIONS[options.method]
    strands = [_strand(tier, weights[tier], hits, method, options) for tier, hits in usable(answers, weights).items()]
    woven = weave(strands)
    return woven.adjusted(found_by(woven)) if method.multiplies else woven


def found_by(ranking: Ranking) -> Column:
    """The multiplier of CombMNZ: how many tiers found a candidate."""
    return Column("found_by", multiply=[float(count) for count in ranking.tier_counts()])


def usable(answers: Sequence[TierAnswer], weights: Mapping[str, float]) -> dict[str, list[Hit]]:
    """The clean hits, in order, of every tier that answered and counts."""
    by_tier: dict[str, list[Hit]] = {tier: [] for tier, weight in weights.items() if weight > 0}
    for answer in answers:
        if answer.tier in by_tier and answer.status.answered:
            by_tier[answer.tier].extend(finite(answer.hits)[0])
    return {tier: in_order(hits) for tier, hits in by_tier.items()}


def _strand(tier: str, weight: float, hits: Sequence[Hit], method: Method, options: FusionOptions) -> Strand:
    chosen = options.normaliser if options.normaliser and method.takes_normaliser else method.normaliser
    bounds = options.bounds.get(tier) or BOUNDS.get(tier, (0.0, 1.0))
    worth = NORMALISERS[chosen]([hit.score for hit in hits], bounds)
    return Strand(tier, weight if method.weighs else 1.0, hits, worth, method.shares(worth, options.k))
