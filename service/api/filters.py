"""The filter of a search, as a caller writes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from service.api.fields import Moment, Name, Number, Strict, Text, Truth, check_scalar
from service.api.limits import AtMost, limits
from service.facets import key_facet, tag_facet, type_facet, value_facet
from service.model import Filter, NumberRange


def _scalar(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        raise ValueError("must be a string, a number, true, false or null")  # noqa: TRY004 - pydantic wants a ValueError
    check_scalar(value)
    return value


def _kind(value: Any) -> str:
    return CONDITION if isinstance(value, (dict, Condition)) else VALUE


# Union members have a name in pydantic's error paths; these are told apart from a caller's own keys by the bracket.
VALUE, CONDITION, ONE, MANY = "‹value›", "‹condition›", "‹one›", "‹many›"
Scalar = Annotated[Any, AfterValidator(_scalar), WithJsonSchema({"type": ["string", "number", "boolean", "null"]})]


class Condition(Strict):
    """A test of one metadata field. Ranges are for numbers."""

    in_: Annotated[list[Scalar], Field(min_length=1, max_length=256)] | None = Field(None, alias="in")
    gte: Number | None = None
    gt: Number | None = None
    lte: Number | None = None
    lt: Number | None = None
    exists: Truth | None = None

    @model_validator(mode="after")
    def _tests_something(self) -> Condition:
        if self.in_ is None and self.exists is None and not self._bounds():
            raise ValueError("give one of `in`, `gte`, `gt`, `lte`, `lt`, `exists`")
        return self

    def _bounds(self) -> dict[str, float]:
        return {k: v for k in ("gte", "gt", "lte", "lt") if (v := getattr(self, k)) is not None}

    def to_filter(self, path: str) -> Filter:
        bounds, known = self._bounds(), (key_facet(path),)
        groups = [] if self.in_ is None else [tuple(value_facet(path, value) for value in self.in_)]
        return Filter(
            any_of=(*groups, known) if self.exists else tuple(groups),
            ranges=(NumberRange(path, **bounds),) if bounds else (),
            none_of=(Filter(any_of=(known,)),) if self.exists is False else (),
        )


Test = Annotated[
    Annotated[Condition, Tag(CONDITION)] | Annotated[Scalar, Tag(VALUE)],
    Discriminator(_kind),
]
Types = Annotated[
    Annotated[Name, Tag(ONE)] | Annotated[list[Name], Field(min_length=1, max_length=64), Tag(MANY)],
    Discriminator(lambda value: MANY if isinstance(value, list) else ONE),
]
Filters = Annotated[list["FilterIn"], Field(min_length=1), AtMost("max_filter_nodes", "items")]


class FilterIn(Strict):
    """Every part must hold. A list of values means: any of these."""

    type: Types | None = None
    tags: Annotated[list[Name], Field(min_length=1, max_length=64)] | None = Field(
        None, description="carries any of these tags"
    )
    metadata: Annotated[dict[Annotated[Text, Field(max_length=512)], Test], AtMost("max_filter_nodes", "items")] = (
        Field(
            default_factory=dict,
            examples=[
                {"author": "ada", "year": {"gte": 2024}, "status": {"in": ["open", "held"]}, "ticket": {"exists": True}}
            ],
        )
    )
    created_after: Moment | None = Field(None, description="at or after this moment")
    created_before: Moment | None = Field(None, description="before this moment")
    all_: Filters | None = Field(None, alias="all", description="all of these filters hold")
    any_: Filters | None = Field(None, alias="any", description="at least one of these filters holds")
    not_: FilterIn | None = Field(None, alias="not", description="this filter does not hold")

    @model_validator(mode="after")
    def _is_small(self) -> FilterIn:
        nodes, depth = self.size()
        tests, levels = limits().max_filter_nodes, limits().max_filter_depth
        if nodes > tests or depth > levels:
            raise ValueError(f"must have at most {tests} tests, nested at most {levels} deep")
        return self

    def size(self) -> tuple[int, int]:
        """How many tests it has, and how deep they are nested."""
        own = len(self.model_fields_set - {"metadata"}) + len(self.metadata)
        sizes = [part.size() for part in self._parts()]
        return own + sum(nodes for nodes, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)

    def _parts(self) -> list[FilterIn]:
        return [*(self.all_ or ()), *(self.any_ or ()), *([self.not_] if self.not_ else [])]

    def to_filter(self) -> Filter:
        groups: list[tuple[str, ...]] = []
        if self.type is not None:
            types = [self.type] if isinstance(self.type, str) else self.type
            groups.append(tuple(map(type_facet, types)))
        if self.tags is not None:
            groups.append(tuple(map(tag_facet, self.tags)))
        groups += [
            (value_facet(path, test),) for path, test in self.metadata.items() if not isinstance(test, Condition)
        ]
        tests = [test.to_filter(path) for path, test in self.metadata.items() if isinstance(test, Condition)]
        own = Filter(
            any_of=tuple(groups),
            created_after=self.created_after,
            created_before=self.created_before,
            one_of=(tuple(part.to_filter() for part in self.any_),) if self.any_ else (),
            none_of=(self.not_.to_filter(),) if self.not_ else (),
        )
        return _both(own, *tests, *(part.to_filter() for part in self.all_ or ()))


def _both(first: Filter, *others: Filter) -> Filter:
    """All of them in one. Creation windows stay apart where there are two: each is a filter of its own then."""
    parts = [first, *others]
    windows = [part for part in others if part.created_after is not None or part.created_before is not None]
    plain = [part for part in parts if part not in windows]
    return Filter(
        any_of=tuple(group for part in plain for group in part.any_of),
        ranges=tuple(bounds for part in plain for bounds in part.ranges),
        created_after=first.created_after,
        created_before=first.created_before,
        one_of=tuple(group for part in plain for group in part.one_of) + tuple((part,) for part in windows),
        none_of=tuple(negated for part in plain for negated in part.none_of),
    )
