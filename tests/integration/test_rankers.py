"""How the keyword tier ranks: with BM25, with PostgreSQL's own function where that is asked for, and where pgvector is
not there to compute BM25 with.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from service.app import EMBEDDED_ROLE, prepare, with_user
from service.cli import _engines
from tests.conftest import Running, running

KEYWORD = {"keyword": 1, "vector": 0, "graph": 0}
DOCUMENTS = [
    {"id": "once", "content": "walrus and many other words that make this one longer than the rest"},
    {"id": "often", "content": "walrus walrus walrus"},
    {"id": "else", "content": "seal"},
]


async def scores(client: httpx.AsyncClient, **body: Any) -> dict[str, float]:
    response = await client.post("/v1/search", json={"query": "walrus", "weights": KEYWORD, **body})
    assert response.status_code == 200, response.text
    return {result["id"]: result["tiers"]["keyword"]["raw"] for result in response.json()["results"]}


async def test_ts_rank_cd_can_be_asked_for(client: httpx.AsyncClient) -> None:
    await client.post("/v1/documents?wait=true", json=DOCUMENTS)
    best = await scores(client)
    assert list(best) == ["often", "once"]
    assert await scores(client, keyword={"ranker": "bm25"}) == await scores(client, keyword={}) == best
    other = await scores(client, keyword={"ranker": "ts_rank_cd"})
    assert list(other) == ["often", "once"]
    assert other != best
    refused = await client.post("/v1/search", json={"query": "walrus", "keyword": {"ranker": "tf-idf"}})
    assert refused.status_code == 422


@pytest.fixture(scope="module")
async def without(braid: Running, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A Braid on a database whose server has no pgvector to give."""
    await braid.sql("CREATE DATABASE without_vector")
    owner = braid.database("without_vector")
    connection = await asyncpg.connect(owner)
    # What CREATE EXTENSION does there: it fails.
    await connection.execute(
        "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'vector is not available'; END $$; "
        "CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('CREATE EXTENSION') EXECUTE FUNCTION refuse()"
    )
    await connection.close()
    url = with_user(owner, EMBEDDED_ROLE)
    await prepare(owner, url, embedded=True)
    folder: Path = tmp_path_factory.mktemp("without")
    engines = {"falkordb_url": braid.engines.addresses.falkordb_url, "qdrant_url": ":memory:"}
    async with running(folder, postgres_url=url, key_pepper="pepper", **engines) as started:
        yield started


async def test_without_pgvector_documents_are_ranked_all_the_same(without: Running) -> None:
    client = await without.tenant()
    written = (await client.post("/v1/documents?wait=true", json=DOCUMENTS)).json()
    assert not written["errors"], written
    found = await scores(client)
    assert list(found) == ["often", "once"]
    assert found == await scores(client, keyword={"ranker": "ts_rank_cd"})
    refused = await client.post("/v1/search", json={"query": "walrus", "keyword": {"ranker": "bm25"}})
    assert refused.status_code == 422
    assert "pgvector" in refused.json()["errors"][0]["message"]


async def test_without_pgvector_the_log_readiness_and_the_doctor_say_so(
    without: Running, braid: Running, caplog: pytest.LogCaptureFixture
) -> None:
    from service.app import _ranker

    with caplog.at_level(logging.WARNING):
        assert await _ranker(without.engines.postgres) == "ts_rank_cd"
    assert "no pgvector" in caplog.text
    ready = (await without.client().get("/readyz")).json()
    assert ready["keyword"]["ranker"] == "ts_rank_cd"
    engines, notes = _engines(ready)
    assert set(engines.values()) == {None}, "it is no reason to fail"
    assert "pgvector" in notes[0]
    good = (await braid.client().get("/readyz")).json()
    assert good["keyword"] == {"ranker": "bm25"}
    assert _engines(good)[1] == []
