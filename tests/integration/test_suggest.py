"""Search as you type: completions of the caller's own documents, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from service.model import Document, Reach
from service.stores.completions import Completions
from service.stores.documents import TenantDocuments
from tests.conftest import Running

DOCUMENTS = [
    {
        "id": "1",
        "title": "Gravel roads",
        "content": "gravel and the Grammar of graphs",
        "entities": ["Grace"],
    },
    {"id": "2", "title": "Gravity", "content": "gravity waves", "entities": ["Grace", "GRAVITY"]},
    {"id": "3", "title": "Notes", "content": "Gravity again, and gravel", "namespace": "notes", "entities": ["Élodie"]},
]


async def tenant_of(braid: Running, client: httpx.AsyncClient) -> str:
    return await braid.tenant_of(client.headers["Authorization"].removeprefix("Bearer "))


async def completed(braid: Running, client: httpx.AsyncClient) -> None:
    """Waits until nothing that this client wrote has still to be completed."""
    tenant = await tenant_of(braid, client)
    while await braid.sql("SELECT FROM completion_changes WHERE tenant_id = $1 LIMIT 1", tenant):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def write(braid: Running, client: httpx.AsyncClient, documents: list[dict[str, Any]]) -> None:
    written = (await client.post("/v1/documents", json=documents)).json()
    assert not written["errors"], written
    await completed(braid, client)


async def suggested(client: httpx.AsyncClient, q: str, **params: Any) -> list[tuple[str, str, int]]:
    response = await client.get("/v1/suggest", params={"q": q, **params})
    assert response.status_code == 200, response.text
    return [(each["text"], each["kind"], each["documents"]) for each in response.json()["suggestions"]]


@pytest.fixture(scope="module")
async def tenant(braid: Running) -> httpx.AsyncClient:
    client = await braid.tenant()
    await write(braid, client, DOCUMENTS)
    return client


async def test_titles_names_and_words_take_turns_the_most_common_first(tenant: httpx.AsyncClient) -> None:
    assert await suggested(tenant, "gra") == [
        ("Grace", "entity", 2),
        ("Gravel roads", "title", 1),
        ("gravel", "term", 2),
        ("GRAVITY", "entity", 1),
        ("grammar", "term", 1),
        ("graphs", "term", 1),
    ]


@pytest.mark.parametrize("q", ["g", "gr", "gra", "grav", "gravi", "gravit", "gravity", "GRAVITY", "  gravity"])
async def test_every_letter_more_still_completes(tenant: httpx.AsyncClient, q: str) -> None:
    assert "gravity" in {text.lower() for text, _, _ in await suggested(tenant, q)}


async def test_a_word_is_completed_behind_others_and_a_title_from_its_beginning(tenant: httpx.AsyncClient) -> None:
    assert await suggested(tenant, "gravel ro") == [("Gravel roads", "title", 1)]
    assert await suggested(tenant, "waves of gra", limit=1) == [("waves of gravel", "term", 2)]
    assert await suggested(tenant, "gravel ") == [("Gravel roads", "title", 1)]


@pytest.mark.parametrize("q", ["th", "the", "an", "and"])
async def test_words_that_no_search_looks_for_are_not_suggested(tenant: httpx.AsyncClient, q: str) -> None:
    assert q not in {text for text, _, _ in await suggested(tenant, q)}


@pytest.mark.parametrize("q", ["é", "él", "ÉLO", "élodie"])
async def test_letters_of_any_alphabet(tenant: httpx.AsyncClient, q: str) -> None:
    assert ("Élodie", "entity", 1) in await suggested(tenant, q)


@pytest.mark.parametrize(
    "q", ["%", "_", "\\", "'", "gra%", "' OR 1=1 --", "🦊", "北", "x" * 1024, '"gra', "gra*", "(", "\u2028a", "\ufffe"]
)
async def test_whatever_is_typed_is_text(tenant: httpx.AsyncClient, q: str) -> None:
    assert not {kind for _, kind, _ in await suggested(tenant, q)} - {"term"}


@pytest.mark.parametrize(
    "params",
    [{}, {"q": ""}, {"q": "  "}, {"q": "x\x00"}, {"q": "x" * 1025}, {"q": "x", "limit": 51}, {"q": "x", "limit": 0},
     {"q": "x", "namespace": "no spaces"}],
)  # fmt: skip
async def test_what_cannot_be_read_is_refused(tenant: httpx.AsyncClient, params: dict[str, Any]) -> None:
    response = await tenant.get("/v1/suggest", params=params)
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"


async def test_only_of_the_namespaces_asked_for(tenant: httpx.AsyncClient) -> None:
    assert await suggested(tenant, "gra", namespace="notes") == [("gravel", "term", 1), ("gravity", "term", 1)]
    assert await suggested(tenant, "gra", namespace=["nowhere"]) == []


async def test_a_key_completes_what_it_can_see_and_nobody_elses(braid: Running) -> None:
    whole = braid.client(await braid.key("complete-reach"))
    narrow = braid.client(await braid.key("complete-reach", namespaces=("open",)))
    stranger = await braid.tenant()
    documents = [
        {"id": n, "namespace": n, "title": f"Secretary {n}", "content": f"secret{n}", "entities": [f"Secreta {n}"]}
        for n in ("open", "closed")
    ]
    await write(braid, whole, documents)
    for q in ("s", "se", "secret"):
        assert len(await suggested(whole, q)) == 7, q
        assert {text for text, _, _ in await suggested(narrow, q)} == {"Secretary open", "secretopen", "Secreta open",
                                                                       "secretary"}, q  # fmt: skip
        assert ("secretary", "term", 1) in await suggested(narrow, q)
        assert await suggested(narrow, q, namespace="closed") == []
        assert await suggested(stranger, q) == []


async def test_completions_change_and_go_with_their_documents(braid: Running, client: httpx.AsyncClient) -> None:
    documents = [
        {"id": str(n), "title": f"Walnut {n}", "content": "walnut walrus", "entities": ["Wally"]} for n in (1, 2)
    ]
    await write(braid, client, documents)
    assert {("Wally", "entity", 2), ("walrus", "term", 2), ("Walnut 1", "title", 1)} <= set(
        await suggested(client, "wal")
    )
    await write(braid, client, [{"id": "1", "title": "Walnut 3", "content": "walnut", "namespace": "other"}])
    assert sorted(await suggested(client, "wal")) == [
        ("Wally", "entity", 1), ("Walnut 2", "title", 1), ("Walnut 3", "title", 1), ("walnut", "term", 2),
        ("walrus", "term", 1),
    ]  # fmt: skip
    for id in ("1", "2"):
        assert (await client.delete(f"/v1/documents/{id}")).status_code == 204
    await completed(braid, client)
    assert await suggested(client, "wal") == []
    assert await braid.sql("SELECT FROM completions WHERE tenant_id = $1", await tenant_of(braid, client)) == []


async def test_counts_are_exact_whatever_the_order_and_size_of_batches(braid: Running) -> None:
    """Written, changed and deleted by several at once, and folded a few changes at a time by several at once."""
    postgres = braid.engines.postgres
    tenant = await braid.tenant_of(await braid.key())
    documents, completions = TenantDocuments(postgres, Reach(tenant)), Completions(postgres)

    async def writes(writer: int) -> None:
        for n in range(6):
            word = "even" if n % 2 == 0 else "odd"
            await documents.put([(Document(f"{writer}-{i}", title="Same", content=f"{word} {writer}x"), None)
                                 for i in range(4)])  # fmt: skip
        await documents.delete(f"{writer}-0")

    async def folds() -> None:
        for _ in range(20):
            async with postgres.tenant(Reach(tenant), writes=True) as connection:
                await connection.fetchval("SELECT fold_completions(2)")

    await asyncio.gather(*map(writes, range(4)), folds(), folds())
    await completions.fold(tenant)
    while await braid.sql("SELECT FROM completion_changes WHERE tenant_id = $1 LIMIT 1", tenant):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    rows = await braid.sql("SELECT kind, folded, documents FROM completions WHERE tenant_id = $1", tenant)
    expected = {("title", "same"): 12, ("term", "same"): 12, ("term", "odd"): 12}
    expected |= {("term", f"{writer}x"): 3 for writer in range(4)}
    assert {(row["kind"], row["folded"]): row["documents"] for row in rows} == expected
