"""Takes one wall away at a time, and sees that the isolation checker notices. What it can't notice, it can't prove."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from service import metrics
from service.api import search
from service.model import Document
from service.stores import falkordb, keys, qdrant_edge, qdrant_server
from service.tiers.vector import VectorTier
from tests.isolation.canaries import CONTENT, Canary
from tests.isolation.checker import Checker
from tests.isolation.operations import DIMENSION
from tests.isolation.probes import NARROWED, TABLES, probe
from tests.isolation.world import DOCUMENTS, World, created, document_id, namespace_name, place_of

CALLS = 150
VICTIM = 1


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        async with created(Path(folder), 3) as made:
            yield made


async def test_with_every_wall_in_place_nothing_is_found(world: World) -> None:
    assert await probe(world) == []
    assert (await Checker(world, seed=2).run(CALLS)).leaks == []


class TestATierWithoutItsTenant:
    async def test_keyword(self, world: World) -> None:
        [row] = await world.braid.sql("SELECT pg_get_functiondef('keyword_match'::regproc)")
        wall = "tenant uuid := app_tenant()"
        assert wall in row[0]
        async with undone(world, row[0].replace(wall, f"tenant uuid := '{world.ids[VICTIM]}'"), row[0]):
            await noticed(world, "the keyword tier told")

    async def test_vector_by_its_shard(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(qdrant_edge, "tenant_id", lambda _: UUID(world.ids[VICTIM]))
        await noticed(world, "the vector tier told")

    async def test_vector_by_its_filter(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The adapter for a Qdrant server, which keeps all tenants in one collection."""
        store = await filled_server(world)
        searcher = world.braid.app.state.braid.searcher
        tier = VectorTier(store, searcher._tiers["vector"].tier._embedder)
        monkeypatch.setattr(searcher._tiers["vector"], "tier", tier)
        assert await probe(world) == []
        whole = qdrant_server.compile_filter
        monkeypatch.setattr(qdrant_server, "compile_filter", lambda *asked: whole(*asked[:3]))
        await noticed(world, "the vector tier told")
        await store.close()

    async def test_graph(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(falkordb, "_name", lambda _: f"braid:{world.ids[VICTIM]}")
        await noticed(world, "the graph tier told")


class TestATableWithoutRowSecurity:
    @pytest.mark.parametrize("table", TABLES)
    async def test_switched_off(self, world: World, table: str) -> None:
        off, on = (f"ALTER TABLE {table} {verb} ROW LEVEL SECURITY" for verb in ("DISABLE", "ENABLE"))
        async with undone(world, off, on):
            await noticed(world, f"the table {table} shows")

    @pytest.mark.parametrize("table", TABLES)
    async def test_open_to_all(self, world: World, table: str) -> None:
        """Still switched on, but with a policy too many."""
        async with undone(world, f"CREATE POLICY hole ON {table} USING (true)", f"DROP POLICY hole ON {table}"):
            await noticed(world, f"the table {table} shows")

    @pytest.mark.parametrize("table", NARROWED)
    async def test_without_the_reach_of_narrow_keys(self, world: World, table: str) -> None:
        asked = "SELECT qual FROM pg_policies WHERE tablename = $1 AND policyname = 'reach'"
        [policy] = await world.braid.sql(asked, table)
        change = f"ALTER POLICY reach ON {table} USING"
        async with undone(world, f"{change} (true)", f"{change} ({policy['qual']})"):
            await noticed(world, f"the table {table} shows")


class TestAServiceThatTalks:
    """What only calls can notice: bodies, logs, metrics and memory."""

    async def test_mixes_keys_up(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        check, last = keys.Keys.check, list[Any]()

        async def mixed_up(self: keys.Keys, *asked: Any) -> keys.Caller:
            last.append(await check(self, *asked))
            return last[-2] if len(last) % 5 == 0 else last[-1]

        monkeypatch.setattr(keys.Keys, "check", mixed_up)
        await heard(world, " answered 200 with ['canary")

    async def test_logs_what_is_searched(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        answer = search._answer

        async def talking(body: Any, *rest: Any) -> Any:
            logging.getLogger("service.search").debug("somebody asks for %s", body.query)
            return await answer(body, *rest)

        monkeypatch.setattr(search, "_answer", talking)
        await heard(world, "the log of service.search quotes")

    async def test_counts_by_name(self, world: World) -> None:
        name = namespace_name(VICTIM, 1)
        metrics.INDEX_BACKLOG.labels(name).set(1)
        try:
            await heard(world, "GET /metrics answered 200 with")
        finally:
            metrics.INDEX_BACKLOG.remove(name)

    async def test_remembers_answers_under_the_wrong_tenant(self, world: World) -> None:
        known = world.braid.app.state.braid.keys._used
        known[world.ids[0]] = str(Canary(VICTIM, CONTENT, 1))  # not a namespace, which callers may name themselves
        try:
            await heard(world, "_used holds", calls=1)
        finally:
            del known[world.ids[0]]


@asynccontextmanager
async def undone(world: World, sabotage: str, repair: str) -> AsyncIterator[None]:
    """As the owner of the tables; the service itself could not."""
    await world.braid.sql(sabotage)
    try:
        yield
    finally:
        await world.braid.sql(repair)


async def noticed(world: World, what: str) -> None:
    """By a look behind the API. One wall may hold another: a document is in reach where its namespace is."""
    leaks = await probe(world)
    assert any(leak.startswith(what) for leak in leaks), leaks


async def heard(world: World, what: str, calls: int = CALLS) -> None:
    """By calling."""
    leaks = (await Checker(world, seed=3).run(calls)).leaks
    assert any(what in leak for leak in leaks), leaks


async def filled_server(world: World) -> qdrant_server.ServerVectorStore:
    store = qdrant_server.ServerVectorStore(qdrant_server.MEMORY, None, "braid", DIMENSION, 5)
    await store.open()
    for tenant, id in world.ids.items():
        points = [
            (Document(document_id(tenant, n), namespace_name(tenant, place_of(n))), [1.0] * DIMENSION)
            for n in range(DOCUMENTS)
        ]
        await store.upsert(id, points)
    return store
