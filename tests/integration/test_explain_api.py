"""`/v1/explain`: where a document stands in a search, found or not, and why."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.integration.test_search_api import only, search, write


@pytest.fixture(scope="module")
async def herd(braid: Running) -> httpx.AsyncClient:
    client = await braid.tenant()
    await write(
        client,
        *({"id": f"d{n}", "title": "walrus", "content": f"ice {n}", "type": "note"} for n in range(5)),
        {"id": "twin", "title": "walrus", "content": "ice 0", "type": "note"},
        {"id": "log", "title": "A walrus seen from afar", "type": "log", "namespace": "far"},
        {"id": "stranger", "title": "Quarterly budget", "content": "numbers", "namespace": "far"},
    )
    await braid.counted(client)
    return client


async def explain(client: httpx.AsyncClient, id_: str, query: str = "walrus ice", **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/explain", json={"query": query, "id": id_, **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def test_a_result_is_explained_as_the_search_explains_it(herd: httpx.AsyncClient) -> None:
    found = await search(herd, "walrus ice", explain=True, limit=3)
    for rank, result in enumerate(found["results"], 1):
        told = await explain(herd, result["id"], limit=3)
        assert (told["rank"], told["on_page"], told["score"]) == (rank, True, result["score"])
        assert told["contributions"] == result["tiers"]
        assert told["reason"] == f"it is result {rank}"
        assert told["score"] == math.fsum(share["contribution"] for share in told["contributions"].values())
        assert told["tiers"]["keyword"]["rank"] == result["tiers"]["keyword"]["rank"]


async def test_what_is_below_the_page_says_so(herd: httpx.AsyncClient) -> None:
    last = (await search(herd, "walrus ice"))["results"][-1]["id"]
    told = await explain(herd, last, limit=1)
    assert not told["on_page"]
    assert told["reason"].endswith(", and the page ends with 1")


@pytest.mark.parametrize(
    ("id_", "body", "reason"),
    [
        ("log", {"namespace": "default"}, "it stands in the namespace 'far', which was not searched"),
        ("log", {"include_types": ["note"]}, "the filter, or the choice of types, leaves it out"),
        ("d0", {"filter": {"type": "log"}}, "the filter, or the choice of types, leaves it out"),
        ("stranger", {"weights": only("keyword")}, "no tier finds it; vector, graph did not answer or was not asked"),
        ("log", {"min_confidence": 1.0, "profile": "exact"}, "it was left out: confidence "),
        ("twin", {"collapse": 1.0}, "it was left out: nearly the same as 'd0'"),
        ("d4", {"group_by": {"field": "type"}}, "it was left out: 1 better of the group 'note' are there"),
    ],
)
async def test_what_is_not_there_says_why(herd: httpx.AsyncClient, id_: str, body: dict[str, Any], reason: str) -> None:
    told = await explain(herd, id_, **body)
    assert told["rank"] is None
    assert told["reason"].startswith(reason)


async def test_a_document_that_is_no_candidate_still_has_its_place_in_the_tier(client: httpx.AsyncClient) -> None:
    await write(client, *({"id": f"n{n:03}", "title": "walrus"} for n in range(160)))
    await write(client, {"id": "last", "content": "walrus " + "padding " * 300})
    told = await explain(client, "last", "walrus", weights=only("keyword"))
    assert told["tiers"]["keyword"]["rank"] == 161
    assert not told["tiers"]["keyword"]["candidate"]
    assert told["score"] is None
    assert told["reason"] == "it is too far down in every tier that finds it to be a candidate: 161 in keyword"


async def test_what_is_not_there_or_not_ours_is_not_found(braid: Running, herd: httpx.AsyncClient) -> None:
    for client in (herd, await braid.tenant()):
        answer = await client.post("/v1/explain", json={"query": "walrus", "id": "d0" if client is not herd else "x"})
        assert answer.status_code == 404
