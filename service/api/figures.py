"""Counters as figures that people read: sums, means and percentiles. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.model import TIERS, Status
from service.tally import BOUNDS_MS, OUTCOMES, Counts

_ANSWERED = tuple(status for status in Status if status.answered)


def figures(counts: Counts) -> dict[str, Any]:
    """One span of time."""
    return {
        "searches": _searches(counts),
        "latency_ms": _latency(counts),
        "tiers": {tier: _tier(counts, tier) | {"outcomes": _outcomes(counts, tier)} for tier in _tiers([counts])},
    }


def columns(spans: Sequence[Counts]) -> dict[str, Any]:
    """Many spans of time, figure by figure, as charts want them."""
    searches, latencies = [_searches(span) for span in spans], [_latency(span) for span in spans]
    return {
        "searches": {name: [each[name] for each in searches] for name in _searches({})},
        "latency_ms": {name: [each[name] for each in latencies] for name in _latency({})},
        "tiers": {tier: _column([_tier(span, tier) for span in spans]) for tier in _tiers(spans)},
    }


def _column(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in _tier({}, "")}


def _searches(counts: Counts) -> dict[str, int]:
    by_outcome = {outcome: int(counts.get(f"searches.{outcome}", 0)) for outcome in OUTCOMES}
    return {"total": sum(by_outcome.values()), **by_outcome, "empty": int(counts.get("searches.empty", 0))}


def _tiers(spans: Sequence[Counts]) -> list[str]:
    """Ours in their order, then what else was counted."""
    counted = {name.split(".")[1] for span in spans for name in span if name.startswith("tiers.")}
    return [*TIERS, *sorted(counted - set(TIERS))]


def _tier(counts: Counts, tier: str) -> dict[str, Any]:
    outcomes = _outcomes(counts, tier)
    asked = sum(outcomes.values())
    took = counts.get(f"tiers.{tier}.ms", 0)
    return {
        "asked": asked,
        "answered": sum(outcomes.get(status, 0) for status in _ANSWERED),
        **{name: int(counts.get(f"tiers.{tier}.{name}", 0)) for name in ("candidates", "hits", "unique")},
        "mean_ms": round(took / asked, 3) if asked else None,
    }


def _outcomes(counts: Counts, tier: str) -> dict[str, int]:
    named = {status.value: int(counts.get(f"tiers.{tier}.{status}", 0)) for status in Status}
    return {status: count for status, count in named.items() if count}


def _latency(counts: Counts) -> dict[str, float | None]:
    buckets = [counts.get(f"took.{at}", 0) for at in range(len(BOUNDS_MS) + 1)]
    total = sum(buckets)
    mean = round(counts.get("ms", 0) / total, 3) if total else None
    return {"mean": mean, "p50": quantile(buckets, 0.5), "p95": quantile(buckets, 0.95)}


def quantile(buckets: Sequence[float], q: float) -> float | None:
    """Within the bucket that holds it, as if its searches were spread evenly; beyond the last bound, that bound."""
    rank = q * sum(buckets)
    below = 0.0
    for at, count in enumerate(buckets[:-1]):
        if count and below + count >= rank:
            low = BOUNDS_MS[at - 1] if at else 0
            return round(low + (BOUNDS_MS[at] - low) * (rank - below) / count, 3)
        below += count
    return float(BOUNDS_MS[-1]) if rank else None
