"""Every Prometheus metric, one line each."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)

HTTP_REQUESTS = Counter("braid_http_requests_total", "Requests.", ["method", "route", "status"], registry=REGISTRY)
HTTP_SECONDS = Histogram(
    "braid_http_request_duration_seconds", "Request time.", ["method", "route"], registry=REGISTRY, buckets=_FAST
)
RATE_LIMITED = Counter(
    "braid_rate_limited_total",
    "Calls refused for coming too fast, by whose: key, tenant, address.",
    ["limit"],
    registry=REGISTRY,
)
SEARCHES = Counter(
    "braid_searches_total", "Searches, by outcome: full, degraded, failed.", ["outcome"], registry=REGISTRY
)
TIER_REQUESTS = Counter(
    "braid_tier_requests_total", "Questions to a tier, by what became of them.", ["tier", "status"], registry=REGISTRY
)
TIER_SECONDS = Histogram("braid_tier_duration_seconds", "Time a tier took.", ["tier"], registry=REGISTRY, buckets=_FAST)
TIER_HITS = Counter(
    "braid_tier_hits_total", "Results returned to callers that this tier had found.", ["tier"], registry=REGISTRY
)
TIER_DROPPED = Counter(
    "braid_tier_dropped_total", "Hits dropped for an id or a score that cannot be.", ["tier"], registry=REGISTRY
)
TIER_VANISHED = Counter(
    "braid_tier_vanished_total",
    "Hits of documents that are gone, or are not the tenant's.",
    ["tier"],
    registry=REGISTRY,
)
TIER_CIRCUIT = Gauge(
    "braid_tier_circuit", "Whether a tier is asked: 0 closed, 1 half-open, 2 open.", ["tier"], registry=REGISTRY
)
TIER_PROBES = Counter(
    "braid_tier_probes_total", "Questions to a tier whose circuit was open.", ["tier", "status"], registry=REGISTRY
)
INDEX_BACKLOG = Gauge("braid_index_backlog", "Documents a sink has still to apply.", ["sink"], registry=REGISTRY)
INDEX_APPLIED = Counter("braid_index_applied_total", "Documents a sink has applied.", ["sink"], registry=REGISTRY)
INDEX_FAILURES = Counter(
    "braid_index_failures_total", "Batches or documents a sink refused.", ["sink"], registry=REGISTRY
)
