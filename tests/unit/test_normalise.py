"""Normalising: one tier's hits, cleaned and brought to 0..1."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model import Hit, Step
from service.ranking.normalise import FLOOR, finite, in_order, minmax

numbers = st.floats(allow_nan=False, allow_infinity=False)


def values(*scores: float) -> list[float]:
    return minmax(scores).values


def rules(*scores: float) -> list[str]:
    return minmax(scores).rules


def test_scores_are_placed_between_the_worst_and_the_best() -> None:
    # (8-2)/(10-2), (4-2)/(10-2), and the floor for (2-2)/(10-2)
    assert values(10, 8, 4, 2) == [1.0, 6 / 8, 2 / 8, 0.001]
    assert rules(10, 8, 4, 2) == ["minmax", "minmax", "minmax", "floor"]


def test_negative_scores_are_placed_alike() -> None:
    assert values(-1, -3, -5) == [1.0, 2 / 4, 0.001]


def test_one_hit_gets_one() -> None:
    assert minmax([0.28]) == ([1.0], ["all_equal"])


def test_equal_scores_all_get_one() -> None:
    assert minmax([7, 7, 7 + 9e-10]) == ([1.0] * 3, ["all_equal"] * 3)


def test_a_spread_just_above_a_billionth_counts() -> None:
    assert values(0.0, 2e-9) == [FLOOR, 1.0]


def test_the_floor_lifts_only_what_lies_below_it() -> None:
    assert values(1000, 1, 0.5, 0) == [1.0, 0.001, 0.001, 0.001]
    assert rules(1000, 1, 0.5, 0) == ["minmax", "minmax", "floor", "floor"]


def test_nothing_gives_nothing() -> None:
    assert minmax([]) == ([], [])


def test_the_largest_spread_there_is_does_not_overflow() -> None:
    assert values(1e308, 0.0, -1e308) == [1.0, 0.5, FLOOR]


@given(st.lists(numbers))
def test_any_finite_scores_stay_in_range_and_in_order(scores: list[float]) -> None:
    normalised = values(*scores)
    assert all(FLOOR <= value <= 1 for value in normalised)
    by_score = [value for _, value in sorted(zip(scores, normalised, strict=True))]
    assert by_score == sorted(normalised)


@given(st.lists(numbers, min_size=1))
def test_the_best_always_gets_one(scores: list[float]) -> None:
    assert values(*scores)[scores.index(max(scores))] == 1.0


def test_scores_that_are_no_numbers_are_dropped_and_counted() -> None:
    hits = [Hit("a", math.nan), Hit("b", 1.0), Hit("c", math.inf), Hit("d", -math.inf)]
    assert finite(hits) == ((Hit("b", 1.0),), 3)


def test_hits_come_out_by_score_and_then_by_id() -> None:
    hits = [Hit("c", 1), Hit("b", 2), Hit("a", 1)]
    assert [hit.id for hit in in_order(hits)] == ["b", "a", "c"]


@pytest.mark.parametrize("turn", [1, -1])
def test_the_best_of_a_documents_hits_is_kept(turn: int) -> None:
    assert in_order([Hit("a", 1), Hit("a", 3), Hit("a", 2)][::turn]) == [Hit("a", 3)]


@pytest.mark.parametrize("turn", [1, -1])
def test_of_equal_hits_the_one_with_the_shortest_walk_is_kept_and_then_the_first_by_name(turn: int) -> None:
    long = Hit("a", 1, (Step("x", "b", 1), Step("x", "a", 1)))
    first, last = Hit("a", 1, (Step("cites", "a", 1),)), Hit("a", 1, (Step("names", "a", 1),))
    assert in_order([long, last, first][::turn]) == [first]
