"""Facets: one document, one set of strings, in every engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.facets import facets_of, numbers_of, value_facet, walk
from service.model import Document

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
nested = st.recursive(
    scalars,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=3), nested, max_size=3)


def test_a_document_carries_its_type_its_tags_its_values_and_its_keys() -> None:
    document = Document("a", type="note", tags=("urgent",), metadata={"author": "ada"})
    assert facets_of(document) == ("#:urgent", "k:author", 'm:author="ada"', "t:note")


def test_a_bare_document_carries_no_facet() -> None:
    assert facets_of(Document("a")) == ()


def test_repeats_are_carried_once() -> None:
    document = Document("a", tags=("x", "x"), metadata={"k": [1, 1.0, 1]})
    assert facets_of(document) == ("#:x", "k:k", "m:k=1")


def test_nested_keys_are_joined_with_a_dot() -> None:
    assert list(walk({"a": {"b": {"c": 1}, "d": 2}})) == [("a.b.c", 1), ("a.d", 2)]


def test_each_element_of_a_list_is_a_value_of_its_own() -> None:
    assert list(walk({"a": [1, "x", {"b": True}]})) == [("a", 1), ("a", "x"), ("a.b", True)]


@pytest.mark.parametrize(
    ("value", "facet"),
    [
        (1, "m:k=1"),
        (1.0, "m:k=1"),
        (-0.0, "m:k=0"),
        (1.5, "m:k=1.5"),
        (True, "m:k=true"),
        ("1", 'm:k="1"'),
        (None, "m:k=null"),
        ("é", 'm:k="é"'),
        ('a"b', 'm:k="a\\"b"'),
    ],
)
def test_a_value_has_one_spelling_that_keeps_its_type(value: str | float | bool | None, facet: str) -> None:
    assert value_facet("k", value) == facet


def test_numbers_are_kept_by_path_and_a_boolean_is_none() -> None:
    metadata = {"year": 2024, "size": {"w": 1.5}, "marks": [1, 2, "x"], "done": True, "title": "7"}
    assert numbers_of(metadata) == {"year": [2024.0], "size.w": [1.5], "marks": [1.0, 2.0]}


@given(objects)
def test_any_json_object_gives_sorted_unique_facets(metadata: dict[str, object]) -> None:
    facets = facets_of(Document("a", metadata=metadata))
    assert list(facets) == sorted(set(facets))


@given(objects)
def test_the_order_of_keys_changes_nothing(metadata: dict[str, object]) -> None:
    backwards = dict(reversed(metadata.items()))
    assert facets_of(Document("a", metadata=metadata)) == facets_of(Document("a", metadata=backwards))
