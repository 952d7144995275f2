"""Counters as figures: sums, means and percentiles, worked by hand."""

from __future__ import annotations

from service.api.figures import columns, figures, quantile
from service.tally import BOUNDS_MS

COUNTS = {
    "searches.full": 3, "searches.degraded": 1, "searches.empty": 1, "ms": 40.0, "took.3": 4,
    "tiers.keyword.ok": 3, "tiers.keyword.empty": 1, "tiers.keyword.ms": 8.0, "tiers.keyword.candidates": 60,
    "tiers.keyword.hits": 12, "tiers.keyword.unique": 5,
    "tiers.vector.ok": 3, "tiers.vector.timeout": 1, "tiers.vector.ms": 1000.0,
}  # fmt: skip


def test_figures_are_sums_and_means() -> None:
    shown = figures(COUNTS)
    assert shown["searches"] == {"total": 4, "full": 3, "degraded": 1, "failed": 0, "empty": 1}
    assert shown["latency_ms"] == {"mean": 10.0, "p50": 4.0, "p95": 4.9}  # four of 3 to 5 ms, spread evenly
    assert shown["tiers"]["keyword"] == {
        "asked": 4, "answered": 4, "candidates": 60, "hits": 12, "unique": 5, "mean_ms": 2.0,
        "outcomes": {"ok": 3, "empty": 1},
    }  # fmt: skip
    assert shown["tiers"]["vector"]["answered"] == 3
    assert shown["tiers"]["graph"]["mean_ms"] is None


def test_columns_have_a_value_for_every_step() -> None:
    shown = columns([{}, COUNTS, {"tiers.exact.hits": 2}])
    assert shown["searches"]["total"] == [0, 4, 0]
    assert shown["latency_ms"]["p95"] == [None, 4.9, None]
    assert shown["tiers"]["keyword"]["hits"] == [0, 12, 0]
    assert shown["tiers"]["exact"]["hits"] == [0, 0, 2]


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    empty = [0.0] * (len(BOUNDS_MS) + 1)
    assert quantile(empty, 0.5) is None
    assert quantile([*empty[:-1], 3], 0.5) == BOUNDS_MS[-1]
    assert quantile([2, *empty[1:]], 0.5) == 0.5
