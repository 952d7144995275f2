"""Every fusion method and every normaliser, with numbers worked by hand."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from service.api import ranking_schemas
from service.model import FusionOptions, Hit, Status, TierAnswer
from service.ranking.fusion import FUSIONS, fuse
from service.ranking.normalise import NORMALISERS, dbsf, fixed, l2, none, theoretical, zscore

WEIGHTS = {"keyword": 0.5, "vector": 2.0}
# keyword: a 1, b (6-2)/8 = 1/2, c floor; vector: b 1, d floor
ANSWERS = [
    TierAnswer("keyword", Status.OK, (Hit("a", 10), Hit("b", 6), Hit("c", 2))),
    TierAnswer("vector", Status.OK, (Hit("b", 0.75), Hit("d", 0.5))),
]


def fused(method: str, normaliser: str | None = None, k: int = 60) -> dict[str, float]:
    return {each.id: each.score for each in fuse(ANSWERS, WEIGHTS, FusionOptions(method, normaliser, k))}


def test_the_api_knows_every_method_and_every_normaliser() -> None:
    assert set(get_args(ranking_schemas.Method)) == set(FUSIONS)
    assert set(get_args(ranking_schemas.Normaliser)) == set(NORMALISERS)


def test_rrf_adds_one_over_sixty_plus_rank_whatever_the_weights() -> None:
    assert fused("rrf") == {"b": 1 / 62 + 1 / 61, "a": 1 / 61, "d": 1 / 62, "c": 1 / 63}


def test_rrf_takes_another_k() -> None:
    assert fused("rrf", k=1)["b"] == pytest.approx(1 / 3 + 1 / 2, rel=1e-15)


def test_weighted_rrf_multiplies_by_the_weight() -> None:
    assert fused("weighted_rrf") == pytest.approx(
        {"b": 0.5 / 62 + 2 / 61, "d": 2 / 62, "a": 0.5 / 61, "c": 0.5 / 63}, rel=1e-15
    )


def test_scored_rrf_counts_a_clear_winner_for_more() -> None:
    # weight x (0.5 + score) / (60 + rank)
    expected = {
        "b": 0.5 * (0.5 + 0.5) / 62 + 2 * (0.5 + 1) / 61,
        "d": 2 * (0.5 + 0.001) / 62,
        "a": 0.5 * (0.5 + 1) / 61,
        "c": 0.5 * (0.5 + 0.001) / 63,
    }
    assert fused("scored_rrf") == pytest.approx(expected, rel=1e-15)


def test_combsum_adds_the_scores_without_weights() -> None:
    assert fused("combsum") == {"b": 1.5, "a": 1.0, "c": 0.001, "d": 0.001}


def test_combmnz_multiplies_by_the_number_of_tiers_that_found_it() -> None:
    assert fused("combmnz") == {"b": 2 * 1.5, "a": 1.0, "c": 0.001, "d": 0.001}


def test_combmnz_shows_its_multiplier() -> None:
    [best, *_] = fuse(ANSWERS, WEIGHTS, FusionOptions("combmnz"))
    assert [(step.name, step.multiply, step.add) for step in best.adjustments] == [("found_by", 2.0, 0.0)]


def test_weighted_takes_any_normaliser() -> None:
    # The best gets 1 and the lowest there can be is 0, so that six of ten is 0.6
    assert fused("weighted", "theoretical") == pytest.approx(
        {"b": 0.5 * 0.6 + 2, "d": 2 * 2 / 3, "a": 0.5, "c": 0.5 * 0.2}, rel=1e-15
    )


def test_the_l2_method_divides_by_the_length_of_the_list() -> None:
    # The roots of 100 + 36 + 4 and of 0.5625 + 0.25
    assert fused("l2")["b"] == pytest.approx(0.5 * 6 / math.sqrt(140) + 2 * 0.75 / math.sqrt(0.8125), rel=1e-15)


def test_dbsf_and_zscore_are_weighted_sums_of_their_own_normalisers() -> None:
    # Two scores are one deviation above and below their mean: z 1 and -1; (1 + 3) / 6 and (-1 + 3) / 6.
    assert fused("zscore")["d"] == pytest.approx(2 * (-1 + 2))
    assert fused("dbsf")["d"] == pytest.approx(2 * 2 / 6)


def test_theoretical_places_between_what_can_be_and_the_best() -> None:
    assert theoretical([8, 4, 0], (0, 99)) == ([1.0, 0.5, 0.001], ["theoretical", "theoretical", "floor"])
    # A lowest cosine of -1: (0.5 + 1) / 1.5 and (0.2 + 1) / 1.5
    assert theoretical([0.5, 0.2], (-1, 1)).values == [1.0, pytest.approx(0.8)]
    assert theoretical([3.0], (0, 1)) == ([1.0], ["theoretical"])
    assert theoretical([0.0, 0.0], (0, 1)) == ([1.0, 1.0], ["all_equal", "all_equal"])


def test_fixed_places_between_the_bounds_and_not_beyond() -> None:
    assert fixed([30, 15, 5, -2], (0, 20)) == ([1.0, 0.75, 0.25, 0.001], ["ceiling", "fixed", "fixed", "floor"])


def test_zscore_counts_deviations_from_the_mean_and_absent_stands_two_below() -> None:
    # mean 5, deviation sqrt((9 + 1 + 1 + 1 + 0 + 0 + 4 + 16) / 8) = 2: 9 is 2 above, 2 is 1.5 below
    scores = [9, 7, 5, 5, 4, 4, 4, 2]
    values, rules = zscore(scores)
    assert values == pytest.approx([4, 3, 2, 2, 1.5, 1.5, 1.5, 0.5])
    assert set(rules) == {"zscore"}


def test_zscore_lifts_what_is_more_than_two_deviations_below() -> None:
    values, rules = zscore([1.0] * 99 + [0.0])
    assert (values[-1], rules[-1]) == (0.001, "floor")


def test_dbsf_places_within_three_deviations_of_the_mean() -> None:
    # mean 5, deviation 2: from -1 to 11
    values, rules = dbsf([9, 7, 5, 5, 4, 4, 4, 2])
    assert values == pytest.approx([10 / 12, 8 / 12, 0.5, 0.5, 5 / 12, 5 / 12, 5 / 12, 3 / 12])
    assert set(rules) == {"dbsf"}
    far = dbsf([100.0] + [0.0] * 99)
    assert (far.values[0], far.rules[0]) == (1.0, "ceiling")


def test_l2_makes_the_list_a_vector_of_length_one() -> None:
    assert l2([3, 4]) == ([0.6, 0.8], ["l2", "l2"])
    assert l2([1.0, -1.0]).rules == ["l2", "floor"]


def test_none_keeps_raw_scores_but_not_what_looks_absent_or_endless() -> None:
    assert none([1e300, 7.5, 0, -3]) == ([1e12, 7.5, 1e-9, 1e-9], ["ceiling", "none", "floor", "floor"])


@pytest.mark.parametrize(
    ("normaliser", "alike"),
    [("minmax", 1), ("theoretical", 1), ("zscore", 2), ("dbsf", 0.5), ("l2", 1 / math.sqrt(3)), ("none", 7)],
)
def test_equal_scores_are_all_the_same_in_every_normaliser(normaliser: str, alike: float) -> None:
    assert NORMALISERS[normaliser]([7.0] * 3, (0.0, 1.0)).values == pytest.approx([alike] * 3)


@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_nothing_gives_nothing_and_enormous_scores_do_not_overflow(normaliser: str) -> None:
    apply = NORMALISERS[normaliser]
    assert apply([], (0.0, 1.0)) == ([], [])
    for scores in ([1.7e308, 1e308, 0, -1.7e308], [5e-324, 0.0], [1.7e308] * 50):
        values = apply(scores, (0.0, 1.0)).values
        assert all(0 < value < math.inf for value in values)
        assert values == sorted(values, reverse=True)
