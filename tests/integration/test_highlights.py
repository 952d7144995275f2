"""Highlights over HTTP: in the language of each namespace, for the page that is returned, and safe to show."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Running

DOCUMENTS = [
    {
        "id": "pump",
        "title": "Pump P-204 runs <b>hot</b>",
        "content": "<script>alert('pumping')</script> The temperature of the bearings rose during the night shift.",
        "tags": ["urgent"],
    },
    {"id": "haus", "namespace": "deutsch", "title": "Häuser am See", "content": "Zwei Häuser und ein Haus, the house."},
    {"id": "plain", "namespace": "plain", "title": "Pumps", "content": "pumps and a pump"},
    {"id": "long", "namespace": "long", "content": f"{'word ' * 30_000} pump"},
]


@pytest.fixture(scope="module")
async def tenant(braid: Running) -> httpx.AsyncClient:
    client = braid.client(await braid.key("highlights"))
    spaces = braid.app.state.braid.spaces
    for name, language in (("deutsch", "german"), ("plain", "simple")):
        await spaces.add_namespace("test", "highlights", name, {"language": language})
    written = (await client.post("/v1/documents?wait=true", json=DOCUMENTS)).json()
    assert not written["errors"], written
    return client


async def highlights(client: httpx.AsyncClient, query: str, **body: Any) -> dict[str, Any]:
    response = await client.post("/v1/search", json={"query": query, "highlight": True, **body})
    assert response.status_code == 200, response.text
    return {result["id"]: result["highlight"] for result in response.json()["results"]}


async def test_matches_are_marked_and_all_else_is_escaped(tenant: httpx.AsyncClient) -> None:
    found = await highlights(tenant, "pump bearing hot", namespace="default")
    assert found["pump"]["title"] == "<mark>Pump</mark> P-204 runs &lt;b&gt;<mark>hot</mark>&lt;/b&gt;"
    (fragment,) = found["pump"]["content"]
    assert fragment.startswith("&lt;script&gt;alert(&#x27;<mark>pumping</mark>&#x27;)&lt;/script&gt; The temperature")
    assert fragment.endswith("of the <mark>bearings</mark> rose during the night shift.")


@pytest.mark.parametrize(
    ("query", "namespace", "expected"),
    [
        ("Haus", "deutsch", "Zwei <mark>Häuser</mark> und ein <mark>Haus</mark>, the house."),
        ("pump", "plain", "pumps and a <mark>pump</mark>"),
        ("pum*", "plain", "<mark>pumps</mark> and a <mark>pump</mark>"),
        ('"night shifts"', "default", "during the <mark>night shift</mark>."),
        ("tag:urgent temperatures", "default", "The <mark>temperature</mark> of"),
    ],
)
async def test_words_match_as_in_the_language_of_their_namespace(
    tenant: httpx.AsyncClient, query: str, namespace: str, expected: str
) -> None:
    ((found),) = (await highlights(tenant, query, namespace=namespace)).values()
    assert expected in found["content"][0]


async def test_one_page_may_speak_several_languages(tenant: httpx.AsyncClient) -> None:
    found = await highlights(tenant, "Häuser pumps")
    assert found["haus"]["title"] == "<mark>Häuser</mark> am See"
    assert found["plain"]["content"] == ["<mark>pumps</mark> and a pump"]


async def test_what_only_another_tier_found_shows_its_beginning(tenant: httpx.AsyncClient) -> None:
    found = await highlights(tenant, "overheated machine", weights={"keyword": 0}, namespace="plain")
    assert found["plain"] == {"title": "Pumps", "content": ["pumps and a pump"]}


async def test_only_who_asks_gets_them_also_by_url(tenant: httpx.AsyncClient) -> None:
    plain = (await tenant.get("/v1/search", params={"q": "pump", "limit": 1})).json()
    assert "highlight" not in plain["results"][0]
    asked = (await tenant.get("/v1/search", params={"q": "pump", "namespace": "default", "highlight": "true"})).json()
    assert "<mark>" in asked["results"][0]["highlight"]["title"]


async def test_a_long_text_is_looked_at_up_to_a_bound(tenant: httpx.AsyncClient) -> None:
    (found,) = (await highlights(tenant, "pump", namespace="long")).values()
    assert "<mark>" not in found["content"][0]


@pytest.mark.parametrize("query", ["the", "-", '"', "a" * 1024, "🦊", "\\ ' \" %", "x " * 64])
async def test_any_query_is_answered(tenant: httpx.AsyncClient, query: str) -> None:
    await highlights(tenant, query)


async def test_a_vector_alone_marks_nothing(tenant: httpx.AsyncClient) -> None:
    found = await highlights(tenant, "", vector=[0.1] * 256, limit=2)
    assert found
    assert "<mark>" not in str(found)
