"""Health, readiness and metrics: what needs no key."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from service import metrics
from service.api.answers import JSON
from service.api.deps import State, StateDep
from service.errors import BraidError
from service.stores.dirty import Owed
from service.stores.documents import SINKS
from service.stores.words import BM25, WITHOUT_BM25
from service.tiers.breaker import Circuit

router = APIRouter(tags=["operations"])

_PROBE_SECONDS = 0.8


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process is alive. Says nothing about the engines."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "PostgreSQL does not answer"}})
async def readyz(state: StateDep) -> JSON:
    """Each engine, asked now. 503 only where PostgreSQL does not answer: without the others we still search.

    `circuits` says which tiers are asked: one that kept failing is not, until a probe finds it well.
    """
    names = list(state.probes)
    probes = await asyncio.gather(*(_probe(state.probes[name]) for name in names))
    engines = dict(zip(names, probes, strict=True))
    down = [name for name, engine in engines.items() if engine["status"] != "ok"]
    circuits = state.circuits()
    whole = not down and all(circuit == Circuit.CLOSED for circuit in circuits.values())
    status = "unavailable" if "postgres" in down else "ok" if whole else "degraded"
    body = {"status": status, "engines": engines, "circuits": circuits, "keyword": _ranking(state.ranker)}
    return JSON(body, 503 if status == "unavailable" else 200)


def _ranking(ranker: str) -> dict[str, str]:
    return {"ranker": ranker} if ranker == BM25 else {"ranker": ranker, "note": WITHOUT_BM25}


async def _probe(ask: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            await ask()
    except TimeoutError:
        return {"status": "unavailable", "reason": f"no answer in {_PROBE_SECONDS} s"}
    except BraidError as error:
        return {"status": "unavailable", "reason": str(error)}
    return {"status": "ok", "took_ms": round((time.perf_counter() - started) * 1000, 2)}


@router.get("/metrics", response_class=Response)
async def prometheus(state: StateDep) -> Response:
    """For Prometheus. The backlog is counted when asked for."""
    owed = await _owed(state)
    for sink in SINKS:
        metrics.INDEX_BACKLOG.labels(sink).set(owed[sink].documents)
        metrics.INDEX_REFUSED.labels(sink).set(owed[sink].refused)
        metrics.INDEX_LAG.labels(sink).set(owed[sink].lag_s)
    return Response(await asyncio.to_thread(metrics.exposition), media_type=CONTENT_TYPE_LATEST)


async def _owed(state: State) -> Mapping[str, Owed]:
    """What each sink owes; not a number where nobody can know."""
    try:
        known = await state.backlog(None)
    except BraidError:
        return dict.fromkeys(SINKS, Owed(math.nan, math.nan, math.nan))
    return {sink: known.get(sink, Owed()) for sink in SINKS}
