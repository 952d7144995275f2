"""The filter of a search, as a caller writes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from service.api.fields import MAX_FILTERS, Moment, Name, Strict, Text, check_scalar
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
    gte: float | None = Field(None, allow_inf_nan=False)
    gt: float | None = Field(None, allow_inf_nan=False)
    lte: float | None = Field(None, allow_inf_nan=False)
    lt: float | None = Field(None, allow_inf_nan=False)
    exists: Literal[True] | None = None

    @model_validator(mode="after")
    def _tests_something(self) -> Condition:
        if self.in_ is None and self.exists is None and not self._bounds():
            raise ValueError("give one of `in`, `gte`, `gt`, `lte`, `lt`, `exists`")
        return self

    def _bounds(self) -> dict[str, float]:
        return {k: v for k in ("gte", "gt", "lte", "lt") if (v := getattr(self, k)) is not None}

    def groups(self, path: str) -> list[tuple[str, ...]]:
        groups = [] if self.in_ is None else [tuple(value_facet(path, value) for value in self.in_)]
        return groups + ([(key_facet(path),)] if self.exists else [])

    def ranges(self, path: str) -> list[NumberRange]:
        bounds = self._bounds()
        return [NumberRange(path, **bounds)] if bounds else []


Test = Annotated[
    Annotated[Condition, Tag(CONDITION)] | Annotated[Scalar, Tag(VALUE)],
    Discriminator(_kind),
]
Types = Annotated[
    Annotated[Name, Tag(ONE)] | Annotated[list[Name], Field(min_length=1, max_length=64), Tag(MANY)],
    Discriminator(lambda value: MANY if isinstance(value, list) else ONE),
]


class FilterIn(Strict):
    """Every part must hold. A list means: any of these."""

    type: Types | None = None
    tags: Annotated[list[Name], Field(min_length=1, max_length=64)] | None = Field(
        None, description="carries any of these tags"
    )
    metadata: dict[Annotated[Text, Field(max_length=512)], Test] = Field(
        default_factory=dict,
        max_length=MAX_FILTERS,
        examples=[
            {"author": "ada", "year": {"gte": 2024}, "status": {"in": ["open", "held"]}, "ticket": {"exists": True}}
        ],
    )
    created_after: Moment | None = Field(None, description="at or after this moment")
    created_before: Moment | None = Field(None, description="before this moment")

    def to_filter(self) -> Filter:
        groups: list[tuple[str, ...]] = []
        ranges: list[NumberRange] = []
        if self.type is not None:
            types = [self.type] if isinstance(self.type, str) else self.type
            groups.append(tuple(map(type_facet, types)))
        if self.tags is not None:
            groups.append(tuple(map(tag_facet, self.tags)))
        for path, test in self.metadata.items():
            if isinstance(test, Condition):
                groups += test.groups(path)
                ranges += test.ranges(path)
            else:
                groups.append((value_facet(path, test),))
        return Filter(tuple(groups), tuple(ranges), self.created_after, self.created_before)
