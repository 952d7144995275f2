"""Braid keeps what its OpenAPI document says. `python -m bench.contract --cases 1000` asks longer."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from bench.contract import UNLIMITED, Outcome, check
from bench.server import running_server
from tests.conftest import Running

CASES = 10


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    with running_server(**UNLIMITED) as server:
        return check(server, CASES, seed=1)


def test_no_answer_differs_from_what_is_documented(outcome: Outcome) -> None:
    """No server error, no undocumented status, header, type or body, no bad data taken, no good data refused."""
    assert outcome.kept, outcome.report


def test_every_operation_was_asked_and_few_only_refused(braid: Running, outcome: Outcome) -> None:
    """Else the test above could pass because a key was revoked on the way."""
    described = {
        f"{method.upper()} {path}" for path, methods in braid.app.openapi()["paths"].items() for method in methods
    }
    assert set(outcome.answers) == described
    refusing = {operation for operation, statuses in outcome.answers.items() if min(statuses) >= 300}
    deepest = {f"DELETE /v1/admin/tenants/{{tenant}}/{each}" for each in ("projects/{project}", "keys/{prefix}")}
    deepest |= {f"{verb} /v1/admin/tenants/{{tenant}}/namespaces/{{namespace}}" for verb in ("PATCH", "DELETE")}
    assert refusing <= deepest  # whose objects a short run may not come to make
    assert all(statuses.keys().isdisjoint({500, 502, 504}) for statuses in outcome.answers.values())


def test_links_lead_to_operations_that_exist(braid: Running) -> None:
    operations = [each for methods in braid.app.openapi()["paths"].values() for each in methods.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    taken = {each["operationId"]: {p["name"] for p in each.get("parameters", [])} for each in operations}
    links = [
        link
        for each in operations
        for answer in each["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert len(links) > 15
    for link in links:
        assert set(link["parameters"]) <= taken[link["operationId"]]


# What Schemathesis found, or would have with more luck.
BODIES = [
    ("created_at", {"created_at": "0001-01-01T00:00:00+05:00"}),
    ("created_at", {"created_at": "9999-12-31T23:59:59-05:00"}),
    ("created_at", {"created_at": 1700000000}),
    ("created_at", {"created_at": "1700000000"}),
    ("confidence", {"confidence": True}),
    ("priority", {"priority": "1"}),
    ("priority", {"priority": True}),
    ("vector.0", {"vector": [1e39] * 256}),
    ("vector.0", {"vector": ["1"] * 256}),
]


@pytest.mark.parametrize(("field", "body"), BODIES)
async def test_a_value_that_is_no_such_value_is_refused_by_name(
    client: httpx.AsyncClient, field: str, body: dict[str, Any]
) -> None:
    answer = await client.put("/v1/documents/a", json={"title": "t", **body})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    [item] = (await client.post("/v1/documents", json=[{"title": "t", **body}])).json()["items"]
    assert item["status"] == "error"
    assert item["error"].startswith(f"{field}:")


async def test_an_integer_may_be_written_with_a_point(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/documents/a", json={"title": "t", "priority": 2.0})
    assert answer.status_code == 201
    assert (await client.get("/v1/documents/a")).json()["priority"] == 2


@pytest.mark.parametrize("value", [1e17, -1e17, 1e-300, 0.0])
async def test_the_largest_and_smallest_vectors_are_stored_and_searched(
    client: httpx.AsyncClient, value: float
) -> None:
    put = await client.put("/v1/documents/a?wait=true", json={"title": "t", "vector": [value] * 256})
    assert (put.json()["status"], put.json()["visible"]) == ("created", True)
    answer = await client.post("/v1/search", json={"vector": [value] * 256, "allow_degraded": False})
    assert answer.status_code == 200, answer.text
    json.dumps(answer.json(), allow_nan=False)


async def test_a_page_may_not_begin_after_nul(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/documents", params={"after": "\x00"})).status_code == 422


async def test_an_id_that_could_not_be_read_back_is_refused(client: httpx.AsyncClient) -> None:
    """`GET /v1/documents/a/neighbors` means the neighbours of `a`."""
    for taken in ("a/neighbors", "a/status"):
        put = await client.put(f"/v1/documents/{taken}", json={"title": "t"})
        assert (put.status_code, put.headers["allow"]) == (405, "GET")
        [item] = (await client.post("/v1/documents", json=[{"id": taken, "title": "t"}])).json()["items"]
        assert item["error"] == "id: must not end with /neighbors or /status: that address is taken"


async def test_a_refused_method_is_told_all_that_are_allowed(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/documents/a", json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PUT, DELETE")
