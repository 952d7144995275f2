"""FalkorDB killed and frozen in mid-run: searches go on without the graph, and with it again once it is back."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.faults.conftest import Breakable, ids

KEYWORD, VECTOR = 0.65, 0.25  # the bundled embedder's weights
COUNTERS = (
    'braid_searches_total{outcome="degraded"}',
    'braid_searches_total{outcome="full"}',
    'braid_searches_total{outcome="failed"}',
    'braid_tier_requests_total{status="unavailable",tier="graph"}',
)


@dataclass(frozen=True)
class Outage:
    """What Braid said before, during and after one kill of FalkorDB."""

    before: dict[str, Any]
    degraded: httpx.Response
    refused: httpx.Response
    required: httpx.Response
    others_required: httpx.Response
    graph_not_wanted: httpx.Response
    ready: httpx.Response
    counted: list[float]
    after: dict[str, Any]


@pytest.fixture(scope="module")
async def outage(own: Breakable) -> Outage:
    before = (await own.search()).json()
    counters = [await own.counted(name) for name in COUNTERS]
    with own.falkordb.down():
        degraded = await own.search()
        refused = await own.search(allow_degraded=False)
        required = await own.search(require=["keyword", "graph"])
        others_required = await own.search(require=["keyword", "vector"])
        graph_not_wanted = await own.search(allow_degraded=False, weights={"graph": 0})
        ready = await own.client.get("/readyz")
        counted = [await own.counted(name) - then for name, then in zip(COUNTERS, counters, strict=True)]
        late = {"title": "Late", "entities": ["Zephyrine"]}
        assert (await own.client.put("/v1/documents/late", json=late)).status_code == 201
        assert (await own.client.put("/v1/documents/gone", json=late)).status_code == 201
        assert (await own.client.delete("/v1/documents/gone")).status_code == 204
    return Outage(
        before, degraded, refused, required, others_required, graph_not_wanted, ready, counted, await own.whole()
    )


async def test_a_search_after_the_kill_says_that_the_graph_is_missing_and_has_the_rest(outage: Outage) -> None:
    body = outage.degraded.json()
    assert outage.degraded.status_code == 200
    assert body["degraded"] is True
    assert body["tiers"]["graph"]["status"] == "unavailable"
    assert body["tiers"]["graph"]["reason"]
    assert {"stow", "weather"} <= set(ids(body))
    assert {name for result in body["results"] for name in result["tiers"]} == {"keyword", "vector"}


async def test_readiness_names_the_engine_and_stays_200(outage: Outage) -> None:
    assert outage.ready.status_code == 200
    assert outage.ready.json()["status"] == "degraded"
    assert outage.ready.json()["engines"]["falkordb"]["status"] == "unavailable"


async def test_the_missing_tiers_weight_goes_to_the_others_in_proportion(outage: Outage) -> None:
    whole = KEYWORD + VECTOR
    assert outage.degraded.json()["weights"] == pytest.approx({"keyword": KEYWORD / whole, "vector": VECTOR / whole})


async def test_who_allows_no_degradation_gets_a_503_that_names_the_tier(outage: Outage) -> None:
    problem = outage.refused.json()
    assert outage.refused.status_code == 503
    assert outage.refused.headers["content-type"] == "application/problem+json"
    assert outage.refused.headers["retry-after"] == "1"
    assert problem["code"] == "degraded"
    assert "graph" in problem["detail"]
    assert [error["field"] for error in problem["errors"]] == ["tiers.graph"]


async def test_who_requires_the_tier_gets_the_same_and_who_requires_others_gets_an_answer(outage: Outage) -> None:
    assert outage.required.status_code == 503
    assert [error["field"] for error in outage.required.json()["errors"]] == ["tiers.graph"]
    assert outage.others_required.status_code == 200
    assert outage.others_required.json()["degraded"] is True


async def test_a_tier_that_was_switched_off_is_not_missed(outage: Outage) -> None:
    assert outage.graph_not_wanted.status_code == 200
    assert outage.graph_not_wanted.json()["degraded"] is False


async def test_each_search_is_counted_by_its_outcome(outage: Outage) -> None:
    assert outage.counted == [2, 1, 2, 4]


async def test_the_search_after_recovery_is_whole(outage: Outage) -> None:
    assert [i for i in ids(outage.after) if i != "late"] == ids(outage.before)
    assert "keeper" in ids(outage.after)
    assert "graph" in outage.after["results"][0]["tiers"]
    assert outage.after["weights"]["graph"] == pytest.approx(0.1)


@pytest.mark.usefixtures("outage")
async def test_what_is_written_during_the_outage_is_in_the_graph_afterwards(own: Breakable) -> None:
    await own.finds("graph", "Zephyrine", "late")
    assert ids((await own.search("Zephyrine", weights={"keyword": 0, "vector": 0, "graph": 1})).json()) == ["late"]


async def test_every_search_around_a_kill_answers(own: Breakable) -> None:
    async def keep_searching() -> list[int]:
        return [(await own.search()).status_code for _ in range(40)]

    searching = [asyncio.create_task(keep_searching()) for _ in range(3)]
    await asyncio.sleep(0.1)
    with own.falkordb.down():
        await asyncio.sleep(0.2)
    assert {status for statuses in await asyncio.gather(*searching) for status in statuses} == {200}
    await own.whole()


async def test_a_frozen_graph_costs_a_search_no_more_than_its_timeout(own: Breakable) -> None:
    with own.falkordb.frozen():
        began = time.perf_counter()
        answer = await own.search(timeout_ms=300)
        took = time.perf_counter() - began
    graph = answer.json()["tiers"]["graph"]
    assert answer.status_code == 200
    assert graph["status"] == "timeout"
    assert re.fullmatch(r"no answer in 2\d\d ms", graph["reason"]), "its share of what was left"
    assert {"stow", "weather"} <= set(ids(answer.json()))
    assert took < 0.8, f"{took:.2f} s"
    assert "graph" in (await own.whole())["results"][0]["tiers"]
