"""Settings, read once from BRAID_* variables. Only `app` and `cli` import this."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.api.limits import Limits


class Settings(Limits, BaseSettings):
    """Everything an operator can turn. An engine without an address runs embedded."""

    model_config = SettingsConfigDict(env_prefix="BRAID_", frozen=True, extra="ignore")

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for every interface")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    ops_port: int | None = Field(
        None, ge=1, le=65535, description="port for /metrics and the admin API, which then answer nowhere else"
    )
    workers: int = Field(1, ge=1, le=64, description="processes that serve; more than one needs all three servers")
    cors_origins: str = Field("", description="origins whose pages may call, with spaces between; none if unset")
    data_dir: Path = Field(Path(".braid"), description="where embedded engines, logs and made secrets live")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="the least that is logged")
    log_format: Literal["text", "json"] = Field("text", description="how lines are logged: for people, or for machines")
    slow_search_ms: int = Field(1000, ge=0, le=60_000, description="searches that take longer are logged; 0 for none")
    otlp_endpoint: str | None = Field(
        None, pattern="^https?://", description="where traces go, by OTLP over HTTP: http://host:4318; none if unset"
    )
    trace_queries: bool = Field(False, description="tell traces what was searched for")
    sample: bool = Field(True, description="load the sample documents on the first embedded start")

    postgres_url: SecretStr | None = Field(None, description="postgresql://user:password@host:5432/db")
    postgres_admin_url: SecretStr | None = Field(
        None, description="the same database as the role that owns the tables; for `braid migrate`"
    )
    postgres_pool: int = Field(10, ge=2, le=200, description="connections held to PostgreSQL at most")
    qdrant_url: str | None = Field(None, description="http://host:6333, or :memory: for tests")
    qdrant_api_key: SecretStr | None = Field(None, description="API key of the Qdrant server")
    qdrant_collection: str = Field(
        "braid", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="alias under which the collection is reached"
    )
    falkordb_url: str | None = Field(
        None, pattern="^(redis|rediss|unix)://", description="redis://host:6379, or rediss:// for TLS"
    )
    falkordb_password: SecretStr | None = Field(None, description="password of the FalkorDB server")
    key_pepper: SecretStr | None = Field(
        None, description="secret that API key digests are keyed with; needed with BRAID_POSTGRES_URL"
    )

    oidc_issuer: str | None = Field(None, description="whose tokens (JWTs) are accepted beside API keys")
    oidc_audience: str | None = Field(None, description="what the issuer calls this service; needed with an issuer")
    oidc_jwks_url: str | None = Field(None, description="where the issuer's keys are, if not where it says itself")
    oidc_algorithms: str = Field("RS256 ES256", description="how tokens may be signed; never with a shared secret")
    oidc_tenant_claim: str = Field("braid_tenant", min_length=1, description="claim that names the tenant")
    oidc_scope_claim: str = Field("scope", min_length=1, description="claim that may hold braid:search, braid:write")
    oidc_project_claim: str = Field("braid_project", min_length=1, description="claim that narrows to a project")
    oidc_namespaces_claim: str = Field(
        "braid_namespaces", min_length=1, description="claim that narrows to some namespaces"
    )
    oidc_max_token_bytes: int = Field(8192, ge=512, le=65_536, description="longest token that is looked at")

    embedder: str = Field("wordllama", description="wordllama, fastembed:<model or folder>, http:<url> or none")
    embedder_model: str = Field("", description="model name sent to an http: embedder")
    embedder_api_key: SecretStr | None = Field(None, description="bearer token sent to an http: embedder")
    embedder_dimension: int | None = Field(None, ge=1, le=8192, description="required for none; else a check")

    reranker: str = Field(
        "none", description="second stage: none, late, fastembed:<model or folder>, tei:<url> or cohere:<url>"
    )
    reranker_model: str = Field("", description="model name sent to a cohere: reranker")
    reranker_api_key: SecretStr | None = Field(None, description="bearer token sent to a tei: or cohere: reranker")

    cache: Literal["none", "exact", "semantic"] = Field(
        "none", description="answer a search from memory: the same one, or one of the same meaning too"
    )
    cache_bytes: int = Field(64 * 2**20, ge=2**20, le=2**36, description="memory for answers, of all tenants together")
    cache_ttl_s: float = Field(300, ge=1, le=86_400, description="seconds that an answer is remembered at most")
    cache_similarity: float = Field(0.97, ge=0.5, le=1, description="cosine from which two queries mean the same")
    skip_generic: bool = Field(False, description="leave the vector tier out for one or two generic words")

    search_timeout_ms: int = Field(1000, ge=10, le=30_000, description="time a search has, where it names none")
    search_timeout_max_ms: int = Field(10_000, ge=10, le=60_000, description="most that a search's timeout_ms gets")
    keyword_share: float = Field(0.8, ge=0.05, le=1, description="part of a search's time that the keyword tier has")
    vector_share: float = Field(0.8, ge=0.05, le=1, description="the same of the vector tier, embedding included")
    graph_share: float = Field(0.8, ge=0.05, le=1, description="the same of the graph tier")
    tier_concurrency: int = Field(16, ge=1, le=1000, description="questions that a tier works on at once")
    search_concurrency: int = Field(64, ge=1, le=10_000, description="most searches at work at once")
    search_queue_ms: int = Field(250, ge=0, le=30_000, description="longest wait for a turn; beyond it a 503 at once")
    max_calls: int = Field(1000, ge=10, le=100_000, description="calls to the API at work or waiting at once")
    breaker_calls: int = Field(20, ge=1, le=10_000, description="calls to a tier that its breaker looks back on")
    breaker_window_s: float = Field(30, ge=1, le=3600, description="seconds after which it forgets a call")
    breaker_min_calls: int = Field(10, ge=1, le=10_000, description="calls below which it does not judge")
    breaker_failure_rate: float = Field(0.5, ge=0.01, le=1, description="part of them that failed when it opens")
    breaker_open_ms: int = Field(1000, ge=10, le=600_000, description="pause before an open breaker tries its tier")
    breaker_probes: int = Field(2, ge=1, le=100, description="probes that must succeed before it closes")
    breaker_probe_ms: int = Field(1000, ge=10, le=60_000, description="time that one probe has")
    ranking: str = Field("", description="defaults for searches, as JSON: see docs/ranking.md")
    keyword_candidates: int = Field(1000, ge=100, le=100_000, description="documents a keyword search aims to score")
    keyword_language: str = Field("english", description="of namespaces that choose none; `simple` for no stems")
    keyword_title_weight: float = Field(3.0, ge=0.1, le=10, description="a word of the title counts as so many")
    keyword_tag_weight: float = Field(1.0, ge=0.1, le=10, description="a word of a tag counts as so many")
    bm25_k1: float = Field(1.2, ge=0, le=5, description="BM25: how slowly repeated words stop counting")
    bm25_b: float = Field(0.75, ge=0, le=1, description="BM25: how much a document's length counts")
    keyword_refresh_ms: int = Field(1000, ge=50, le=600_000, description="pause between looks for stale statistics")
    graph_hops: int = Field(2, ge=1, le=3, description="links that a walk follows from where it starts")
    graph_fan_out: int = Field(50, ge=1, le=1000, description="edges followed from one node")
    rate_limit_key: float = Field(1000, ge=0, le=1_000_000, description="calls a second of one key; 0 for any number")
    rate_limit_tenant: float = Field(
        2000, ge=0, le=1_000_000, description="calls a second of one tenant; 0 for any number"
    )
    rate_limit_failures: float = Field(
        100, ge=0, le=1_000_000, description="wrong keys a second from one address; 0 for any number"
    )
    rate_limit_window_s: int = Field(10, ge=1, le=3600, description="seconds whose calls may come all at once")
    stats_keep_hours: int = Field(168, ge=1, le=8760, description="hours that samples for /v1/stats are kept")
    wait_timeout_ms: int = Field(30_000, ge=100, le=120_000, description="longest wait of ?wait=true")
    index_batch: int = Field(512, ge=1, le=5000, description="documents a worker applies at once")
    index_sinks: str = Field(
        "vector graph",
        pattern="^(vector|graph)?( (vector|graph))?$",
        description="indexes this process brings up to date; empty for none, where others do",
    )
    index_workers: int = Field(1, ge=1, le=16, description="workers for each of these indexes")
    index_backlog_max: int = Field(
        50_000, ge=100, le=100_000_000, description="documents that may wait for an index before writes are refused"
    )
    index_check_hours: float = Field(24, ge=0, le=8760, description="pause between checks of all indexes; 0 for none")
    index_poll_ms: int = Field(500, ge=10, le=60_000, description="pause of an idle worker before it looks again")
