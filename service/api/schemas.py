"""What travels over HTTP: bodies, made of bounded fields. Pydantic stays on this side of the edge."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, model_validator

from service.api.fields import (
    WHOLE,
    Id,
    Metadata,
    Moment,
    Name,
    Namespace,
    Namespaces,
    NewId,
    QueryText,
    Strict,
    Text,
    Truth,
    Unit,
    Vector,
)
from service.api.filters import FilterIn
from service.api.limits import AtMost
from service.api.ranking_schemas import RankingIn
from service.model import Document, Edge, Query, Reach


class LinkIn(Strict):
    """A link from the document that carries it."""

    to: Id
    type: Name = "related_to"
    strength: Unit = 1.0


class DocumentBody(Strict):
    """A document without its id, which stands in the path."""

    namespace: Namespace = "default"
    title: Annotated[Text, AtMost("max_title_chars", "characters")] = ""
    content: Annotated[Text, AtMost("max_content_chars", "characters")] = ""
    metadata: Metadata = Field(default_factory=dict)
    type: Name | None = None
    tags: Annotated[list[Name], AtMost("max_tags", "items")] = Field(default_factory=list)
    entities: Annotated[list[Name], AtMost("max_entities", "items")] = Field(
        default_factory=list, description="names this document is about"
    )
    confidence: Unit | None = None
    priority: Annotated[int, Field(strict=True, ge=1, le=4), WHOLE] | None = None
    created_at: Moment | None = None
    vector: Vector | None = None
    links: Annotated[list[LinkIn], AtMost("max_links", "items")] | None = Field(
        None, description="replaces the links this document declares"
    )

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

    id: NewId | None = None


# Read one by one, so that a bad one fails alone; together only in their description.
Documents = TypeAdapter(Annotated[list[DocumentIn], Field(min_length=1), AtMost("max_bulk_items", "items")])


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


class KeywordIn(Strict):
    """How the keyword tier ranks."""

    ranker: Literal["bm25", "ts_rank_cd"] | None = Field(None, description="the best that the server has, if absent")


class SearchIn(RankingIn):
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
    limit: Annotated[int, Field(strict=True, ge=1), AtMost("max_results"), WHOLE] = 10
    namespace: Namespace | None = Field(None, description="search only here")
    include_namespaces: Namespaces | None = None
    filter: FilterIn = Field(default_factory=FilterIn)
    keyword: KeywordIn | None = None
    vector: Vector | None = Field(None, description="your own query vector, of the service's dimension")
    explain: Truth = False
    highlight: Truth = Field(False, description="adds fragments of each result as HTML, with the matches marked")
    allow_degraded: Truth = True
    require: list[Literal["keyword", "vector", "graph"]] = Field(
        default_factory=list, max_length=3, description="tiers without which the answer is a 503"
    )
    timeout_ms: Annotated[int, Field(strict=True, ge=1, le=60_000), WHOLE] | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> SearchIn:
        if not self.query.strip() and self.vector is None:
            raise ValueError("give a query, a vector, or both")
        if self.namespace is not None and self.include_namespaces is not None:
            raise ValueError("give `namespace` or `include_namespaces`, not both")
        return self

    def to_query(self, reach: Reach, timeout_max_ms: int) -> Query:
        namespaces = [self.namespace] if self.namespace else self.include_namespaces
        return Query(
            reach=reach,
            text=self.query,
            namespaces=None if namespaces is None else tuple(dict.fromkeys(namespaces)),
            limit=self.limit,
            options=self.options(),
            filter=self.filter.to_filter(),
            vector=None if self.vector is None else tuple(self.vector),
            explain=self.explain,
            highlight=self.highlight,
            allow_degraded=self.allow_degraded,
            require=tuple(dict.fromkeys(self.require)),
            ranker=None if self.keyword is None else self.keyword.ranker,
            timeout_ms=None if self.timeout_ms is None else min(self.timeout_ms, timeout_max_ms),
        )


class ExplainIn(SearchIn):
    """A search, and the document whose place in it is to be explained."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"query": "bearing temperature", "id": "pump-204"}]}
    )

    id: Id
