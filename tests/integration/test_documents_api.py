"""Documents over HTTP: written, read, listed, linked, and found as soon as the write says so."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

NOTE = {
    "namespace": "notes",
    "title": "Pump P-204 runs hot",
    "content": "Bearing temperature rose to 81 degrees during the night shift.",
    "metadata": {"author": "ada", "year": 2026, "parts": ["bearing", {"size": 3.5}]},
    "type": "note",
    "tags": ["pump", "heat"],
    "entities": ["Pump P-204"],
    "confidence": 0.95,
    "priority": 2,
    "created_at": "2026-03-01T10:00:00Z",
    "links": [{"to": "manual-17", "type": "supports", "strength": 0.9}],
}


async def put(client: httpx.AsyncClient, id: str, **body: Any) -> dict[str, Any]:
    response = await client.put(f"/v1/documents/{id}", params={"wait": "true"}, json=body)
    assert response.is_success, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def find(client: httpx.AsyncClient, query: str, **body: Any) -> list[str]:
    response = await client.post("/v1/search", json={"query": query, **body})
    assert response.status_code == 200, response.text
    return [result["id"] for result in response.json()["results"]]


async def test_a_document_comes_back_as_it_was_written(client: httpx.AsyncClient) -> None:
    written = await put(client, "note-3", **NOTE)
    stored = (await client.get("/v1/documents/note-3")).json()
    assert written == {"id": "note-3", "status": "created", "version": stored["version"], "visible": True}
    assert {key: stored[key] for key in NOTE} == NOTE | {"created_at": "2026-03-01T10:00:00+00:00"}
    assert stored["id"] == "note-3"
    assert stored["version"] > 0


@pytest.mark.parametrize("id", ["a/b", "neighbors", "x/neighbors/y", "ünï", "a b", "a%2Fb", "a?b", "日本", ".", "..x"])
async def test_an_id_may_be_any_printable_text(client: httpx.AsyncClient, id: str) -> None:
    path = f"/v1/documents/{''.join(f'%{byte:02X}' for byte in id.encode())}"
    assert (await client.put(path, json={"title": "odd"})).status_code == 201
    assert (await client.get(path)).json()["id"] == id


async def test_the_statuses_of_a_write(client: httpx.AsyncClient) -> None:
    created = await client.put("/v1/documents/a", json={"title": "one"})
    same = await client.put("/v1/documents/a", json={"title": "one"})
    changed = await client.put("/v1/documents/a", json={"title": "two"})
    assert [(r.status_code, r.json()["status"]) for r in (created, same, changed)] == [
        (201, "created"),
        (200, "unchanged"),
        (200, "updated"),
    ]


async def test_an_unchanged_document_keeps_its_version_and_is_not_indexed_again(client: httpx.AsyncClient) -> None:
    await put(client, "a", **NOTE)
    before = (await client.get("/v1/documents/a")).json()["version"]
    assert (await put(client, "a", **NOTE))["status"] == "unchanged"
    assert (await client.get("/v1/documents/a")).json()["version"] == before


async def test_changed_links_alone_are_a_change(client: httpx.AsyncClient) -> None:
    await put(client, "a", title="same", links=[{"to": "b"}])
    assert (await put(client, "a", title="same", links=[{"to": "c"}]))["status"] == "updated"
    assert [link["to"] for link in (await client.get("/v1/documents/a")).json()["links"]] == ["c"]


async def test_a_creation_time_stays_when_a_later_write_names_none(client: httpx.AsyncClient) -> None:
    await put(client, "a", title="one", created_at="2020-01-01T00:00:00Z")
    await put(client, "a", title="two")
    assert (await client.get("/v1/documents/a")).json()["created_at"] == "2020-01-01T00:00:00+00:00"


async def test_a_written_document_is_found_at_once_after_waiting(client: httpx.AsyncClient) -> None:
    await put(client, "a", **NOTE)
    response = await client.post("/v1/search", json={"query": "Pump P-204 bearing", "explain": True})
    [result] = response.json()["results"]
    assert set(result["tiers"]) == {"keyword", "vector", "graph"}


async def test_an_old_version_is_not_found_after_a_change(client: httpx.AsyncClient) -> None:
    await put(client, "a", title="walrus", entities=["Hvaldimir"])
    await put(client, "a", title="zebra", entities=["Zora"])
    keyword_and_graph = {"weights": {"vector": 0}}
    assert await find(client, "walrus Hvaldimir", **keyword_and_graph) == []
    assert await find(client, "zebra", **keyword_and_graph) == ["a"]
    assert await find(client, "Zora", **keyword_and_graph) == ["a"]


async def test_a_deleted_document_is_gone_everywhere(client: httpx.AsyncClient) -> None:
    await put(client, "a", **NOTE)
    assert (await client.delete("/v1/documents/a", params={"wait": "true"})).status_code == 204
    assert (await client.get("/v1/documents/a")).status_code == 404
    assert (await client.delete("/v1/documents/a")).status_code == 404
    assert await find(client, "Pump P-204 bearing temperature") == []
    answer = (await client.post("/v1/search", json={"query": "Pump P-204"})).json()
    assert {name: tier["hits"] for name, tier in answer["tiers"].items()} == {"keyword": 0, "vector": 0, "graph": 0}


async def test_a_document_can_be_written_again_after_its_deletion(client: httpx.AsyncClient) -> None:
    await put(client, "a", title="walrus")
    await client.delete("/v1/documents/a")
    assert (await put(client, "a", title="walrus"))["status"] == "created"
    assert await find(client, "walrus") == ["a"]


async def test_a_document_moves_to_another_namespace(client: httpx.AsyncClient) -> None:
    await put(client, "a", title="walrus", namespace="sea")
    await put(client, "a", title="walrus", namespace="zoo")
    assert await find(client, "walrus", namespace="sea") == []
    assert await find(client, "walrus", namespace="zoo") == ["a"]


class TestBulk:
    async def test_a_bad_item_fails_alone(self, client: httpx.AsyncClient) -> None:
        items = [
            {"id": "a", "title": "good"},
            {"id": "b", "title": "bad", "confidence": 7},
            {"title": "unnamed"},
            {"id": "c", "vector": [1.0, 2.0]},
            "not even an object",
            {"id": "d", "titel": "misspelt"},
            {"id": "a", "title": "again"},
        ]
        answer = (await client.post("/v1/documents?wait=true", json=items)).json()
        assert answer["errors"] is True
        assert answer["visible"] is True
        assert [item["status"] for item in answer["items"]] == [
            *("created", "error", "created", "error", "error", "error", "updated")
        ]
        assert "confidence" in answer["items"][1]["error"]
        assert "2 dimensions" in answer["items"][3]["error"]
        assert "titel" in answer["items"][5]["error"]
        assert answer["items"][2]["id"]
        assert (await client.get("/v1/documents/a")).json()["title"] == "again"
        assert (await client.get("/v1/documents/d")).status_code == 404

    async def test_lines_stream_in(self, client: httpx.AsyncClient) -> None:
        async def body() -> Any:
            for number in range(1300):
                yield json.dumps({"id": f"d{number:04}", "title": f"walrus {number}"}).encode() + b"\n"
            yield b"{broken\n\n"
            yield b'{"id": "last", "title": "no newline"}'

        headers = {"Content-Type": "application/x-ndjson"}
        response = await client.post("/v1/documents?wait=true", content=body(), headers=headers)
        answer = response.json()
        assert [item["status"] for item in answer["items"]] == ["created"] * 1300 + ["error", "created"]
        assert "not valid JSON" in answer["items"][1300]["error"]
        assert (await client.get("/v1/namespaces")).json() == {"namespaces": [{"name": "default", "documents": 1301}]}

    async def test_a_line_split_anywhere_is_still_one_line(self, client: httpx.AsyncClient) -> None:
        async def body() -> Any:
            for byte in '{"id": "ü", "title": "π"}\r\n{"id": "b", "title": "c"}\n'.encode():
                yield bytes([byte])

        headers = {"Content-Type": "application/x-ndjson"}
        answer = (await client.post("/v1/documents", content=body(), headers=headers)).json()
        assert [item["id"] for item in answer["items"]] == ["ü", "b"]
        assert answer["errors"] is False

    @pytest.mark.parametrize("body", ["[]", "{}", "7", "null", "[", json.dumps([{"title": "x"}] * 1001)])
    async def test_what_is_no_list_of_documents_is_refused(self, client: httpx.AsyncClient, body: str) -> None:
        response = await client.post("/v1/documents", content=body)
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == "body"


class TestList:
    async def test_pages_in_order_of_id(self, client: httpx.AsyncClient) -> None:
        await client.post("/v1/documents", json=[{"id": f"d{n}", "title": "x"} for n in range(7)])
        seen, after = [], ""
        for _ in range(4):
            page = (await client.get("/v1/documents", params={"limit": 2, "after": after})).json()
            seen.append([document["id"] for document in page["documents"]])
            after = page["next"]
        assert seen == [["d0", "d1"], ["d2", "d3"], ["d4", "d5"], ["d6"]]
        assert after is None

    async def test_filtered_by_namespace_and_filter(self, client: httpx.AsyncClient) -> None:
        items = [
            {"id": "a", "title": "x", "namespace": "n1", "tags": ["red"]},
            {"id": "b", "title": "x", "namespace": "n2", "tags": ["red"]},
            {"id": "c", "title": "x", "namespace": "n3", "tags": ["red"]},
            {"id": "d", "title": "x", "namespace": "n1", "tags": ["blue"]},
        ]
        await client.post("/v1/documents", json=items)
        params = [("namespace", "n1"), ("namespace", "n2"), ("filter", '{"tags": ["red"]}')]
        page = (await client.get("/v1/documents", params=params)).json()
        assert [document["id"] for document in page["documents"]] == ["a", "b"]

    async def test_a_bad_filter_is_named(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/v1/documents", params={"filter": '{"colour": 1}'})
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == "filter.colour"

    async def test_namespaces_are_counted(self, client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/namespaces")).json() == {"namespaces": []}
        items = [{"id": f"{n}{i}", "title": "x", "namespace": n} for n in ("b", "a") for i in range(2 + (n == "a"))]
        await client.post("/v1/documents", json=items)
        expected = [{"name": "a", "documents": 3}, {"name": "b", "documents": 2}]
        assert (await client.get("/v1/namespaces")).json() == {"namespaces": expected}


class TestEdges:
    async def test_neighbours_in_both_directions_strongest_first(self, client: httpx.AsyncClient) -> None:
        await client.post("/v1/documents", json=[{"id": id, "title": id.upper()} for id in "abcd"])
        edges = [
            {"source": "a", "target": "b", "type": "supports", "strength": 0.5},
            {"source": "c", "target": "a", "type": "part_of", "strength": 0.9},
            {"source": "a", "target": "missing", "strength": 1.0},
            {"source": "a", "target": "a", "strength": 1.0},
        ]
        answer = (await client.post("/v1/edges?wait=true", json=edges)).json()
        assert answer["errors"] is False
        assert answer["visible"] is True
        found = (await client.get("/v1/documents/a/neighbors")).json()["neighbors"]
        assert [(n["id"], n["direction"], n["type"], n["strength"], n["title"]) for n in found] == [
            ("c", "in", "part_of", 0.9, "C"),
            ("b", "out", "supports", 0.5, "B"),
        ]
        assert (await client.get("/v1/documents/nobody/neighbors")).status_code == 404

    async def test_a_bad_edge_fails_alone(self, client: httpx.AsyncClient) -> None:
        edges = [{"source": "a", "target": "b"}, {"source": "a"}, {"source": "a", "target": "b", "strength": 2}]
        answer = (await client.post("/v1/edges", json=edges)).json()
        assert [item["status"] for item in answer["items"]] == ["updated", "error", "error"]
        assert "target" in answer["items"][1]["error"]

    async def test_links_lead_the_graph_and_stop_when_deleted(self, client: httpx.AsyncClient) -> None:
        await client.post(
            "/v1/documents", json=[{"id": "a", "title": "Walrus", "entities": ["Hvaldimir"]}, {"id": "b", "title": "Q"}]
        )
        await client.post("/v1/edges?wait=true", json=[{"source": "a", "target": "b", "strength": 0.5}])
        only_graph = {"weights": {"keyword": 0, "vector": 0}}
        assert await find(client, "Hvaldimir", **only_graph) == ["a", "b"]
        gone = await client.request("DELETE", "/v1/edges?wait=true", json=[{"source": "a", "target": "b"}])
        assert gone.json() == {"deleted": 1, "visible": True}
        assert await find(client, "Hvaldimir", **only_graph) == ["a"]

    async def test_a_link_waits_for_its_document(self, client: httpx.AsyncClient) -> None:
        await put(client, "a", title="Walrus", entities=["Hvaldimir"], links=[{"to": "b"}])
        await put(client, "b", title="Q")
        assert await find(client, "Hvaldimir", weights={"keyword": 0, "vector": 0}) == ["a", "b"]

    async def test_links_that_came_over_edges_outlive_a_rewrite_of_the_document(
        self, client: httpx.AsyncClient
    ) -> None:
        await put(client, "a", title="one", links=[{"to": "declared"}])
        await client.post("/v1/edges", json=[{"source": "a", "target": "added"}])
        await put(client, "a", title="two", links=[])
        assert [link["to"] for link in (await client.get("/v1/documents/a")).json()["links"]] == ["added"]
