"""What a search does beyond its tiers: activation, pages, memory, a second stage, and many at once. Over HTTP."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from service.errors import TierUnavailable
from tests.conftest import Running, running

# A question of which one half is in `antenna`, and the other in `hut`, which shares no word with it.
LINKED = [
    {"id": "antenna", "title": "The antenna", "content": "The antenna on the ridge is warm.", "links": [
        {"to": "hut", "type": "part_of"}, {"to": "denial", "type": "contradicts"}]},
    {"id": "hut", "title": "Zwieback", "content": "Crackers and tea stay dry here."},
    {"id": "denial", "title": "Quibble", "content": "Nothing of that kind was ever seen."},
    {"id": "other", "title": "Antenna parts", "content": "Spare parts of the antenna."},
]  # fmt: skip


@pytest.fixture
async def linked(client: httpx.AsyncClient) -> httpx.AsyncClient:
    written = (await client.post("/v1/documents?wait=true", json=LINKED)).json()
    assert (written["errors"], written["visible"]) == (False, True)
    return client


async def asked(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post("/v1/search", json=body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def added_up(result: dict[str, Any]) -> float:
    """The score, from the explanation alone."""
    score = math.fsum(tier["contribution"] for tier in result["tiers"].values())
    for step in result["adjustments"]:
        score = score * step["multiply"] + step["add"]
    return score


def ids(answer: dict[str, Any]) -> list[str]:
    return [result["id"] for result in answer["results"]]


class TestActivation:
    async def test_brings_in_what_only_a_link_leads_to_with_numbers_that_add_up(
        self, linked: httpx.AsyncClient
    ) -> None:
        weights = {"keyword": 1, "vector": 0, "graph": 0.001}
        answer = await asked(linked, query="ridge", weights=weights, explain=True)
        hut = next(result for result in answer["results"] if result["id"] == "hut")
        [step] = [step for step in hut["adjustments"] if step["name"] == "activation"]
        assert (step["inputs"]["seed"], step["inputs"]["type"]) == ("antenna", "part_of")
        assert step["add"] == pytest.approx(answer["results"][0]["score"] * 1.0 * 1.0 * 0.5)
        for result in answer["results"]:
            assert added_up(result) == pytest.approx(result["score"], rel=1e-12)

    async def test_labels_what_a_contradiction_leads_to(self, linked: httpx.AsyncClient) -> None:
        """The graph tier walks that link too, unless it finds nothing to start from."""
        answer = await asked(linked, query="ridge", weights={"keyword": 1, "vector": 0, "graph": 0.001})
        sources = {result["id"]: result["source"] for result in answer["results"]}
        assert sources == {"antenna": "search", "hut": "activated", "denial": "conflict"}

    async def test_needs_the_graph_beside_another_tier(self, linked: httpx.AsyncClient) -> None:
        alone = await asked(linked, query="ridge", weights={"keyword": 1, "vector": 0, "graph": 0})
        assert ids(alone) == ["antenna"]

    async def test_can_be_switched_off(self, linked: httpx.AsyncClient) -> None:
        weights = {"keyword": 1, "vector": 0, "graph": 0.001}
        assert ids(await asked(linked, query="ridge", weights=weights, activation={"weight": 0})) == ["antenna"]
        one = await asked(linked, query="ridge", weights=weights, activation={"neighbours": 1})
        assert ids(one) == ["antenna", "hut"]

    async def test_keeps_to_the_filter(self, linked: httpx.AsyncClient) -> None:
        weights = {"keyword": 1, "vector": 0, "graph": 0.001}
        assert ids(await asked(linked, query="ridge", weights=weights, filter={"type": "none"})) == []


class TestNeighbourBoost:
    async def test_lifts_candidates_by_their_neighbours_and_brings_nothing_new(self, client: httpx.AsyncClient) -> None:
        documents = [
            {"id": "a", "content": "walrus"},
            {"id": "b", "content": "walrus and some more words", "links": [{"to": "c"}]},
            {"id": "c", "content": "walrus and some more words"},
            {"id": "d", "content": "no such word"},
        ]
        await client.post("/v1/documents?wait=true", json=documents)
        plain = {"query": "walrus", "weights": {"keyword": 1, "vector": 0, "graph": 0.001}, "activation": {"weight": 0}}
        before, after = await asked(client, **plain), await asked(client, **plain, boost={"weight": 5}, explain=True)
        assert sorted(ids(before)) == sorted(ids(after)) == ["a", "b", "c"]
        assert ids(before)[0] == "a"
        lifted = {r["id"]: [s["name"] for s in r["adjustments"] if s["add"]] for r in after["results"]}
        assert lifted == {"a": [], "b": ["neighbours"], "c": ["neighbours"]}


@pytest.fixture
async def many(client: httpx.AsyncClient) -> httpx.AsyncClient:
    documents = [{"id": f"d{n:02}", "content": "walrus " * (n % 7 + 1) + f"number {n}"} for n in range(40)]
    await client.post("/v1/documents?wait=true", json=documents)
    return client


async def walked(client: httpx.AsyncClient, limits: Sequence[int], **body: Any) -> list[list[str]]:
    pages, cursor = [], None
    for limit in [*limits, *[limits[-1]] * 100]:
        answer = await asked(client, **body, limit=limit, **({} if cursor is None else {"cursor": cursor}))
        pages.append(ids(answer))
        cursor = answer["next"]
        if cursor is None:
            return pages
    raise AssertionError("the pages never end")


class TestPages:
    async def test_are_the_one_ranking_cut_into_pieces_whatever_their_sizes(self, many: httpx.AsyncClient) -> None:
        whole = ids(await asked(many, query="walrus", limit=100))
        assert len(whole) == 40
        for limits in ([7], [1, 2, 3, 10], [39], [40], [100]):
            pages = await walked(many, limits, query="walrus")
            assert [id for page in pages for id in page] == whole
            assert all(pages)  # none is empty

    async def test_neither_repeat_nor_leave_out_while_documents_are_written(self, many: httpx.AsyncClient) -> None:
        first = await asked(many, query="walrus", limit=10)
        await many.put("/v1/documents/new?wait=true", json={"content": "walrus " * 50})
        await many.delete(f"/v1/documents/{ids(first)[0]}")
        gone = next(f"d{n:02}" for n in range(40) if f"d{n:02}" not in ids(first))
        await many.delete(f"/v1/documents/{gone}")
        rest, cursor = [], first["next"]
        while cursor is not None:
            answer = await asked(many, query="walrus", limit=10, cursor=cursor)
            rest += ids(answer)
            cursor = answer["next"]
        assert len(rest) == len(set(rest))
        assert set(rest) == {f"d{n:02}" for n in range(40)} - set(ids(first)) - {gone} | {"new"}

    async def test_the_last_page_has_no_next(self, many: httpx.AsyncClient) -> None:
        assert (await asked(many, query="walrus", limit=40))["next"] is None

    async def test_by_url_too(self, many: httpx.AsyncClient) -> None:
        first = (await many.get("/v1/search", params={"q": "walrus"})).json()
        second = (await many.get("/v1/search", params={"q": "walrus", "cursor": first["next"]})).json()
        assert len(set(ids(first) + ids(second))) == 20

    async def test_a_tampered_cursor_and_one_of_another_search_or_tenant_are_refused(
        self, braid: Running, many: httpx.AsyncClient
    ) -> None:
        cursor = (await asked(many, query="walrus"))["next"]
        other = await braid.tenant()
        changed = cursor[:-3] + ("AAA" if cursor[-3:] != "AAA" else "BBB")
        for client, query, sent in ((many, "walrus", changed), (many, "seal", cursor), (other, "walrus", cursor)):
            refused = await client.post("/v1/search", json={"query": query, "cursor": sent})
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["field"] == "cursor"

    async def test_a_narrower_key_cannot_go_on_with_a_wider_ones_cursor(self, braid: Running) -> None:
        wide = await braid.key("cursor-reach")
        narrow = await braid.key("cursor-reach", namespaces=["default"])
        documents = [{"id": f"{n}", "content": "walrus"} for n in range(3)]
        await braid.client(wide).post("/v1/documents?wait=true", json=documents)
        cursor = (await asked(braid.client(wide), query="walrus", limit=1))["next"]
        refused = await braid.client(narrow).post("/v1/search", json={"query": "walrus", "limit": 1, "cursor": cursor})
        assert refused.status_code == 422

    async def test_pages_end_at_a_depth(self, many: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("service.search.MAX_PAGED", 20)
        assert sum(map(len, await walked(many, [10], query="walrus"))) == 20


class TestBatch:
    async def test_answers_each_as_a_search_would_and_a_bad_one_fails_alone(self, many: httpx.AsyncClient) -> None:
        searches = [
            {"query": "walrus", "limit": 3},
            {"query": ""},
            {"query": "number 7", "vector": [1.0]},
            {"query": "x"},
        ]
        answer = (await many.post("/v1/search/batch", json={"searches": searches})).json()
        assert answer["errors"] is True
        assert [item["status"] for item in answer["items"]] == [200, 422, 422, 200]
        assert ids(answer["items"][0]["answer"]) == ids(await asked(many, query="walrus", limit=3))
        assert answer["items"][2]["problem"]["errors"][0]["field"] == "vector"

    @pytest.mark.parametrize("searches", [[], [{"query": "x"}] * 51, ["x"], None])
    async def test_takes_1_to_50_searches(self, client: httpx.AsyncClient, searches: Any) -> None:
        assert (await client.post("/v1/search/batch", json={"searches": searches})).status_code == 422

    async def test_embeds_once(self, braid: Running, many: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
        embedder, calls = braid.app.state.braid.recall._embedder, list[Any]()
        whole = embedder.embed_queries

        async def counted(texts: Sequence[str]) -> Any:
            calls.append(list(texts))
            return await whole(texts)

        async def never(text: str) -> Any:
            raise AssertionError("embedded one by one")

        monkeypatch.setattr(embedder, "embed_queries", counted)
        monkeypatch.setattr(embedder, "embed_query", never)
        body = {"searches": [{"query": "walrus"}, {"query": "ice"}]}
        answer = (await many.post("/v1/search/batch", json=body)).json()
        assert calls == [["walrus", "ice"]]
        assert {item["answer"]["tiers"]["vector"]["status"] for item in answer["items"]} == {"ok"}


async def test_results_are_counted_for_the_access_boost(braid: Running, many: httpx.AsyncClient) -> None:
    accesses = braid.app.state.braid.accesses
    before = {tenant: dict(counts) for tenant, counts in accesses._counts.items()}
    shown = ids(await asked(many, query="walrus", limit=3))
    [(_, counts)] = [(t, dict(c)) for t, c in accesses._counts.items() if dict(c) != before.get(t, {})]
    assert counts == dict.fromkeys(shown, 1)


@pytest.fixture(scope="module")
async def remembering(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A Braid that remembers meanings, reranks offline, and leaves vectors out where a query says nothing."""
    folder = tmp_path_factory.mktemp("remembering")
    chosen: dict[str, Any] = {"cache": "semantic", "cache_similarity": 0.9, "reranker": "late", "skip_generic": True}
    chosen["search_timeout_ms"] = 10_000  # what is tested here is not speed
    async with running(folder / "data", index_poll_ms=50, keyword_refresh_ms=600_000, **chosen) as braid:
        await settled(braid)
        yield braid


async def settled(braid: Running) -> None:
    """At its start a Braid counts words once, which is a change like any other."""
    client = await braid.tenant()
    await client.put("/v1/documents/a?wait=true", json={"content": "walrus"})
    for _ in range(100):
        if (await asked(client, query="walrus"))["cached"] == "exact":
            return
    raise AssertionError("nothing is ever remembered")


@pytest.fixture
async def tenant(remembering: Running) -> httpx.AsyncClient:
    client = await remembering.tenant()
    await client.post("/v1/documents?wait=true", json=[{"id": "a", "content": "What keeps the antenna warm."}])
    return client


class TestMemory:
    async def test_the_same_question_is_answered_from_memory(self, tenant: httpx.AsyncClient) -> None:
        first, second = [await asked(tenant, query="antenna heater") for _ in range(2)]
        assert (first["cached"], second["cached"]) == (None, "exact")
        same = ("results", "tiers", "weights", "namespaces", "degraded", "next")
        assert [first[name] for name in same] == [second[name] for name in same]
        assert first["request_id"] != second["request_id"]

    async def test_so_is_one_of_the_same_meaning(self, tenant: httpx.AsyncClient) -> None:
        await asked(tenant, query="the warm antenna")
        assert (await asked(tenant, query="warm the antenna"))["cached"] == "semantic"
        assert (await asked(tenant, query="the warm antenna 7"))["cached"] is None
        assert (await asked(tenant, query="lunch at noon"))["cached"] is None

    async def test_not_with_other_options_nor_with_no_cache(self, tenant: httpx.AsyncClient) -> None:
        await asked(tenant, query="antenna heater")
        assert (await asked(tenant, query="antenna heater", limit=5))["cached"] is None
        assert (await asked(tenant, query="antenna heater", filter={"type": "x"}))["cached"] is None
        assert (await asked(tenant, query="antenna heater", no_cache=True))["cached"] is None

    @pytest.mark.parametrize("wait", ["", "?wait=true"])
    async def test_a_write_is_seen_at_once(self, tenant: httpx.AsyncClient, wait: str) -> None:
        for n in range(5):
            assert len(ids(await asked(tenant, query="antenna", limit=50))) == n + 1
            await tenant.put(f"/v1/documents/n{n}{wait}", json={"content": "antenna"})
        await tenant.delete("/v1/documents/a")
        assert "a" not in ids(await asked(tenant, query="antenna", limit=50))

    async def test_also_when_another_process_wrote(self, remembering: Running, tenant: httpx.AsyncClient) -> None:
        """Which is all that another process shares with this one: PostgreSQL."""
        from service.model import Document, Reach
        from service.stores.documents import TenantDocuments
        from service.stores.postgres import Postgres

        await asked(tenant, query="antenna")
        assert (await asked(tenant, query="antenna"))["cached"] == "exact"
        key = tenant.headers["Authorization"].removeprefix("Bearer ")
        elsewhere = Postgres(remembering.engines.postgres._url, pool_size=1)
        await elsewhere.open()
        reach = Reach(await remembering.tenant_of(key))
        await TenantDocuments(elsewhere, reach).put([(Document("b", content="antenna"), None)])
        await elsewhere.close()
        assert set(ids(await asked(tenant, query="antenna"))) == {"a", "b"}

    async def test_an_own_vector_says_nothing_of_the_words_beside_it(self, tenant: httpx.AsyncClient) -> None:
        await asked(tenant, query="the warm antenna", vector=[1.0] * 256)
        assert (await asked(tenant, query="lunch at noon", vector=[1.0] * 256))["cached"] is None

    async def test_new_defaults_of_the_tenant_count_at_once(self, remembering: Running) -> None:
        client = remembering.client(await remembering.key("new-defaults"))
        await client.put("/v1/documents/a?wait=true", json={"content": "antenna", "type": "draft"})
        assert ids(await asked(client, query="antenna")) == ["a"]
        change = {"ranking": {"exclude_types": ["draft"]}}
        await remembering.app.state.braid.tenants.change("test", "new-defaults", change)
        remembering.app.state.braid.searcher.defaults.forget()
        assert ids(await asked(client, query="antenna")) == []

    async def test_keys_of_different_reach_share_nothing(self, remembering: Running) -> None:
        wide = remembering.client(await remembering.key("reach-in-memory"))
        narrow = remembering.client(await remembering.key("reach-in-memory", namespaces=["open"]))
        documents = [
            {"id": "s", "namespace": "secret", "content": "antenna"},
            {"id": "o", "namespace": "open", "content": "antenna"},
        ]
        await wide.post("/v1/documents?wait=true", json=documents)
        for client, seen in ((wide, {"s", "o"}), (narrow, {"o"}), (wide, {"s", "o"}), (narrow, {"o"})):
            assert set(ids(await asked(client, query="antenna"))) == seen

    async def test_tenants_share_nothing(self, remembering: Running, tenant: httpx.AsyncClient) -> None:
        await asked(tenant, query="antenna")
        other = await remembering.tenant()
        answer = await asked(other, query="antenna")
        assert (ids(answer), answer["cached"]) == ([], None)

    async def test_a_degraded_answer_is_not_remembered(
        self, remembering: Running, tenant: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        searcher = remembering.app.state.braid.searcher

        async def fail(*_: Any) -> Any:
            raise TierUnavailable("gone")

        with monkeypatch.context() as broken:
            broken.setattr(searcher._reranker, "score", fail)
            for _ in range(2):
                answer = await asked(tenant, query="antenna ice")
                assert (answer["degraded"], answer["cached"]) == (True, None)
        answer = await asked(tenant, query="antenna ice")
        assert (answer["degraded"], answer["cached"]) == (False, None)


class TestSecondStage:
    async def test_scores_are_part_of_the_explanation_and_add_up(self, tenant: httpx.AsyncClient) -> None:
        documents = [{"id": f"x{n}", "content": f"antenna {'ice ' * n}"} for n in range(5)]
        await tenant.post("/v1/documents?wait=true", json=documents)
        answer = await asked(tenant, query="warm antenna", explain=True)
        assert (answer["reranker"]["name"], answer["reranker"]["status"]) == ("late", "ok")
        for result in answer["results"]:
            steps = {step["name"]: step for step in result["adjustments"]}
            inputs = steps["rerank"]["inputs"]
            assert 0 <= inputs["reranker"] <= 1
            assert added_up(result) == pytest.approx(result["score"], rel=1e-12)
        scores = [result["score"] for result in answer["results"]]
        assert scores == sorted(scores, reverse=True)

    async def test_a_late_one_leaves_the_order_and_is_named(
        self, remembering: Running, tenant: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def sleep(*_: Any) -> Any:
            await asyncio.sleep(60)

        monkeypatch.setattr(remembering.app.state.braid.searcher._reranker, "score", sleep)
        late = await asked(tenant, query="warm antenna", timeout_ms=2500, no_cache=True)
        off = await asked(tenant, query="warm antenna", rerank={"enabled": False}, no_cache=True)
        assert (late["degraded"], late["reranker"]["status"]) == (True, "timeout")
        assert (off["degraded"], off.get("reranker")) == (False, None)
        assert ids(late) == ids(off)
        strict = {"query": "warm antenna", "timeout_ms": 2500, "allow_degraded": False, "no_cache": True}
        assert (await tenant.post("/v1/search", json=strict)).status_code == 503


class TestGenericQueries:
    async def test_skip_the_vector_tier_where_the_service_says_so(self, tenant: httpx.AsyncClient) -> None:
        generic = await asked(tenant, query="the docs")
        assert generic["tiers"]["vector"]["status"] == "skipped"
        assert generic["tiers"]["vector"]["reason"] == "low-entropy query"
        assert (generic["degraded"], "vector" in generic["weights"]) == (False, False)
        assert (await asked(tenant, query="the antenna"))["tiers"]["vector"]["status"] == "ok"

    async def test_not_where_it_does_not(self, client: httpx.AsyncClient) -> None:
        await client.put("/v1/documents/a?wait=true", json={"content": "x"})
        assert (await asked(client, query="the docs"))["tiers"]["vector"]["status"] in ("ok", "empty")
