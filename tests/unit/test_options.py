"""Options, settled from layers: service, tenant, namespace, call."""

from __future__ import annotations

import pytest

from service.errors import InvalidInput
from service.model import FusionOptions, RankingOptions, ShapingOptions
from service.ranking.options import merge, settle
from service.ranking.profiles import PROFILES


def test_nothing_asked_for_is_every_default() -> None:
    assert settle([]) == settle([{}, {}]) == RankingOptions()


def test_the_last_layer_wins_option_by_option() -> None:
    service = {"fusion": {"method": "rrf", "k": 10}, "shaping": {"confidence": 0.2}}
    call = {"fusion": {"method": "weighted_rrf"}, "shaping": {}}
    settled = settle([service, call])
    assert settled.fusion == FusionOptions("weighted_rrf", k=10)
    assert settled.shaping == ShapingOptions(confidence=0.2)


def test_weights_are_merged_tier_by_tier() -> None:
    assert settle([{"weights": {"keyword": 1, "graph": 2}}, {"weights": {"graph": 3}}]).weights == {
        "keyword": 1,
        "graph": 3,
    }


def test_a_profile_lies_beneath_its_own_layer_and_above_those_before() -> None:
    settled = settle([{"weights": {"vector": 7, "graph": 7}}, {"profile": "exact", "weights": {"graph": 0.5}}])
    assert settled.weights == {"keyword": 1.0, "vector": 0.0, "graph": 0.5}
    assert settled.profile == "exact"


def test_a_layer_may_bring_profiles_of_its_own_and_replace_ours() -> None:
    own = {"profiles": {"fresh": {"fusion": {"method": "l2"}}, "exact": {"weights": {"keyword": 2}}}}
    assert settle([own, {"profile": "fresh"}]).fusion.method == "l2"
    assert settle([own, {"profile": "exact"}]).weights == {"keyword": 2}


def test_a_later_profile_replaces_what_an_earlier_one_said() -> None:
    assert settle([{"profile": "exact"}, {"profile": "roaming"}]).weights == PROFILES["roaming"]["weights"]


def test_an_unknown_profile_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidInput, match="'exakt'; there are balanced, exact, mine, roaming, semantic") as refused:
        settle([{"profiles": {"mine": {}}}, {"profile": "exakt"}])
    assert refused.value.field == "profile"


def test_what_a_newer_version_stored_is_left_out() -> None:
    assert settle([{"novelty": 1, "fusion": {"method": "l2", "spin": 2}}]).fusion == FusionOptions("l2")


def test_lists_become_tuples_so_that_options_can_be_compared() -> None:
    assert settle([{"fusion": {"bounds": {"keyword": [0, 9]}}}]).fusion.bounds == {"keyword": (0, 9)}


def test_merging_changes_neither_side() -> None:
    under, over = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge(under, over) == {"a": {"b": 1, "c": 2}}
    assert (under, over) == ({"a": {"b": 1}}, {"a": {"c": 2}})


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_of_ours_names_every_tier(name: str) -> None:
    assert set(settle([{"profile": name}]).weights) == {"keyword", "vector", "graph"}
