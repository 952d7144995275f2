"""Filters for PostgreSQL: a jsonpath over a document's traits, and the operands it names.

The path is made of fixed pieces and of operand names, so that no caller's text is ever part of it; PostgreSQL takes
it as a value, not as SQL. Traits are what `traits_of` derives: facets, numbers by path, and the moment of creation.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from service.facets import facets_of, numbers_of
from service.model import Document, Filter, NumberRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNS = (("gte", ">="), ("gt", ">"), ("lte", "<="), ("lt", "<"))


def traits_of(document: Document) -> dict[str, Any]:
    """All but the creation, which PostgreSQL adds: it decides when a document without a date came to be."""
    numbers = numbers_of(document.metadata).items()
    return {"facets": list(facets_of(document)), "numbers": [{"path": p, "n": n} for p, ns in numbers for n in ns]}


class Condition:
    """A filter as jsonpath, collecting its operands on the way. No path where everything passes."""

    def __init__(self, filter: Filter) -> None:
        self.operands: dict[str, Any] = {}
        self.path = None if filter == Filter() else self._all(filter)

    def _all(self, filter: Filter) -> str:
        tests = [self._has_any(group) for group in filter.any_of]
        tests += [self._in_range(bounds) for bounds in filter.ranges]
        if filter.created_after is not None:
            tests.append(f"$.created >= {self._operand(microseconds(filter.created_after))}")
        if filter.created_before is not None:
            tests.append(f"$.created < {self._operand(microseconds(filter.created_before))}")
        tests += [" || ".join(f"({self._all(part)})" for part in group) for group in filter.one_of]
        tests += [f"!({self._all(part)})" for part in filter.none_of]
        return " && ".join(f"({test})" for test in tests) or "1 == 1"

    def _operand(self, value: Any) -> str:
        name = f"o{len(self.operands)}"
        self.operands[name] = value
        return f"${name}"

    def _has_any(self, facets: tuple[str, ...]) -> str:
        return f"$.facets[*] == {self._operand(list(facets))}[*]"

    def _in_range(self, bounds: NumberRange) -> str:
        """One number must pass all the tests, where a document has several under this path."""
        tests = [f"@.path == {self._operand(bounds.path)}"]
        tests += [f"@.n {sign} {self._operand(n)}" for name, sign in _SIGNS if (n := getattr(bounds, name)) is not None]
        return f"exists($.numbers[*] ? ({' && '.join(tests)}))"


def microseconds(moment: datetime) -> int:
    difference = moment - _EPOCH
    return (difference.days * 86_400 + difference.seconds) * 1_000_000 + difference.microseconds
