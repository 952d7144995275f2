"""Searching over HTTP: each tier earns its place, filters mean the same to all, and the answer explains itself."""

from __future__ import annotations

import math
import random
from typing import Any

import httpx
import pytest

from service.app import load_sample
from service.model import TIERS
from service.sample import SHOWCASE
from tests.conftest import Running


def only(*tiers: str) -> dict[str, float]:
    return {tier: float(tier in tiers) for tier in TIERS}


async def write(client: httpx.AsyncClient, *documents: dict[str, Any]) -> None:
    answer = (await client.post("/v1/documents?wait=true", json=list(documents))).json()
    assert not answer["errors"], answer
    assert answer["visible"]


async def search(client: httpx.AsyncClient, query: str, **body: Any) -> dict[str, Any]:
    response = await client.post("/v1/search", json={"query": query, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def ids(client: httpx.AsyncClient, query: str, **body: Any) -> list[str]:
    return [result["id"] for result in (await search(client, query, **body))["results"]]


async def test_each_tier_alone_finds_what_the_others_miss_and_the_fusion_has_all_three(braid: Running) -> None:
    client = await braid.tenant()
    dimension = braid.app.state.braid.writer.dimension
    east, west = [1.0] + [0.0] * (dimension - 1), [-1.0] + [0.0] * (dimension - 1)
    await write(
        client,
        {"id": "word", "title": "Part list", "content": "Order code zx81-kestrel", "vector": west},
        {"id": "meaning", "title": "Birds of prey", "content": "A small falcon that hovers", "vector": east},
        {"id": "link", "title": "Quarterly budget", "content": "Numbers only", "entities": ["Kestrel"], "vector": west},
        {"id": "noise", "title": "Lunch", "content": "Soup and bread", "vector": west},
    )
    asked = {"vector": east, "limit": 3}
    # The vector tier ranks everything it holds, so what it found is what it likes: the one document to the east.
    alone = {tier: (await ids(client, "zx81-kestrel", weights=only(tier), **asked))[0] for tier in TIERS}
    assert alone == {"keyword": "word", "vector": "meaning", "graph": "link"}
    for tier, own in alone.items():
        others = (await search(client, "zx81-kestrel", weights=only(tier), **asked))["results"]
        assert [r["id"] for r in others if r["tiers"][tier]["raw"] > 0] == [own]
    answer = await search(client, "zx81-kestrel", weights=dict.fromkeys(TIERS, 1), **asked)
    assert {result["id"] for result in answer["results"]} == {"word", "meaning", "link"}
    assert answer["degraded"] is False


async def test_the_answer_explains_its_numbers(client: httpx.AsyncClient) -> None:
    await write(
        client,
        {
            "id": "a",
            "title": "Walrus",
            "content": "A walrus on the ice",
            "entities": ["Walrus"],
            "links": [{"to": "b"}],
        },
        {"id": "b", "title": "Ice", "content": "The ice is thin"},
        {"id": "c", "title": "Seal", "content": "A seal saw a walrus"},
    )
    answer = await search(client, "walrus", explain=True)
    told = {"results", "degraded", "tiers", "weights", "namespaces", "next", "cached", "took_ms", "request_id"}
    assert set(answer) == told
    assert answer["weights"] == {"keyword": 0.65, "vector": 0.25, "graph": 0.1}
    assert answer["namespaces"] == ["default"]
    assert {tier: body["status"] for tier, body in answer["tiers"].items()} == dict.fromkeys(TIERS, "ok")
    scores = [result["score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    for result in answer["results"]:
        for tier, share in result["tiers"].items():
            assert share["weight"] == answer["weights"][tier]
            assert share["contribution"] == share["weight"] * share["normalised"]
        score = math.fsum(share["contribution"] for share in result["tiers"].values())
        for step in result["adjustments"]:
            score = score * step["multiply"] + step["add"]
        assert result["score"] == score
    walked = next(result for result in answer["results"] if result["id"] == "b")
    assert walked["tiers"]["graph"]["path"][-1] == {"via": "related_to", "to": "b", "strength": 1.0}


async def test_without_explain_the_breakdown_is_short(client: httpx.AsyncClient) -> None:
    await write(client, {"id": "a", "title": "Walrus"})
    [result] = (await search(client, "walrus"))["results"]
    assert set(result["tiers"]["keyword"]) == {"rank", "raw", "normalised", "contribution"}


async def test_a_weight_of_zero_leaves_a_tier_unasked_and_is_not_a_degradation(client: httpx.AsyncClient) -> None:
    await write(client, {"id": "a", "title": "Walrus"})
    answer = await search(client, "walrus", weights={"vector": 0})
    skipped = {"status": "skipped", "weight": 0.0, "hits": 0, "took_ms": 0.0, "reason": "weight 0"}
    assert answer["tiers"]["vector"] == skipped
    assert answer["degraded"] is False
    assert set(answer["weights"]) == {"keyword", "graph"}
    assert set(answer["results"][0]["tiers"]) <= {"keyword", "graph"}


async def test_the_first_page_is_the_same_for_every_limit(braid: Running, client: httpx.AsyncClient) -> None:
    await write(
        client, *({"id": f"d{n}", "title": f"walrus {'ice ' * (n % 7)}", "content": "x" * n} for n in range(60))
    )
    await braid.counted(client)
    whole = await ids(client, "walrus on ice", limit=100)
    assert len(whole) == 60
    for limit in (1, 5, 10, 33):
        assert await ids(client, "walrus on ice", limit=limit) == whole[:limit]


class TestNamespaces:
    async def test_all_are_searched_unless_some_are_named(self, client: httpx.AsyncClient) -> None:
        await write(client, *({"id": n, "title": "walrus", "namespace": n, "entities": ["Walrus"]} for n in "abc"))
        everywhere = await search(client, "walrus")
        assert everywhere["namespaces"] == ["a", "b", "c"]
        assert {r["id"] for r in everywhere["results"]} == {"a", "b", "c"}
        for tier in TIERS:
            assert await ids(client, "walrus", namespace="b", weights=only(tier)) == ["b"]
            two = await ids(client, "walrus", include_namespaces=["c", "a", "a"], weights=only(tier))
            assert set(two) == {"a", "c"}
            assert await ids(client, "walrus", namespace="nowhere", weights=only(tier)) == []

    async def test_an_empty_tenant_searches_the_default(self, client: httpx.AsyncClient) -> None:
        answer = await search(client, "walrus")
        assert (answer["namespaces"], answer["results"], answer["degraded"]) == (["default"], [], False)

    async def test_namespace_and_list_together_are_refused(self, client: httpx.AsyncClient) -> None:
        body = {"query": "x", "namespace": "a", "include_namespaces": ["b"]}
        response = await client.post("/v1/search", json=body)
        assert response.status_code == 422


DOCUMENTS: list[dict[str, Any]] = [
    {
        "id": "a",
        "type": "note",
        "tags": ["red"],
        "metadata": {"year": 2020, "author": "ada"},
        "created_at": "2024-05-01",
    },
    {"id": "b", "type": "log", "tags": ["red", "blue"], "metadata": {"year": 2024.0}, "created_at": "2024-05-02"},
    {"id": "c", "type": "note", "tags": [], "metadata": {"year": [1999, 2030], "ok": True}, "created_at": "2024-05-03"},
    {
        "id": "d",
        "tags": ["a'b\"c"],
        "metadata": {"deep": {"er": [{"x": "ÿ"}, 1]}, "null": None},
        "created_at": "2024-05-04",
    },
    {"id": "e", "metadata": {"ok": 1, "author": "Ada", "a.b": "dotted"}, "created_at": "2024-05-05"},
]
FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "abcde"),
    ({"type": "note"}, "ac"),
    ({"type": ["note", "log"]}, "abc"),
    ({"tags": ["red"]}, "ab"),
    ({"tags": ["blue", "a'b\"c"]}, "bd"),
    ({"metadata": {"year": 2024}}, "b"),
    ({"metadata": {"year": 2030}}, "c"),
    ({"metadata": {"author": "ada"}}, "a"),
    ({"metadata": {"author": {"in": ["ada", "Ada"]}}}, "ae"),
    ({"metadata": {"ok": True}}, "c"),
    ({"metadata": {"ok": 1}}, "e"),
    ({"metadata": {"null": None}}, "d"),
    ({"metadata": {"null": {"exists": True}}}, "d"),
    ({"metadata": {"author": {"exists": True}}}, "ae"),
    ({"metadata": {"deep.er.x": "ÿ"}}, "d"),
    ({"metadata": {"deep.er": 1}}, "d"),
    ({"metadata": {"a.b": "dotted"}}, "e"),
    ({"metadata": {"year": {"gte": 2020}}}, "abc"),
    ({"metadata": {"year": {"gt": 2020}}}, "bc"),
    ({"metadata": {"year": {"lte": 2020}}}, "ac"),
    ({"metadata": {"year": {"lt": 2020}}}, "c"),
    ({"metadata": {"year": {"gte": 2000, "lt": 2025}}}, "ab"),
    ({"metadata": {"author": {"gte": 0}}}, ""),
    ({"created_after": "2024-05-02T00:00:00Z"}, "bcde"),
    ({"created_before": "2024-05-02T00:00:00Z"}, "a"),
    ({"created_after": "2024-05-02T00:00:00Z", "created_before": "2024-05-04T02:00:00+02:00"}, "bc"),
    ({"type": "note", "tags": ["red"], "metadata": {"year": {"lt": 2021}}}, "a"),
    ({"type": "note", "tags": ["blue"]}, ""),
    ({"metadata": {"author": {"exists": False}}}, "bcd"),
    ({"not": {"type": "note"}}, "bde"),
    ({"not": {"metadata": {"year": {"gte": 2000}}}}, "de"),
    ({"not": {"created_after": "2024-05-02T00:00:00Z"}}, "a"),
    ({"not": {}}, ""),
    ({"any": [{"type": "log"}, {"metadata": {"author": "Ada"}}]}, "be"),
    ({"any": [{"tags": ["red"], "type": "note"}, {"created_after": "2024-05-05T00:00:00Z"}]}, "ae"),
    ({"any": [{"type": "nothing"}]}, ""),
    ({"all": [{"any": [{"type": "note"}, {"type": "log"}]}, {"any": [{"tags": ["red"]}, {"tags": ["blue"]}]}]}, "ab"),
    ({"all": [{"created_after": "2024-05-02T00:00:00Z"}, {"created_before": "2024-05-04T00:00:00Z"}]}, "bc"),
    ({"type": "note", "not": {"any": [{"tags": ["red"]}, {"metadata": {"ok": True}}]}}, ""),
    ({"not": {"not": {"type": "log"}}}, "b"),
    ({"not": {"all": [{"tags": ["red"]}, {"type": "note"}]}}, "bcde"),
]


@pytest.fixture(scope="module")
async def filterable(braid: Running) -> httpx.AsyncClient:
    client = await braid.tenant()
    common = {"title": "walrus", "entities": ["Walrus"]}
    await write(client, *({**common, **d, "created_at": f"{d['created_at']}T00:00:00Z"} for d in DOCUMENTS))
    return client


class TestFilters:
    @pytest.mark.parametrize(("filter", "expected"), FILTERS)
    async def test_every_engine_reads_a_filter_the_same_way(
        self, filterable: httpx.AsyncClient, filter: dict[str, Any], expected: str
    ) -> None:
        found = {tier: await ids(filterable, "walrus", filter=filter, weights=only(tier)) for tier in TIERS}
        assert {tier: "".join(sorted(some)) for tier, some in found.items()} == dict.fromkeys(TIERS, expected)

    async def test_every_engine_agrees_on_any_tree_of_filters(self, filterable: httpx.AsyncClient) -> None:
        leaves = [filter for filter, _ in FILTERS if filter]
        dice = random.Random(81)

        def grow(depth: int) -> dict[str, Any]:
            kind = dice.choice(["leaf", "leaf", "not", "any", "all"]) if depth < 3 else "leaf"
            if kind == "leaf":
                return dice.choice([leaf for leaf in leaves if not {"any", "all", "not"} & set(leaf)])
            if kind == "not":
                return {"not": grow(depth + 1)}
            return {kind: [grow(depth + 1) for _ in range(dice.randint(1, 3))]}

        found_some = 0
        for _ in range(40):
            filter = grow(0)
            by_tier = {t: sorted(await ids(filterable, "walrus", filter=filter, weights=only(t))) for t in TIERS}
            assert by_tier["keyword"] == by_tier["vector"] == by_tier["graph"], filter
            found_some += bool(by_tier["keyword"])
        assert found_some > 10

    async def test_a_filter_is_applied_before_the_cut(self, client: httpx.AsyncClient) -> None:
        """Three hundred better matches must not push the wanted one out of a tier's list."""
        await write(client, *({"id": f"n{n}", "title": "walrus", "entities": ["Walrus"]} for n in range(300)))
        last = {"id": "last", "title": "something", "content": "walrus " + "padding " * 200, "entities": ["Walrus"]}
        await write(client, {**last, "tags": ["rare"], "namespace": "far"})
        for tier in TIERS:
            assert await ids(client, "walrus", filter={"tags": ["rare"]}, weights=only(tier)) == ["last"]
            assert await ids(client, "walrus", namespace="far", weights=only(tier)) == ["last"]


@pytest.fixture(scope="module")
async def typed(braid: Running) -> httpx.AsyncClient:
    client = await braid.tenant()
    await write(
        client,
        {"id": "quick", "title": "The quick brown fox", "content": "jumps over the lazy dog at 12:30"},
        {"id": "brown", "title": "Brown bread", "content": "quick to bake"},
        {"id": "url", "title": "Links", "content": "see https://example.org/a-b?c=d and mail a@b.example"},
        {"id": "name", "title": "O'Brien", "content": "the sister's C++ code, part 550e8400-e29b-41d4"},
    )
    return client


class TestTyping:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("fox bread", ["brown", "quick"]),
            ('"quick brown"', ["quick"]),
            ("quick -fox", ["brown"]),
            ('quick -"lazy dog"', ["brown"]),
            ("-fox", ["quick"]),
            ("12:30", ["quick"]),
            ("https://example.org/a-b?c=d", ["url"]),
            ("a@b.example", ["url"]),
            ("sister's", ["name"]),
            ("550e8400-e29b-41d4", ["name"]),
            ("the", []),
            ('"the"', []),
            ("' OR 1=1 --", []),
            ('"unbalanced fox', ["quick"]),
            ("((fox & | ! <-> :* '", ["quick"]),
            ("fox\\", ["quick"]),
            ("\\'; DROP TABLE documents; --", []),
            ("🦊 fox 狐", ["quick"]),
            ("-", []),
            ("\u200b", []),
        ],
    )
    async def test_what_people_type(self, typed: httpx.AsyncClient, query: str, expected: list[str]) -> None:
        assert sorted(await ids(typed, query, weights=only("keyword"))) == expected


class TestVectors:
    async def test_a_vector_of_the_wrong_size_names_both_sizes(self, client: httpx.AsyncClient) -> None:
        response = await client.post("/v1/search", json={"vector": [0.5, 0.5, 0.5]})
        assert response.status_code == 422
        assert response.json()["errors"] == [
            {"field": "vector", "message": "has 3 dimensions; this service uses 256"},
        ]

    async def test_a_vector_alone_is_a_query(self, client: httpx.AsyncClient) -> None:
        near, far = [1.0] * 256, [1.0, -1.0] * 128
        await write(client, {"id": "near", "vector": near}, {"id": "far", "vector": far})
        answer = await search(client, "", vector=near)
        assert [r["id"] for r in answer["results"]] == ["near", "far"]
        assert answer["results"][0]["tiers"]["vector"]["raw"] == pytest.approx(1.0, abs=1e-6)
        assert answer["degraded"] is False


async def test_get_is_the_same_search(client: httpx.AsyncClient) -> None:
    await write(client, *({"id": n, "title": "walrus", "namespace": n} for n in "abc"))
    params = {"q": "walrus", "limit": 2, "namespace": ["a", "b"], "vector": 0, "explain": "true"}
    got = (await client.get("/v1/search", params=params)).json()
    posted = await search(client, "walrus", limit=2, include_namespaces=["a", "b"], weights={"vector": 0}, explain=True)
    assert got["results"] == posted["results"]
    assert got["tiers"]["vector"]["status"] == "skipped"


@pytest.fixture(scope="module")
async def sample(braid: Running) -> httpx.AsyncClient:
    return braid.client(await load_sample(braid.app.state.braid))


class TestSample:
    @pytest.mark.parametrize(("query", "tier", "document"), SHOWCASE)
    async def test_the_showcase_shows(self, sample: httpx.AsyncClient, query: str, tier: str, document: str) -> None:
        """The tier ranks its document among its best; the other exact tier does not find it at all."""
        best = await ids(sample, query, weights=only(tier), limit=3)
        assert document in best
        for other in {"keyword", "graph"} - {tier}:
            assert document not in await ids(sample, query, weights=only(other), limit=100)
