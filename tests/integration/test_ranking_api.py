"""How to rank is the caller's choice, and every number of it stands in the answer."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest

from service.model import FusionOptions
from tests.conftest import Running
from tests.integration.test_search_api import ids, only, search, write
from tests.unit.every_fusion import OPTIONS


@pytest.fixture(scope="module")
async def mixed(braid: Running) -> httpx.AsyncClient:
    client = await braid.tenant()
    await write(
        client,
        {"id": "a", "title": "Walrus", "content": "walrus walrus ice", "entities": ["Walrus"], "confidence": 0.1},
        {"id": "b", "title": "Ice", "content": "walrus on thin ice", "confidence": 1.0},
        {"id": "c", "title": "Seal", "content": "a seal saw a walrus", "links": [{"to": "a"}]},
    )
    return client


@pytest.mark.parametrize("fusion", OPTIONS.values(), ids=OPTIONS)
async def test_the_score_can_be_recomputed_from_the_explanation(
    mixed: httpx.AsyncClient, fusion: FusionOptions
) -> None:
    chosen = {"method": fusion.method} | ({"normaliser": fusion.normaliser} if fusion.normaliser else {})
    answer = await search(mixed, "walrus ice", fusion=chosen, shaping={"confidence": 0.5}, explain=True)
    assert len(answer["results"]) == 3
    for result in answer["results"]:
        score = math.fsum(share["weight"] * share["share"] for share in result["tiers"].values())
        for step in result["adjustments"]:
            score = score * step["multiply"] + step["add"]
        assert result["score"] == score


async def test_a_documents_confidence_moves_it_where_that_is_asked_for(mixed: httpx.AsyncClient) -> None:
    asked = {"weights": only("keyword"), "fusion": {"normaliser": "theoretical"}}
    assert (await ids(mixed, "walrus", **asked))[0] == "a"
    sure = await search(mixed, "walrus", **asked, shaping={"confidence": 1.0}, explain=True)
    assert sure["results"][-1]["id"] == "a"
    doubtful = next(result for result in sure["results"] if result["id"] == "a")
    [step] = doubtful["adjustments"]
    assert step["multiply"] == pytest.approx(0.4 + 0.6 * 0.1)
    assert step["name"] == "confidence"


async def test_a_profile_is_options_under_a_name(mixed: httpx.AsyncClient) -> None:
    exact = await search(mixed, "walrus", profile="exact")
    assert exact["weights"] == {"keyword": 1.0}
    own = await search(mixed, "walrus", profile="exact", weights={"graph": 0.5})
    assert own["weights"] == {"keyword": 1.0, "graph": 0.5}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"profile": "exakt"}, "profile"),
        ({"fusion": {"method": "magic"}}, "fusion.method"),
        ({"fusion": {"method": "rrf", "normaliser": "l2"}}, "fusion"),
        ({"fusion": {"bounds": {"keyword": [3, 3]}}}, "fusion.bounds"),
        ({"fusion": {"k": 0}}, "fusion.k"),
        ({"shaping": {"confidence": 2}}, "shaping.confidence"),
        ({"shaping": {"charm": 1}}, "shaping.charm"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(
    mixed: httpx.AsyncClient, body: dict[str, Any], field: str
) -> None:
    refused = await mixed.post("/v1/search", json={"query": "walrus", **body})
    assert refused.status_code == 422
    assert field in [error["field"] for error in refused.json()["errors"]]
