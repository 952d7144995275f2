"""Bad input is refused with a problem that names the field: never a 500, never a hang, nothing half done."""

from __future__ import annotations

import itertools
import json
from typing import Any

import httpx
import pytest

from tests.conftest import Running

DEEP = 5000


def check_problem(response: httpx.Response, status: int, code: str | None = None) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert set(problem) == {"type", "title", "status", "detail", "instance", "code", "request_id", "errors"}
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["type"] == f"urn:braid:problem:{problem['code']}"
    if code is not None:
        assert problem["code"] == code
    return problem


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"query": "  "}, "body"),
        ({"query": "x" * 1025}, "query"),
        ({"query": "a " * 65}, "query"),
        ({"query": "nul \x00"}, "query"),
        ({"query": 7}, "query"),
        ({"query": "x", "limit": 0}, "limit"),
        ({"query": "x", "limit": 101}, "limit"),
        ({"query": "x", "limit": "many"}, "limit"),
        ({"query": "x", "namespace": "no spaces"}, "namespace"),
        ({"query": "x", "namespace": ""}, "namespace"),
        ({"query": "x", "include_namespaces": []}, "include_namespaces"),
        ({"query": "x", "include_namespaces": ["a"] * 257}, "include_namespaces"),
        ({"query": "x", "weights": {"keyword": -1}}, "weights.keyword"),
        ({"query": "x", "weights": {"keyword": 1e-9}}, "weights.keyword"),
        ({"query": "x", "weights": {"keyword": 1001}}, "weights.keyword"),
        ({"query": "x", "weights": {"smell": 1}}, "weights.smell"),
        ({"query": "x", "weights": {"keyword": 0, "vector": 0, "graph": 0}}, "weights"),
        ({"query": "x", "filter": {"colour": "red"}}, "filter.colour"),
        ({"query": "x", "filter": {"tags": []}}, "filter.tags"),
        ({"query": "x", "filter": {"metadata": {"a": {"gte": "x"}}}}, "filter.metadata.a"),
        ({"query": "x", "filter": {"metadata": {"a": {}}}}, "filter.metadata.a"),
        ({"query": "x", "filter": {"metadata": {"a": {"near": 1}}}}, "filter.metadata.a"),
        ({"query": "x", "filter": {"metadata": {str(n): n for n in range(33)}}}, "filter.metadata"),
        ({"query": "x", "filter": {"metadata": {"a": {"in": list(range(257))}}}}, "filter.metadata.a"),
        ({"query": "x", "filter": {"any": []}}, "filter.any"),
        ({"query": "x", "filter": {"any": [{"colour": 1}]}}, "filter.any.0.colour"),
        ({"query": "x", "filter": {"any": [{"type": "t"}] * 32}}, "filter"),
        ({"query": "x", "filter": {"not": {"not": {"not": {"not": {"type": "t"}}}}}}, "filter"),
        ({"query": "x", "filter": {"created_after": "yesterday"}}, "filter.created_after"),
        ({"query": "x", "filter": {"created_after": "2024-01-01T00:00:00"}}, "filter.created_after"),
        ({"query": "x", "vector": []}, "vector"),
        ({"query": "x", "vector": [1.0] * 8193}, "vector"),
        ({"query": "x", "vector": ["a"] * 256}, "vector"),
        ({"query": "x", "timeout_ms": 0}, "timeout_ms"),
        ({"query": "x", "timeout_ms": 10**9}, "timeout_ms"),
        ({"query": "x", "require": ["words"]}, "require.0"),
        ({"query": "x", "require": ["keyword"] * 4}, "require"),
        ({"query": "x", "require": ["graph"], "weights": {"graph": 0}}, "require"),
        ({"query": "x", "explain": "perhaps"}, "explain"),
        ({"query": "x", "q": "misspelt"}, "q"),
    ],
)
async def test_a_refused_search_names_the_field(client: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    problem = check_problem(await client.post("/v1/search", json=body), 422, "invalid_input")
    named = [error["field"] for error in problem["errors"]]
    assert any(name == field or name.startswith(f"{field}.") for name in named), named
    assert field in problem["detail"] or field == "body"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "q"),
        ({"q": " "}, "q"),
        ({"q": "a " * 65}, "q"),
        ({"q": "x\x00"}, "q"),
        ({"q": "x" * 1025}, "q"),
        ({"q": "x", "keyword": "nan"}, "keyword"),
        ({"q": "x", "keyword": "inf"}, "keyword"),
        ({"q": "x", "keyword": "1e-9"}, "weights.keyword"),
        ({"q": "x", "namespace": "no spaces"}, "namespace.0"),
        ({"q": "x", "namespace": ["a"] * 257}, "namespace"),
        ({"q": "x", "limit": "1000"}, "limit"),
    ],
)
async def test_a_refused_get_names_the_parameter(client: httpx.AsyncClient, params: dict[str, Any], field: str) -> None:
    problem = check_problem(await client.get("/v1/search", params=params), 422, "invalid_input")
    assert field in [error["field"] for error in problem["errors"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"title": ""}, "body"),
        ({"title": "x" * 1025}, "title"),
        ({"title": "nul \x00"}, "title"),
        ({"content": "x" * 262_145}, "content"),
        ({"title": "x", "namespace": "a b"}, "namespace"),
        ({"title": "x", "tags": ["t"] * 65}, "tags"),
        ({"title": "x", "tags": [""]}, "tags.0"),
        ({"title": "x", "entities": ["e"] * 129}, "entities"),
        ({"title": "x", "entities": ["e\n"]}, "entities.0"),
        ({"title": "x", "confidence": 1.1}, "confidence"),
        ({"title": "x", "priority": 5}, "priority"),
        ({"title": "x", "created_at": "2024-01-01"}, "created_at"),
        ({"title": "x", "vector": [1.0, 2.0]}, "vector"),
        ({"title": "x", "links": [{"to": "b", "strength": 1.5}]}, "links.0.strength"),
        ({"title": "x", "links": [{"target": "b"}]}, "links.0"),
        ({"title": "x", "links": [{"to": "b"}] * 257}, "links"),
        ({"title": "x", "metadata": {"a": "x" * 4097}}, "metadata"),
        ({"title": "x", "metadata": {"a": 2**60}}, "metadata"),
        ({"title": "x", "metadata": {"a": "\x00"}}, "metadata"),
        ({"title": "x", "metadata": {"\x00": 1}}, "metadata"),
        ({"title": "x", "metadata": {str(n): n for n in range(257)}}, "metadata"),
        ({"title": "x", "metadata": {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}}}, "metadata"),
        ({"title": "x", "metadata": [1]}, "metadata"),
        ({"title": "x", "id": "other"}, "id"),
    ],
)
async def test_a_refused_document_names_the_field_and_is_not_written(
    client: httpx.AsyncClient, body: dict[str, Any], field: str
) -> None:
    problem = check_problem(await client.put("/v1/documents/a", json=body), 422, "invalid_input")
    assert any(error["field"] == field or error["field"].startswith(f"{field}.") for error in problem["errors"])
    assert (await client.get("/v1/documents/a")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/search", "/v1/documents", "/v1/edges"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * DEEP + b"]" * DEEP,
        b'{"query": "x", "filter": {"metadata": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}}",
        b'{"query": "\\ud800"}',
        b'[{"id": "\\ud800", "title": "x"}]',
        b'{"query": NaN}',
        b'{"query": "x", "limit": 1e400}',
        b'{"query": "x", "limit": ' + b"9" * 5000 + b"}",
        b"7",
        b"null",
    ],
)
async def test_a_body_that_cannot_be_read_is_refused(client: httpx.AsyncClient, path: str, body: bytes) -> None:
    response = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    if response.status_code == 200:  # a bulk call answers item by item
        assert response.json()["items"][0]["status"] == "error"
    else:
        check_problem(response, response.status_code)
        assert response.status_code in (400, 422)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
async def test_lone_surrogates_are_refused_wherever_text_goes(client: httpx.AsyncClient, text: str) -> None:
    for body in ({"title": text}, {"title": "x", "metadata": {"a": text}}, {"title": "x", "metadata": {text: 1}}):
        response = await client.put("/v1/documents/a", content=json.dumps(body))
        check_problem(response, 422)
    response = await client.post("/v1/search", content=json.dumps({"query": "x", "filter": {"metadata": {"a": text}}}))
    check_problem(response, 422)


async def test_numbers_that_are_not_finite_are_refused(client: httpx.AsyncClient) -> None:
    for bad in ("NaN", "Infinity", "-Infinity", "1e999"):
        body = f'{{"title": "x", "metadata": {{"a": {bad}}}}}'
        check_problem(await client.put("/v1/documents/a", content=body), 422)
        check_problem(await client.post("/v1/search", content=f'{{"query": "x", "weights": {{"graph": {bad}}}}}'), 422)


@pytest.mark.parametrize("id", ["%00", "%0A", "%FF", "x" * 513])
async def test_an_id_that_cannot_be_stored_is_refused(client: httpx.AsyncClient, id: str) -> None:
    check_problem(await client.put(f"/v1/documents/{id}", json={"title": "x"}), 422)
    check_problem(await client.get(f"/v1/documents/{id}"), 422)


async def test_a_body_that_is_too_large_is_refused(client: httpx.AsyncClient) -> None:
    async def endless() -> Any:
        for _ in range(17):
            yield b"x" * 1024 * 1024

    check_problem(await client.post("/v1/documents", content=endless()), 413)


async def test_a_line_that_is_too_long_is_refused(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    check_problem(await client.post("/v1/documents", content=b"x" * (3 * 1024 * 1024), headers=headers), 422)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("PATCH", "/v1/search", 405)])
async def test_framework_errors_are_problems_too(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    check_problem(await client.request(method, path), status)


async def test_a_document_of_too_many_words_is_refused_and_its_neighbours_are_written(
    client: httpx.AsyncClient,
) -> None:
    """PostgreSQL's tsvector ends at 1 MB; such a document is refused, not half indexed, and fails nobody else."""
    letters = [chr(0x10400 + n) for n in range(40)]
    words = ["".join(word) for word in itertools.islice(itertools.product(letters, repeat=4), 52_600)]
    huge = {"content": " ".join(words[:52_400]), "title": " ".join(words[-200:])}
    items = [{"id": "a", "title": "x"}, {"id": "b", **huge}, {"id": "c", "title": "y"}]
    answer = (await client.post("/v1/documents?wait=true", json=items)).json()
    assert [item["status"] for item in answer["items"]] == ["created", "error", "created"]
    assert "too many distinct words" in answer["items"][1]["error"]
    problem = check_problem(await client.put("/v1/documents/b", json=huge), 422, "invalid_input")
    assert problem["errors"][0]["field"] == "content"
    assert (await client.get("/v1/documents/b")).status_code == 404


class TestKeys:
    PATHS = (
        ("POST", "/v1/search"),
        ("GET", "/v1/search?q=x"),
        ("POST", "/v1/search/batch"),
        ("POST", "/v1/explain"),
        ("GET", "/v1/suggest?q=x"),
        ("GET", "/v1/stats"),
        ("GET", "/v1/stats/history"),
        ("GET", "/v1/documents"),
        ("POST", "/v1/documents"),
        ("PUT", "/v1/documents/a"),
        ("GET", "/v1/documents/a"),
        ("DELETE", "/v1/documents/a"),
        ("GET", "/v1/documents/a/neighbors"),
        ("GET", "/v1/documents/a/status"),
        ("POST", "/v1/edges"),
        ("DELETE", "/v1/edges"),
        ("GET", "/v1/namespaces"),
    )

    async def test_the_list_of_paths_is_whole(self, braid: Running) -> None:
        paths = braid.app.openapi()["paths"]
        ours = [path for path in paths if path.startswith("/v1/") and not path.startswith("/v1/admin/")]
        described = {(m.upper(), path) for path in ours for m in paths[path]}
        assert {(m, p.split("?")[0].replace("/a", "/{id}")) for m, p in self.PATHS} == described

    @pytest.mark.parametrize(("method", "path"), PATHS)
    async def test_nothing_answers_without_a_key(self, braid: Running, method: str, path: str) -> None:
        good = await braid.key()
        prefix = good.partition(".")[0]
        for key in (None, "x", "braid_x.y", f"{prefix}.", f"{prefix}.{'a' * 43}", good[:-1], f"{good}x", "é" * 9):
            headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
            response = await braid.client().request(method, path, headers=headers)
            check_problem(response, 401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize(("method", "path"), PATHS)
    async def test_a_key_does_only_what_its_scope_says(self, braid: Running, method: str, path: str) -> None:
        asks = method == "GET" or path.startswith(("/v1/search", "/v1/explain"))
        wrong = braid.client(await braid.key(scopes=["write" if asks else "search"]))
        check_problem(await wrong.request(method, path), 403, "forbidden")

    async def test_keys_are_kept_as_digests_only(self, braid: Running) -> None:
        secret = (await braid.key()).partition(".")[2]
        rows = await braid.sql("SELECT api_keys::text AS row FROM api_keys")
        assert not any(secret in row["row"] for row in rows)

    async def test_a_revoked_key_stops_working(self, braid: Running) -> None:
        key = await braid.key()
        client = braid.client(key)
        assert (await client.get("/v1/namespaces")).status_code == 200
        revoke = "UPDATE api_keys SET revoked_at = now() WHERE prefix = $1"
        await braid.sql(revoke, key.removeprefix("braid_").partition(".")[0])
        braid.app.state.braid.keys.forget()  # instead of waiting for it
        assert (await client.get("/v1/namespaces")).status_code == 401

    @pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/"])
    async def test_health_metrics_and_docs_need_none(self, braid: Running, path: str) -> None:
        assert (await braid.client().get(path)).status_code == 200


async def test_a_request_id_is_taken_over_when_it_is_well_formed(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz", headers={"X-Request-ID": "abc-1"})).headers["x-request-id"] == "abc-1"
    assert (await client.get("/healthz", headers={"X-Request-ID": "a b"})).headers["x-request-id"] != "a b"
    assert len((await client.get("/healthz", headers={"X-Request-ID": "a" * 65})).headers["x-request-id"]) == 32
