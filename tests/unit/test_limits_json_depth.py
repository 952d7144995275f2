"""The depth of JSON, told from its brackets alone, is the depth that a parser finds."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.limits import too_deep

TRICKY = st.text(alphabet='[]{}",:\\ aé\n', max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TRICKY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TRICKY, inner, max_size=3),
    max_leaves=20,
)


def depth(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


@given(VALUES, st.integers(1, 6), st.booleans())
def test_it_agrees_with_the_parser(value: Any, most: int, escaped: bool) -> None:
    assert too_deep(json.dumps(value, ensure_ascii=escaped).encode(), most) == (depth(value) > most)


@given(st.binary(max_size=200), st.integers(1, 6))
def test_any_bytes_are_told_about(body: bytes, most: int) -> None:
    too_deep(body, most)


@pytest.mark.parametrize("body", [b"[" * 100, b'{"a":' * 100, b"]" * 10 + b"[" * 100, b"[" * 100 + b"]" * 100])
def test_what_never_closes_is_too_deep_as_well(body: bytes) -> None:
    assert too_deep(body, 99)
    assert not too_deep(body, 100)


@pytest.mark.parametrize(
    "body", [b"[" * 2**19 + b"]" * 2**19, b'["' + b'\\"' * 2**19, b'["[",[],' * 2**16, b'"' * 2**20, b"\\" * 2**20]
)
def test_a_hostile_body_takes_no_longer_than_its_size(body: bytes) -> None:
    """A megabyte in well under a second: some 10 ms here, where looking at each start of a text again takes minutes."""
    started = time.perf_counter()
    too_deep(body, 32)
    assert time.perf_counter() - started < 1
