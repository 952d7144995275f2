"""Weighted fusion, with sums worked by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from service.model import Contribution, Hit, Ranked, Status, Step, TierAnswer
from service.ranking.fusion import fuse
from tests.unit.every_fusion import EVERY, Fusion, recomputed

WEIGHTS = {"keyword": 0.3, "vector": 0.6, "graph": 0.1}


def answer(tier: str, status: Status = Status.OK, **scores: float) -> TierAnswer:
    return TierAnswer(tier, status, tuple(Hit(id_, score) for id_, score in scores.items()))


def ids(ranked: Iterable[Ranked]) -> list[str]:
    return [each.id for each in ranked]


def test_scores_are_the_sums_of_weight_times_normalised_score() -> None:
    ranked = fuse(
        [answer("keyword", a=10, b=6, c=2), answer("vector", b=0.75, c=0.5, d=0.25), answer("graph", a=1)], WEIGHTS
    )
    # keyword: a 1, b (6-2)/8 = 1/2, c floor; vector: b 1, c 1/2, d floor; graph: a alone, 1
    expected = {
        "b": 0.3 * (1 / 2) + 0.6 * 1,  # 0.75
        "a": 0.3 * 1 + 0.1 * 1,  # 0.4
        "c": 0.3 * 0.001 + 0.6 * (1 / 2),  # 0.3003
        "d": 0.6 * 0.001,  # 0.0006
    }
    assert ids(ranked) == ["b", "a", "c", "d"]
    assert {each.id: each.score for each in ranked} == pytest.approx(expected, rel=1e-15)


def test_a_result_says_what_each_tier_gave_it() -> None:
    path = (Step("names", "Wren", 1.0), Step("cites", "b", 0.5))
    graph = TierAnswer("graph", Status.OK, (Hit("a", 1.0), Hit("b", 0.5, path), Hit("c", 0.0)))
    by_id = {each.id: each.tiers for each in fuse([graph, answer("keyword", b=4)], {"keyword": 2, "graph": 0.5})}
    assert by_id["b"] == {
        "keyword": Contribution(1, 4, 1.0, 2, 1.0, 2.0, "all_equal"),
        "graph": Contribution(2, 0.5, 0.5, 0.5, 0.5, 0.25, "minmax", path),
    }
    assert by_id["c"] == {"graph": Contribution(3, 0.0, 0.001, 0.5, 0.001, 0.0005, "floor")}


def test_the_sum_is_exact() -> None:
    # Left to right, 0.1 + 0.2 + 0.3 is 0.6000000000000001
    [only] = fuse([answer(tier, a=1) for tier in "xyz"], {"x": 0.1, "y": 0.2, "z": 0.3})
    assert only.score == math.fsum([0.1, 0.2, 0.3]) == 0.6


def test_ranks_count_from_one_by_score_and_then_by_id() -> None:
    ranked = fuse([answer("keyword", c=1, b=1, a=0, d=2)], {"keyword": 1})
    assert [(each.id, each.tiers["keyword"].rank) for each in ranked] == [("d", 1), ("b", 2), ("c", 3), ("a", 4)]


def test_a_tie_goes_to_the_higher_single_tier_score() -> None:
    # z, third of its tier: 3/4 from one; a, second of its tiers: 2/4 + 1/4 from two
    answers = [answer("keyword", p=4, q=3.5, z=3, o=0), answer("vector", r=4, a=2, o=0), answer("graph", s=4, a=1, o=0)]
    by_id = {each.id: each.score for each in fuse(answers, {"keyword": 1, "vector": 1, "graph": 1})}
    assert by_id["z"] == by_id["a"] == 3 / 4
    assert list(by_id) == ["p", "r", "s", "q", "z", "a", "o"]


def test_a_full_tie_goes_by_id_even_across_tiers() -> None:
    ranked = fuse([answer("vector", c=1), answer("keyword", d=7, b=7, a=7)], {"keyword": 1, "vector": 1})
    assert ids(ranked) == ["a", "b", "c", "d"]


def test_what_the_floor_makes_equal_keeps_the_tiers_order() -> None:
    ranked = fuse([answer("vector", a=0, b=0.0001, z=0.0002, top=1)], {"vector": 1})
    assert ids(ranked) == ["top", "z", "b", "a"]
    assert [each.score for each in ranked] == [1.0, 0.001, 0.001, 0.001]


def test_what_is_as_good_as_equal_keeps_the_tiers_order() -> None:
    assert ids(fuse([answer("vector", a=0.5, b=0.5 + 1e-12)], {"vector": 1})) == ["b", "a"]


def test_one_tier_lists_a_document_once_with_its_best_score() -> None:
    hits = (Hit("a", 1), Hit("b", 2), Hit("a", 3))
    ranked = fuse([TierAnswer("keyword", Status.OK, hits)], {"keyword": 1})
    assert [(each.id, each.tiers["keyword"].raw) for each in ranked] == [("a", 3), ("b", 2)]


@pytest.mark.parametrize("fusion", EVERY.values(), ids=EVERY)
class TestEveryFusion:
    """What holds for every method with every normaliser."""

    def test_no_answers_give_no_results(self, fusion: Fusion) -> None:
        assert list(fusion([], WEIGHTS)) == []
        assert list(fusion([answer("keyword", Status.EMPTY)], WEIGHTS)) == []

    def test_a_tier_without_weight_adds_nothing(self, fusion: Fusion) -> None:
        keyword, vector = answer("keyword", a=1, b=2), answer("vector", a=9, c=1)
        assert list(fusion([keyword, vector], {"keyword": 1})) == list(fusion([keyword], {"keyword": 1}))

    def test_a_tier_that_did_not_answer_adds_nothing(self, fusion: Fusion) -> None:
        late = answer("vector", Status.TIMEOUT, a=9)
        assert ids(fusion([answer("keyword", b=1), late], WEIGHTS)) == ["b"]

    def test_scores_that_are_no_numbers_are_left_out(self, fusion: Fusion) -> None:
        keyword = answer("keyword", a=math.nan, b=math.inf, c=-math.inf, d=1)
        assert ids(fusion([keyword], WEIGHTS)) == ["d"]

    def test_the_score_is_what_its_explanation_comes_to(self, fusion: Fusion) -> None:
        for each in fusion([answer("keyword", a=3, b=1), answer("vector", b=3, a=2, c=1)], WEIGHTS):
            assert each.score == recomputed(each)
            assert all(share.contribution == share.weight * share.share for share in each.tiers.values())

    def test_a_page_is_a_slice_of_the_whole_ranking(self, fusion: Fusion) -> None:
        ranking = fusion([answer("keyword", a=3, b=1, d=2), answer("vector", b=3, a=2, c=1)], WEIGHTS)
        whole = list(ranking)
        assert len(ranking) == len(whole) == 4
        assert ranking[1:3] == whole[1:3]
        assert ranking[2:9] == whole[2:]
        assert ranking[-1] == whole[-1]
