"""PostgreSQL killed and frozen: the one engine we cannot do without. A 503 in a second at most, and no restart."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import httpx
import pytest

from service.errors import StoreUnavailable
from tests.faults.conftest import Breakable, shown

LIMIT = 1.5  # a second by design; the rest is for a busy machine


async def timed(answering: object) -> tuple[httpx.Response, float]:
    began = time.perf_counter()
    answer: httpx.Response = await answering  # type: ignore[misc]
    return answer, time.perf_counter() - began


async def assert_down(own: Breakable) -> None:
    """Every request that needs PostgreSQL is told so, soon; the process itself is well."""
    new_key = own.braid.client("braid_000000000000.unknown")
    for asked in (
        own.search(),
        own.search(namespace="default"),
        own.client.put("/v1/documents/refused", json={"title": "Refused"}),
        new_key.get("/v1/namespaces"),
    ):
        answer, took = await timed(asked)
        print(f"{answer.request.method} {answer.request.url.path}: {answer.status_code} in {took:.2f} s")
        assert answer.status_code == 503, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["code"] == "store_unavailable"
        assert took < LIMIT, f"{took:.2f} s"
    ready, took = await timed(own.client.get("/readyz"))
    assert ready.status_code == 503
    assert ready.json()["engines"]["postgres"]["status"] == "unavailable"
    assert took < LIMIT
    assert (await own.client.get("/healthz")).status_code == 200
    assert (await own.client.get("/metrics")).status_code == 200


async def assert_recovers(own: Breakable) -> None:
    await own.whole(5)
    assert (await own.client.get("/readyz")).status_code == 200
    assert (await own.client.get("/v1/documents/refused")).status_code == 404
    assert (await own.client.put("/v1/documents/again", json={"title": f"{time.time()}"})).is_success


async def test_a_killed_postgresql_is_a_503_within_a_second_and_heals(own: Breakable) -> None:
    with own.postgres.down():
        await assert_down(own)
    await assert_recovers(own)


async def test_a_frozen_postgresql_is_a_503_within_a_second_and_heals(own: Breakable) -> None:
    """The connection is up and nothing comes back, which no driver notices by itself."""
    with own.postgres.frozen():
        await assert_down(own)
    await assert_recovers(own)


async def test_many_requests_at_a_frozen_postgresql_are_told_as_soon(own: Breakable) -> None:
    with own.postgres.frozen():
        answers = await asyncio.gather(*(timed(own.search()) for _ in range(30)))
    assert {answer.status_code for answer, _ in answers} == {503}
    assert max(took for _, took in answers) < LIMIT
    await assert_recovers(own)


async def test_connections_that_hang_are_given_up_where_new_ones_work(own: Breakable) -> None:
    """What a firewall does to connections that were idle for long."""
    with own.postgres.frozen(server=False):
        began = time.monotonic()
        while not (answer := await own.search()).is_success:
            assert answer.status_code == 503
            assert time.monotonic() - began < 5
        assert answer.elapsed.total_seconds() < LIMIT
    await assert_recovers(own)


async def test_a_crashed_backend_costs_a_moment(own: Breakable) -> None:
    """PostgreSQL ends all connections and recovers when one of its processes is killed."""
    for pid in shown("pid=", "--ppid", str(own.postgres.pid))[-1:]:
        os.kill(int(pid), signal.SIGKILL)
    answer, took = await timed(own.search())
    assert answer.status_code in (200, 503)
    assert took < LIMIT
    await assert_recovers(own)


async def test_a_statement_that_takes_long_is_not_mistaken_for_a_dead_server(own: Breakable) -> None:
    postgres = own.braid.engines.postgres
    async with postgres.transaction() as connection:
        await asyncio.sleep(0.8)  # idle, but in a transaction: it is us whom PostgreSQL waits for
        assert await connection.fetchval("SELECT 1 FROM pg_sleep(1.5)") == 1


async def test_a_statement_in_mid_run_is_given_up_when_the_server_freezes(own: Breakable) -> None:
    postgres = own.braid.engines.postgres
    running = asyncio.create_task(postgres.fetch("SELECT pg_sleep(20)"))
    await asyncio.sleep(0.5)
    with own.postgres.frozen():
        began = time.perf_counter()
        with pytest.raises(StoreUnavailable):
            await running
        assert time.perf_counter() - began < LIMIT
    await assert_recovers(own)
