"""Answers kept in memory: whose, for how long, how many, and which questions count as the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model import Query, Reach
from service.recall import exact_key, firm_words, scope_key
from service.stores.cache import AnswerCache, Kept, unit

QUERY = Query(Reach("4c1f6c5e-0000-4000-8000-000000000001"), "walrus on ice", None)
NONE = b""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def cache_of(max_bytes: int = 100_000) -> tuple[AnswerCache, Clock]:
    clock = Clock()
    return AnswerCache(max_bytes, 60, clock), clock


def kept(body: bytes = b"{}", vector: list[float] | None = None, scope: bytes = b"s", firm: bytes = NONE) -> Kept:
    return Kept(body, ("a",), scope, firm, None if vector is None else unit(vector))


class TestTheSameQuestion:
    def test_is_answered_from_memory_for_its_tenant_only(self) -> None:
        cache, _ = cache_of()
        cache.keep("ada", 1, b"k", kept(b"ada's"))
        assert cache.exact("ada", 1, b"k") == kept(b"ada's")
        assert cache.exact("bob", 1, b"k") is None

    def test_not_after_a_write(self) -> None:
        cache, _ = cache_of()
        cache.keep("ada", 1, b"k", kept())
        assert cache.exact("ada", 2, b"k") is None
        assert cache.bytes_held == 0

    def test_a_search_that_began_before_a_write_is_not_remembered_after_it(self) -> None:
        cache, _ = cache_of()
        cache.keep("ada", 2, b"new", kept())
        cache.keep("ada", 1, b"old", kept())
        assert cache.exact("ada", 1, b"old") is None
        assert cache.exact("ada", 2, b"old") is None
        assert cache.exact("ada", 2, b"new") is not None

    def test_a_caller_who_read_an_old_epoch_gets_nothing_newer_and_clears_nothing(self) -> None:
        cache, _ = cache_of()
        cache.keep("ada", 2, b"k", kept())
        assert cache.exact("ada", 1, b"k") is None
        assert cache.exact("ada", 2, b"k") is not None

    def test_not_when_it_is_too_old(self) -> None:
        cache, clock = cache_of()
        cache.keep("ada", 1, b"k", kept())
        clock.now = 60
        assert cache.exact("ada", 1, b"k") is None
        assert cache.bytes_held == 0


class TestTheSameMeaning:
    def test_is_a_cosine_above_the_bound(self) -> None:
        cache, _ = cache_of()
        cache.keep("ada", 1, b"k", kept(vector=[1.0, 0.0]))
        assert cache.near("ada", 1, b"s", NONE, [0.8, 0.6], 0.79) is not None
        assert cache.near("ada", 1, b"s", NONE, [0.8, 0.6], 0.81) is None

    def test_the_nearest_answers(self) -> None:
        cache, _ = cache_of()
        cache.keep("ada", 1, b"far", kept(b"far", [0.8, 0.6]))
        cache.keep("ada", 1, b"near", kept(b"near", [1.0, 0.0]))
        cache.keep("ada", 1, b"farther", kept(b"farther", [0.6, 0.8]))
        found = cache.near("ada", 1, b"s", NONE, [2.0, 0.1], 0.5)
        assert found is not None
        assert found.body == b"near"

    @pytest.mark.parametrize(
        ("tenant", "epoch", "scope", "firm"),
        [
            ("bob", 1, b"s", NONE),
            ("ada", 2, b"s", NONE),
            ("ada", 1, b"t", NONE),
            ("ada", 1, b"s", b"204"),
        ],
    )
    def test_only_of_the_same_tenant_epoch_scope_and_firm_words(
        self, tenant: str, epoch: int, scope: bytes, firm: bytes
    ) -> None:
        cache, _ = cache_of()
        cache.keep("ada", 1, b"k", kept(vector=[1.0, 0.0]))
        assert cache.near(tenant, epoch, scope, firm, [1.0, 0.0], 0.5) is None

    def test_a_vector_without_direction_means_nothing(self) -> None:
        cache, _ = cache_of()
        cache.keep("ada", 1, b"k", kept(vector=[1.0, 0.0]))
        assert cache.near("ada", 1, b"s", NONE, [0.0, 0.0], 0.0) is None

    def test_not_when_it_is_too_old(self) -> None:
        cache, clock = cache_of()
        cache.keep("ada", 1, b"k", kept(vector=[1.0, 0.0]))
        clock.now = 61
        assert cache.near("ada", 1, b"s", NONE, [1.0, 0.0], 0.5) is None


class TestMemory:
    def test_what_was_used_longest_ago_goes_first(self) -> None:
        one = kept(b"x" * 1000)
        cache, _ = cache_of(3 * one.size)
        for key in (b"a", b"b", b"c"):
            cache.keep("ada", 1, key, one)
        cache.exact("ada", 1, b"a")
        cache.keep("bob", 7, b"d", one)
        assert [cache.exact("ada", 1, key) is not None for key in (b"a", b"b", b"c")] == [True, False, True]
        assert cache.exact("bob", 7, b"d") is not None

    def test_one_answer_cannot_push_out_all_others(self) -> None:
        cache, _ = cache_of(10_000)
        cache.keep("ada", 1, b"small", kept())
        cache.keep("ada", 1, b"huge", kept(b"x" * 9_000))
        assert cache.exact("ada", 1, b"small") is not None
        assert cache.exact("ada", 1, b"huge") is None

    @given(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 5), st.integers(0, 3000)), max_size=60
        )
    )
    def test_never_more_than_its_bound_and_never_another_epochs(self, writes: list[tuple[str, int, int, int]]) -> None:
        cache, _ = cache_of(12_000)
        for tenant, epoch, key, size in writes:
            cache.keep(tenant, epoch, bytes([key]), kept(f"{tenant} {epoch}".encode() + b" " * size))
            found = cache.exact(tenant, epoch, bytes([key]))
            assert found is None or found.body.split()[:2] == [tenant.encode(), str(epoch).encode()]
            assert cache.bytes_held <= 12_000
            assert cache.bytes_held == sum(
                answer.size for shelf in cache._shelves.values() for _, answer in shelf.answers.values()
            )


class TestKeys:
    @pytest.mark.parametrize(
        "other",
        [
            replace(QUERY, limit=5),
            replace(QUERY, explain=True),
            replace(QUERY, namespaces=("a",)),
            replace(QUERY, cursor="x"),
            replace(QUERY, options={"weights": {"keyword": 1.0}}),
            replace(QUERY, reach=replace(QUERY.reach, namespaces=("a",))),
            replace(QUERY, reach=replace(QUERY.reach, project="p")),
        ],
    )
    def test_a_question_with_another_scope_is_another_question(self, other: Query) -> None:
        assert exact_key(other) != exact_key(QUERY)
        assert scope_key(other) != scope_key(QUERY)

    def test_words_are_no_part_of_the_scope(self) -> None:
        other = replace(QUERY, text="a walrus upon the ice", vector=(1.0, 0.0))
        assert exact_key(other) != exact_key(QUERY)
        assert scope_key(other) == scope_key(QUERY)

    def test_patience_is_no_part_of_the_question(self) -> None:
        assert exact_key(replace(QUERY, timeout_ms=5, allow_degraded=False)) == exact_key(QUERY)

    @pytest.mark.parametrize(
        ("text", "firm"),
        [
            ("what keeps the antenna warm", set()),
            ("pump P-204 in 2026", {"p-204", "2026"}),
            ("seals that do not dive", {"not"}),
            ('"exact phrase"', None),
            ("walrus -seal", None),
        ],
    )
    def test_firm_words_are_numbers_and_negations_and_the_query_language_is_firm_as_a_whole(
        self, text: str, firm: set[str] | None
    ) -> None:
        assert firm_words(text) == firm


def test_a_unit_vector_has_length_one() -> None:
    assert unit([3.0, 4.0]) == pytest.approx(np.array([0.6, 0.8], np.float32))
    assert unit([0.0, 0.0]) is None
