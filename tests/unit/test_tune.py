"""`braid tune` without a Braid: what is learnt, and that nothing is learnt from the test."""

from __future__ import annotations

import random

import pytest

from service.errors import SetupError
from service.evaluation.candidates import Way, mean_ndcg, ndcg
from service.evaluation.measures import quality
from service.evaluation.tune import Tuned, every_option, every_way, halves, learn
from service.model import TIERS, FusionOptions, Hit, Status, TierAnswer
from tests.unit.every_fusion import OPTIONS

WEIGHTS = {"keyword": 0.65, "vector": 0.25, "graph": 0.1}
DICE = random.Random(7)
QUERIES = [f"q{number}" for number in range(40)]


def quiet(label: str, total: int) -> object:
    return lambda count: None


def answers(good: str, tier_that_knows: str) -> list[TierAnswer]:
    """Twenty documents at random, but the right one on top of one tier and at the bottom of the others."""
    noise = [f"d{number}" for number in range(20)]
    ranked = {tier: DICE.sample(noise, 20) for tier in TIERS}
    lists = {tier: [good, *ids] if tier == tier_that_knows else [*ids, good] for tier, ids in ranked.items()}
    return [
        TierAnswer(tier, Status.OK, tuple(Hit(id_, 1 - at / 30) for at, id_ in enumerate(ids)))
        for tier, ids in lists.items()
    ]


def test_ndcg_is_that_of_the_library() -> None:
    judged = {"q": {"a": 2, "b": 1, "c": 0, "d": 1}}
    for ids in (["a", "b", "d"], ["c", "d", "a"], ["x"], [f"n{n}" for n in range(10)] + ["a"], []):
        assert ndcg(ids, judged["q"]) == pytest.approx(quality(judged, {"q": ids or ["none"]}, 10).ndcg)


def test_every_method_is_compared_with_every_normaliser() -> None:
    assert {(each.method, each.normaliser) for each in every_option()} == {
        (each.method, each.normaliser) for each in OPTIONS.values()
    }
    first, *others = every_way(WEIGHTS)
    assert first == Way(FusionOptions(), WEIGHTS)
    assert {way.options.method for way in others} == {each.method for each in OPTIONS.values()}


def learnt(test_likes: str = "vector") -> Tuned:
    known, unseen = QUERIES[:20], QUERIES[20:]
    found = {query: answers("good", "vector" if query in known else test_likes) for query in QUERIES}
    sides = ({query: {"good": 1} for query in known}, {query: {"good": 1} for query in unseen})
    return learn("tiny", found, WEIGHTS, sides, quiet)  # type: ignore[arg-type]


def test_what_works_in_training_is_found_and_reported_on_both_sides() -> None:
    tuned = learnt()
    assert tuned.before[1].train < tuned.after[1].train == tuned.after[1].test == 1.0
    assert tuned.settings()["weights"]["vector"] > WEIGHTS["vector"]


def test_nothing_is_learnt_from_the_test() -> None:
    fooled = learnt(test_likes="keyword")
    assert fooled.after[1].train == 1.0
    assert fooled.after[1].test < 0.5
    assert fooled.settings()["weights"]["vector"] > WEIGHTS["vector"]


def test_a_mean_is_over_the_judged_queries_only() -> None:
    found = {"a": answers("good", "keyword"), "b": answers("good", "vector")}
    alone = Way(FusionOptions(), {"keyword": 1.0})
    assert mean_ndcg(alone, found, {"a": {"good": 1}}) == 1.0


def test_halves_are_the_same_every_time_and_share_nothing() -> None:
    judged = {query: {"x": 1} for query in QUERIES}
    one, other = halves(judged)
    assert not set(one) & set(other)
    assert set(one) | set(other) == set(QUERIES)
    assert halves(dict(reversed(judged.items()))) == (one, other)
    with pytest.raises(SetupError, match="too few"):
        halves({"q": {"x": 1}})
