"""Every Prometheus metric, one line each. Base units; a tenant is named on counters only, by its id."""

from __future__ import annotations

import os
import platform
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from service import __version__
from service.model import TIERS

disable_created_metrics()  # type: ignore[no-untyped-call] # they would double what is scraped, and no panel asks for them

REGISTRY = CollectorRegistry()
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_Several = Literal["livemax", "livesum", "livemostrecent"]
_FEW = (0, 1, 2, 3, 5, 10, 20, 50, 100, 200)


def _counter(name: str, about: str, *labels: str) -> Counter:
    return Counter(name, about, labels, registry=REGISTRY)


def _gauge(name: str, about: str, *labels: str, several: _Several = "livemostrecent") -> Gauge:
    """`several` says what to show where several processes each have a value."""
    return Gauge(name, about, labels, registry=REGISTRY, multiprocess_mode=several)


def _histogram(name: str, about: str, *labels: str, buckets: tuple[float, ...] = _FAST) -> Histogram:
    return Histogram(name, about, labels, registry=REGISTRY, buckets=buckets)


HTTP_REQUESTS = _counter("braid_http_requests_total", "Requests.", "method", "route", "status")
HTTP_ERRORS = _counter("braid_http_errors_total", "Problems answered, by code.", "method", "route", "code")
HTTP_SECONDS = _histogram("braid_http_request_duration_seconds", "Request time.", "method", "route")
SHED = _counter("braid_shed_total", "Calls refused at once, as their answer would have come too late.")
AT_WORK = _gauge("braid_calls_at_work", "Calls to the API that are at work or wait.", several="livesum")
RATE_LIMITED = _counter(
    "braid_rate_limited_total", "Calls refused for coming too fast, by whose: key, tenant, address.", "limit"
)

SEARCHES = _counter("braid_searches_total", "Searches, by outcome: full, degraded, failed.", "tenant", "outcome")
SEARCH_SECONDS = _histogram("braid_search_duration_seconds", "Time a search took, inside the service.")
SEARCH_TIERS = _histogram("braid_search_tiers", "Tiers that a search asked.", buckets=(0, 1, 2, 3, 4, 5))
SEARCH_NAMESPACES = _histogram("braid_search_namespaces", "Namespaces that a search went over.", buckets=_FEW)
ZERO_RESULTS = _counter("braid_zero_result_searches_total", "Searches that found nothing.", "tenant")
RESULTS = _counter("braid_results_total", "Results returned, by the tiers that found them.", "tiers")

TIER_REQUESTS = _counter("braid_tier_requests_total", "Questions to a tier, by what became of them.", "tier", "status")
TIER_SECONDS = _histogram("braid_tier_duration_seconds", "Time a tier took.", "tier")
TIER_CANDIDATES = _counter("braid_tier_candidates_total", "Hits that a tier answered with, before fusion.", "tier")
TIER_HITS = _counter("braid_tier_hits_total", "Results returned to callers that this tier had found.", "tenant", "tier")
TIER_UNIQUE_HITS = _counter(
    "braid_tier_unique_hits_total", "Results returned that no other tier had found.", "tenant", "tier"
)
TIER_DROPPED = _counter("braid_tier_dropped_total", "Hits dropped for an id or a score that cannot be.", "tier")
TIER_VANISHED = _counter(
    "braid_tier_vanished_total", "Hits of documents that are gone, or are not the tenant's.", "tier"
)
TIER_CIRCUIT = _gauge(
    "braid_tier_circuit", "Whether a tier is asked: 0 closed, 1 half-open, 2 open.", "tier", several="livemax"
)
TIER_PROBES = _counter("braid_tier_probes_total", "Questions to a tier whose circuit was open.", "tier", "status")
TENANTS_WITHOUT_LABEL = _counter(
    "braid_tenant_label_overflow_total", "Searches counted under `_other`, as 100 tenants have a label already."
)

EMBEDDING_SECONDS = _histogram("braid_embedding_duration_seconds", "Time an embedding took.", "kind")
RERANK_SECONDS = _histogram("braid_rerank_duration_seconds", "Time a second look at the best results took.")
CACHE_REQUESTS = _counter("braid_cache_requests_total", "Looks into a cache: hit, miss.", "cache", "outcome")

INDEX_BACKLOG = _gauge("braid_index_backlog", "Documents a sink has still to apply.", "sink")
INDEX_LAG = _gauge(
    "braid_index_lag_seconds", "How long the oldest document waits for a sink.", "sink", several="livemostrecent"
)
INDEX_REFUSED = _gauge(
    "braid_index_refused", "Documents a sink refused and will try again.", "sink", several="livemostrecent"
)
INDEX_APPLIED = _counter("braid_index_applied_total", "Documents a sink has applied.", "sink")
INDEX_FAILURES = _counter("braid_index_failures_total", "Batches or documents a sink refused.", "sink")

POOL_CONNECTIONS = _gauge(
    "braid_postgres_connections", "Connections to PostgreSQL: used, idle.", "state", several="livesum"
)
POOL_LIMIT = _gauge("braid_postgres_connections_limit", "Connections to PostgreSQL at most.", several="livesum")
STATS_FLUSHES = _counter("braid_stats_flushes_total", "Writes of samples to PostgreSQL: saved, failed.", "outcome")
BUILD = _gauge("braid_build_info", "1, with what runs as labels.", "version", "python", several="livemax")
BUILD.labels(__version__, platform.python_version()).set(1)

OTHER = "_other"
_LABELLED_TENANTS = 100
_labelled: set[str] = set()


def tenant_label(tenant: str) -> str:
    """The tenant's id for the first 100 tenants that this process meets, then `_other`: labels stay few."""
    if tenant in _labelled:
        return tenant
    label = tenant if len(_labelled) < _LABELLED_TENANTS else OTHER
    if label not in _labelled:
        _labelled.add(label)
        _begin_at_zero(label)
    if label == OTHER:
        TENANTS_WITHOUT_LABEL.inc()
    return label


def _begin_at_zero(tenant: str) -> None:
    """A series that begins with 1 has not grown, to Prometheus: its first event would be lost to every rate."""
    ZERO_RESULTS.labels(tenant)
    for outcome in ("full", "degraded", "failed"):
        SEARCHES.labels(tenant, outcome)
    for tier in TIERS:
        TIER_HITS.labels(tenant, tier)
        TIER_UNIQUE_HITS.labels(tenant, tier)


for _limit in ("key", "tenant", "address"):
    RATE_LIMITED.labels(_limit)
for _tier in TIERS:
    TIER_VANISHED.labels(_tier)


def exposition() -> bytes:
    """What Prometheus reads: of this process, or of all that serve together."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    together = CollectorRegistry()
    MultiProcessCollector(together)  # type: ignore[no-untyped-call]
    return generate_latest(together)


INDEX_DIFFERENCES = Counter(
    "braid_index_differences_total",
    "Entries of an index that a check found to differ from PostgreSQL: missing, phantom, stale, duplicate.",
    ["tier", "kind"],
    registry=REGISTRY,
)
