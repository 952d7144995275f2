"""Every limit holds exactly where its setting says; quotas are exact; who calls too fast is told when to come back."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.limits import Limits
from tests.conftest import Running, running
from tests.integration.test_refusals import check_problem

TIGHT = {
    "max_body_bytes": 4096,
    "max_line_bytes": 1024,
    "max_json_depth": 8,
    "max_query_chars": 40,
    "max_query_terms": 5,
    "max_vector": 256,
    "max_filter_nodes": 3,
    "max_filter_depth": 2,
    "max_results": 12,
    "max_page": 101,
    "max_neighbors": 51,
    "max_namespaces": 3,
    "max_bulk_items": 4,
    "max_title_chars": 30,
    "max_content_chars": 50,
    "max_tags": 2,
    "max_entities": 3,
    "max_links": 1,
    "max_metadata_values": 10,
    "max_metadata_depth": 2,
    "max_metadata_chars": 12,
}


@pytest.fixture(scope="module")
async def tight() -> AsyncIterator[Running]:
    """A Braid whose limits are all small, with another origin allowed."""
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        settings: dict[str, Any] = {**TIGHT, "cors_origins": "https://app.example", "rate_limit_tenant": 0}
        async with running(Path(folder) / "d", index_poll_ms=50, **settings) as started:
            yield started


def search(**fields: Any) -> tuple[str, str, Any]:
    return "POST", "/v1/search", {"query": "x", **fields}


def document(**fields: Any) -> tuple[str, str, Any]:
    return "PUT", "/v1/documents/a", {"title": "x", **fields}


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels > 1 else []


def links(count: int) -> list[dict[str, str]]:
    return [{"to": f"b{n}"} for n in range(count)]


def negated(times: int) -> dict[str, Any]:
    return {"not": negated(times - 1)} if times else {"type": "a"}


def names(count: int) -> list[str]:
    return [f"n{n}" for n in range(count)]


def edges(count: int) -> list[dict[str, str]]:
    return [{"source": "a", "target": f"b{n}"} for n in range(count)]


def padded(size: int) -> bytes:
    return b'{"query": "x"}'.ljust(size)


# limit -> the field a refusal names, and a request that asks for so much
CASES: dict[str, list[tuple[str, Any]]] = {
    "max_body_bytes": [("body", lambda n: ("POST", "/v1/search", padded(n)))],
    "max_line_bytes": [("body", lambda n: ("NDJSON", "/v1/documents", b'{"title": "x"}'.ljust(n)))],
    "max_json_depth": [
        ("body", lambda n: ("POST", "/v1/documents", json.dumps(nested(n)).encode())),
        ("line", lambda n: ("NDJSON", "/v1/documents", json.dumps(nested(n)).encode())),
    ],
    "max_query_chars": [
        ("query", lambda n: search(query="x" * n)),
        ("q", lambda n: ("GET", f"/v1/search?q={'x' * n}", None)),
    ],
    "max_query_terms": [
        ("query", lambda n: search(query="x " * n)),
        ("q", lambda n: ("GET", f"/v1/search?q={'+'.join('x' * n)}", None)),
    ],
    "max_vector": [("vector", lambda n: search(vector=[0.5] * n)), ("vector", lambda n: document(vector=[0.5] * n))],
    "max_filter_nodes": [("filter.metadata", lambda n: search(filter={"metadata": dict.fromkeys(names(n), 1)}))],
    "max_filter_depth": [("filter", lambda n: search(filter=negated(n - 1)))],
    "max_results": [
        ("limit", lambda n: search(limit=n)),
        ("limit", lambda n: ("GET", f"/v1/search?q=x&limit={n}", None)),
    ],
    "max_page": [("limit", lambda n: ("GET", f"/v1/documents?limit={n}", None))],
    "max_neighbors": [("limit", lambda n: ("GET", f"/v1/documents/there/neighbors?limit={n}", None))],
    "max_namespaces": [
        ("include_namespaces", lambda n: search(include_namespaces=names(n))),
        ("namespace", lambda n: ("GET", f"/v1/search?q=x&{'&'.join(f'namespace={i}' for i in names(n))}", None)),
        ("namespace", lambda n: ("GET", f"/v1/documents?{'&'.join(f'namespace={i}' for i in names(n))}", None)),
    ],
    "max_bulk_items": [
        ("body", lambda n: ("POST", "/v1/documents", [{"title": "x"}] * n)),
        ("body", lambda n: ("POST", "/v1/edges", edges(n))),
        ("body", lambda n: ("DELETE", "/v1/edges", edges(n))),
    ],
    "max_title_chars": [("title", lambda n: document(title="x" * n))],
    "max_content_chars": [("content", lambda n: document(content="x" * n))],
    "max_tags": [("tags", lambda n: document(tags=names(n)))],
    "max_entities": [("entities", lambda n: document(entities=names(n)))],
    "max_links": [("links", lambda n: document(links=links(n)))],
    "max_metadata_values": [
        ("metadata", lambda n: document(metadata={"a": list(range(n - 3))}))
    ],  # itself, "a", a list
    "max_metadata_depth": [("metadata", lambda n: document(metadata={"a": nested(n)}))],
    "max_metadata_chars": [
        ("metadata", lambda n: document(metadata={"a": "x" * n})),
        ("filter.metadata.a", lambda n: search(filter={"metadata": {"a": "x" * n}})),
    ],
}
each_case = pytest.mark.parametrize(
    ("limit", "field", "asking"),
    [pytest.param(limit, *case, id=f"{limit}-{n}") for limit, cases in CASES.items() for n, case in enumerate(cases)],
)


async def ask(client: httpx.AsyncClient, method: str, path: str, body: Any) -> httpx.Response:
    if method == "NDJSON":
        return await client.post(path, content=body, headers={"Content-Type": "application/x-ndjson"})
    content = body if isinstance(body, bytes | None) else json.dumps(body)
    return await client.request(method, path, content=content, headers={"Content-Type": "application/json"})


def test_every_limit_is_tried() -> None:
    assert set(CASES) == set(Limits.model_fields) == set(TIGHT)


@each_case
async def test_a_limit_holds_exactly_and_its_refusal_names_field_and_limit(
    tight: Running, limit: str, field: str, asking: Any
) -> None:
    client = await tight.tenant()
    assert (await client.put("/v1/documents/there", json={"title": "x"})).status_code == 201
    most = TIGHT[limit]
    within = await ask(client, *asking(most))
    beyond = await ask(client, *asking(most + 1))
    if beyond.status_code == 200:  # a line of NDJSON is refused alone
        assert f"{field}: must nest at most {most} levels" in beyond.json()["items"][0]["error"]
        assert "levels" not in within.text
        return
    problem = check_problem(beyond, 413 if limit == "max_body_bytes" else 422)
    assert [error["field"] for error in problem["errors"]] == [field]
    assert str(most) in problem["errors"][0]["message"]
    assert field in problem["detail"]
    assert within.status_code in (200, 201), within.text


async def test_openapi_shows_the_limits_that_hold_here(tight: Running, braid: Running) -> None:
    for application, limits in ((tight, Limits(**TIGHT)), (braid, Limits())):
        described = (await application.client().get("/openapi.json")).json()
        assert described == application.app.openapi()
        body = described["components"]["schemas"]["SearchIn"]["properties"]
        assert body["query"]["maxLength"] == limits.max_query_chars
        assert body["limit"]["maximum"] == limits.max_results
        assert described["components"]["schemas"]["Documents"]["maxItems"] == limits.max_bulk_items
        assert described["components"]["schemas"]["DocumentIn"]["properties"]["tags"]["maxItems"] == limits.max_tags
        [page] = [p for p in described["paths"]["/v1/documents"]["get"]["parameters"] if p["name"] == "limit"]
        assert page["schema"]["maximum"] == limits.max_page


async def test_a_declared_size_is_refused_before_the_body_comes(tight: Running) -> None:
    key = await tight.key()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(tight.url.rpartition(":")[2]))
    head = f"POST /v1/search HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 4097\r\n\r\n"
    try:
        writer.write(head.encode())
        assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
    finally:
        writer.close()


@pytest.fixture(scope="module")
async def hurried() -> AsyncIterator[Running]:
    """A Braid that allows 4 calls in 200 s to a key, 6 to a tenant, and 10 wrong keys to an address."""
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        rates: dict[str, Any] = {"rate_limit_key": 0.02, "rate_limit_tenant": 0.03, "rate_limit_failures": 0.05}
        async with running(Path(folder) / "d", rate_limit_window_s=200, **rates) as started:
            yield started


class TestRates:
    async def test_a_key_that_calls_too_often_is_told_when_to_come_back(self, hurried: Running) -> None:
        client = await hurried.tenant()
        for left in (3, 2, 1, 0):
            answer = await client.get("/v1/namespaces")
            assert answer.status_code == 200
            assert answer.headers["ratelimit-policy"] == '"key";q=4;w=200, "tenant";q=6;w=200'
            assert answer.headers["ratelimit"].startswith(f'"key";r={left};t=')
        refused = await client.get("/v1/namespaces")
        problem = check_problem(refused, 429, "too_many_requests")
        assert "at most 4 calls for this key in 200 s" in problem["detail"]
        assert refused.headers["ratelimit-policy"] == '"key";q=4;w=200'
        assert refused.headers["ratelimit"].startswith('"key";r=0;t=')
        assert 45 <= int(refused.headers["retry-after"]) <= 50
        metrics = (await hurried.client().get("/metrics")).text
        assert 'braid_rate_limited_total{limit="key"}' in metrics

    async def test_all_keys_of_a_tenant_share_its_limit(self, hurried: Running) -> None:
        clients = [hurried.client(await hurried.key("shared")) for _ in range(2)]
        for client in clients:
            for _ in range(3):
                assert (await client.get("/v1/namespaces")).status_code == 200
        refused = await clients[0].get("/v1/namespaces")
        assert "calls for this tenant" in check_problem(refused, 429)["detail"]
        assert (await (await hurried.tenant()).get("/v1/namespaces")).status_code == 200

    async def test_refusals_count_and_say_so_too(self, hurried: Running) -> None:
        client = await hurried.tenant()
        answer = await client.post("/v1/search", json={"query": "x", "limit": 0})
        check_problem(answer, 422)
        assert '"key";r=3' in answer.headers["ratelimit"]

    async def test_who_tries_many_wrong_keys_is_not_told_about_the_next(self, hurried: Running) -> None:
        """Another address, by the header that uvicorn trusts from this machine: a proxy's."""
        good = await hurried.key()
        there = {"X-Forwarded-For": "203.0.113.7"}
        for _ in range(10):
            wrong = await hurried.client("braid_aaaa.bbbb").get("/v1/namespaces", headers=there)
            check_problem(wrong, 401)
        refused = await hurried.client(good).get("/v1/namespaces", headers=there)
        assert "at most 10 wrong keys from this address" in check_problem(refused, 429)["detail"]
        assert int(refused.headers["retry-after"]) > 0
        elsewhere = {"X-Forwarded-For": "203.0.113.8"}
        assert (await hurried.client(good).get("/v1/namespaces", headers=elsewhere)).status_code == 200

    async def test_an_ipv6_neighbour_is_the_same_machine(self, hurried: Running) -> None:
        for n in range(10):
            there = {"X-Forwarded-For": f"2001:db8::{n:x}"}
            check_problem(await hurried.client("braid_a.b").get("/v1/namespaces", headers=there), 401)
        there = {"X-Forwarded-For": "2001:db8::ffff"}
        check_problem(await hurried.client("braid_a.b").get("/v1/namespaces", headers=there), 429)

    async def test_health_is_not_limited(self, hurried: Running) -> None:
        answers = [await hurried.client().get("/healthz") for _ in range(20)]
        assert {answer.status_code for answer in answers} == {200}
        assert "ratelimit" not in answers[-1].headers


class TestQuotas:
    async def limited(self, braid: Running, **quota: int) -> tuple[httpx.AsyncClient, str]:
        key = await braid.key()
        tenant = await braid.tenant_of(key)
        for column, most in quota.items():
            await braid.sql(f"UPDATE tenants SET {column} = $2 WHERE id = $1", tenant, most)
        return braid.client(key), tenant

    async def held(self, braid: Running, tenant: str) -> tuple[int, int]:
        counted = "SELECT count(*), coalesce(sum(bytes), 0) FROM documents WHERE tenant_id = $1"
        used = "SELECT sum(documents), sum(bytes) FROM usage WHERE tenant_id = $1"
        [truth], [kept] = await braid.sql(counted, tenant), await braid.sql(used, tenant)
        assert tuple(truth) == tuple(kept)
        return tuple(truth)

    async def test_a_document_too_many_is_refused_and_leaves_nothing(self, braid: Running) -> None:
        client, tenant = await self.limited(braid, max_documents=2)
        for id in ("a", "b"):
            assert (await client.put(f"/v1/documents/{id}", json={"title": "x"})).status_code == 201
        body = {"title": "x", "namespace": "new", "links": [{"to": "a"}]}
        problem = check_problem(await client.put("/v1/documents/c", json=body), 403, "quota_exceeded")
        assert problem["detail"] == "max_documents: this tenant may hold 2 documents, and would hold 3"
        assert await self.held(braid, tenant) == (2, 6)
        assert not await braid.sql("SELECT FROM edges WHERE tenant_id = $1", tenant)
        assert not await braid.sql("SELECT FROM dirty WHERE tenant_id = $1 AND document_id = 'c'", tenant)

    async def test_what_is_there_may_change_and_go(self, braid: Running) -> None:
        client, tenant = await self.limited(braid, max_documents=1)
        await client.put("/v1/documents/a", json={"title": "x"})
        assert (await client.put("/v1/documents/a", json={"title": "y"})).status_code == 200
        await braid.sql("UPDATE tenants SET max_documents = 0, max_bytes = 0 WHERE id = $1", tenant)
        assert (await client.put("/v1/documents/a", json={"title": "z"})).status_code == 200
        assert (await client.put("/v1/documents/a", json={"content": "w"})).status_code == 200
        check_problem(await client.put("/v1/documents/a", json={"title": "longer"}), 403, "quota_exceeded")
        assert (await client.delete("/v1/documents/a")).status_code == 204
        assert await self.held(braid, tenant) == (0, 0)

    async def test_bytes_count_to_the_last_one(self, braid: Running) -> None:
        client, tenant = await self.limited(braid, max_bytes=12)
        assert (await client.put("/v1/documents/a", json={"title": "0123456789"})).status_code == 201  # and `{}`
        problem = check_problem(await client.put("/v1/documents/a", json={"title": "0123456789x"}), 403)
        assert problem["detail"] == "max_bytes: this tenant may hold 12 bytes, and would hold 13"
        assert await self.held(braid, tenant) == (1, 12)

    async def test_a_bulk_write_is_refused_item_by_item(self, braid: Running) -> None:
        client, tenant = await self.limited(braid, max_documents=3)
        await client.put("/v1/documents/old", json={"title": "x"})
        items = [{"id": id, "title": "new"} for id in ("a", "b", "c", "old", "d")]
        answer = (await client.post("/v1/documents", json=items)).json()
        assert [item["status"] for item in answer["items"]] == ["created", "created", "error", "updated", "error"]
        assert "max_documents" in answer["items"][2]["error"]
        assert (await self.held(braid, tenant))[0] == 3

    async def test_writers_at_once_do_not_overshoot(self, braid: Running) -> None:
        client, tenant = await self.limited(braid, max_documents=25)
        at_once = asyncio.Semaphore(8)  # as many as there are connections for

        async def write(n: int) -> int:
            async with at_once:
                return (await client.put(f"/v1/documents/{n}", json={"title": "x"})).status_code

        statuses = await asyncio.gather(*map(write, range(40)))
        assert sorted(statuses) == [201] * 25 + [403] * 15
        assert (await self.held(braid, tenant))[0] == 25
