"""What moves a candidate after fusion: each formula with numbers worked by hand, and what holds for all of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.model import Facts, Hit, Query, RankingOptions, Reach, ShapingOptions, Status, TierAnswer
from service.ranking.fusion import fuse
from service.ranking.question import is_question, question_weights
from service.ranking.shaping import access, affinity, confidence, length_penalty, needs_facts, priority, recency, shape
from service.ranking.woven import Ranking
from tests.unit.every_fusion import EVERY, recomputed

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def answer(tier: str, **scores: float) -> TierAnswer:
    return TierAnswer(tier, Status.OK, tuple(Hit(id_, score) for id_, score in scores.items()))


# Fused: a 0.5 + 0.5, b 0.25 + 0.0005, k 0.0005
FUSED = fuse([answer("keyword", a=4, b=3, k=2), answer("vector", a=0.8, b=0.2)], {"keyword": 0.5, "vector": 0.5})


def shaped(facts: dict[str, Facts], text: str = "pump", **options: Any) -> Ranking:
    query = Query(Reach("t"), text, None, ranking=RankingOptions(shaping=ShapingOptions(**options)))
    return shape(FUSED, facts, query, NOW)


def factor(facts: Facts, text: str = "pump", **options: Any) -> float:
    """What the score of `a`, which is 1, is multiplied by."""
    return next(each.score for each in shaped({"a": facts}, text, **options) if each.id == "a")


def test_everything_is_off_by_default_and_needs_to_know_nothing() -> None:
    assert not needs_facts(RankingOptions())
    assert list(shaped({"a": Facts("n", "pump", 9999, "note", 0.1, 1, NOW, 1.0, "g", 99)})) == list(FUSED)


def test_confidence_is_two_fifths_and_three_fifths_of_itself() -> None:
    assert [confidence(Facts("n", confidence=each)) for each in (0.0, 0.5, 1.0)] == [0.4, 0.7, 1.0]
    assert factor(Facts("n", confidence=0.5), confidence=1.0) == pytest.approx(0.7)
    assert factor(Facts("n", confidence=0.5), confidence=0.5) == pytest.approx(0.85)
    assert factor(Facts("n"), confidence=1.0) == 1.0


def test_priorities_multiply() -> None:
    assert [priority(Facts("n", priority=each)) for each in (1, 2, 3, 4)] == [1.3, 1.15, 1.0, 0.85]
    assert factor(Facts("n", priority=1), priority=1.0) == pytest.approx(1.3)


def test_recency_halves_with_every_half_life() -> None:
    ages = [recency(Facts("n", created_at=NOW - timedelta(days=days)), NOW, 30) for days in (0, 30, 60, -5)]
    assert ages == [1.0, 0.5, 0.25, 1.0]
    old = Facts("n", created_at=NOW - timedelta(days=10))
    assert factor(old, recency=0.5, half_life_days=10) == pytest.approx(1 - 0.5 * 0.5)


def test_recency_can_count_a_callers_own_cycles() -> None:
    assert factor(Facts("n", cycle=60), recency=1.0, current_cycle=100, half_life_cycles=20) == pytest.approx(0.25)
    assert factor(Facts("n", cycle=120), recency=1.0, current_cycle=100) == 1.0
    assert factor(Facts("n", created_at=NOW - timedelta(days=900)), recency=1.0, current_cycle=100) == 1.0


def test_access_doubles_a_score_after_twenty() -> None:
    assert [access(Facts("n", accesses=each)) for each in (0, 20, 5000)] == [None, 2.0, 2.0]
    assert access(Facts("n", accesses=3)) == pytest.approx(1 + math.log(4) / math.log(21))


def test_types_and_namespaces_have_factors() -> None:
    assert factor(Facts("n", type="note"), type_boost={"note": 1.5}) == pytest.approx(1.5)
    assert factor(Facts("n", type="log"), type_boost={"note": 1.5}) == 1.0
    assert [affinity("mine", 0.6, Facts(name)) for name in ("mine", "global", "yours")] == [None, None, 0.6]
    assert factor(Facts("yours"), affinity="mine") == pytest.approx(0.6)


def test_a_title_counts_by_the_share_of_the_querys_words() -> None:
    title = Facts("n", title="The Pump Handbook")
    assert factor(title, "pump bearing", title_boost=0.4) == pytest.approx(1 + 0.4 / 2)
    assert factor(title, "what is a pump", title_boost=0.4) == 1.0, "questions are not titles"


def test_the_blend_is_of_the_fused_score_and_the_raw_cosine() -> None:
    by_id = {each.id: each for each in shaped({}, blend=0.3)}
    assert by_id["a"].score == pytest.approx(0.7 * 1.0 + 0.3 * 0.8)
    assert by_id["k"].score == pytest.approx(0.7 * 0.0005), "no cosine is a cosine of 0"
    assert by_id["a"].adjustments[0].inputs == {"blend": 0.3, "cosine": 0.8, "length_penalty": 1.0}


def test_a_long_texts_cosine_counts_less() -> None:
    lengths = (0, 300, 600, 3000, 90_000)
    assert [length_penalty(Facts("n", length=each)) for each in lengths] == [1.0, 1.0, 0.5, 0.1, 0.1]
    long = {"a": Facts("n", length=600)}
    assert shaped(long, blend=0.5)[0].score == pytest.approx(0.5 + 0.5 * 0.8 * 0.5)
    assert shaped(long, blend=0.5, long_document_penalty=False)[0].score == pytest.approx(0.5 + 0.5 * 0.8)


def test_a_question_raises_the_blend() -> None:
    assert shaped({}, "where is it?", blend=0.2, question_blend=0.3)[0].score == pytest.approx(0.5 + 0.5 * 0.8)
    assert shaped({}, "it", blend=0.0, question_blend=0.3)[0].score == 1.0


def test_what_only_the_words_found_is_damped_where_meaning_found_something() -> None:
    assert {each.id: each.score for each in shaped({}, keyword_only_damping=0.5)}["k"] == pytest.approx(0.00025)
    alone = fuse([answer("keyword", k=2)], {"keyword": 1.0})
    query = Query(Reach("t"), "q", None, ranking=RankingOptions(shaping=ShapingOptions(keyword_only_damping=0.5)))
    assert shape(alone, None, query, NOW)[0].score == 1.0


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("what keeps it warm", True),
        ("Is it warm", True),
        ("pump?", True),
        ("暖かい？", True),
        ("island pump", False),
        ("what", False),
        ("how-to pump", False),
        ("", False),
    ],
)
def test_questions_are_known_by_how_they_begin_or_end(text: str, asks: bool) -> None:
    assert is_question(text) is asks


def test_a_question_scales_the_weights_of_words_and_meaning() -> None:
    options = ShapingOptions(question_fts_weight_scale=0.5, question_vector_weight_scale=2.0)
    weights = {"keyword": 0.4, "vector": 0.4, "graph": 0.2}
    assert question_weights(weights, "who is it?", options) == {"keyword": 0.2, "vector": 0.8, "graph": 0.2}
    assert question_weights(weights, "it", options) == weights


units = st.floats(0, 1)
facts = st.builds(
    Facts,
    namespace=st.sampled_from(["mine", "yours", "global"]),
    title=st.sampled_from(["", "pump", "the pump of hall b"]),
    length=st.integers(0, 10**6),
    type=st.sampled_from([None, "note", "log"]),
    confidence=st.none() | units,
    priority=st.none() | st.integers(1, 4),
    created_at=st.none() | st.datetimes().map(lambda each: each.replace(tzinfo=UTC)),
    cycle=st.none() | st.floats(-1e300, 1e300),
    accesses=st.integers(0, 10**9),
)
options = st.builds(
    ShapingOptions,
    blend=units,
    question_blend=units,
    keyword_only_damping=units,
    title_boost=st.floats(0, 10),
    confidence=units,
    priority=units,
    recency=units,
    half_life_days=st.floats(1e-6, 1e6),
    current_cycle=st.none() | st.integers(0, 2**53),
    access=units,
    type_boost=st.dictionaries(st.sampled_from(["note", "log"]), st.floats(0, 10)),
    affinity=st.none() | st.just("mine"),
)
scores = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1)
hits = st.lists(st.builds(Hit, st.sampled_from("abcdef"), scores), max_size=6).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    found=st.fixed_dictionaries({"keyword": hits, "vector": hits, "graph": hits}),
    known=st.dictionaries(st.sampled_from("abcdef"), facts),
    chosen=options,
    text=st.sampled_from(["pump", "where is the pump?"]),
    name=st.sampled_from(sorted(EVERY)),
)
def test_whatever_is_on_the_score_is_what_its_explanation_comes_to(
    found: dict[str, tuple[Hit, ...]], known: dict[str, Facts], chosen: ShapingOptions, text: str, name: str
) -> None:
    answers = [TierAnswer(tier, Status.OK if some else Status.EMPTY, some) for tier, some in found.items()]
    fused = EVERY[name](answers, {"keyword": 0.3, "vector": 0.6, "graph": 0.1})
    ranking = shape(fused, known, Query(Reach("t"), text, None, ranking=RankingOptions(shaping=chosen)), NOW)
    assert sorted(ranking.ids) == sorted(fused.ids)
    assert [each.score for each in ranking] == [recomputed(each) for each in ranking]
    assert all(math.isfinite(each.score) for each in ranking)
    assert [each.score for each in ranking] == sorted((each.score for each in ranking), reverse=True)
