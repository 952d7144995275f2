"""The invariants of fusion, for whatever the tiers may say."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from service.model import TIERS, Hit, Query, Ranked, Reach, Status, TierAnswer
from service.ranking.normalise import in_order
from service.ranking.plan import make_plan
from tests.unit.every_fusion import EVERY, Fusion, recomputed

# Few ids and a mix of coarse and wild scores: ties, repeats and extremes are what breaks a ranking.
names = st.text("abcdefgh", min_size=1, max_size=2)
coarse = st.integers(-3, 12).map(lambda each: each / 4)
scores = coarse | st.floats(allow_nan=False, allow_infinity=False)
anything = scores | st.sampled_from([math.nan, math.inf, -math.inf])
weight = st.sampled_from([0.1, 0.25, 0.3, 0.6, 1.0]) | st.floats(1e-6, 1e6)
weights_of_all = st.fixed_dictionaries(dict.fromkeys(TIERS, weight))


def answers_of(score: st.SearchStrategy[float], **bounds: int) -> st.SearchStrategy[list[TierAnswer]]:
    hits = st.lists(st.builds(Hit, names, score), **bounds)
    return st.tuples(
        *(st.builds(TierAnswer, st.just(tier), st.just(Status.OK), hits.map(tuple)) for tier in TIERS)
    ).map(list)


def ids(ranked: Iterable[Ranked]) -> list[str]:
    return [each.id for each in ranked]


@given(answers=answers_of(anything), weights=weights_of_all, off=st.sampled_from(TIERS))
def test_weight_zero_is_the_tier_switched_off(answers: list[TierAnswer], weights: dict[str, float], off: str) -> None:
    for fusion in EVERY.values():
        without = [answer for answer in answers if answer.tier != off]
        assert list(fusion(answers, weights | {off: 0.0})) == list(fusion(without, weights))


@given(answers=answers_of(scores), weight=weight, tier=st.sampled_from(TIERS))
def test_one_tier_alone_keeps_its_own_order(answers: list[TierAnswer], weight: float, tier: str) -> None:
    for fusion in EVERY.values():
        [alone] = [answer for answer in answers if answer.tier == tier]
        assert ids(fusion(answers, {tier: weight})) == [hit.id for hit in in_order(alone.hits)]


@given(answers=answers_of(scores), weights=weights_of_all, power=st.integers(-12, 12))
def test_scaling_all_weights_by_a_power_of_two_changes_no_order(
    answers: list[TierAnswer], weights: dict[str, float], power: int
) -> None:
    for fusion in EVERY.values():
        scaled = {tier: math.ldexp(each, power) for tier, each in weights.items()}
        assert ids(fusion(answers, weights)) == ids(fusion(answers, scaled))


@given(answers=answers_of(scores), weights=weights_of_all, factor=st.floats(0.01, 100))
def test_scaling_all_weights_by_anything_swaps_nothing_but_rounding(
    answers: list[TierAnswer], weights: dict[str, float], factor: float
) -> None:
    for fusion in EVERY.values():
        before = {each.id: each.score for each in fusion(answers, weights)}
        after = fusion(answers, {tier: each * factor for tier, each in weights.items()})
        for upper, lower in pairwise(after):
            assert before[upper.id] >= before[lower.id] * (1 - 1e-12)


@given(answers=answers_of(anything), weights=weights_of_all, data=st.data())
def test_the_order_of_tiers_of_hits_and_of_weights_does_not_matter(
    answers: list[TierAnswer], weights: dict[str, float], data: st.DataObject
) -> None:
    shuffled = [
        TierAnswer(answer.tier, answer.status, tuple(data.draw(st.permutations(answer.hits))))
        for answer in data.draw(st.permutations(answers))
    ]
    reordered = dict(data.draw(st.permutations(list(weights.items()))))
    for fusion in EVERY.values():
        assert list(fusion(shuffled, reordered)) == list(fusion(answers, weights))


@given(answers=answers_of(anything), weights=weights_of_all)
def test_scores_are_finite_positive_in_order_and_what_their_explanations_come_to(
    answers: list[TierAnswer], weights: dict[str, float]
) -> None:
    for fusion in EVERY.values():
        ranked = fusion(answers, weights)
        assert all(0 < each.score < math.inf for each in ranked)
        assert [each.score for each in ranked] == sorted((each.score for each in ranked), reverse=True)
        assert [each.score for each in ranked] == [recomputed(each) for each in ranked]


@given(answers=answers_of(anything), weights=weights_of_all)
def test_a_weighted_score_is_at_most_the_sum_of_the_weights(
    answers: list[TierAnswer], weights: dict[str, float]
) -> None:
    for normaliser in ("minmax", "theoretical", "fixed", "dbsf", "l2"):
        ranked = EVERY[f"weighted-{normaliser}"](answers, weights)
        assert all(each.score <= math.fsum(weights.values()) * (1 + 1e-12) for each in ranked)


@given(answers=answers_of(anything), weights=weights_of_all)
def test_every_finite_hit_is_ranked_exactly_once(answers: list[TierAnswer], weights: dict[str, float]) -> None:
    for fusion in EVERY.values():
        found = {hit.id for answer in answers for hit in answer.hits if math.isfinite(hit.score)}
        assert sorted(ids(fusion(answers, weights))) == sorted(found)


@given(answers=answers_of(scores, max_size=12), weights=weights_of_all)
def test_doing_it_again_gives_the_same(answers: list[TierAnswer], weights: dict[str, float]) -> None:
    for fusion in EVERY.values():
        assert list(fusion(answers, weights)) == list(fusion(answers, weights))


@settings(max_examples=20)
@given(
    depth=st.sampled_from([1, 40, 149, 150, 151, 310]),
    limit=st.integers(1, 99),
    further=st.integers(1, 99),
    seed=st.integers(0, 99),
)
def test_page_one_is_the_same_for_every_limit(depth: int, limit: int, further: int, seed: int) -> None:
    """A tier holds `depth` hits and returns as many as the plan asks for; the short page leads the long one."""
    dice = random.Random(seed)
    held = {tier: in_order(Hit(f"d{each}", dice.random()) for each in range(depth)) for tier in TIERS}

    def page(fusion: Fusion, size: int) -> list[Ranked]:
        plan = make_plan(Query(Reach("t"), "q", ("default",), size), dict.fromkeys(TIERS, 1.0), timeout_ms=1)
        cut = [TierAnswer(tier, Status.OK, tuple(hits[: plan.candidates])) for tier, hits in held.items()]
        return fusion(cut, plan.weights)[:size]

    for fusion in EVERY.values():
        assert page(fusion, limit) == page(fusion, min(100, limit + further))[:limit]
