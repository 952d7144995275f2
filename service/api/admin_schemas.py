"""What travels over HTTP to and from admins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from service.api.fields import WHOLE, Id, Moment, Name, Namespace, Strict, Truth
from service.api.ranking_schemas import RankingDefaults, Weights
from service.stores.keys import ADMIN, SCOPES, NewKey
from service.stores.tenants import NAME


def _to_come(moment: datetime) -> datetime:
    if moment <= datetime.now(UTC):
        raise ValueError("must be in the future")
    return moment


def _example(**body: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [body]})


def _change(**body: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [body], "minProperties": 1})


TenantName = Annotated[str, Field(min_length=1, max_length=128, pattern=NAME, examples=["acme"])]
ProjectName = Annotated[str, Field(min_length=1, max_length=128, pattern=NAME, examples=["default"])]
Prefix = Annotated[str, Field(pattern="^[0-9a-f]{12}$", examples=["0f3a9c51d2e7"])]
Tier = Literal["keyword", "vector", "graph"]
Quota = Annotated[int, Field(strict=True, ge=0, le=2**53), WHOLE]
Language = Annotated[Name, Field(max_length=63)]


class Change(Strict):
    """What is absent stays as it is."""

    @model_validator(mode="after")
    def _changes_something(self) -> Change:
        if not self.model_fields_set:
            raise ValueError("give at least one field to change")
        return self


class TenantIn(Strict):
    """A tenant to be made. A quota that is null or absent is none."""

    model_config = _example(name="acme", max_documents=100_000, max_bytes=500_000_000)

    name: TenantName
    max_documents: Quota | None = None
    max_bytes: Quota | None = Field(None, description="of titles, contents and metadata")


class TenantChange(Change):
    """A quota of null lifts it; a state of null stays as it is."""

    model_config = _change(state="suspended")

    state: Literal["active", "suspended"] | None = None
    max_documents: Quota | None = None
    max_bytes: Quota | None = None
    ranking: RankingDefaults | None = Field(None, description="defaults for the tenant's searches; null lifts them")

    def changes(self) -> dict[str, Any]:
        given = self.model_dump(exclude_unset=True)
        if self.ranking is not None:
            given["ranking"] = self.ranking.options()
        return {name: value for name, value in given.items() if name != "state" or value is not None}


class TenantOut(BaseModel):
    """A tenant and its quotas."""

    id: UUID
    name: str
    state: Literal["active", "suspended", "deleting"]
    max_documents: int | None
    max_bytes: int | None
    ranking: dict[str, Any] | None
    created_at: datetime


class UsageOut(BaseModel):
    """What a tenant holds."""

    documents: int
    bytes: int


class UsedTenantOut(TenantOut):
    """A tenant, its quotas, and what it holds."""

    usage: UsageOut


class TenantsOut(BaseModel):
    """A page of tenants; `next` is the name to pass as `after`, null on the last page."""

    tenants: list[TenantOut]
    next: str | None


class EngineProof(BaseModel):
    """What this call removed from one engine, and what the engine, asked afterwards, still holds."""

    removed: dict[str, int]
    remaining: dict[str, int]


class TenantGone(BaseModel):
    """A deleted tenant. Its id still finds its lines of the audit."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "5f0c8a52-6a38-4a0c-9c2e-0d6a2f0d9a11",
                    "name": "acme",
                    "engines": {
                        "qdrant": {"removed": {"points": 91}, "remaining": {"points": 0}},
                        "falkordb": {
                            "removed": {"graphs": 1, "documents": 91},
                            "remaining": {"graphs": 0, "documents": 0},
                        },
                        "postgres": {
                            "removed": {"documents": 91, "edges": 120, "namespaces": 4, "tenants": 1},
                            "remaining": {"documents": 0, "edges": 0, "namespaces": 0, "tenants": 0},
                        },
                    },
                }
            ]
        }
    )

    id: UUID
    name: str
    engines: dict[Literal["qdrant", "falkordb", "postgres"], EngineProof]


class ProjectIn(Strict):
    """A project to be made."""

    model_config = _example(name="research")

    name: ProjectName


class ProjectOut(BaseModel):
    """A project."""

    name: str
    created_at: datetime


class ProjectsOut(BaseModel):
    """A page of projects; `next` is the name to pass as `after`, null on the last page."""

    projects: list[ProjectOut]
    next: str | None


class ProjectGone(BaseModel):
    """A deleted project, and the prefixes of its keys, which are revoked."""

    name: str
    revoked: list[str]


class NamespaceIn(Strict):
    """A namespace to be made. Writing into one that is not there makes it too, with the defaults."""

    model_config = _example(
        name="notes", project="research", language="english", weights={"keyword": 0.5, "vector": 0.4, "graph": 0.1}
    )

    name: Namespace
    project: ProjectName = "default"
    language: Language = Field("english", description="a text search configuration of PostgreSQL")
    weights: Weights | None = Field(None, description="for searches of this one namespace that give none")
    ranking: RankingDefaults | None = Field(None, description="defaults for searches of this one namespace")
    embedder: str | None = Field(None, max_length=512, description="a check: refused if the service has another")

    def settings(self) -> dict[str, Any]:
        return _settings(self)


class NamespaceChange(Change):
    """Weights and ranking of null are lifted; everything else that is null stays as it is."""

    model_config = _change(project="research", weights={"keyword": 1, "vector": 0.2})

    project: ProjectName | None = None
    language: Language | None = None
    weights: Weights | None = None
    ranking: RankingDefaults | None = None
    embedder: str | None = Field(None, max_length=512)

    def settings(self) -> dict[str, Any]:
        return {k: v for k, v in _settings(self).items() if k in {"weights", "ranking"} or v is not None}


def _settings(body: NamespaceIn | NamespaceChange) -> dict[str, Any]:
    """What was given, as it is stored."""
    given = body.model_dump(exclude_unset=True, exclude={"name", "embedder"})
    if body.weights is not None:
        given["weights"] = body.weights.model_dump(exclude_none=True)
    if body.ranking is not None:
        given["ranking"] = body.ranking.options()
    return given


class NamespaceOut(BaseModel):
    """A namespace and its settings."""

    name: str
    project: str
    language: str
    weights: dict[str, float] | None
    ranking: dict[str, Any] | None
    embedder: str
    created_at: datetime


class AdminNamespacesOut(BaseModel):
    """A page of namespaces; `next` is the name to pass as `after`, null on the last page."""

    namespaces: list[NamespaceOut]
    next: str | None


class NamespaceGone(BaseModel):
    """A deleted namespace, and how many documents it had. `visible` is there with `?wait=true`."""

    name: str
    documents: int
    visible: bool | None = None


class AdminKeyIn(Strict):
    """An admin key to be made."""

    model_config = _example(name="ops", expires_at="2099-01-01T00:00:00Z")

    name: Annotated[Name, Field(max_length=128)] = Field("default", description="at most two live keys share a name")
    expires_at: Annotated[Moment, AfterValidator(_to_come)] | None = None

    def to_key(self) -> NewKey:
        return NewKey(self.name, (ADMIN,), None, None, self.expires_at)


class KeyIn(AdminKeyIn):
    """A tenant's key to be made: for one project or all, for a list of namespaces or all."""

    model_config = _example(
        name="website", scopes=["search"], namespaces=["notes", "handbook"], expires_at="2099-01-01T00:00:00Z"
    )

    scopes: list[Literal["search", "write"]] = Field(["search", "write"], min_length=1, max_length=2)
    project: ProjectName | None = None
    namespaces: Annotated[list[Namespace], Field(min_length=1, max_length=256)] | None = None

    def to_key(self) -> NewKey:
        scopes = tuple(scope for scope in SCOPES if scope in self.scopes)
        return NewKey(self.name, scopes, self.project, self.namespaces, self.expires_at)


class KeyOut(BaseModel):
    """What is known of a key. `last_used_at` may be half a minute behind."""

    prefix: str
    name: str
    scopes: list[str]
    project: str | None
    namespaces: list[str] | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewKeyOut(KeyOut):
    """A new key. `key` is shown here and never again."""

    key: str


class KeysOut(BaseModel):
    """A page of keys; `next` is the prefix to pass as `after`, null on the last page."""

    keys: list[KeyOut]
    next: str | None


class IndexStateOut(BaseModel):
    """How many documents an index has still to apply; of these, how many were refused and how many a worker holds.

    `unconfirmed` ones are applied, and will be once more: a worker or an engine failed while they were written.
    """

    pending: int
    refused: int
    held: int
    unconfirmed: int


class RefusedOut(BaseModel):
    """A document that an engine refused. It is tried again at `next_try`."""

    tenant: str | None
    id: str
    tier: Literal["vector", "graph"]
    wanted: int
    applied: int
    attempts: int
    error: str
    next_try: datetime


class IndexingOut(BaseModel):
    """The state of the indexes that follow PostgreSQL."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "tiers": {
                        "vector": {"pending": 0, "refused": 0, "held": 0, "unconfirmed": 0},
                        "graph": {"pending": 1, "refused": 1, "held": 0, "unconfirmed": 0},
                    },
                    "refused": [
                        {
                            "tenant": "acme",
                            "id": "note-3",
                            "tier": "graph",
                            "wanted": 118,
                            "applied": 97,
                            "attempts": 4,
                            "error": "FalkorDB refused: ...",
                            "next_try": "2026-01-31T12:00:00Z",
                        }
                    ],
                }
            ]
        }
    )

    tiers: dict[Literal["vector", "graph"], IndexStateOut]
    refused: list[RefusedOut]


class RetryIn(Strict):
    """Which refused documents to try again; all, where nothing is given."""

    model_config = _example(tenant="acme", tier="graph")

    tenant: TenantName | None = None
    id: Id | None = None
    tier: Literal["vector", "graph"] | None = None


class RetryOut(BaseModel):
    """How many documents are tried again now."""

    documents: int


class VerifyIn(Strict):
    """What to compare: everything, where nothing is given."""

    model_config = _example(tenant="acme", repair=True)

    tenant: TenantName | None = None
    tier: Tier | None = None
    repair: Truth = False


class VerifiedTierOut(BaseModel):
    """One tier of one tenant: how many documents it should hold, and how many entries differ."""

    tenant: str
    tier: Tier
    documents: int
    missing: int
    phantom: int
    stale: int
    duplicate: int
    examples: list[str]


class VerifiedOut(BaseModel):
    """Whether the indexes agree with PostgreSQL."""

    agrees: bool
    reports: list[VerifiedTierOut]


class RebuildIn(Strict):
    """Which index to make anew, of one tenant or of all."""

    model_config = _example(tier="vector")

    tier: Tier
    tenant: TenantName | None = None


class RebuildOut(BaseModel):
    """How many documents are applied again."""

    documents: int


class AuditLine(BaseModel):
    """Who did what, and when. `actor` is a key's prefix, or `cli`."""

    id: int
    at: datetime
    actor: str
    action: str
    tenant_id: UUID | None
    detail: dict[str, Any]


class AuditOut(BaseModel):
    """A page of the audit; `next` is the id to pass as `after`, null on the last page."""

    lines: list[AuditLine]
    next: int | None
