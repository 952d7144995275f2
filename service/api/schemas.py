"""What travels over HTTP: every field with its bound. Pydantic stays on this side of the edge."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from service.facets import key_facet, tag_facet, type_facet, value_facet
from service.model import Document, Edge, Filter, NumberRange, Query, Reach

MAX_QUERY = 1024
MAX_TERMS = 64
MAX_CONTENT = 262_144
MAX_METADATA_VALUES = 256
MAX_DEPTH = 8
MAX_VECTOR = 8192
MAX_FILTERS = 32
MAX_BULK = 1000

_SURROGATE = re.compile("[\ud800-\udfff]")


def _storable(text: str) -> str:
    """What PostgreSQL can hold: no NUL, no lone surrogate."""
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    if not text.isascii() and _SURROGATE.search(text):
        raise ValueError("must be valid Unicode: it contains a lone surrogate")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


def _decoded(id: str) -> str:
    """Bytes that are not UTF-8 arrive as U+FFFD, so two ids in a path could become one."""
    if "\ufffd" in id:
        raise ValueError("must be valid UTF-8")
    return id


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _few_terms(text: str) -> str:
    if len(text.split()) > MAX_TERMS:
        raise ValueError(f"must have at most {MAX_TERMS} terms")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _finite(vector: list[float]) -> list[float]:
    if not all(map(math.isfinite, vector)):
        raise ValueError("must hold finite numbers only")
    return vector


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refuses what some engine could not hold: too many values, too deep, too long, NUL, NaN, huge integers."""
    count = 0
    todo: list[tuple[Any, int]] = [(metadata, 0)]
    while todo:
        value, depth = todo.pop()
        count += 1
        if count > MAX_METADATA_VALUES or depth > MAX_DEPTH:
            raise ValueError(f"must hold at most {MAX_METADATA_VALUES} values, nested at most {MAX_DEPTH} deep")
        if isinstance(value, dict):
            todo += [(key, depth) for key in value] + [(v, depth + 1) for v in value.values()]
        elif isinstance(value, list):
            todo += [(v, depth + 1) for v in value]
        else:
            _bounded_scalar(value)
    return metadata


def _bounded_scalar(value: Any) -> None:
    if isinstance(value, str):
        if len(value) > 4096:
            raise ValueError("must hold strings of at most 4096 characters")
        _storable(value)
    elif isinstance(value, int) and abs(value) > 2**53:
        raise ValueError("must hold integers between -2^53 and 2^53")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must hold finite numbers only")


Text = Annotated[str, AfterValidator(_storable)]
QueryText = Annotated[Text, Field(max_length=MAX_QUERY), AfterValidator(_few_terms)]
SomeQueryText = Annotated[QueryText, AfterValidator(_not_blank)]
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
Id = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_printable), AfterValidator(_decoded)]
Namespace = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:/@-]+$")]
Unit = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Vector = Annotated[list[float], Field(min_length=1, max_length=MAX_VECTOR), AfterValidator(_finite)]
Moment = Annotated[AwareDatetime, AfterValidator(_utc)]
Metadata = Annotated[dict[str, Any], AfterValidator(_bounded)]


class Strict(BaseModel):
    """Unknown fields are rejected, so a typing error is seen."""

    model_config = ConfigDict(extra="forbid")


class LinkIn(Strict):
    """A link from the document that carries it."""

    to: Id
    type: Name = "related_to"
    strength: Unit = 1.0


class DocumentBody(Strict):
    """A document without its id, which stands in the path."""

    namespace: Namespace = "default"
    title: Annotated[Text, Field(max_length=1024)] = ""
    content: Annotated[Text, Field(max_length=MAX_CONTENT)] = ""
    metadata: Metadata = Field(default_factory=dict)
    type: Name | None = None
    tags: list[Name] = Field(default_factory=list, max_length=64)
    entities: list[Name] = Field(default_factory=list, max_length=128, description="names this document is about")
    confidence: Unit | None = None
    priority: Annotated[int, Field(ge=1, le=4)] | None = None
    created_at: Moment | None = None
    vector: Vector | None = None
    links: list[LinkIn] | None = Field(None, max_length=256, description="replaces the links this document declares")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "namespace": "notes",
                    "title": "Pump P-204 runs hot",
                    "content": "Bearing temperature rose to 81 degrees during the night shift.",
                    "metadata": {"author": "ada", "year": 2026},
                    "type": "note",
                    "tags": ["pump"],
                    "entities": ["Pump P-204"],
                    "links": [{"to": "manual-17", "type": "supports", "strength": 0.9}],
                }
            ]
        },
    )

    @model_validator(mode="after")
    def _says_something(self) -> DocumentBody:
        if not (self.title or self.content or self.vector):
            raise ValueError("give a title, content or a vector: an empty document can't be found")
        return self

    def to_document(self, id: str) -> tuple[Document, list[Edge] | None]:
        document = Document(
            id=id,
            namespace=self.namespace,
            title=self.title,
            content=self.content,
            metadata=self.metadata,
            type=self.type,
            tags=tuple(dict.fromkeys(self.tags)),
            entities=tuple(dict.fromkeys(self.entities)),
            confidence=self.confidence,
            priority=self.priority,
            created_at=self.created_at,
            vector=None if self.vector is None else tuple(self.vector),
        )
        links = None if self.links is None else [Edge(id, k.to, k.type, k.strength) for k in self.links]
        return document, links


class DocumentIn(DocumentBody):
    """A document in a bulk write; an id is assigned where none is given."""

    id: Id | None = None


class EdgeIn(Strict):
    """A directed link between two documents."""

    source: Id
    target: Id
    type: Name = "related_to"
    strength: Unit = 1.0

    def to_edge(self) -> Edge:
        return Edge(self.source, self.target, self.type, self.strength)


class EdgeKey(Strict):
    """Names links to delete; without a type, all links between the two."""

    source: Id
    target: Id
    type: Name | None = None


def _scalar(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        raise ValueError("must be a string, a number, true, false or null")  # noqa: TRY004 - pydantic wants a ValueError
    _bounded_scalar(value)
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


class Weights(Strict):
    """How much each tier counts. 0 switches a tier off: it isn't asked."""

    keyword: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] | None = None
    vector: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] | None = None
    graph: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] | None = None


class SearchIn(Strict):
    """One search."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"query": "what keeps the antenna warm", "limit": 5},
                {
                    "query": "bearing temperature",
                    "include_namespaces": ["notes", "handbook"],
                    "filter": {"type": "note", "metadata": {"year": {"gte": 2025}}},
                    "weights": {"keyword": 0.5, "vector": 0.3, "graph": 0.2},
                    "explain": True,
                },
            ]
        },
    )

    query: QueryText = Field(
        "", description='words, "quoted phrases", -unwanted words', examples=["what keeps the antenna warm"]
    )
    limit: int = Field(10, ge=1, le=100)
    namespace: Namespace | None = Field(None, description="search only here")
    include_namespaces: Annotated[list[Namespace], Field(min_length=1, max_length=256)] | None = None
    weights: Weights | None = None
    filter: FilterIn = Field(default_factory=FilterIn)
    vector: Vector | None = Field(None, description="your own query vector, of the service's dimension")
    explain: bool = False
    allow_degraded: bool = True
    timeout_ms: int | None = Field(None, ge=1, le=60_000)

    @model_validator(mode="after")
    def _asks_something(self) -> SearchIn:
        if not self.query.strip() and self.vector is None:
            raise ValueError("give a query, a vector, or both")
        if self.namespace is not None and self.include_namespaces is not None:
            raise ValueError("give `namespace` or `include_namespaces`, not both")
        return self

    def to_query(self, reach: Reach, timeout_max_ms: int) -> Query:
        namespaces = [self.namespace] if self.namespace else (self.include_namespaces or [])
        return Query(
            reach=reach,
            text=self.query,
            namespaces=tuple(dict.fromkeys(namespaces)),
            limit=self.limit,
            weights=None if self.weights is None else self.weights.model_dump(exclude_none=True),
            filter=self.filter.to_filter(),
            vector=None if self.vector is None else tuple(self.vector),
            explain=self.explain,
            allow_degraded=self.allow_degraded,
            timeout_ms=None if self.timeout_ms is None else min(self.timeout_ms, timeout_max_ms),
        )
