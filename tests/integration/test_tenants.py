"""Two tenants with the same ids and the same texts never see each other, in any endpoint."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.model import TIERS, Document
from tests.conftest import Running

SHARED = {"title": "Walrus on ice", "content": "A walrus", "entities": ["Walrus"], "tags": ["sea"]}
ONLY = [{tier: float(tier == one) for tier in TIERS} for one in TIERS]


def documents(owner: str) -> list[dict[str, Any]]:
    """The same ids and texts for everyone; who wrote them stands in the metadata, and in one id and namespace."""
    mine = {"metadata": {"owner": owner}}
    return [
        {"id": "a", **SHARED, **mine, "links": [{"to": "b", "type": f"link-of-{owner}"}]},
        {"id": "b", **SHARED, **mine},
        {"id": f"only-{owner}", **SHARED, **mine, "namespace": f"ns-{owner}", "links": [{"to": "a"}]},
    ]


async def pair(braid: Running) -> dict[str, httpx.AsyncClient]:
    clients = {owner: await braid.tenant() for owner in ("ada", "bob")}
    for owner, client in clients.items():
        answer = (await client.post("/v1/documents?wait=true", json=documents(owner))).json()
        assert not answer["errors"]
        assert answer["visible"]
    return clients


@pytest.fixture(scope="module")
async def both(braid: Running) -> dict[str, httpx.AsyncClient]:
    return await pair(braid)


@pytest.mark.parametrize(("owner", "other"), [("ada", "bob"), ("bob", "ada")])
class TestNobodySeesTheOther:
    @pytest.mark.parametrize("weights", [None, *ONLY])
    async def test_searching(
        self, both: dict[str, httpx.AsyncClient], owner: str, other: str, weights: dict[str, float] | None
    ) -> None:
        bodies: list[dict[str, Any]] = [
            {},
            {"include_namespaces": ["default", f"ns-{owner}", f"ns-{other}"]},
            {"filter": {"tags": ["sea"]}},
        ]
        for body in bodies:
            asked = {"query": f"walrus on ice {other}", "limit": 100, "explain": True, "weights": weights, **body}
            response = await both[owner].post("/v1/search", json=asked)
            results = response.json()["results"]
            assert {r["id"] for r in results} == {"a", "b", f"only-{owner}"}
            assert {r["metadata"]["owner"] for r in results} == {owner}
            assert f"link-of-{other}" not in response.text
            assert f"only-{other}" not in response.text
        response = await both[owner].post(
            "/v1/search", json={"query": "walrus", "weights": weights, "namespace": f"ns-{other}"}
        )
        assert response.json()["results"] == []
        by_owner = {"query": "walrus", "weights": weights, "filter": {"metadata": {"owner": other}}}
        assert (await both[owner].post("/v1/search", json=by_owner)).json()["results"] == []

    async def test_searching_by_get(self, both: dict[str, httpx.AsyncClient], owner: str, other: str) -> None:
        results = (await both[owner].get("/v1/search", params={"q": "walrus", "limit": 100})).json()["results"]
        assert {r["metadata"]["owner"] for r in results} == {owner}

    async def test_searching_by_vector(self, both: dict[str, httpx.AsyncClient], owner: str, other: str) -> None:
        body = {"vector": [1.0] * 256, "limit": 100}
        results = (await both[owner].post("/v1/search", json=body)).json()["results"]
        assert {r["metadata"]["owner"] for r in results} == {owner}

    async def test_reading(self, both: dict[str, httpx.AsyncClient], owner: str, other: str) -> None:
        document = (await both[owner].get("/v1/documents/a")).json()
        assert document["metadata"] == {"owner": owner}
        assert [link["type"] for link in document["links"]] == [f"link-of-{owner}"]
        assert (await both[owner].get(f"/v1/documents/only-{other}")).status_code == 404

    async def test_listing(self, both: dict[str, httpx.AsyncClient], owner: str, other: str) -> None:
        page = (await both[owner].get("/v1/documents")).json()
        assert {d["metadata"]["owner"] for d in page["documents"]} == {owner}
        page = (await both[owner].get("/v1/documents", params={"namespace": f"ns-{other}"})).json()
        assert page == {"documents": [], "next": None}

    async def test_neighbours(self, both: dict[str, httpx.AsyncClient], owner: str, other: str) -> None:
        found = (await both[owner].get("/v1/documents/a/neighbors")).json()["neighbors"]
        assert {(n["id"], n["type"]) for n in found} == {("b", f"link-of-{owner}"), (f"only-{owner}", "related_to")}
        assert (await both[owner].get(f"/v1/documents/only-{other}/neighbors")).status_code == 404

    async def test_namespaces(self, both: dict[str, httpx.AsyncClient], owner: str, other: str) -> None:
        names = [n["name"] for n in (await both[owner].get("/v1/namespaces")).json()["namespaces"]]
        assert names == ["default", f"ns-{owner}"]


async def test_nobody_changes_what_is_not_theirs(braid: Running) -> None:
    clients = await pair(braid)
    ada, bob = clients["ada"], clients["bob"]
    assert (await ada.delete("/v1/documents/only-bob")).status_code == 404
    assert (await ada.put("/v1/documents/only-bob?wait=true", json={"title": "mine"})).json()["status"] == "created"
    gone = await ada.request("DELETE", "/v1/edges", json=[{"source": "only-bob", "target": "a"}])
    assert gone.json()["deleted"] == 0
    edge = {"source": "a", "target": "only-bob", "type": "intruder"}
    await ada.post("/v1/edges?wait=true", json=[edge])
    for id in ("a", "b", "only-ada", "only-bob"):
        assert (await ada.delete(f"/v1/documents/{id}?wait=true")).status_code == 204
    assert (await bob.get("/v1/documents/only-bob")).json()["title"] == SHARED["title"]
    assert "intruder" not in (await bob.get("/v1/documents/only-bob/neighbors")).text
    for weights in ONLY:
        results = (await bob.post("/v1/search", json={"query": "walrus on ice", "weights": weights})).json()["results"]
        assert {r["id"] for r in results} == {"a", "b", "only-bob"}


async def test_a_foreign_or_stale_hit_in_a_derived_engine_vanishes_when_hydrated(braid: Running) -> None:
    """Whatever Qdrant and FalkorDB hold: a document that PostgreSQL does not know for this tenant never comes back."""
    key = await braid.key()
    client, tenant = braid.client(key), await braid.tenant_of(key)
    await client.put("/v1/documents/real?wait=true", json={"title": "walrus", "entities": ["Walrus"]})
    ghosts = [Document(f"ghost-{n}", title="walrus", entities=("Walrus",)) for n in range(30)]
    await braid.engines.vectors.upsert(tenant, [(ghost, [1.0] * 256) for ghost in ghosts])
    await braid.engines.graph.apply(tenant, [(ghost, ()) for ghost in ghosts])
    for body in ({"query": "walrus"}, {"query": "walrus", "vector": [1.0] * 256}):
        answer = (await client.post("/v1/search", json={**body, "limit": 5})).json()
        assert answer["tiers"]["vector"]["hits"] == 31
        assert answer["tiers"]["graph"]["hits"] == 31
        assert [r["id"] for r in answer["results"]] == ["real"]


async def test_tenants_whose_ids_begin_alike_share_no_words(braid: Running) -> None:
    """The keyword index tells tenants apart by the beginning of their ids first, and must not stop there."""
    start, clients = "c0ffee00", []
    for number in (1, 2):
        name, id = f"{start}-{number}", f"{start}-0000-4000-8000-00000000000{number}"
        await braid.sql("INSERT INTO tenants VALUES ($1, $2)", id, name)
        await braid.sql("INSERT INTO projects VALUES ($1, 'default')", id)
        clients.append(braid.client(await braid.key(name)))
    for number, client in enumerate(clients):
        body = [{"id": f"{number}-{each}", **SHARED} for each in range(3)]
        assert (await client.post("/v1/documents?wait=true", json=body)).json()["visible"]
    for client in clients:
        found = (await client.post("/v1/search", json={"query": "walrus", "weights": ONLY[0]})).json()
        assert found["tiers"]["keyword"]["hits"] == len(found["results"]) == 3
