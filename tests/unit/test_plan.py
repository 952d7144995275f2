"""The plan of a search: tiers, weights, depth and time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidInput
from service.model import Filter, Hit, Plan, Query, RankingOptions, Reach, Status, TierAnswer
from service.ranking.plan import CANDIDATES, CANDIDATES_IN_WINDOW, effective_weights, make_plan, speaking

DEFAULTS = {"keyword": 0.3, "vector": 0.6, "graph": 0.1}
weight = st.floats(1e-6, 1e6)


def plan(
    weights: dict[str, float] | None = None, limit: int = 10, chosen: Filter | None = None, ms: int | None = None
) -> Plan:
    options = RankingOptions(weights=weights or {})
    query = Query(Reach("t"), "q", ("default",), limit, ranking=options, filter=chosen or Filter(), timeout_ms=ms)
    return make_plan(query, DEFAULTS, timeout_ms=250)


def test_without_weights_the_defaults_hold() -> None:
    assert plan().weights == DEFAULTS


def test_weights_override_key_by_key() -> None:
    assert plan({"graph": 0.5}).weights == {"keyword": 0.3, "vector": 0.6, "graph": 0.5}


def test_a_tier_of_weight_zero_is_not_asked() -> None:
    assert plan({"vector": 0}).weights == {"keyword": 0.3, "graph": 0.1}


def test_a_tier_that_is_off_by_default_can_be_switched_on() -> None:
    query = Query(Reach("t"), "q", ("default",), ranking=RankingOptions(weights={"graph": 0.2}))
    assert make_plan(query, {"keyword": 1.0, "graph": 0.0}, timeout_ms=1).weights == {"keyword": 1.0, "graph": 0.2}


def test_the_order_of_tiers_is_that_of_the_defaults() -> None:
    assert list(plan({"graph": 1, "keyword": 1}).weights) == list(DEFAULTS)


def test_an_unknown_tier_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidInput, match="'fuzzy'; there are keyword, vector, graph") as refused:
        plan({"fuzzy": 0.5})
    assert refused.value.field == "weights"


@pytest.mark.parametrize("bad", [-0.1, -1e-300, float("nan"), float("inf"), -float("inf"), 1e7, 1e-7])
def test_a_weight_that_no_sum_can_hold_is_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match=r"must be 0, or from 0\.000001 to 1000000") as refused:
        plan({"vector": bad})
    assert refused.value.field == "weights.vector"


def test_all_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one tier"):
        plan({"keyword": 0, "vector": 0, "graph": 0})


@given(st.integers(1, 100))
def test_the_depth_is_one_for_every_limit_and_holds_a_page(limit: int) -> None:
    assert plan(limit=limit).candidates == CANDIDATES >= limit


def test_a_limit_beyond_the_depth_still_fits() -> None:
    assert plan(limit=CANDIDATES + 1).candidates == CANDIDATES + 1


@pytest.mark.parametrize("bound", ["created_after", "created_before"])
def test_a_creation_window_asks_for_more(bound: str) -> None:
    window = Filter(**{bound: datetime(2026, 1, 1, tzinfo=UTC)})
    assert plan(chosen=window).candidates == CANDIDATES_IN_WINDOW > CANDIDATES


def test_the_time_out_is_the_callers_or_the_default() -> None:
    assert plan().timeout_ms == 250
    assert plan(ms=40).timeout_ms == 40


def test_a_missing_tier_gives_its_weight_to_the_others_in_proportion() -> None:
    # 0.3 : 0.1 share 1.0, so each grows by 1.0 / 0.4 = 2.5
    assert effective_weights(DEFAULTS, {"keyword", "graph"}) == {"keyword": 0.75, "graph": 0.25}


def test_the_sum_of_the_requested_weights_stays_when_it_is_not_one() -> None:
    # 1 : 3 share 8, so each grows by 8 / 4 = 2
    assert effective_weights({"keyword": 1, "vector": 4, "graph": 3}, ["keyword", "graph"]) == {
        "keyword": 2,
        "graph": 6,
    }


def test_where_all_answered_nothing_changes() -> None:
    assert effective_weights(DEFAULTS, set(DEFAULTS)) == DEFAULTS


def test_where_none_answered_nothing_is_left() -> None:
    assert effective_weights(DEFAULTS, ()) == {}


def test_a_tier_nobody_asked_for_gets_no_weight() -> None:
    assert effective_weights({"keyword": 0.5}, {"keyword", "vector"}) == {"keyword": 0.5}


def test_a_weight_of_zero_takes_no_share() -> None:
    assert effective_weights({"keyword": 0.0, "vector": 1.0}, {"keyword"}) == {}


@given(st.fixed_dictionaries(dict.fromkeys(DEFAULTS, weight)), st.sets(st.sampled_from(sorted(DEFAULTS)), min_size=1))
def test_the_sum_and_the_proportions_survive_any_loss(weights: dict[str, float], answered: set[str]) -> None:
    shared = effective_weights(weights, answered)
    assert set(shared) == answered
    assert sum(shared.values()) == pytest.approx(sum(weights.values()))
    growth = {shared[tier] / weights[tier] for tier in answered}
    assert max(growth) == pytest.approx(min(growth))


def test_what_found_nothing_has_nothing_to_say() -> None:
    found = TierAnswer("keyword", Status.OK, (Hit("a", 1.0),))
    silent = [TierAnswer("vector", Status.EMPTY), TierAnswer("graph", Status.TIMEOUT)]
    assert speaking([found, *silent]) == ["keyword"]
    assert speaking(silent) == ["vector"], "where none found anything, those that answered keep their weights"
    assert speaking([]) == []


def test_to_require_a_tier_that_is_not_asked_is_refused() -> None:
    off = RankingOptions(weights={"graph": 0})
    query = Query(Reach("t"), "q", ("default",), ranking=off, require=("keyword", "graph"))
    with pytest.raises(InvalidInput, match="require: graph would not be asked"):
        make_plan(query, DEFAULTS, timeout_ms=1)
