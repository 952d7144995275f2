"""Cursors: only ours, only for the caller and the search they came from."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cursors import Cursors
from service.errors import InvalidInput
from service.model import Filter, Query, Reach

CURSORS = Cursors(b"secret")
REACH = Reach("4c1f6c5e-0000-4000-8000-000000000001", None, ("notes",))
QUERY = Query(REACH, "walrus", ("notes",))


@given(st.sets(st.text(max_size=20), max_size=30))
def test_what_was_sealed_is_what_is_opened(ids: set[str]) -> None:
    marks = {CURSORS.mark(id) for id in ids}
    assert CURSORS.open(QUERY, CURSORS.seal(QUERY, marks)) == marks


def test_the_limit_and_the_manner_of_answering_may_change_between_pages() -> None:
    cursor = CURSORS.seal(QUERY, [])
    other = replace(QUERY, limit=50, explain=True, timeout_ms=9, allow_degraded=False, no_cache=True, cursor=cursor)
    assert CURSORS.open(other, cursor) == frozenset()


@pytest.mark.parametrize(
    "other",
    [
        replace(QUERY, text="seal"),
        replace(QUERY, namespaces=None),
        replace(QUERY, options={"weights": {"keyword": 1.0}}),
        replace(QUERY, filter=Filter(any_of=(("t:note",),))),
        replace(QUERY, vector=(1.0, 0.0)),
        replace(QUERY, reach=replace(REACH, tenant="4c1f6c5e-0000-4000-8000-000000000002")),
        replace(QUERY, reach=replace(REACH, project="aside")),
        replace(QUERY, reach=replace(REACH, namespaces=None)),
    ],
)
def test_a_cursor_of_another_search_or_caller_is_refused(other: Query) -> None:
    with pytest.raises(InvalidInput, match="belongs to another search"):
        CURSORS.open(other, CURSORS.seal(QUERY, []))


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_cursor_with_any_byte_changed_is_refused(at: int, by: int) -> None:
    whole = bytearray(base64.urlsafe_b64decode(CURSORS.seal(QUERY, [CURSORS.mark("a")]) + "=="))
    whole[at % len(whole)] ^= by
    with pytest.raises(InvalidInput, match="begin again"):
        CURSORS.open(QUERY, base64.urlsafe_b64encode(whole).rstrip(b"=").decode())


@given(st.text(max_size=100))
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        CURSORS.open(QUERY, text)


def test_another_services_secret_makes_other_cursors() -> None:
    with pytest.raises(InvalidInput, match="begin again"):
        CURSORS.open(QUERY, Cursors(b"other").seal(QUERY, []))


def test_a_cursor_tells_no_ids() -> None:
    cursor = CURSORS.seal(QUERY, [CURSORS.mark("a-telling-id")])
    assert b"telling" not in base64.urlsafe_b64decode(cursor + "==")
