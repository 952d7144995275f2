"""Both vector stores keep the same promises: Qdrant's engine in process, and the server's client in memory mode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.errors import SetupError, TierInvalid, TierUnavailable
from service.facets import tag_facet, type_facet, value_facet
from service.model import Document, Filter, Held, NumberRange, Query, Reach
from service.stores.embedder import NoEmbedder
from service.stores.qdrant import VectorStore
from service.stores.qdrant_edge import EdgeVectorStore
from service.stores.qdrant_server import ServerVectorStore
from service.tiers.vector import VectorTier

ADA = "11111111-1111-4111-8111-111111111111"
BOB = "22222222-2222-4222-8222-222222222222"
EAST = [1.0, 0.0, 0.0, 0.0]
NORTH = [0.0, 1.0, 0.0, 0.0]
WEST = [-1.0, 0.0, 0.0, 0.0]
NORTH_EAST = [1.0, 1.0, 0.0, 0.0]


def day(number: int) -> datetime:
    return datetime(2024, 5, number, tzinfo=UTC)


POINTS = [
    (Document("a", "notes", type="note", tags=("red",), metadata={"year": 2020}, created_at=day(1)), EAST),
    (Document("b", "notes", type="log", tags=("red", "blue"), metadata={"year": 2024}, created_at=day(2)), NORTH_EAST),
    (Document("c", "mail", type="note", metadata={"año.x y": [1.5, 9]}, created_at=day(3)), NORTH),
    (Document("d", "mail", metadata={"author": "ada", "12": 5}), WEST),
]


def make(kind: str, folder: Path, model: str = "") -> VectorStore:
    if kind == "edge":
        return EdgeVectorStore(folder / "vectors", 4, model)
    return ServerVectorStore(":memory:", None, "braid", 4, 2.0, model)


@pytest.fixture(params=["edge", "server"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    store = make(request.param, tmp_path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(scope="module", params=["edge", "server"])
async def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VectorStore]:
    """A store that holds POINTS, for tests that only read."""
    store = make(request.param, tmp_path_factory.mktemp("filled"))
    await store.open()
    await store.upsert(ADA, POINTS)
    yield store
    await store.close()


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[EdgeVectorStore]:
    store = EdgeVectorStore(tmp_path / "vectors", 4)
    await store.open()
    yield store
    await store.close()


async def found(
    store: VectorStore, only: Filter | None = None, namespaces: tuple[str, ...] = ("notes", "mail"), tenant: str = ADA
) -> list[str]:
    return [hit.id for hit in await store.search(tenant, EAST, namespaces, only or Filter(), 10)]


async def test_hits_come_best_first_and_a_negative_cosine_is_zero(filled: VectorStore) -> None:
    hits = await filled.search(ADA, EAST, ("notes", "mail"), Filter(), 10)
    assert [hit.id for hit in hits] == ["a", "b", "c", "d"]
    assert [hit.score for hit in hits] == pytest.approx([1.0, 0.5**0.5, 0.0, 0.0], abs=1e-6)
    assert hits[3].score == 0.0


async def test_the_limit_cuts_after_the_filter(filled: VectorStore) -> None:
    hits = await filled.search(ADA, EAST, ("mail",), Filter(), 1)
    assert [hit.id for hit in hits] == ["c"]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (Filter(any_of=((type_facet("note"),),)), ["a", "c"]),
        (Filter(any_of=((tag_facet("blue"), tag_facet("green")),)), ["b"]),
        (Filter(any_of=((tag_facet("red"),), (type_facet("note"),))), ["a"]),
        (Filter(any_of=((value_facet("author", "ada"),),)), ["d"]),
        (Filter(any_of=((),)), []),
        (Filter(ranges=(NumberRange("year", gte=2020, lt=2024),)), ["a"]),
        (Filter(ranges=(NumberRange("year", gt=2020, lte=2024),)), ["b"]),
        (Filter(ranges=(NumberRange("año.x y", gt=5),)), ["c"]),
        (Filter(ranges=(NumberRange("12", gte=5, lte=5),)), ["d"]),
        (Filter(created_after=day(2)), ["b", "c"]),
        (Filter(created_before=day(2)), ["a"]),
        (Filter(created_after=day(2), created_before=day(3)), ["b"]),
    ],
)
async def test_each_kind_of_filter(filled: VectorStore, only: Filter, expected: list[str]) -> None:
    assert await found(filled, only) == expected


async def test_only_the_named_namespaces_are_searched(filled: VectorStore) -> None:
    assert await found(filled, namespaces=("mail",)) == ["c", "d"]
    assert await found(filled, namespaces=()) == []
    assert await found(filled, namespaces=("elsewhere",)) == []


async def test_writing_twice_is_writing_once(store: VectorStore) -> None:
    await store.upsert(ADA, POINTS)
    await store.upsert(ADA, POINTS)
    assert await store.count(ADA) == 4
    await store.upsert(ADA, [(Document("a", "mail"), NORTH)])
    assert await store.count(ADA) == 4
    assert await found(store, namespaces=("notes",)) == ["b"]


async def test_what_is_deleted_is_not_found(store: VectorStore) -> None:
    await store.upsert(ADA, POINTS)
    await store.delete(ADA, ["a", "c", "never-there"])
    assert await found(store) == ["b", "d"]
    await store.delete(ADA, [])
    assert await store.count(ADA) == 2


async def test_what_comes_late_under_an_older_fence_changes_nothing(store: VectorStore) -> None:
    """A worker that stood still must not overwrite, nor delete, what another one wrote in the meantime."""
    await store.upsert(ADA, [(Document("a"), NORTH), (Document("b"), NORTH)], 7)
    await store.upsert(ADA, [(Document("a"), EAST), (Document("c"), EAST)], 6)
    await store.delete(ADA, ["a", "b", "c"], 6)
    assert [hit.id for hit in await store.search(ADA, NORTH, None, Filter(), 9) if hit.score > 0.5] == ["a", "b"]
    await store.upsert(ADA, [(Document("a"), EAST)], 7)  # the same worker again
    await store.delete(ADA, ["b"], 8)
    assert [hit.id for hit in await store.search(ADA, EAST, None, Filter(), 9) if hit.score > 0.5] == ["a"]


async def test_everything_is_told_with_its_version_and_its_fence(store: VectorStore) -> None:
    await store.upsert(ADA, [(Document("a", version=3), EAST)], 7)
    await store.upsert(ADA, [(Document(f"b{n}", version=4), EAST) for n in range(2500)], 8)
    await store.upsert(BOB, [(Document("c", version=5), EAST)], 9)
    held = [each async for each in store.everything(ADA)]
    assert len(held) == 2501
    assert Held("a", 3, 7) in held
    assert {each.fence for each in held if each.id != "a"} == {8}
    assert [each async for each in store.everything("33333333-3333-4333-8333-333333333333")] == []


@pytest.mark.parametrize("kind", ["edge", "server"])
async def test_vectors_of_another_model_are_refused_until_the_index_is_renewed(kind: str, tmp_path: Path) -> None:
    first = make(kind, tmp_path, "one")
    await first.open()
    await first.upsert(ADA, [(Document("a"), EAST)])
    second = make(kind, tmp_path, "two")
    if isinstance(first, ServerVectorStore) and isinstance(second, ServerVectorStore):
        second._client = first._client  # a memory of its own would be empty
    else:
        await first.close()
    with pytest.raises(SetupError, match=r"holds vectors of one .* gives those of two .* `braid rebuild"):
        await second.open()
    await second.renew()
    await second.open()
    assert await second.count(ADA) == 0
    await second.upsert(ADA, [(Document("b"), EAST)])
    assert await second.count(ADA) == 1
    await second.close()


async def test_tenants_with_the_same_ids_do_not_meet(store: VectorStore) -> None:
    await store.upsert(ADA, POINTS)
    await store.upsert(BOB, [(Document("a", "notes"), NORTH)])
    assert await found(store, tenant=BOB) == ["a"]
    await store.delete(BOB, ["a"])
    assert await store.count(ADA) == 4
    await store.drop(ADA)
    assert await store.count(ADA) == 0
    await store.upsert(ADA, POINTS[:1])
    assert await found(store) == ["a"]


async def test_a_tenant_that_never_wrote_finds_nothing(store: VectorStore) -> None:
    assert await found(store) == []
    assert await store.count(ADA) == 0
    await store.delete(ADA, ["a"])
    await store.drop(ADA)


async def test_a_document_without_a_direction_is_stored_and_scores_zero(store: VectorStore) -> None:
    await store.upsert(ADA, [(Document("z", "notes"), [0.0] * 4), POINTS[0]])
    hits = await store.search(ADA, EAST, ("notes",), Filter(), 10)
    assert [(hit.id, hit.score) for hit in hits] == [("a", 1.0), ("z", 0.0)]


@pytest.mark.parametrize("vector", [[1.0], [float("nan"), 0.0, 0.0, 0.0]])
async def test_a_vector_that_does_not_fit_is_refused(store: VectorStore, vector: list[float]) -> None:
    with pytest.raises(TierInvalid):
        await store.search(ADA, vector, ("notes",), Filter(), 10)
    with pytest.raises(TierInvalid):
        await store.upsert(ADA, [(Document("a"), vector)])


async def test_a_closed_store_says_so_and_recovers(store: VectorStore) -> None:
    await store.upsert(ADA, POINTS)
    await store.ping()
    await store.close()
    await store.close()
    with pytest.raises(TierUnavailable, match="closed"):
        await found(store)
    with pytest.raises(TierUnavailable, match="closed"):
        await store.ping()
    await store.open()
    await store.ping()
    await store.upsert(ADA, POINTS)
    assert await found(store) == ["a", "b", "c", "d"]


async def test_a_tenant_must_be_a_uuid(store: VectorStore) -> None:
    with pytest.raises(TierInvalid, match="UUID"):
        await store.upsert("../etc", POINTS)


async def test_edge_keeps_its_data_over_a_restart(edge: EdgeVectorStore, tmp_path: Path) -> None:
    await edge.upsert(ADA, POINTS)
    await edge.close()
    again = EdgeVectorStore(tmp_path / "vectors", 4)
    await again.open()
    assert await found(again) == ["a", "b", "c", "d"]
    await again.close()


async def test_edge_refuses_another_dimension(edge: EdgeVectorStore, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"\(4 dimensions\).* \(8 dimensions\).*`braid rebuild --tier vector`"):
        await EdgeVectorStore(tmp_path / "vectors", 8).open()
    assert json.loads((tmp_path / "vectors" / "meta.json").read_text()) == {"dimension": 4, "model": ""}


async def test_edge_loses_one_shard_until_it_is_opened_again(edge: EdgeVectorStore) -> None:
    await edge.upsert(ADA, POINTS)
    await edge.upsert(BOB, POINTS[:1])
    await edge.close_shard(ADA)
    with pytest.raises(TierUnavailable, match="closed"):
        await found(edge)
    with pytest.raises(TierUnavailable, match="closed"):
        await edge.ping()
    assert await found(edge, tenant=BOB) == ["a"]
    await edge.open()
    assert await found(edge) == ["a", "b", "c", "d"]


async def test_edge_loads_a_shard_afresh_that_broke_under_it(edge: EdgeVectorStore) -> None:
    await edge.upsert(ADA, POINTS)
    next(iter(edge._shards.values())).close()
    with pytest.raises(TierUnavailable, match="closed"):
        await found(edge)
    assert await found(edge) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("left", ["", "segments", "segments/0b0e", "wal"])
async def test_edge_recovers_a_shard_that_was_half_made(edge: EdgeVectorStore, tmp_path: Path, left: str) -> None:
    (tmp_path / "vectors" / ADA.replace("-", "") / left).mkdir(parents=True)
    assert await found(edge) == []
    await edge.upsert(ADA, POINTS)
    assert await edge.count(ADA) == 4


async def test_edge_tells_when_another_has_the_shard(edge: EdgeVectorStore, tmp_path: Path) -> None:
    await edge.upsert(ADA, POINTS)
    other = EdgeVectorStore(tmp_path / "vectors", 4)
    await other.open()
    with pytest.raises(TierUnavailable, match="another process"):
        await found(other)
    await other.close()
    assert await found(edge) == ["a", "b", "c", "d"]


async def test_a_server_that_is_down_does_not_stop_the_start() -> None:
    store = ServerVectorStore("http://127.0.0.1:1", None, "braid", 4, 1.0)
    await store.open()
    with pytest.raises(TierUnavailable, match="cannot be reached"):
        await found(store)
    with pytest.raises(TierUnavailable, match="cannot be reached"):
        await store.ping()
    await store.close()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (503, b"{}", TierUnavailable),
        (401, b"no", TierUnavailable),
        (404, b"{}", TierUnavailable),
        (400, b"{}", TierInvalid),
        (200, b"<html>", TierInvalid),
        (200, b'{"result": {"points": 7}}', TierInvalid),
    ],
)
async def test_a_server_that_answers_badly(status: int, body: bytes, error: type[Exception]) -> None:
    """Over real HTTP: no answer, however odd, leaves as the client's own exception."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        store = ServerVectorStore(f"http://127.0.0.1:{port}", None, "braid", 4, 1.0)
        store._client, store._ready = store._connect(), True
        with pytest.raises(error, match="Qdrant"):
            await found(store)
        await store.close()


async def test_the_server_sits_behind_an_alias_and_refuses_another_dimension() -> None:
    store = ServerVectorStore(":memory:", None, "braid", 4, 1.0)
    await store.open()
    assert store._client is not None
    aliases = (await store._client.get_aliases()).aliases
    assert [(each.alias_name, each.collection_name) for each in aliases] == [("braid", "braid_v1")]
    store._dimension, store._ready = 8, False
    with pytest.raises(SetupError, match=r"\(4 dimensions\).* \(8 dimensions\).*`braid rebuild"):
        await store.open()
    with pytest.raises(TierInvalid, match="braid rebuild"):
        await store.count(ADA)
    await store.close()


async def test_the_tier_takes_the_callers_vector_and_asks_nothing_without_one(filled: VectorStore) -> None:
    tier = VectorTier(filled, NoEmbedder(4))
    assert tier.name == "vector"
    asked = Query(Reach(ADA), "east", ("notes",), vector=tuple(EAST))
    assert [hit.id for hit in await tier.search(asked, 10, 100)] == ["a", "b"]
    assert await tier.search(Query(Reach(ADA), "east", ("notes",)), 10, 100) == []
    assert await tier.search(Query(Reach(ADA), "east", ("notes",), vector=(0.0,) * 4), 10, 100) == []
