"""The plan of a search: which tiers to ask, with what weight, and for how many candidates.

The number of candidates does not follow the caller's limit. A tier's scores are normalised over its own list, so a
list that grew with the limit would change the scores, and page 1 of 10 could differ from the first 10 of 100. Every
limit the API takes (1 to 100) therefore gets the same depth: half as much again as the largest page, so that a hit
that vanishes while hydrating leaves no short page; more where a creation window may discard many.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from service.errors import InvalidInput
from service.model import Filter, Plan, Query, TierAnswer
from service.ranking.question import question_weights

CANDIDATES = 150
CANDIDATES_IN_WINDOW = 500

# Beyond these a product or a sum of weights could underflow or overflow, and lose the order.
MIN_WEIGHT = 1e-6
MAX_WEIGHT = 1e6


def make_plan(query: Query, defaults: Mapping[str, float], *, timeout_ms: int) -> Plan:
    """Plan one search. `defaults` names every tier there is; the query's own weights and time-out win."""
    weights = asked_weights(query.ranking.weights, defaults)
    scaled = question_weights(weights, query.text, query.ranking.shaping)
    weights = {tier: weight for tier, weight in scaled.items() if weight > 0} or weights
    _check_required(query.require, weights)
    return Plan(
        weights=weights,
        candidates=_depth(query.limit, query.filter),
        timeout_ms=timeout_ms if query.timeout_ms is None else query.timeout_ms,
    )


def speaking(answers: Iterable[TierAnswer]) -> list[str]:
    """The tiers that have something to say: those that found something, or all that answered where none did."""
    answered = [answer for answer in answers if answer.status.answered]
    return [answer.tier for answer in answered if answer.hits] or [answer.tier for answer in answered]


def effective_weights(weights: Mapping[str, float], heard: Collection[str]) -> dict[str, float]:
    """Give the weight of the tiers that are silent to the others, in proportion: the sum stays the same."""
    kept = {tier: weight for tier, weight in weights.items() if tier in heard and weight > 0}
    if not kept:
        return {}
    growth = math.fsum(weights.values()) / math.fsum(kept.values())
    return {tier: weight * growth for tier, weight in kept.items()}


def asked_weights(wanted: Mapping[str, float], defaults: Mapping[str, float]) -> dict[str, float]:
    """The tiers to ask, each with its weight: the wanted one, or the default."""
    for tier, weight in wanted.items():
        _check(tier, weight, defaults)
    weights = {tier: wanted.get(tier, weight) for tier, weight in defaults.items()}
    asked = {tier: weight for tier, weight in weights.items() if weight > 0}
    if not asked:
        raise InvalidInput("weights", "at least one tier needs a weight above 0")
    return asked


def _check(tier: str, weight: float, defaults: Mapping[str, float]) -> None:
    if tier not in defaults:
        raise InvalidInput("weights", f"no tier is called {tier!r}; there are {', '.join(defaults)}")
    if weight != 0 and not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise InvalidInput(f"weights.{tier}", f"must be 0, or from {MIN_WEIGHT:f} to {MAX_WEIGHT:.0f}")


def _check_required(required: Collection[str], weights: Mapping[str, float]) -> None:
    """A tier that is not asked cannot answer: to require it is a mistake, not an outage."""
    off = [tier for tier in required if tier not in weights]
    if off:
        raise InvalidInput("require", f"{', '.join(off)} would not be asked here: give it a weight above 0")


def _depth(limit: int, chosen: Filter) -> int:
    return max(limit, CANDIDATES_IN_WINDOW if chosen.has_time else CANDIDATES)
