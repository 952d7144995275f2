"""What callers and operators see while an index is behind: versions, refusals, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.errors import TierInvalid
from service.stores.falkordb import GraphStore
from service.stores.keys import NewKey
from tests.conftest import Running, running
from tests.faults.conftest import Breakable, breakable


@pytest.fixture(scope="module")
async def behind(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Breakable]:
    """A Braid that waits for half a second only, and takes hardly more than a hundred documents ahead."""
    folder: Path = tmp_path_factory.mktemp("behind")
    terms = {"index_poll_ms": 50, "wait_timeout_ms": 300, "index_backlog_max": 100}
    async with running(folder / "data", **terms) as braid:
        yield await breakable(braid, folder / "data")


async def admin_of(braid: Running) -> httpx.AsyncClient:
    key, _ = await braid.app.state.braid.key_desk.create("cli", None, NewKey("ops", ("admin",)))
    return braid.client(key)


async def until_visible(client: httpx.AsyncClient, id: str) -> None:
    async with asyncio.timeout(15):
        while not (await client.get(f"/v1/documents/{id}/status")).json().get("visible", True):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_every_wait_ends_with_a_202_and_the_version_that_is_still_to_come(behind: Breakable) -> None:
    client = behind.client
    first = (await client.put("/v1/documents/a", json={"title": "One"})).json()
    await client.put("/v1/documents/gone", json={"title": "Gone"})
    await until_visible(client, "a")
    await until_visible(client, "gone")
    with behind.falkordb.down():
        late = await client.put("/v1/documents/a", params={"wait": True}, json={"title": "Two"})
        status = (await client.get("/v1/documents/a/status")).json()
        bulk = await client.post("/v1/documents", params={"wait": True}, json=[{"id": "b", "title": "Bee"}])
        links = await client.post("/v1/edges", params={"wait": True}, json=[{"source": "a", "target": "b"}])
        cut = await client.request("DELETE", "/v1/edges", params={"wait": True}, json=[{"source": "a", "target": "b"}])
        gone = await client.delete("/v1/documents/gone", params={"wait": True})
        tombstone = (await client.get("/v1/documents/gone/status")).json()
    assert [r.status_code for r in (late, bulk, links, cut, gone)] == [202] * 5
    version = late.json()["version"]
    assert late.json() == {"id": "a", "status": "updated", "version": version, "visible": False}
    assert status == {
        "id": "a",
        "version": version,
        "visible": False,
        "tiers": {
            "keyword": {"wanted": version, "applied": version},
            "vector": {"wanted": version, "applied": version},
            "graph": {"wanted": version, "applied": first["version"]},
        },
    }
    assert gone.json()["version"] == tombstone["tiers"]["graph"]["wanted"] > version
    assert "version" not in tombstone
    await until_visible(client, "a")
    await until_visible(client, "gone")
    await behind.whole(15)


async def test_a_status_is_of_ones_own_documents_only(behind: Breakable) -> None:
    await behind.client.put("/v1/documents/mine", json={"title": "Mine", "namespace": "here"})
    tenant = await behind.braid.tenant_of(behind.client.headers["authorization"].removeprefix("Bearer "))
    stranger = await behind.braid.tenant()
    assert (await stranger.get("/v1/documents/mine/status")).status_code == 404
    [name] = [row["name"] for row in await behind.braid.sql("SELECT name FROM tenants WHERE id = $1", tenant)]
    narrow = behind.braid.client(await behind.braid.key(name, namespaces=["there"]))
    with behind.falkordb.down():
        assert (await narrow.get("/v1/documents/mine/status")).status_code == 404
        await behind.client.delete("/v1/documents/mine")
        assert (await behind.client.get("/v1/documents/mine/status")).status_code == 200
        assert (await narrow.get("/v1/documents/mine/status")).status_code == 404
    await behind.whole(15)


async def test_a_tenant_that_writes_faster_than_the_indexes_can_follow_is_told_to_wait(behind: Breakable) -> None:
    client, other = behind.client, await behind.braid.tenant()
    with behind.falkordb.down():
        await client.post("/v1/documents", json=[{"title": f"Flood {n}"} for n in range(150)])
        await asyncio.sleep(0.6)  # it looks twice a second
        refused = await client.put("/v1/documents/more", json={"title": "More"})
        assert (await client.post("/v1/documents", json=[{"title": "More"}])).status_code == 429
        assert (await other.put("/v1/documents/more", json={"title": "More"})).status_code == 201
        assert (await client.delete("/v1/documents/a")).status_code in (204, 404)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "2"
    assert refused.json()["code"] == "backlog_full"
    async with asyncio.timeout(20):
        while (await client.put("/v1/documents/more", json={"title": "More"})).status_code == 429:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    await behind.whole(15)


async def test_a_refused_document_is_shown_with_its_error_and_tried_again_on_request(
    behind: Breakable, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = GraphStore.apply

    async def refuse(self: GraphStore, tenant: str, nodes: Any, fence: int = 0) -> None:
        if any(document.title == "Poison" for document, _ in nodes):
            raise TierInvalid("FalkorDB refused: it tastes odd")
        await apply(self, tenant, nodes, fence)

    monkeypatch.setattr(GraphStore, "apply", refuse)
    client, admin = await behind.braid.tenant(), await admin_of(behind.braid)
    bodies = [{"id": "poison", "title": "Poison"}, {"id": "well", "title": "Well"}]
    await client.post("/v1/documents", params={"wait": True}, json=bodies)
    await until_visible(client, "well")
    seen = (await admin.get("/v1/admin/indexing")).json()
    assert seen["tiers"]["graph"]["refused"] == 1
    [row] = seen["refused"]
    assert (row["id"], row["tier"], row["error"]) == ("poison", "graph", "FalkorDB refused: it tastes odd")
    assert row["tenant"].startswith("tenant-")
    assert "error" in (await client.get("/v1/documents/poison/status")).json()["tiers"]["graph"]
    await behind.braid.sql("UPDATE dirty SET next_try = now() + interval '1 hour' WHERE error IS NOT NULL")
    monkeypatch.undo()
    answer = await admin.post("/v1/admin/indexing/retry", json={"tenant": row["tenant"], "tier": "graph"})
    assert answer.json() == {"documents": 1}
    await until_visible(client, "poison")
    assert (await admin.get("/v1/admin/indexing", params={"tenant": row["tenant"]})).json()["refused"] == []
    assert (await admin.get("/v1/admin/indexing", params={"tenant": "nobody"})).status_code == 404
