"""The four dashboards: is it well, what is each tier worth, who searches, and is the index up to date."""

from __future__ import annotations

from dashboards.panels import COUNT, PER_SECOND, SECONDS, SHARE, Board, Panel
from dashboards.queries import mean, quantile, rate, share, share_of_all

_NOT_FULL = rate("braid_searches_total", where='outcome!="full"')
_SEARCHES = rate("braid_searches_total")
_CHOSEN = 'tenant=~"$tenant"'

OVERVIEW = Board(
    "braid-overview",
    "Overview",
    "Is search answering, how fast, and is anything missing from the answers?",
    {
        "Now": [
            Panel(
                "Searches a second",
                "Every search, whatever its outcome.",
                PER_SECOND,
                {"searches": _SEARCHES},
                kind="number",
                width=6,
            ),
            Panel(
                "Search time, p95",
                "95 of 100 searches were quicker, inside the service.",
                SECONDS,
                {"p95": quantile(0.95, "braid_search_duration_seconds")},
                kind="number",
                width=6,
                alarm=0.25,
            ),
            Panel(
                "Degraded or failed",
                "The share of searches that missed a tier or got an error.",
                SHARE,
                {"share": share_of_all(_NOT_FULL, _SEARCHES)},
                kind="number",
                width=6,
                alarm=0.01,
            ),
            Panel(
                "Index lag",
                "How long the oldest written document waits until every tier can find it.",
                SECONDS,
                {"lag": "max(braid_index_lag_seconds)"},
                kind="number",
                width=6,
                alarm=30,
            ),
        ],
        "Rate, errors, duration": [
            Panel(
                "Requests by route",
                "Calls a second, refused ones too.",
                PER_SECOND,
                {"{{method}} {{route}}": rate("braid_http_requests_total", "method", "route")},
                kind="stack",
            ),
            Panel(
                "Errors by route and code",
                "Problems answered, by the code that callers see. 4xx are theirs, `internal_error` and 503 are ours.",
                PER_SECOND,
                {"{{route}} {{code}}": rate("braid_http_errors_total", "route", "code")},
            ),
            Panel(
                "Request time by route, p95",
                "Over HTTP, from the first byte of the request to the last of the answer.",
                SECONDS,
                {"{{route}}": quantile(0.95, "braid_http_request_duration_seconds", "route")},
            ),
            Panel(
                "Search time",
                "Inside the service: half, 95 and 99 of 100 searches were quicker.",
                SECONDS,
                {f"p{100 * q:g}": quantile(q, "braid_search_duration_seconds") for q in (0.5, 0.95, 0.99)},
            ),
        ],
        "What is missing": [
            Panel(
                "Searches by outcome",
                "`full`: every tier that was asked answered. `degraded`: one did not. `failed`: an error.",
                PER_SECOND,
                {"{{outcome}}": rate("braid_searches_total", "outcome")},
                kind="stack",
            ),
            Panel(
                "Degraded ratio",
                "The share of searches that missed a tier or got an error.",
                SHARE,
                {"degraded or failed": share_of_all(_NOT_FULL, _SEARCHES)},
                alarm=0.01,
            ),
            Panel(
                "Breakers",
                "Whether a tier is asked: closed it is, open it is not, half-open it is being tried.",
                COUNT,
                {"{{tier}}": "max by (tier) (braid_tier_circuit)"},
                kind="circuit",
            ),
            Panel(
                "Zero-result ratio",
                "The share of searches that found nothing: a sudden rise means lost documents or a "
                "filter that fits nothing.",
                SHARE,
                {"found nothing": share_of_all(rate("braid_zero_result_searches_total"), _SEARCHES)},
            ),
            Panel(
                "Fan-out",
                "How many tiers a search asked, and how many namespaces it went over, on average.",
                COUNT,
                {"tiers": mean("braid_search_tiers"), "namespaces": mean("braid_search_namespaces")},
            ),
            Panel(
                "Calls refused for coming too fast",
                "By whose limit: a key's, a tenant's, or an address that tries keys.",
                PER_SECOND,
                {"{{limit}}": rate("braid_rate_limited_total", "limit")},
            ),
        ],
        "Objectives": [
            Panel(
                "Burn rate, 1 hour",
                "How fast each error budget is used up: 1 uses it up exactly in its 30 days, 14.4 pages somebody.",
                COUNT,
                {"{{slo}}": "braid:slo_errors:ratio_rate1h / on (slo) braid:slo_errors:budget"},
                alarm=14.4,
            ),
            Panel(
                "Budget left, 3 days",
                "What is left of three days' share of each error budget; below 0 it is overdrawn.",
                SHARE,
                {"{{slo}}": "1 - braid:slo_errors:ratio_rate3d / on (slo) braid:slo_errors:budget"},
            ),
        ],
        "Inside": [
            Panel(
                "PostgreSQL connections",
                "Of the pool: at work, idle, and how many there may be. Used up means that searches wait.",
                COUNT,
                {
                    "{{state}}": "sum by (state) (braid_postgres_connections)",
                    "limit": "sum(braid_postgres_connections_limit)",
                },
            ),
            Panel(
                "What runs",
                "Versions of Braid and of Python; more than one while an upgrade rolls out.",
                COUNT,
                {"Braid {{version}}, Python {{python}}": "sum by (version, python) (braid_build_info)"},
                kind="number",
            ),
        ],
    },
)

TIERS = Board(
    "braid-tiers",
    "Tiers",
    "What is each tier worth: what does it find, what do the others miss, and what does it cost?",
    {
        "What they find": [
            Panel(
                "Hits per tier",
                "Results returned to callers, counted once for each tier that had found them.",
                PER_SECOND,
                {"{{tier}}": rate("braid_tier_hits_total", "tier")},
                kind="stack",
            ),
            Panel(
                "Hits per tier, by tenant",
                "The same for the tenants that get most; `_other` is all beyond the first 100.",
                PER_SECOND,
                {"{{tenant}} {{tier}}": f"topk(15, {rate('braid_tier_hits_total', 'tenant', 'tier')})"},
            ),
            Panel(
                "Contribution",
                "The share of all results that a tier had found. Together more than 1, as several find the same.",
                SHARE,
                {"{{tier}}": f"{rate('braid_tier_hits_total', 'tier')} / scalar({rate('braid_results_total')} > 0)"},
            ),
            Panel(
                "Overlap",
                "Results by the exact set of tiers that found them.",
                PER_SECOND,
                {"{{tiers}}": rate("braid_results_total", "tiers")},
                kind="stack",
            ),
            Panel(
                "Unique hits",
                "Results that no other tier had found: what would be missing without it.",
                PER_SECOND,
                {"{{tier}}": rate("braid_tier_unique_hits_total", "tier")},
                kind="stack",
            ),
            Panel(
                "Unique share",
                "The share of a tier's hits that no other tier had found.",
                SHARE,
                {
                    "{{tier}}": share(
                        rate("braid_tier_unique_hits_total", "tier"), rate("braid_tier_hits_total", "tier")
                    )
                },
            ),
        ],
        "What they cost": [
            Panel(
                "Tier time, p50",
                "Half of the answers were quicker.",
                SECONDS,
                {"{{tier}}": quantile(0.5, "braid_tier_duration_seconds", "tier")},
            ),
            Panel(
                "Tier time, p95",
                "95 of 100 answers were quicker. The slowest tier is what a search waits for.",
                SECONDS,
                {"{{tier}}": quantile(0.95, "braid_tier_duration_seconds", "tier")},
            ),
            Panel(
                "Embedding time, p95",
                "Of queries it is a part of the vector tier's time; of documents, a batch at once.",
                SECONDS,
                {"{{kind}}": quantile(0.95, "braid_embedding_duration_seconds", "kind")},
            ),
            Panel(
                "Answers by status",
                "`ok` and `empty` are answers; all else leaves the search degraded.",
                PER_SECOND,
                {"{{tier}} {{status}}": rate("braid_tier_requests_total", "tier", "status")},
                kind="stack",
            ),
        ],
        "What becomes of it": [
            Panel(
                "Candidates a question",
                "How many hits a tier answers with, before fusion.",
                COUNT,
                {
                    "{{tier}}": share(
                        rate("braid_tier_candidates_total", "tier"), rate("braid_tier_requests_total", "tier")
                    )
                },
            ),
            Panel(
                "Returned of what was found",
                "The share of a tier's candidates that reached a page.",
                SHARE,
                {"{{tier}}": share(rate("braid_tier_hits_total", "tier"), rate("braid_tier_candidates_total", "tier"))},
            ),
            Panel(
                "Hits dropped",
                "Hits without a usable id or score: always 0, or the tier is broken.",
                PER_SECOND,
                {"{{tier}}": rate("braid_tier_dropped_total", "tier")},
            ),
            Panel(
                "Hits that vanished",
                "Hits of documents that PostgreSQL no longer has: an index that is behind, or is another one's.",
                PER_SECOND,
                {"{{tier}}": rate("braid_tier_vanished_total", "tier")},
            ),
            Panel(
                "Probes",
                "Questions to a tier whose breaker is open, by what became of them: the first `ok` closes it.",
                PER_SECOND,
                {"{{tier}} {{status}}": rate("braid_tier_probes_total", "tier", "status")},
            ),
        ],
    },
)

TENANTS = Board(
    "braid-tenants",
    "Tenants",
    "Who searches, what do they get, and who gets nothing? Tenants by id; `_other` is all beyond the first 100.",
    {
        "Searches": [
            Panel(
                "Searches by tenant",
                "Every search, whatever its outcome.",
                PER_SECOND,
                {"{{tenant}}": rate("braid_searches_total", "tenant", where=_CHOSEN)},
                kind="stack",
            ),
            Panel(
                "Busiest tenants",
                "Searches in the time shown.",
                COUNT,
                {"{{tenant}}": f"topk(10, sum by (tenant) (increase(braid_searches_total{{{_CHOSEN}}}[$__range])))"},
                kind="number",
            ),
            Panel(
                "Outcomes by tenant",
                "Searches that were full, degraded or failed.",
                PER_SECOND,
                {"{{tenant}} {{outcome}}": rate("braid_searches_total", "tenant", "outcome", where=_CHOSEN)},
            ),
            Panel(
                "Zero-result ratio by tenant",
                "The share of a tenant's searches that found nothing.",
                SHARE,
                {
                    "{{tenant}}": share(
                        rate("braid_zero_result_searches_total", "tenant", where=_CHOSEN),
                        rate("braid_searches_total", "tenant", where=_CHOSEN),
                    )
                },
            ),
        ],
        "Tiers": [
            Panel(
                "Hits per tier by tenant",
                "Results returned, once for each tier that had found them.",
                PER_SECOND,
                {"{{tenant}} {{tier}}": rate("braid_tier_hits_total", "tenant", "tier", where=_CHOSEN)},
            ),
            Panel(
                "Unique hits by tenant",
                "Results that no other tier had found.",
                PER_SECOND,
                {"{{tenant}} {{tier}}": rate("braid_tier_unique_hits_total", "tenant", "tier", where=_CHOSEN)},
            ),
            Panel(
                "Searches without a label",
                "Counted under `_other`, as 100 tenants have a label already.",
                PER_SECOND,
                {"overflow": rate("braid_tenant_label_overflow_total")},
            ),
        ],
    },
    by_tenant=True,
)

INDEXING = Board(
    "braid-indexing",
    "Indexing",
    "Can what was written be found, and if not, since when and why?",
    {
        "Behind": [
            Panel(
                "Backlog",
                "Documents that a sink has still to apply.",
                COUNT,
                {"{{sink}}": "max by (sink) (braid_index_backlog)"},
            ),
            Panel(
                "Lag",
                "How long the oldest of them waits; refused ones are left out.",
                SECONDS,
                {"{{sink}}": "max by (sink) (braid_index_lag_seconds)"},
                alarm=30,
            ),
            Panel(
                "Stale, 5 minutes",
                "The share of time in which a document waited for more than 30 seconds.",
                SHARE,
                {"stale": 'braid:slo_errors:ratio_rate5m{slo="freshness"}'},
            ),
            Panel(
                "Refused",
                "Documents that a sink refused; it tries again, at longer and longer intervals.",
                COUNT,
                {"{{sink}}": "max by (sink) (braid_index_refused)"},
                alarm=1,
            ),
        ],
        "At work": [
            Panel(
                "Documents applied",
                "Documents a second that became findable.",
                PER_SECOND,
                {"{{sink}}": rate("braid_index_applied_total", "sink")},
            ),
            Panel(
                "Failures",
                "Batches or documents a sink refused, an engine that is down among them.",
                PER_SECOND,
                {"{{sink}}": rate("braid_index_failures_total", "sink")},
            ),
            Panel(
                "Embedding a batch, p95",
                "95 of 100 batches of documents were quicker.",
                SECONDS,
                {"p95": quantile(0.95, "braid_embedding_duration_seconds", where='kind="documents"')},
            ),
            Panel(
                "Samples for /v1/stats",
                "Writes of samples; failed ones are repeated.",
                PER_SECOND,
                {"{{outcome}}": rate("braid_stats_flushes_total", "outcome")},
            ),
        ],
    },
)

BOARDS = (OVERVIEW, TIERS, TENANTS, INDEXING)
