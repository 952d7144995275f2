"""Qdrant closed in mid-run, and an embedder that is not there: the vector tier is missing, the others answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import running
from tests.faults.conftest import DOCUMENTS, Breakable, breakable, ids

KEYWORD, GRAPH = 0.65, 0.1  # the bundled embedder's weights
CLOSED_PORT = 1


async def test_a_search_without_qdrant_says_so_and_the_next_with_it_is_whole(own: Breakable) -> None:
    before = (await own.search()).json()
    assert "weather" in ids(before)
    await own.braid.engines.vectors.close()
    try:
        answer = await own.search()
        refused = await own.search(allow_degraded=False)
        ready = await own.client.get("/readyz")
        written = await own.client.put("/v1/documents/late", json={"title": "Snow", "content": "It freezes outside."})
    finally:
        await own.braid.engines.vectors.open()
    body = answer.json()
    assert answer.status_code == 200
    assert body["degraded"] is True
    assert body["tiers"]["vector"]["status"] == "unavailable"
    assert body["tiers"]["vector"]["reason"]
    assert {"stow", "keeper"} <= set(ids(body))
    assert body["weights"] == pytest.approx({"keyword": KEYWORD / 0.75, "graph": GRAPH / 0.75})
    assert refused.status_code == 503
    assert [error["field"] for error in refused.json()["errors"]] == ["tiers.vector"]
    assert ready.status_code == 200
    assert ready.json()["engines"]["qdrant"]["status"] == "unavailable"
    assert written.status_code == 201

    after = await own.whole()
    assert ids(before) == [id for id in ids(after) if id != "late"]
    assert "vector" in after["results"][0]["tiers"]
    await own.finds("vector", "cold winter weather", "late")


async def test_braid_starts_without_its_embedder_and_says_why_the_vector_tier_is_missing(data_dir: Path) -> None:
    embedder = {"embedder": f"http:http://127.0.0.1:{CLOSED_PORT}/v1", "embedder_dimension": 8}
    async with running(data_dir, index_poll_ms=50, **embedder) as braid:
        own = await breakable(braid, data_dir)
        assert (await own.client.post("/v1/documents", json=DOCUMENTS)).json()["errors"] is False
        await own.finds("graph", "Dipper", "keeper")
        answer = await own.search()
        by_callers_vector = await own.search(vector=[1.0] * 8)
    body = answer.json()
    assert answer.status_code == 200
    assert body["degraded"] is True
    assert body["tiers"]["vector"]["status"] == "unavailable"
    assert "embedder" in body["tiers"]["vector"]["reason"]
    assert {name for result in body["results"] for name in result["tiers"]} == {"keyword", "graph"}
    assert by_callers_vector.json()["degraded"] is False
