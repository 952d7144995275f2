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


@pytest.fixture(scope="module")
async def shelf(braid: Running) -> httpx.AsyncClient:
    client = await braid.tenant()
    texts = {"a": "walrus on ice", "b": "walrus on ice", "c": "a walrus asleep", "d": "walrus and seal"}
    kinds = {"a": "note", "b": "note", "c": "log", "d": "note"}
    await write(
        client,
        *(
            {"id": id_, "content": text, "type": kinds[id_], "metadata": {"herd": {"name": "n" if id_ < "c" else "s"}}}
            for id_, text in texts.items()
        ),
    )
    return client


async def test_types_are_chosen_before_the_cut(shelf: httpx.AsyncClient) -> None:
    assert set(await ids(shelf, "walrus", include_types=["note"])) == {"a", "b", "d"}
    assert set(await ids(shelf, "walrus", exclude_types=["note"])) == {"c"}


async def test_types_can_be_boosted_and_capped(shelf: httpx.AsyncClient) -> None:
    assert (await ids(shelf, "walrus", shaping={"type_boost": {"log": 10}}))[0] == "c"
    capped = await ids(shelf, "walrus ice", type_cap={"note": 0.5})
    assert sum(id_ != "c" for id_ in capped) == 1


async def test_duplicates_collapse_and_groups_have_a_limit(shelf: httpx.AsyncClient) -> None:
    assert set(await ids(shelf, "walrus ice", collapse=0.9)) == {"a", "c", "d"}
    grouped = await ids(shelf, "walrus ice", group_by={"field": "metadata.herd.name"})
    assert len(grouped) == 2
    assert len(await ids(shelf, "walrus ice", group_by={"field": "type", "limit": 2})) == 3
    assert (await ids(shelf, "walrus ice", diversity=0.9))[1] != "b"


async def test_a_documents_own_confidence_is_not_that_of_the_match(client: httpx.AsyncClient) -> None:
    await client.put("/v1/documents/a?wait=true", json={"title": "walrus", "confidence": 0.25})
    [result] = (await search(client, "walrus"))["results"]
    assert result["confidence"] == 0.25
    assert result["match_confidence"] > 0.25


async def test_results_carry_an_absolute_confidence_and_a_badge(shelf: httpx.AsyncClient) -> None:
    sure = (await search(shelf, "walrus on ice", profile="exact"))["results"]
    assert all(0 < result["match_confidence"] <= 1 for result in sure)
    nothing = await search(shelf, "walrus on ice", min_confidence=1.0, profile="exact")
    assert nothing["results"] == []
    strict = (await search(shelf, "quarterly budget of the city", strict=True))["results"]
    assert all(result["badge"] != "LOW" for result in strict)
    for result in (await search(shelf, "ice", limit=10))["results"]:
        level = result["match_confidence"]
        expected = "HIGH" if level >= 0.7 else "MED" if level >= 0.45 else "LOW"
        assert result["badge"] == expected


EVERYTHING: dict[str, Any] = {
    "shaping": {
        "blend": 0.3, "keyword_only_damping": 0.8, "title_boost": 0.5, "confidence": 0.5, "priority": 1.0,
        "recency": 0.5, "access": 0.5, "type_boost": {"note": 1.2}, "affinity": "elsewhere",
    },
    "type_cap": {"note": 0.9}, "diversity": 0.2, "collapse": 0.99, "group_by": {"field": "type", "limit": 50},
}  # fmt: skip


async def test_page_one_is_the_same_for_every_limit_with_everything_on(client: httpx.AsyncClient) -> None:
    kinds = ("note", "log")
    some = (
        {"id": f"d{n}", "title": f"walrus {n}", "content": "ice " * (n % 9), "type": kinds[n % 2]} for n in range(70)
    )
    await write(client, *some)

    async def pages() -> list[list[str]]:
        return [await ids(client, "walrus ice", limit=limit, **EVERYTHING) for limit in (100, 1, 7, 30, 100)]

    whole, *some_pages, again = await pages()
    while whole != again:  # the words of the new documents have just been counted
        whole, *some_pages, again = await pages()
    assert len(whole) > 40
    assert some_pages == [whole[:1], whole[:7], whole[:30]]


async def test_the_score_adds_up_with_everything_on(mixed: httpx.AsyncClient) -> None:
    for result in (await search(mixed, "walrus ice", explain=True, **EVERYTHING))["results"]:
        score = math.fsum(share["weight"] * share["share"] for share in result["tiers"].values())
        for step in result["adjustments"]:
            score = score * step["multiply"] + step["add"]
        assert result["score"] == score


async def test_a_silent_tier_gives_its_weight_to_the_others_and_that_is_said(client: httpx.AsyncClient) -> None:
    await write(client, {"id": "a", "content": "walrus"})
    answer = await search(client, "walrus")
    assert answer["tiers"]["graph"]["status"] == "empty"
    assert answer["tiers"]["graph"]["weight"] == 0.1
    assert answer["weights"] == pytest.approx({"keyword": 0.65 / 0.9, "vector": 0.25 / 0.9})
