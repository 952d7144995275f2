"""The language of a namespace: chosen, by configuration, and changed while it holds documents."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from service.errors import SetupError
from service.model import Document, Reach
from service.stores.documents import TenantDocuments
from service.stores.languages import Rewording, check_language
from service.stores.words import Weighing
from tests.conftest import Running

KEYWORD = {"keyword": 1, "vector": 0, "graph": 0}


async def found(client: httpx.AsyncClient, query: str, namespace: str) -> set[str]:
    body = {"query": query, "namespace": namespace, "weights": KEYWORD}
    return {result["id"] for result in (await client.post("/v1/search", json=body)).json()["results"]}


async def test_changing_a_language_indexes_the_namespace_again(braid: Running) -> None:
    client = braid.client(await braid.key("tongues"))
    spaces = braid.app.state.braid.spaces
    documents = [{"id": f"{n}-{i}", "namespace": n, "content": "Häuser"} for n in ("de", "en") for i in range(3)]
    await client.post("/v1/documents", json=documents)
    assert await found(client, "Haus", "de") == set()
    await spaces.change_namespace("test", "tongues", "de", {"language": "german"})
    while await braid.sql("SELECT FROM namespaces WHERE worded_to IS NOT NULL"):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert await found(client, "Haus", "de") == {"de-0", "de-1", "de-2"}
    assert await found(client, "Haus", "en") == set(), "the others stay as they are"
    await client.put("/v1/documents/new", json={"namespace": "de", "content": "Hauses"})
    assert "new" in await found(client, "Häuser", "de")


async def test_it_goes_on_where_it_was_broken_off_and_lets_searches_and_writers_through(
    braid: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres = braid.engines.postgres
    client = braid.client(await braid.key("half-way"))
    tenant = await braid.tenant_of(client.headers["Authorization"].removeprefix("Bearer "))
    documents = TenantDocuments(postgres, Reach(tenant))
    await documents.put([(Document(f"d{n}", content="Häuser"), None) for n in range(5)])
    rewording = Rewording(postgres, Weighing())
    monkeypatch.setattr("service.stores.languages._BATCH", 2)
    async with postgres.tenant(Reach(tenant), writes=True) as holder:
        await holder.fetch("SELECT FROM namespaces FOR NO KEY UPDATE")  # as a batch holds it
        await asyncio.wait_for(documents.put([(Document("d9", content="Haus"), None)]), 5)
        await asyncio.wait_for(found(client, "Häuser", "default"), 5)
        await holder.execute("UPDATE namespaces SET language = 'german', worded_to = 'd1'")
    await rewording.reword(tenant)
    while await braid.sql("SELECT FROM namespaces WHERE tenant_id = $1 AND worded_to IS NOT NULL", tenant):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    assert await found(client, "Haus", "default") >= {"d2", "d3", "d4"}
    assert not await found(client, "Haus", "default") & {"d0", "d1"}, "what was done before is not done again"


async def test_new_namespaces_speak_the_configured_language(braid: Running) -> None:
    postgres = braid.engines.postgres
    tenant = await braid.tenant_of(await braid.key())
    await TenantDocuments(postgres, Reach(tenant), Weighing(language="simple")).put(
        [(Document("a", content="x"), None)]
    )
    [row] = await braid.sql("SELECT language::text FROM namespaces WHERE tenant_id = $1", tenant)
    assert row["language"] == "simple"
    with pytest.raises(SetupError, match="BRAID_KEYWORD_LANGUAGE"):
        await check_language(postgres, "klingon")
