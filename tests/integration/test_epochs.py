"""A tenant's epoch grows with everything that can change its answers, and with nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
import pytest

from service.stores.accesses import Accesses
from service.stores.epochs import epoch_of
from service.stores.keys import NewKey
from service.stores.postgres import Postgres
from tests.conftest import Running

Epoch = Callable[[], Awaitable[int]]


@pytest.fixture
async def tenant(braid: Running) -> tuple[httpx.AsyncClient, str, Epoch]:
    """A tenant with one document and up-to-date statistics, and how to read its epoch."""
    key = await braid.key()
    client, id = braid.client(key), await braid.tenant_of(key)
    await client.put("/v1/documents/a?wait=true", json={"title": "walrus", "links": [{"to": "b"}]})
    await counted(braid, id)
    return client, id, lambda: epoch_of(braid.engines.postgres, id)


async def counted(braid: Running, tenant: str) -> None:
    """Waits until the statistics have followed the writes: the service counts them in the background."""
    behind = (
        "SELECT 1 FROM (SELECT sum(changes) AS changes FROM usage WHERE tenant_id = $1) u "
        "LEFT JOIN corpus c ON c.tenant_id = $1 WHERE u.changes > coalesce(c.changes, 0) OR c.weighed_to IS NOT NULL"
    )
    for _ in range(1000):
        if not await braid.sql(behind, tenant):
            return
    raise AssertionError("the statistics never came up to date")


async def test_a_search_does_not_advance_it(tenant: tuple[httpx.AsyncClient, str, Epoch]) -> None:
    client, _, epoch = tenant
    before = await epoch()
    await client.post("/v1/search", json={"query": "walrus"})
    await client.get("/v1/documents/a")
    assert await epoch() == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/documents/b", {"title": "new"}),
        ("PUT", "/v1/documents/a", {"title": "changed"}),
        ("POST", "/v1/documents", [{"id": "c", "title": "one of many"}]),
        ("DELETE", "/v1/documents/a", None),
        ("POST", "/v1/edges", [{"source": "a", "target": "c"}]),
        ("DELETE", "/v1/edges", [{"source": "a", "target": "b"}]),
    ],
)
async def test_every_write_advances_it_before_it_is_answered(
    tenant: tuple[httpx.AsyncClient, str, Epoch], method: str, path: str, body: object
) -> None:
    client, _, epoch = tenant
    before = await epoch()
    assert (await client.request(method, path, json=body)).is_success
    assert await epoch() > before


async def test_what_an_engine_applies_advances_it_before_it_is_visible(
    tenant: tuple[httpx.AsyncClient, str, Epoch],
) -> None:
    """One for the write itself, and one more for each of the two sinks."""
    client, _, epoch = tenant
    before = await epoch()
    assert (await client.put("/v1/documents/b?wait=true", json={"title": "new"})).json()["visible"]
    assert await epoch() >= before + 3


async def test_an_admin_who_changes_a_namespace_advances_it(
    braid: Running, tenant: tuple[httpx.AsyncClient, str, Epoch]
) -> None:
    _, id, epoch = tenant
    [name] = [row["name"] for row in await braid.sql("SELECT name FROM tenants WHERE id = $1", id)]
    key, _ = await braid.app.state.braid.key_desk.create("cli", None, NewKey("epochs", ("admin",)))
    before = await epoch()
    path = f"/v1/admin/tenants/{name}/namespaces/default"
    assert (await braid.client(key).patch(path, json={"weights": {"keyword": 1}})).is_success
    assert await epoch() > before


async def test_another_tenants_writes_leave_it_alone(
    braid: Running, tenant: tuple[httpx.AsyncClient, str, Epoch]
) -> None:
    _, _, epoch = tenant
    before = await epoch()
    other = await braid.tenant()
    await other.put("/v1/documents/a?wait=true", json={"title": "walrus"})
    assert await epoch() == before


class TestAccesses:
    async def test_what_was_found_is_added_up(
        self, braid: Running, tenant: tuple[httpx.AsyncClient, str, Epoch]
    ) -> None:
        """Of documents that are still there; twice, as an instance flushes for ever."""
        _, id, epoch = tenant
        before = await epoch()
        accesses = Accesses(braid.engines.postgres)
        for found in (["a", "a", "gone"], ["a"]):
            accesses.found(id, found)
            await accesses.flush()
        assert await counts(braid, id) == {"a": 3}
        assert await epoch() == before  # or no answer would be remembered for longer than between two flushes

    async def test_deleting_a_document_deletes_its_count(
        self, braid: Running, tenant: tuple[httpx.AsyncClient, str, Epoch]
    ) -> None:
        client, id, _ = tenant
        accesses = Accesses(braid.engines.postgres)
        accesses.found(id, ["a"])
        await accesses.flush()
        await client.delete("/v1/documents/a")
        assert await counts(braid, id) == {}

    async def test_a_flush_without_postgresql_fails_no_search(self) -> None:
        nowhere = Postgres("postgresql://nobody@127.0.0.1:1/none")
        accesses = Accesses(nowhere)
        accesses.found("00000000-0000-0000-0000-000000000000", ["a"])
        nowhere._pool = NoPool()
        await accesses.flush()
        assert accesses._counts == {}

    async def test_memory_is_bounded(self, braid: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("service.stores.accesses.HELD", 2)
        accesses = Accesses(braid.engines.postgres)
        accesses.found("t", ["a", "b", "c", "a"])
        assert accesses._counts["t"] == {"a": 2, "b": 1}


class NoPool:
    """A pool that never has a connection."""

    def acquire(self, timeout: float) -> object:
        raise TimeoutError


async def counts(braid: Running, tenant: str) -> dict[str, int]:
    rows = await braid.sql("SELECT id, count FROM accesses WHERE tenant_id = $1", tenant)
    return {row["id"]: row["count"] for row in rows}
