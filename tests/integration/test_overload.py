"""More searches than the service may work on: told at once, in turn by tenant, and whole again a moment later."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from service.model import Hit, Query
from tests.conftest import Running, running


@pytest.fixture(scope="module")
async def small() -> AsyncIterator[Running]:
    """A Braid that works on two searches at once, each of which takes a while."""
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        settings = {
            "search_concurrency": 2,
            "search_queue_ms": 500,
            "max_calls": 40,
            "postgres_pool": 2,
            "embedder": "none",
        }
        async with running(Path(folder) / "data", embedder_dimension=4, **settings) as braid:
            tier = braid.app.state.braid.searcher._tiers["vector"].tier
            whole = tier.search

            async def slow(query: Query, limit: int, timeout_ms: int) -> list[Hit]:
                await asyncio.sleep(0.1)
                found: list[Hit] = await whole(query, limit, timeout_ms)
                return found

            tier.search = slow
            yield braid


async def search(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/v1/search", json={"query": "walrus"})


async def test_a_flood_is_refused_with_a_problem_and_does_not_starve_another_tenant(small: Running) -> None:
    loud, quiet = await small.tenant(), await small.tenant()
    for client in (loud, quiet):
        for _ in range(3):
            assert (await search(client)).status_code == 200
    flood = [asyncio.create_task(search(loud)) for _ in range(30)]
    await asyncio.sleep(0.05)
    calm = [await search(quiet) for _ in range(3)]
    answers = await asyncio.gather(*flood)
    assert {answer.status_code for answer in calm} == {200}
    assert {answer.status_code for answer in answers} == {200, 503}
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["code"] == "overloaded"
    assert refused.json()["request_id"] == refused.headers["x-request-id"]
    assert (await search(loud)).status_code == 200


async def test_beyond_the_most_calls_of_any_kind_the_next_is_refused_and_health_is_not(small: Running) -> None:
    client = await small.tenant()
    flood = [asyncio.create_task(client.get("/v1/namespaces")) for _ in range(200)]
    health = await client.get("/healthz")
    answers = await asyncio.gather(*flood)
    assert health.status_code == 200
    assert {answer.status_code for answer in answers} == {200, 503}
    assert "overloaded" in {answer.json()["code"] for answer in answers if answer.status_code == 503}
    assert (await client.get("/v1/namespaces")).status_code == 200
