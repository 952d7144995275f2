"""Filters as SQL: text made of parameter numbers only, so that no caller's text is ever part of a statement."""

from __future__ import annotations

from collections.abc import Callable

from service.model import Filter, NumberRange

_OPERATORS = (("gte", ">="), ("gt", ">"), ("lte", "<="), ("lt", "<"))


def where(filter: Filter, arguments: list[object]) -> str:
    """Conditions on `d`, each behind an AND. Appends its parameters to `arguments`."""

    def bind(value: object) -> str:
        arguments.append(value)
        return f"${len(arguments)}"

    clauses = [f"d.facets && {bind(list(group))}::text[]" for group in filter.any_of]
    clauses += [_in_range(bounds, bind(bounds.path), bind) for bounds in filter.ranges]
    if filter.created_after is not None:
        clauses.append(f"d.created_at >= {bind(filter.created_after)}")
    if filter.created_before is not None:
        clauses.append(f"d.created_at < {bind(filter.created_before)}")
    return "".join(f" AND {clause}" for clause in clauses)


def _in_range(bounds: NumberRange, path: str, bind: Callable[[object], str]) -> str:
    tests = [
        f"n::float8 {sign} {bind(value)}::float8"
        for name, sign in _OPERATORS
        if (value := getattr(bounds, name)) is not None
    ]
    return f"EXISTS (SELECT FROM jsonb_array_elements_text(d.numbers -> {path}::text) AS n WHERE {' AND '.join(tests)})"
