"""Facets: the strings and numbers by which a document can be filtered, the same in all three engines.

A document carries one facet string for its type (`t:note`), one for each tag (`#:urgent`), one for each
metadata value (`m:author="ada"`) and one for each metadata key (`k:author`). Nested objects join their keys
with a dot; each element of a list is a value of its own. Numbers are kept by path as well, for ranges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from service.model import Document

Scalar = str | int | float | bool | None


def type_facet(value: str) -> str:
    return f"t:{value}"


def tag_facet(value: str) -> str:
    return f"#:{value}"


def key_facet(path: str) -> str:
    return f"k:{path}"


def value_facet(path: str, value: Scalar) -> str:
    """Canonical: 1 and 1.0 are one value, true is not 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"m:{path}={json.dumps(value, ensure_ascii=False)}"


def facets_of(document: Document) -> tuple[str, ...]:
    """Every facet of a document, sorted, without repeats."""
    found = {tag_facet(tag) for tag in document.tags}
    if document.type is not None:
        found.add(type_facet(document.type))
    for path, value in walk(document.metadata):
        found.add(key_facet(path))
        found.add(value_facet(path, value))
    return tuple(sorted(found))


def numbers_of(metadata: Mapping[str, Any]) -> dict[str, list[float]]:
    """The numeric metadata values by path."""
    numbers: dict[str, list[float]] = {}
    for path, value in walk(metadata):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers.setdefault(path, []).append(float(value))
    return numbers


def walk(metadata: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Scalar]]:
    """Every scalar of a JSON object with its dotted path."""
    for key, value in metadata.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from walk(value, f"{path}.")
        elif isinstance(value, (list, tuple)):
            for element in value:
                if isinstance(element, Mapping):
                    yield from walk(element, f"{path}.")
                elif not isinstance(element, (list, tuple)):
                    yield path, element
        else:
            yield path, value
