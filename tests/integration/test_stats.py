"""A tenant's history: what it searched is what it is told, whoever else searches and whatever fails to be saved."""

from __future__ import annotations

import time

import httpx
import pytest

from service.errors import StoreUnavailable
from service.model import Reach
from service.stores.keys import NewKey
from service.stores.samples import Samples
from service.tally import Tally
from tests.conftest import Running

DOCUMENTS = [{"id": "a", "title": "walrus on ice", "entities": ["Walrus"]}, {"id": "b", "content": "a walrus sings"}]


async def search(client: httpx.AsyncClient, **body: object) -> dict[str, object]:
    response = await client.post("/v1/search", json={"query": "walrus", **body})
    return response.json()


async def test_the_figures_are_what_the_client_saw(client: httpx.AsyncClient) -> None:
    await client.post("/v1/documents?wait=true", json=DOCUMENTS)
    answers = [await search(client), await search(client, weights={"vector": 0}), await search(client, limit=1)]
    await search(client, namespace="nowhere")
    found = [result for answer in answers for result in answer["results"]]
    shown = (await client.get("/v1/stats?hours=1")).json()
    assert shown["searches"] == {"total": 4, "full": 4, "degraded": 0, "failed": 0, "empty": 1}
    for tier, figures in shown["tiers"].items():
        of_tier = [result for result in found if tier in result["tiers"]]
        assert figures["hits"] == len(of_tier), tier
        assert figures["unique"] == sum(len(result["tiers"]) == 1 for result in of_tier), tier
        assert figures["candidates"] == sum(answer["tiers"][tier]["hits"] for answer in answers), tier
    assert shown["tiers"]["vector"]["asked"] == 3
    assert shown["latency_ms"]["p50"] <= shown["latency_ms"]["p95"]
    assert shown["indexing"] == {sink: {"backlog": 0, "refused": 0, "lag_s": 0.0} for sink in ("vector", "graph")}


async def test_the_history_adds_up_to_the_figures(client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await search(client)
    for hours, step_s in ((1, 60), (24, 300), (168, 3600), (8760, 86400)):
        shown = (await client.get(f"/v1/stats/history?hours={hours}")).json()
        assert (shown["step_s"], sum(shown["searches"]["full"])) == (step_s, 3)
        assert len(shown["at"]) == len(shown["searches"]["full"]) == hours * 3600 // step_s
        assert shown["at"][-1] <= time.time() < shown["at"][-1] + step_s + 1
        assert sum(shown["tiers"]["keyword"]["asked"]) == 3


async def test_another_tenant_sees_nothing_of_it(braid: Running, client: httpx.AsyncClient) -> None:
    await search(client)
    other = await braid.tenant()
    assert (await other.get("/v1/stats")).json()["searches"]["total"] == 0
    assert sum((await other.get("/v1/stats/history")).json()["searches"]["total"]) == 0


async def test_a_key_that_sees_a_part_of_its_tenant_gets_no_figures_of_the_whole(braid: Running) -> None:
    narrow = braid.client(await braid.key(namespaces=("a",)))
    response = await narrow.get("/v1/stats")
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")
    assert "not bound" in response.json()["detail"]
    assert (await narrow.get("/v1/stats/history")).status_code == 403


async def test_an_admin_compares_tenants(braid: Running) -> None:
    busy = braid.client(await braid.key("stats-busy"))
    for _ in range(2):
        await search(busy)
    await search(braid.client(await braid.key("stats-idle")))
    key, _ = await braid.app.state.braid.key_desk.create("cli", None, NewKey("stats-admin", ("admin",)))
    shown = (await braid.client(key).get("/v1/admin/stats?hours=1&limit=1000")).json()["tenants"]
    totals = {each["tenant"]: each["searches"]["total"] for each in shown}
    assert (totals["stats-busy"], totals["stats-idle"]) == (2, 1)
    assert list(totals.values()) == sorted(totals.values(), reverse=True)
    assert (await busy.get("/v1/admin/stats")).status_code == 403


async def test_what_could_not_be_saved_is_saved_later(braid: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await braid.key()
    tenant, postgres = await braid.tenant_of(key), braid.engines.postgres
    tally = Tally()
    samples = Samples(postgres, tally, keep_hours=1)
    tally.failed(tenant, 3.0)
    with monkeypatch.context() as broken:
        broken.setattr(postgres, "_acquire_timeout", 0)
        with pytest.raises(StoreUnavailable):
            await samples.flush()
    tally.failed(tenant, 3.0)
    await samples.flush()
    await samples.flush()
    assert (await samples.totals(tenant, 1))["searches.failed"] == 2


async def test_a_save_whose_end_nobody_saw_can_be_repeated_and_processes_add_up(braid: Running) -> None:
    tenant = await braid.tenant_of(await braid.key())
    first, second = Tally(), Tally()
    for tally, times in ((first, 2), (second, 3)):
        samples = Samples(braid.engines.postgres, tally, keep_hours=1)
        for _ in range(times):
            tally.failed(tenant, 3.0)
        await samples.flush()
        tally._unsaved |= set(tally._samples)  # it was committed, but the connection broke before we heard of it
        await samples.flush()
    assert (await samples.totals(tenant, 1))["searches.failed"] == 5


async def test_samples_of_a_tenant_that_is_gone_hold_nothing_up(braid: Running) -> None:
    tenant = await braid.tenant_of(await braid.key())
    tally = Tally()
    tally.failed("99999999-9999-4999-8999-999999999999", 3.0)
    tally.failed(tenant, 3.0)
    samples = Samples(braid.engines.postgres, tally, keep_hours=1)
    await samples.flush()
    assert tally.unsaved() == {}
    assert (await samples.totals(tenant, 1))["searches.failed"] == 1


async def test_old_samples_are_removed(braid: Running) -> None:
    tenant = await braid.tenant_of(await braid.key())
    for age in (30, 3 * 3600):
        tally = Tally(lambda age=age: time.time() - age)
        tally.failed(tenant, 3.0)
        samples = Samples(braid.engines.postgres, tally, keep_hours=2)
        await samples.flush()
    await samples.prune()
    async with braid.engines.postgres.tenant(Reach(tenant)) as connection:
        assert await connection.fetchval("SELECT count(*) FROM samples") == 1


async def test_what_a_process_counted_last_is_saved_when_it_stops(braid: Running) -> None:
    """The lifespan's end is what `braid serve` runs when it is told to stop."""
    from contextlib import AsyncExitStack

    from service.app import _samples

    tenant = await braid.tenant_of(await braid.key())
    tally = Tally()
    samples = Samples(braid.engines.postgres, tally, keep_hours=1)
    async with AsyncExitStack() as stack:
        await _samples(samples, stack)
        tally.failed(tenant, 3.0)
    assert tally.unsaved() == {}
