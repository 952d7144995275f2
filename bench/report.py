"""One table from one run: each figure with its goal beside it, as Markdown to paste and as JSON to keep."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench.client import Timed
from bench.measure import FUSED, TIERS, Throughput, Written
from bench.walls import Walls
from service.ranking.plan import CANDIDATES

RESULTS = Path("bench/results")
GOAL_DOCUMENTS = 1500
GOAL_OVERHEAD_MS = 2.0
GOAL_WALLS = 1.15


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table. `met` is None where there is no goal."""

    measure: str
    value: str
    goal: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        return "" if self.met is None else "met" if self.met else "not met"


@dataclass(frozen=True, slots=True)
class Run:
    """Everything one run measured."""

    source: str
    written: Written
    searches: Mapping[str, Sequence[Timed]]
    throughput: Throughput
    memory: Mapping[str, float]
    fusing_ms: Sequence[float]
    shaping_ms: Sequence[float]
    walls: Walls
    load: float

    @property
    def title(self) -> str:
        return (
            f"{self.written.documents:,} documents ({self.source}), {len(self.searches[FUSED])} searches of a kind, "
            f"{os.cpu_count()} cores, load {self.load:.1f} before the run, Python {platform.python_version()}"
        )


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 95th."""
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[94]


def lines(run: Run) -> list[Line]:
    return [
        *_writing(run.written),
        *_tiers(run.searches),
        *_fused(run.searches[FUSED]),
        *_fusing(run),
        *_load(run),
        *_walls(run.walls),
        *_memory(run),
    ]


def _writing(written: Written) -> list[Line]:
    acknowledged, visible = (written.documents / s for s in (written.acknowledged_s, written.visible_s))
    goal = f">= {GOAL_DOCUMENTS:,}"
    return [
        Line("documents a second, acknowledged", f"{acknowledged:,.0f}"),
        Line("documents a second, visible in all tiers", f"{visible:,.0f}", goal, visible >= GOAL_DOCUMENTS),
    ]


def _tiers(searches: Mapping[str, Sequence[Timed]]) -> list[Line]:
    return [
        line
        for tier in TIERS
        for line in (
            _both(f"{tier} alone, over HTTP", [each.http_ms for each in searches[tier]]),
            _both(f"{tier} alone, the tier itself", [each.tiers[tier] for each in searches[tier]]),
        )
    ]


def _fused(searches: Sequence[Timed]) -> list[Line]:
    inside = [each.took_ms - each.slowest_ms for each in searches]
    outside = [each.http_ms - each.slowest_ms for each in searches]
    return [
        _both("fused, over HTTP, one client", [each.http_ms for each in searches]),
        _both("fused, in the service", [each.took_ms for each in searches]),
        _both("slowest tier of a fused search", [each.slowest_ms for each in searches]),
        _both("overhead over the slowest tier, in the service", inside, GOAL_OVERHEAD_MS),
        _both("overhead over the slowest tier, over HTTP", outside, GOAL_OVERHEAD_MS),
    ]


def _fusing(run: Run) -> list[Line]:
    return [
        _both(f"fusing 3 x {CANDIDATES} hits, in process", run.fusing_ms),
        _both("fusing and shaping 3 x 300 hits, in process", run.shaping_ms, 1.0),
    ]


def _load(run: Run) -> list[Line]:
    clients = run.throughput.clients
    return [
        Line(f"fused searches a second, {clients} clients", f"{run.throughput.searches_per_s:,.0f}"),
        _both(f"fused, over HTTP, {clients} clients", [each.http_ms for each in run.throughput.searches]),
        Line(f"answers without a tier that was late, 1 and {clients} clients", _late(run)),
    ]


def _late(run: Run) -> str:
    """A late tier costs its answer, not the run: it is counted, and its time stays among the others."""
    kinds = [each for times in run.searches.values() for each in times], run.throughput.searches
    return " and ".join(f"{sum(each.degraded for each in times)} of {len(times):,}" for times in kinds)


def _walls(walls: Walls) -> list[Line]:
    (on50, on95), (off50, off95) = percentiles(walls.on), percentiles(walls.off)
    ratios = on50 / off50, on95 / off95
    cost = f"p50 {ratios[0]:.2f} x, p95 {ratios[1]:.2f} x"
    return [
        _both("fused, over HTTP, row security on", walls.on),
        _both("fused, over HTTP, row security off", walls.off),
        Line("row security, on to off", cost, f"both <= {GOAL_WALLS} x", max(ratios) <= GOAL_WALLS),
    ]


def _memory(run: Run) -> list[Line]:
    return [Line(f"memory of {part}", f"{megabytes:,.0f} MB") for part, megabytes in run.memory.items()]


def _both(measure: str, values: Sequence[float], goal: float | None = None) -> Line:
    p50, p95 = percentiles(values)
    value = f"p50 {p50:.2f} ms, p95 {p95:.2f} ms"
    return Line(measure, value) if goal is None else Line(measure, value, f"p50 <= {goal:g} ms", p50 <= goal)


def markdown(rows: Sequence[Line]) -> str:
    """The rows as a table."""
    return grid([["measure", "figure", "goal", ""], *([row.measure, row.value, row.goal, row.verdict] for row in rows)])


def grid(cells: Sequence[Sequence[str]]) -> str:
    """A table, headings first, that reads well as it is and pastes as Markdown."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    text = [f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in cells]
    rule = f"|{'|'.join('-' * (width + 2) for width in widths)}|"
    return "\n".join([text[0], rule, *text[1:]])


def save(run: Run, rows: Sequence[Line], folder: Path) -> Path:
    """All figures, one file a run."""
    return keep(folder, "speed", {"title": run.title, **_figures(run, rows)})


def keep(folder: Path, kind: str, figures: Mapping[str, Any]) -> Path:
    """One file a run, named after what was measured, and when."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{kind}-{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({"at": now.isoformat(), **figures}, indent=2) + "\n")
    return path


def _figures(run: Run, rows: Sequence[Line]) -> dict[str, Any]:
    return {
        "lines": [asdict(row) for row in rows],
        "written": asdict(run.written),
        "searches_per_s": run.throughput.searches_per_s,
        "memory_mb": dict(run.memory),
        "row_security_ms": asdict(run.walls),
        "searches": {kind: [asdict(each) for each in times] for kind, times in run.searches.items()},
    }
