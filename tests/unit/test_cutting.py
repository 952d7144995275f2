"""What is left out of a ranking on purpose: confidence, caps, groups, near-duplicates; and diversity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.facets import type_facet
from service.model import Facts, Filter, GroupOptions, Hit, RankingOptions, Status, TierAnswer
from service.ranking.confidence import badge, confidences, least_confidence
from service.ranking.cutting import capped, confident, grouped, limited, of_types
from service.ranking.diversity import POOL, collapsed, diversified, likeness, text_of
from service.ranking.fusion import fuse
from service.ranking.woven import Ranking

ids_of_some = st.lists(st.sampled_from("abcdefghij"), unique=True)
kinds = st.dictionaries(st.sampled_from("abcdefghij"), st.sampled_from([None, "note", "log"]))


def answer(tier: str, **scores: float) -> TierAnswer:
    return TierAnswer(tier, Status.OK, tuple(Hit(id_, score) for id_, score in scores.items()))


def both(*answers: TierAnswer) -> Ranking:
    return fuse(answers, {"keyword": 0.5, "vector": 0.4, "graph": 0.1})


def test_confidence_is_the_best_absolute_evidence() -> None:
    ranking = both(answer("keyword", a=6, b=3), answer("vector", b=0.7, c=0.2), answer("graph", d=1.0))
    assert confidences(ranking, 12.0) == {"a": 0.5, "b": 0.7, "c": 0.2, "d": 0.0}
    assert confidences(ranking, None) == {"a": 0.0, "b": 0.7, "c": 0.2, "d": 0.0}
    assert confidences(ranking, 12.0, {"d": 0.9})["d"] == 0.9


def test_badges() -> None:
    assert [badge(each) for each in (1.0, 0.7, 0.69, 0.45, 0.44, 0.0)] == ["HIGH", "HIGH", "MED", "MED", "LOW", "LOW"]


@given(
    words=st.dictionaries(st.sampled_from("abc"), st.floats(0, 20)),
    meaning=st.dictionaries(st.sampled_from("abc"), st.floats(0, 1)),
    most=st.floats(0.1, 20),
)
def test_a_degraded_answer_is_never_surer_than_the_whole_one(
    words: dict[str, float], meaning: dict[str, float], most: float
) -> None:
    whole = confidences(both(answer("keyword", **words), answer("vector", **meaning)), most)
    for some in ([answer("keyword", **words)], [answer("vector", **meaning)]):
        assert all(each <= whole[id_] for id_, each in confidences(both(*some), most).items())


def test_strict_leaves_out_what_would_be_low() -> None:
    assert least_confidence(strict=False, min_confidence=0.0) == 0.0
    assert least_confidence(strict=True, min_confidence=0.2) == 0.45
    assert least_confidence(strict=True, min_confidence=0.9) == 0.9
    cut = confident(["a", "b"], {"a": 0.3, "b": 0.5}, 0.45)
    assert cut == (["b"], {"a": "confidence 0.300 is below 0.45"})


def test_groups_keep_their_best() -> None:
    groups = {"a": "x", "b": "x", "c": "y", "d": None, "e": "x"}
    assert grouped("abcde", groups, 1) == (["a", "c", "d"], dict.fromkeys("be", "1 better of the group 'x' are there"))
    assert grouped("abcde", groups, 2).kept == ["a", "b", "c", "d"]


def test_a_capped_type_waits_until_it_may() -> None:
    # Half of n: one of the first three, two of the first four.
    types = {"a": "note", "b": "note", "c": "note"}
    assert capped("abcxyz", types, {"note": 0.5}).kept == ["a", "x", "y", "b", "z", "c"]
    left = capped("abc", types, {"note": 0.5}).dropped
    assert left == dict.fromkeys("bc", "results of type 'note' are capped at 0.5")


@given(ids=ids_of_some, types=kinds, share=st.floats(0.01, 1))
def test_every_page_keeps_to_the_cap_and_loses_nothing_else(
    ids: list[str], types: dict[str, str | None], share: float
) -> None:
    kept, dropped = capped(ids, types, {"note": share})
    for size in range(1, len(kept) + 1):
        assert sum(types.get(id_) == "note" for id_ in kept[:size]) <= max(1, share * size + 1e-6)
    assert sorted([*kept, *dropped]) == sorted(ids)
    assert all(types[id_] == "note" for id_ in dropped)


def test_caps_come_before_groups() -> None:
    facts = {id_: Facts("n", type=kind, group=group) for id_, kind, group in ["aNx", "bNx", "cLx", "dLy"]}
    options = RankingOptions(type_cap={"N": 0.5}, group_by=GroupOptions("metadata.g", 1))
    *_, last = limited("abcd", facts, options)
    assert last.kept == ["a", "d"]
    by_type = limited("abcd", facts, RankingOptions(group_by=GroupOptions("type", 1)))
    assert [cut.kept for cut in by_type] == [["a", "c"]]


def test_types_become_part_of_the_filter() -> None:
    base = Filter(any_of=(("#:red",),))
    assert of_types(base, RankingOptions()) is base
    made = of_types(base, RankingOptions(include_types=("note", "log"), exclude_types=("draft",)))
    assert made.any_of == (("#:red",), (type_facet("note"), type_facet("log")))
    assert made.none_of == (Filter(any_of=((type_facet("draft"),),)),)


def test_likeness_is_shared_words_to_all_words() -> None:
    assert likeness(text_of("Red pump", ""), text_of("", "red valve")) == pytest.approx(1 / 3)
    assert likeness(text_of("A b", ""), text_of("a", "B")) == 1.0
    assert likeness(text_of("", ""), text_of("", "")) == 0.0


def test_a_near_duplicate_of_a_better_one_is_left_out() -> None:
    texts = {"a": text_of("one two three four", ""), "b": text_of("one two three four five", ""), "c": text_of("x", "")}
    assert collapsed("abc", texts, 0.8) == (["a", "c"], {"b": "nearly the same as 'a'"})
    assert collapsed("abc", texts, 0.81).kept == ["a", "b", "c"]


def test_diversity_takes_what_is_new() -> None:
    texts = {"a": text_of("one two", ""), "b": text_of("one two", ""), "c": text_of("three", "")}
    scores = {"a": 1.0, "b": 0.9, "c": 0.5}
    # After a: b has 0.5 * 0.9 - 0.5 * 1, c has 0.5 * 0.5.
    assert diversified("abc", scores, texts, 0.5) == ["a", "c", "b"]
    assert diversified("abc", scores, texts, 0.0) == ["a", "b", "c"]


def test_only_the_pool_is_compared() -> None:
    ids = [f"d{number:03}" for number in range(POOL + 5)]
    texts = dict.fromkeys(ids, text_of("same", ""))
    assert collapsed(ids, texts, 0.9).kept == [ids[0], *ids[POOL:]]
    assert diversified(ids, dict.fromkeys(ids, 1.0), texts, 1.0) == ids
