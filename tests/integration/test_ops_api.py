"""What operators ask: is it alive, is it ready, what has it done; and what the documentation shows."""

from __future__ import annotations

import re

import httpx
from prometheus_client.parser import text_string_to_metric_families

from service import __version__
from tests.conftest import Running


async def samples(client: httpx.AsyncClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = (await client.get("/metrics")).text
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


async def test_ready_says_what_each_engine_said_just_now(client: httpx.AsyncClient) -> None:
    response = await client.get("/readyz")
    assert response.status_code == 200
    body = response.json()
    assert body["status"] == "ok"
    assert {name: engine["status"] for name, engine in body["engines"].items()} == dict.fromkeys(
        ("postgres", "qdrant", "falkordb"), "ok"
    )
    assert body["circuits"] == dict.fromkeys(("keyword", "vector", "graph"), "closed")


async def test_metrics_count_what_clients_saw(braid: Running) -> None:
    key = await braid.key()
    client, tenant = braid.client(key), await braid.tenant_of(key)
    await client.put("/v1/documents/a?wait=true", json={"title": "walrus", "entities": ["Walrus"]})
    before = await samples(client)
    for _ in range(3):
        answer = (await client.post("/v1/search", json={"query": "walrus"})).json()
        assert set(answer["results"][0]["tiers"]) == {"keyword", "vector", "graph"}
    await client.post("/v1/search", json={"query": "walrus", "weights": {"graph": 0}})
    await client.post("/v1/search", json={"query": "walrus", "namespace": "nowhere"})
    await client.post("/v1/search", json={"query": ""})
    after = await samples(client)

    def grown(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after.get(key, 0) - before.get(key, 0)

    assert grown("braid_searches_total", tenant=tenant, outcome="full") == 5
    assert grown("braid_zero_result_searches_total", tenant=tenant) == 1
    assert grown("braid_tier_requests_total", tier="keyword", status="ok") == 4
    assert grown("braid_tier_candidates_total", tier="keyword") == 4
    assert grown("braid_tier_requests_total", tier="graph", status="ok") == 3
    assert grown("braid_tier_hits_total", tenant=tenant, tier="vector") == 4
    assert grown("braid_tier_hits_total", tenant=tenant, tier="graph") == 3
    assert grown("braid_results_total", tiers="graph+keyword+vector") == 3
    assert grown("braid_results_total", tiers="keyword+vector") == 1
    assert grown("braid_search_duration_seconds_count") == 5
    assert grown("braid_embedding_duration_seconds_count", kind="query") == 5
    assert grown("braid_http_requests_total", method="POST", route="/v1/search", status="200") == 5
    assert grown("braid_http_requests_total", method="POST", route="/v1/search", status="422") == 1
    assert grown("braid_http_errors_total", method="POST", route="/v1/search", code="invalid_input") == 1


async def test_metrics_say_what_runs_and_how_much_of_the_pool_is_used(client: httpx.AsyncClient) -> None:
    now = await samples(client)
    assert now["braid_postgres_connections_limit", ()] == 10
    assert now["braid_postgres_connections", (("state", "used"),)] >= 0
    assert now["braid_index_lag_seconds", (("sink", "graph"),)] >= 0
    assert [dict(labels)["version"] for name, labels in now if name == "braid_build_info"] == [__version__]


async def test_a_made_up_method_makes_no_label(braid: Running) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(braid.app), base_url="http://braid") as client:
        await client.request("BREW", "/v1/search")
    text = (await braid.client().get("/metrics")).text
    assert "BREW" not in text
    assert 'method="other"' in text


async def test_unknown_paths_share_one_label(client: httpx.AsyncClient) -> None:
    for n in range(3):
        await client.get(f"/no/such/{n}")
    text = (await client.get("/metrics")).text
    assert 'route="unmatched"' in text
    assert "/no/such" not in text


async def test_every_reference_in_the_documentation_leads_somewhere(braid: Running) -> None:
    response = await braid.client().get("/openapi.json")
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', response.text))
    assert named
    assert named <= set(response.json()["components"]["schemas"])


async def test_the_documentation_describes_every_endpoint_with_an_example(braid: Running) -> None:
    schema = (await braid.client().get("/openapi.json")).json()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), (method, path)
            if path.startswith("/v1/"):
                assert operation["security"], (method, path)
                assert {"401", "422", "503"} <= set(operation["responses"]), (method, path)
    assert schema["components"]["schemas"]["SearchIn"]["properties"]["query"]["examples"]
    assert schema["components"]["schemas"]["DocumentBody"]["examples"]
    for status in ("401", "422", "503"):
        content = schema["paths"]["/v1/search"]["post"]["responses"][status]["content"]
        assert set(content) == {"application/problem+json"}, status
