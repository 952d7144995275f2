"""The values that travel through a search and through a write. Frozen, and free of I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

TIERS = ("keyword", "vector", "graph")


class Status(StrEnum):
    """What became of one tier in one search."""

    OK = "ok"
    EMPTY = "empty"
    SKIPPED = "skipped"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    CIRCUIT_OPEN = "circuit_open"
    INVALID = "invalid"

    @property
    def answered(self) -> bool:
        """Whether the tier said what it knows, be it nothing."""
        return self in (Status.OK, Status.EMPTY)


@dataclass(frozen=True, slots=True)
class Document:
    """A document as PostgreSQL holds it. `version` grows with every change."""

    id: str
    namespace: str = "default"
    title: str = ""
    content: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    type: str | None = None
    tags: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    confidence: float | None = None
    priority: int | None = None
    created_at: datetime | None = None
    vector: tuple[float, ...] | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What a derived engine has under a document's id: of which version, and from which application, by its fence."""

    id: str
    version: int
    fence: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed link between two documents of one tenant."""

    source: str
    target: str
    type: str = "related_to"
    strength: float = 1.0


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A document one link away, seen from another one. `direction` is `out` or `in`."""

    id: str
    namespace: str
    title: str
    type: str
    strength: float
    direction: str


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Bounds on a numeric metadata field; an absent bound is None."""

    path: str
    gte: float | None = None
    gt: float | None = None
    lte: float | None = None
    lt: float | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """A conjunction, and through its last two parts a tree: one facet of every group in `any_of`, every range, the
    creation window; one filter of every group in `one_of`, and not one of `none_of`.

    Facets are the strings that `service.facets` derives from a document, so that PostgreSQL, Qdrant and
    FalkorDB all answer the same question: does this document carry one of these strings?
    """

    any_of: tuple[tuple[str, ...], ...] = ()
    ranges: tuple[NumberRange, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    one_of: tuple[tuple[Filter, ...], ...] = ()
    none_of: tuple[Filter, ...] = ()

    @property
    def has_time(self) -> bool:
        """Whether a moment of creation is asked for, here or further down."""
        own = self.created_after is not None or self.created_before is not None
        return own or any(part.has_time for part in (*self.none_of, *(f for group in self.one_of for f in group)))


@dataclass(frozen=True, slots=True)
class Reach:
    """What a caller can see: one tenant; within it one project or all, and a list of namespaces or all."""

    tenant: str
    project: str | None = None
    namespaces: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class FusionOptions:
    """How the tiers' answers become one: see `ranking/fusion.py` and `ranking/normalise.py`.

    Without a normaliser the method's own is taken. `bounds` are lowest and highest scores by tier, for the normalisers
    that need them.
    """

    method: str = "weighted"
    normaliser: str | None = None
    k: int = 60
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShapingOptions:
    """What may move a candidate after fusion: see `ranking/shaping.py`. Everything is off by default."""

    question_fts_weight_scale: float = 1.0
    question_vector_weight_scale: float = 1.0
    question_blend: float = 0.0
    blend: float = 0.0
    long_document_penalty: bool = True
    keyword_only_damping: float = 1.0
    title_boost: float = 0.0
    confidence: float = 0.0
    priority: float = 0.0
    recency: float = 0.0
    half_life_days: float = 30.0
    current_cycle: int | None = None
    half_life_cycles: float = 50.0
    access: float = 0.0
    type_boost: Mapping[str, float] = field(default_factory=dict)
    affinity: str | None = None
    affinity_other: float = 0.6


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """At most `limit` results that share the value of a field: `namespace`, `type` or `metadata.<path>`."""

    field: str
    limit: int = 1


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """Everything that decides the order and the cut, settled: the caller's own over its namespace's, its tenant's and
    the service's. `weights` go over the embedder's own, tier by tier.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    profile: str | None = None
    fusion: FusionOptions = FusionOptions()
    shaping: ShapingOptions = ShapingOptions()
    include_types: tuple[str, ...] = ()
    exclude_types: tuple[str, ...] = ()
    type_cap: Mapping[str, float] = field(default_factory=dict)
    diversity: float = 0.0
    collapse: float = 0.0
    group_by: GroupOptions | None = None
    strict: bool = False
    min_confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Query:
    """One search, as validated. `namespaces` are those to look into; None means all that the tenant has.

    `options` are the caller's own wishes for the ranking, as sent; `ranking` is what they come to over the defaults.
    """

    reach: Reach
    text: str
    namespaces: tuple[str, ...] | None
    limit: int = 10
    options: Mapping[str, Any] = field(default_factory=dict)
    ranking: RankingOptions = RankingOptions()
    filter: Filter = Filter()
    vector: tuple[float, ...] | None = None
    explain: bool = False
    allow_degraded: bool = True
    require: tuple[str, ...] = ()
    timeout_ms: int | None = None
    ranker: str | None = None
    highlight: bool = False

    @property
    def tenant(self) -> str:
        return self.reach.tenant


@dataclass(frozen=True, slots=True)
class Plan:
    """What a search will do: which tiers it asks, with what weight, for how many hits, and until when."""

    weights: Mapping[str, float]
    candidates: int
    timeout_ms: int


# Steps and hits are made by the hundred in every search: a named tuple takes a third of a frozen dataclass's time.
class Step(NamedTuple):
    """One edge of a graph walk: `via` is the link's type, `to` a document id or an entity's name."""

    via: str
    to: str
    strength: float


class Hit(NamedTuple):
    """One document that one tier found, with the tier's own score. `path` is how the graph got there."""

    id: str
    score: float
    path: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class TierAnswer:
    """What one tier said, or why it said nothing."""

    tier: str
    status: Status
    hits: tuple[Hit, ...] = ()
    took_ms: float = 0.0
    reason: str | None = None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Contribution:
    """One tier's share in one result: `contribution == weight * share`, where the method makes the share of the rank
    and of the normalised score. `rule` says how the latter came to be.
    """

    rank: int
    raw: float
    normalised: float
    weight: float
    share: float
    contribution: float
    rule: str
    path: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One step after the sum: `score = score * multiply + add`. `inputs` are what the two were made of."""

    name: str
    multiply: float
    add: float
    inputs: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ranked:
    """One candidate: `score` is the exact sum of its tiers' contributions, taken through the adjustments in order."""

    id: str
    score: float
    tiers: Mapping[str, Contribution]
    adjustments: tuple[Adjustment, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a candidate's document without its content: what shaping and cutting look at."""

    namespace: str
    title: str = ""
    length: int = 0
    type: str | None = None
    confidence: float | None = None
    priority: int | None = None
    created_at: datetime | None = None
    cycle: float | None = None
    group: str | None = None
    accesses: int = 0


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A completion of what was typed, and how many documents have it. `kind` is `title`, `entity` or `term`."""

    text: str
    kind: str
    documents: int


@dataclass(frozen=True, slots=True)
class Highlight:
    """HTML of a title and of the best parts of a content: escaped, but for the marks around what matched."""

    title: str
    content: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A ranked candidate with its document."""

    document: Document
    ranked: Ranked
    confidence: float = 0.0
    badge: str = "LOW"
    highlight: Highlight | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The whole answer to one search. `asked` are the weights it set out with, `weights` those that counted."""

    results: tuple[Found, ...]
    answers: Mapping[str, TierAnswer]
    asked: Mapping[str, float]
    weights: Mapping[str, float]
    namespaces: tuple[str, ...]
    degraded: bool
    took_ms: float
