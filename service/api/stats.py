"""`/v1/stats`: what a tenant searched, what each tier was worth to it, and how far its indexes are behind."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from service.api.deps import Admin, Reader, StateDep
from service.api.figures import columns, figures
from service.api.handlers import PROBLEMS
from service.errors import Forbidden
from service.stores.dirty import Owed
from service.stores.documents import SINKS
from service.stores.keys import Caller
from service.tally import Counts

router = APIRouter(prefix="/v1", tags=["stats"], responses=PROBLEMS)

# Longer steps for longer times: a chart has some 300 points at most.
_STEPS_S = (60, 300, 900, 3600, 6 * 3600, 24 * 3600)
_MOST_POINTS = 300

Hours = Annotated[int, Query(ge=1, le=8760, description="how far to look back; no further than samples are kept")]


class SearchCounts(BaseModel):
    """Searches by outcome, and how many of them found nothing."""

    total: int
    full: int
    degraded: int
    failed: int
    empty: int


class Latency(BaseModel):
    """Milliseconds inside the service; null where nothing was searched."""

    mean: float | None
    p50: float | None
    p95: float | None


class TierFigures(BaseModel):
    """What one tier was asked, what it answered with, and what of that was returned to callers."""

    asked: int
    answered: int
    outcomes: dict[str, int]
    candidates: int
    hits: int
    unique: int
    mean_ms: float | None


class Figures(BaseModel):
    """Sums over a span of time."""

    searches: SearchCounts
    latency_ms: Latency
    tiers: dict[str, TierFigures]


class Sink(BaseModel):
    """Documents that an index has still to take over, and how long the oldest of them waits."""

    backlog: int
    refused: int
    lag_s: float


class StatsOut(Figures):
    """The last hours of a tenant, and its indexes now."""

    hours: int
    indexing: dict[str, Sink]


class SearchColumns(BaseModel):
    """`SearchCounts`, one value a step."""

    total: list[int]
    full: list[int]
    degraded: list[int]
    failed: list[int]
    empty: list[int]


class LatencyColumns(BaseModel):
    """`Latency`, one value a step."""

    mean: list[float | None]
    p50: list[float | None]
    p95: list[float | None]


class TierColumns(BaseModel):
    """`TierFigures`, one value a step."""

    asked: list[int]
    answered: list[int]
    candidates: list[int]
    hits: list[int]
    unique: list[int]
    mean_ms: list[float | None]


class HistoryOut(BaseModel):
    """One value a step in every list; `at` is when each step begins, in seconds since 1970."""

    hours: int
    step_s: int
    at: list[int]
    searches: SearchColumns
    latency_ms: LatencyColumns
    tiers: dict[str, TierColumns]


class TenantFigures(Figures):
    """The figures of one tenant."""

    tenant: str


class TenantsFigures(BaseModel):
    """Tenants that searched, busiest first."""

    hours: int
    tenants: list[TenantFigures]


@router.get("/stats", response_model=StatsOut)
async def stats(state: StateDep, caller: Reader, hours: Hours = 24) -> dict[str, Any]:
    """What the tenant searched in the last hours, tier by tier, and how far its indexes are behind now."""
    tenant = _whole_tenant(caller)
    counts, owed = await state.samples.totals(tenant, hours), await state.backlog(tenant)
    sinks = {name: owed.get(name, Owed()) for name in SINKS}
    indexing = {n: {"backlog": s.documents, "refused": s.refused, "lag_s": round(s.lag_s, 3)} for n, s in sinks.items()}
    return {"hours": hours, **figures(counts), "indexing": indexing}


@router.get("/stats/history", response_model=HistoryOut)
async def stats_history(state: StateDep, caller: Reader, hours: Hours = 24) -> dict[str, Any]:
    """The same over time, in equal steps up to now, as columns for charts."""
    step_s = next((step for step in _STEPS_S if hours * 3600 / step <= _MOST_POINTS), _STEPS_S[-1])
    found = await state.samples.history(_whole_tenant(caller), hours, step_s)
    last = int(time.time()) // step_s
    steps = range(last - hours * 3600 // step_s + 1, last + 1)
    spans: list[Counts] = [found.get(step, {}) for step in steps]
    return {"hours": hours, "step_s": step_s, "at": [step * step_s for step in steps], **columns(spans)}


@router.get("/admin/stats", response_model=TenantsFigures)
async def stats_of_tenants(
    state: StateDep, caller: Admin, hours: Hours = 24, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> dict[str, Any]:
    """What each tenant searched in the last hours, busiest first. Counts only, never a query."""
    found = await state.samples.by_tenant(hours, limit)
    return {"hours": hours, "tenants": [{"tenant": name, **figures(counts)} for name, counts in found]}


def _whole_tenant(caller: Caller) -> str:
    """Counts know tenants only, so a key that is to see a part of one gets none."""
    if caller.reach.project is not None or caller.reach.namespaces is not None:
        raise Forbidden("these are figures of the whole tenant: use a key that is not bound to a project or namespaces")
    return caller.reach.tenant
