"""Indexes that differ from PostgreSQL: noticed, told by kind, and repaired."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.model import Document, Held
from service.stores.dirty import Expected
from service.stores.keys import NewKey
from service.verification import KINDS, compared
from tests.conftest import Running

DIMENSION = 256


class Checked:
    """A tenant with four documents that every tier has, and an admin."""

    def __init__(self, braid: Running, client: httpx.AsyncClient, admin: httpx.AsyncClient, name: str, id: str) -> None:
        self.braid, self.client, self.admin, self.name, self.id = braid, client, admin, name, id

    async def verify(self, tier: str, **body: Any) -> dict[str, Any]:
        answer = await self.admin.post("/v1/admin/verify", json={"tenant": self.name, "tier": tier, **body})
        assert answer.status_code == 200, answer.text
        [report] = answer.json()["reports"]
        assert answer.json()["agrees"] is not any(report[kind] for kind in KINDS)
        return dict(report)

    async def counts(self, tier: str, **body: Any) -> tuple[int, ...]:
        report = await self.verify(tier, **body)
        return tuple(report[kind] for kind in KINDS)

    async def settled(self) -> None:
        async with asyncio.timeout(15):
            pending = "SELECT FROM dirty WHERE tenant_id = $1 AND applied_version < wanted_version"
            while await self.braid.sql(pending, self.id):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture
async def checked(braid: Running) -> Checked:
    key = await braid.key()
    client, id = braid.client(key), await braid.tenant_of(key)
    made, _ = await braid.app.state.braid.key_desk.create("test", None, NewKey(f"verify-{id}", ("admin",)))
    [row] = await braid.sql("SELECT name FROM tenants WHERE id = $1", id)
    bodies = [{"id": f"d{n}", "title": f"Heron {n}", "links": [{"to": "d0"}]} for n in range(4)]
    answer = await client.post("/v1/documents", params={"wait": True}, json=bodies)
    assert answer.json()["visible"] is True
    return Checked(braid, client, braid.client(made), row["name"], id)


async def test_indexes_that_are_well_agree(checked: Checked) -> None:
    for tier in ("keyword", "vector", "graph"):
        report = await checked.verify(tier)
        assert (report["documents"], *(report[kind] for kind in KINDS)) == (4, 0, 0, 0, 0)


async def test_the_vector_index_is_repaired(checked: Checked) -> None:
    vectors = checked.braid.engines.vectors
    await vectors.delete(checked.id, ["d0"], 2**53)
    await vectors.upsert(checked.id, [(Document("ghost"), [1.0] * DIMENSION)], 1)
    await vectors.upsert(checked.id, [(Document("d1", version=1), [1.0] * DIMENSION)], 2**52)
    assert await checked.counts("vector") == (1, 1, 1, 0)
    await checked.braid.sql(
        "UPDATE dirty SET fence = $2 WHERE tenant_id = $1 AND document_id = 'd1'", checked.id, 2**52
    )
    assert await checked.counts("vector", repair=True) == (1, 1, 0, 0)
    await checked.settled()
    assert await checked.counts("vector") == (0, 0, 0, 0)


async def test_the_graph_is_repaired(checked: Checked) -> None:
    graph = checked.braid.engines.graph
    await graph.delete(checked.id, ["d0"], 2**53)
    await graph.apply(checked.id, [(Document("ghost"), [])], 1)
    await graph._write(checked.id, "CREATE (:Document {id: 'd1', version: 1, fence: 1})")
    await graph._write(checked.id, "MATCH (d:Document {id: 'd2'}) SET d.fence = 1")
    report = await checked.verify("graph")
    assert [report[kind] for kind in ("missing", "phantom", "duplicate")] == [1, 1, 1]
    assert report["stale"] >= 1
    assert {"d0", "d1", "d2", "ghost"} == set(report["examples"])
    await checked.verify("graph", repair=True)
    await checked.settled()
    assert await checked.counts("graph") == (0, 0, 0, 0)
    drawn = await graph._read(
        checked.id, "MATCH (:Document)-[r:LINK]->(:Document {id: 'd0'}) RETURN count(r)", {}, 1000
    )
    assert drawn == [[4]]


async def test_missing_words_are_made_again(checked: Checked) -> None:
    await checked.braid.sql("DELETE FROM words WHERE tenant_id = $1 AND id = 'd3'", checked.id)
    assert await checked.counts("keyword", repair=True) == (1, 0, 0, 0)
    assert await checked.counts("keyword") == (0, 0, 0, 0)


@pytest.mark.parametrize("tier", ["keyword", "vector", "graph"])
async def test_an_index_is_made_anew(checked: Checked, tier: str) -> None:
    if tier == "keyword":
        await checked.braid.sql("DELETE FROM words WHERE tenant_id = $1", checked.id)
    elif tier == "vector":
        await checked.braid.engines.vectors.drop(checked.id)
    else:
        await checked.braid.engines.graph.drop(checked.id)
    assert (await checked.counts(tier))[0] == 4
    answer = await checked.admin.post("/v1/admin/rebuild", json={"tenant": checked.name, "tier": tier})
    assert (answer.status_code, answer.json()) == (202, {"documents": 4})
    await checked.settled()
    assert await checked.counts(tier) == (0, 0, 0, 0)
    weights = dict.fromkeys(("keyword", "vector", "graph"), 0) | {tier: 1}
    found = (await checked.client.post("/v1/search", json={"query": "Heron 1", "weights": weights})).json()
    assert "d1" in [result["id"] for result in found["results"]]


SOME = st.tuples(st.text(max_size=3), st.integers(0, 3))


@given(st.lists(SOME).map(dict), st.lists(SOME))
def test_nothing_differs_exactly_where_all_is_the_same(wanted: dict[str, int], held: list[tuple[str, int]]) -> None:
    for entries in (held, list(wanted.items())):
        found = compared(Expected(wanted, set()), [Held(id, 0, fence) for id, fence in entries])
        assert (not any(found.values())) == (sorted(entries) == sorted(wanted.items()))
