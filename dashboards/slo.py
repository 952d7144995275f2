"""The service's objectives, and the rules that follow: recorded error ratios, and alerts on how fast budgets burn.

Windows and factors as in Google's SRE Workbook, "Alerting on SLOs", multiwindow and multi-burn-rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

MANUAL = "docs/operations.md#alerts"
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
_API = 'route=~"/v1/.+"'


@dataclass(frozen=True, slots=True)
class Objective:
    """What is promised: `errors` is a share of bad ones as PromQL, and may be at most `budget` in 30 days."""

    name: str
    alert: str
    budget: float
    errors: str  # with %(window)s
    summary: str


OBJECTIVES = (
    Objective(
        "availability", "BraidAvailability", 0.001,
        f'(sum(rate(braid_http_requests_total{{{_API},status=~"5.."}}[%(window)s])) or vector(0))'
        f" / (sum(rate(braid_http_requests_total{{{_API}}}[%(window)s])) > 0)",
        "calls are answered with a 5xx",
    ),
    Objective(
        "latency", "BraidLatency", 0.01,
        '1 - sum(rate(braid_search_duration_seconds_bucket{le="0.25"}[%(window)s]))'
        " / (sum(rate(braid_search_duration_seconds_count[%(window)s])) > 0)",
        "searches take longer than 250 ms",
    ),
    Objective(
        "coverage", "BraidCoverage", 0.01,
        '(sum(rate(braid_searches_total{outcome!="full"}[%(window)s])) or vector(0))'
        " / (sum(rate(braid_searches_total[%(window)s])) > 0)",
        "searches miss a tier, or fail",
    ),
    Objective(
        "freshness", "BraidFreshness", 0.01,
        "avg_over_time(braid:index_stale:max[%(window)s])",
        "written documents wait for more than 30 seconds to be findable",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Burn:
    """An alert for a speed: the long window says that it matters, the short one that it still goes on."""

    suffix: str
    long: str
    short: str
    factor: float
    severity: str
    hold: str


BURNS = (
    Burn("BurnsFast", "1h", "5m", 14.4, "page", "2m"),
    Burn("Burns", "6h", "30m", 6, "page", "15m"),
    Burn("Smoulders", "3d", "6h", 1, "ticket", "1h"),
)

SIMPLE: tuple[dict[str, str], ...] = (
    {"alert": "BraidDown", "expr": 'up{job="braid"} == 0', "for": "1m", "severity": "page",
     "summary": "Prometheus cannot scrape {{ $labels.instance }}"},
    {"alert": "BraidBreakerOpen", "expr": "max by (tier) (braid_tier_circuit) == 2", "for": "5m",
     "severity": "ticket", "summary": "the {{ $labels.tier }} tier has not been asked for 5 minutes"},
    {"alert": "BraidIndexRefuses", "expr": "max by (sink) (braid_index_refused) > 0", "for": "15m",
     "severity": "ticket", "summary": "the {{ $labels.sink }} index refuses {{ $value }} documents"},
    {"alert": "BraidPoolUsedUp", "severity": "ticket", "for": "5m",
     "expr": 'sum by (instance) (braid_postgres_connections{state="used"})'
             " >= sum by (instance) (braid_postgres_connections_limit)",
     "summary": "{{ $labels.instance }} uses all its connections to PostgreSQL"},
    {"alert": "BraidSamplesNotSaved", "expr": 'sum(rate(braid_stats_flushes_total{outcome="failed"}[10m])) > 0',
     "for": "10m", "severity": "ticket", "summary": "samples for /v1/stats could not be saved for 10 minutes"},
)  # fmt: skip


def rules() -> str:
    """The file that Prometheus reads."""
    groups = [
        {"name": "braid-objectives", "interval": "30s", "rules": [*_recorded()]},
        {"name": "braid-burn-rates", "rules": [_burning(o, b) for o in OBJECTIVES for b in BURNS]},
        {"name": "braid-symptoms", "rules": [_alert(**each) for each in SIMPLE]},
    ]
    heading = "# Written by `python -m dashboards` from dashboards/slo.py; a test compares them.\n"
    return heading + yaml.safe_dump({"groups": groups}, sort_keys=False, width=120)


def _recorded() -> list[dict[str, Any]]:
    stale = {"record": "braid:index_stale:max", "expr": "max(braid_index_lag_seconds > bool 30)"}
    budgets = [
        {"record": "braid:slo_errors:budget", "expr": f"vector({o.budget})", "labels": {"slo": o.name}}
        for o in OBJECTIVES
    ]
    ratios = [
        {
            "record": f"braid:slo_errors:ratio_rate{window}",
            "expr": o.errors % {"window": window},
            "labels": {"slo": o.name},
        }
        for o in OBJECTIVES
        for window in WINDOWS
    ]
    return [stale, *budgets, *ratios]


def _burning(objective: Objective, burn: Burn) -> dict[str, Any]:
    limit = f"{burn.factor * objective.budget:g}"
    both = " and ".join(
        f'braid:slo_errors:ratio_rate{window}{{slo="{objective.name}"}} > {limit}' for window in (burn.long, burn.short)
    )
    summary = f"{objective.summary}: {{{{ $value | humanizePercentage }}}} in {burn.long}"
    name = objective.alert + burn.suffix
    return _alert(alert=name, expr=both, severity=burn.severity, summary=summary, **{"for": burn.hold})


def _alert(*, alert: str, expr: str, severity: str, summary: str, **hold: str) -> dict[str, Any]:
    notes = {"summary": summary, "manual": MANUAL}
    return {"alert": alert, "expr": expr, **hold, "labels": {"severity": severity}, "annotations": notes}
