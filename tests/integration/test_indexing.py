"""The dirty table and its workers, against a real PostgreSQL: nothing is lost, whoever dies and however many write."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from service.app import EMBEDDED_ROLE, prepare, with_user
from service.errors import BacklogFull, ClaimLost, TierInvalid, TierUnavailable
from service.indexing import Writer
from service.model import Document, Edge, Filter, Reach
from service.stores import dirty
from service.stores.backlog import Admission, Backlog
from service.stores.bell import Bell
from service.stores.dirty import CLAIM_SECONDS, DirtyRows
from service.stores.documents import TenantDocuments
from service.stores.postgres import Postgres
from service.stores.tenants import Tenants
from service.worker import Change, Lease, Worker
from tests.conftest import Running

_numbers = itertools.count()


class Recorder:
    """A sink that remembers what it was given and can be told to fail: the seam at which engines break."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.linked = name == "graph"
        self.now: dict[str, Document] = {}
        self.links: dict[str, set[Edge]] = {}
        self.batches: list[int] = []
        self.before: Callable[[Change], object] = lambda change: None

    async def apply(self, change: Change) -> None:
        result = self.before(change)
        if asyncio.iscoroutine(result):
            await result
        self.batches.append(len(change.documents) + len(change.deleted))
        self.now |= {document.id: document for document in change.documents}
        self.links |= {d.id: {e for e in change.edges if d.id in (e.source, e.target)} for d in change.documents}
        for id in change.deleted:
            self.now.pop(id, None)


@pytest.fixture(scope="module")
async def postgres(braid: Running) -> AsyncIterator[Postgres]:
    """A database of its own, so that the running Braid's workers don't take part."""
    await braid.sql("CREATE DATABASE indexing")
    owner = braid.database("indexing")
    url = with_user(owner, EMBEDDED_ROLE)
    await prepare(owner, url, embedded=True)
    opened = Postgres(url, pool_size=10, acquire_timeout_s=5)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def tenant(postgres: Postgres) -> str:
    await sql(postgres, "DELETE FROM dirty")
    return await Tenants(postgres).ensure(f"t{next(_numbers)}")


def workers(postgres: Postgres, *sinks: Recorder, batch: int = 100) -> list[Worker]:
    return [Worker(postgres, sink, batch=batch, poll_s=0.05) for sink in sinks]


async def sql(postgres: Postgres, statement: str, *arguments: object) -> list[Any]:
    async with postgres.service("worker") as connection:
        rows: list[Any] = await connection.fetch(statement, *arguments)
        return rows


async def drain(*some: Worker) -> None:
    for worker in some:
        while await worker.apply_once():
            pass


async def test_a_sink_gets_every_document_once_in_batches(postgres: Postgres, tenant: str) -> None:
    sink = Recorder("vector")
    writer = Writer(postgres, 3)
    await writer.put(Reach(tenant), [(Document(f"d{n}", title=str(n)), None) for n in range(250)])
    await drain(*workers(postgres, sink))
    assert sink.batches == [100, 100, 50]
    assert {id: document.title for id, document in sink.now.items()} == {f"d{n}": str(n) for n in range(250)}


async def test_an_unchanged_document_is_not_applied_again(postgres: Postgres, tenant: str) -> None:
    sink = Recorder("vector")
    writer = Writer(postgres, 3)
    for _ in range(3):
        await writer.put(Reach(tenant), [(Document("a", title="same"), None)])
        await drain(*workers(postgres, sink))
    assert sink.batches == [1]


async def test_two_workers_never_share_a_row_and_leave_none(postgres: Postgres, tenant: str) -> None:
    seen: Counter[str] = Counter()

    async def slowly(change: Change) -> None:
        seen.update(document.id for document in change.documents)
        await asyncio.sleep(0.01)

    sinks = [Recorder("vector") for _ in range(4)]
    for sink in sinks:
        sink.before = slowly
    await Writer(postgres, 3).put(Reach(tenant), [(Document(f"d{n}", title="x"), None) for n in range(200)])
    await asyncio.gather(*(drain(worker) for worker in workers(postgres, *sinks, batch=7)))
    assert seen == Counter({f"d{n}": 1 for n in range(200)})


async def test_a_write_during_an_apply_is_applied_too_and_does_not_wait_for_it(postgres: Postgres, tenant: str) -> None:
    sink = Recorder("vector")
    [worker] = workers(postgres, sink)
    documents = TenantDocuments(postgres, Reach(tenant))
    await documents.put([(Document("a", title="old"), None)])
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def hold(change: Change) -> None:
        entered.set()
        await go_on.wait()

    sink.before = hold
    applying = asyncio.create_task(worker.apply_once())
    await entered.wait()
    async with asyncio.timeout(5):
        await documents.put([(Document("a", title="new"), None)])
        # While one worker holds the document, no other may bring the newer version past it.
        assert await DirtyRows(postgres, "vector").claim(10) == []
    go_on.set()
    await applying
    sink.before = lambda change: None
    assert await documents.pending(["a"]) == 2
    await drain(worker)
    assert sink.now["a"].title == "new"


async def test_a_sink_that_is_down_gives_its_claims_back(postgres: Postgres, tenant: str) -> None:
    sink = Recorder("vector")
    [worker] = workers(postgres, sink)
    await TenantDocuments(postgres, Reach(tenant)).put([(Document("a"), None)])

    def down(change: Change) -> None:
        raise TierUnavailable("it is down")

    sink.before = down
    with pytest.raises(TierUnavailable):
        await worker.apply_once()
    sink.before = lambda change: None
    async with asyncio.timeout(5):
        while not await worker.apply_once():  # noqa: ASYNC110 - each document waits for a moment of its own
            await asyncio.sleep(0.01)
    assert "a" in sink.now


async def test_a_cancelled_worker_gives_its_claims_back(postgres: Postgres, tenant: str) -> None:
    sink = Recorder("vector")
    [worker] = workers(postgres, sink)
    await TenantDocuments(postgres, Reach(tenant)).put([(Document("a"), None)])
    entered = asyncio.Event()

    async def hang(change: Change) -> None:
        entered.set()
        await asyncio.sleep(60)

    sink.before = hang
    running = asyncio.create_task(worker.run())
    await entered.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(await DirtyRows(postgres, "vector").claim(10)) == 1


async def run_out(postgres: Postgres) -> None:
    await sql(postgres, "UPDATE dirty SET claimed_until = now() - interval '1 second' WHERE claimed_by IS NOT NULL")


async def test_what_a_dead_worker_had_claimed_is_free_when_the_claim_runs_out(postgres: Postgres, tenant: str) -> None:
    await TenantDocuments(postgres, Reach(tenant)).put([(Document("a"), None)])
    dead, alive = DirtyRows(postgres, "vector"), DirtyRows(postgres, "vector")
    [claimed] = await dead.claim(10)
    assert await alive.claim(10) == []
    await run_out(postgres)
    [taken] = await alive.claim(10)
    assert (taken.document_id, taken.version) == ("a", claimed.version)
    assert taken.fence > claimed.fence
    assert await alive.applied(tenant, [taken]) == 0
    assert await TenantDocuments(postgres, Reach(tenant)).pending(["a"]) == 1


async def test_who_was_slower_than_its_claim_has_its_documents_applied_again(postgres: Postgres, tenant: str) -> None:
    """It may have written to the engine after the other one: nobody can know which came last."""
    documents = TenantDocuments(postgres, Reach(tenant))
    await documents.put([(Document("a"), None), (Document("b"), None)])
    slow, quick = DirtyRows(postgres, "vector"), DirtyRows(postgres, "vector")
    late = await slow.claim(10)
    await documents.delete("b")
    await run_out(postgres)
    await quick.applied(tenant, await quick.claim(10))
    await sql(postgres, "DELETE FROM dirty WHERE document_id = 'b'")  # buried
    assert await documents.pending(["a", "b"]) == 1
    assert await slow.applied(tenant, late) == 2
    assert sorted(claim.document_id for claim in await quick.claim(10)) == ["a", "b"]


async def test_a_worker_whose_claim_ran_out_does_not_write(postgres: Postgres, tenant: str) -> None:
    sink, now = Recorder("vector"), [0.0]
    change = Change(tenant, [Document("a")], [], [], Lease(1, lambda: now[0]))
    now[0] = CLAIM_SECONDS - 0.1
    change.lease.check()
    now[0] = CLAIM_SECONDS
    with pytest.raises(ClaimLost):
        change.lease.check()
    change.lease.renewed(now[0])
    change.lease.check()
    assert sink.now == {}


async def test_a_write_that_may_still_be_under_way_is_followed_by_another(postgres: Postgres, tenant: str) -> None:
    """Its worker died, or its engine did not answer. Until then a tombstone stays, and nobody waits for it."""
    documents = TenantDocuments(postgres, Reach(tenant))
    await documents.put([(Document("a"), None)])
    [vector, graph] = workers(postgres, sink := Recorder("vector"), Recorder("graph"))
    await drain(graph)
    await DirtyRows(postgres, "vector").claim(10)  # and dies
    await documents.delete("a")
    await run_out(postgres)
    await drain(vector, graph)
    assert await documents.pending(["a"]) == 0
    assert len(await sql(postgres, "SELECT FROM dirty WHERE tenant_id = $1", tenant)) == 2
    sink.now["a"] = Document("a")  # now the dead worker's write arrives
    assert await vector.apply_once() == 0
    await sql(postgres, "UPDATE dirty SET confirm_at = now() WHERE confirm_at IS NOT NULL")
    assert await vector.apply_once() == 1
    assert sink.now == {}
    assert await sql(postgres, "SELECT FROM dirty WHERE tenant_id = $1", tenant) == []


async def test_one_worker_at_a_time_has_a_tenant_whose_documents_are_linked(postgres: Postgres, tenant: str) -> None:
    other = await Tenants(postgres).ensure(f"t{next(_numbers)}")
    for owner in (tenant, other):
        await TenantDocuments(postgres, Reach(owner)).put([(Document("a"), None), (Document("b"), None)])
    one, two, three = (DirtyRows(postgres, "graph", whole_tenants=True) for _ in range(3))
    [first] = await one.claim(1)
    assert {claim.tenant for claim in await two.claim(10)} == {tenant, other} - {first.tenant}
    assert await three.claim(10) == []
    await one.applied(first.tenant, [first])
    assert [(claim.tenant, claim.document_id) for claim in await three.claim(10)] == [(first.tenant, "b")]


async def test_a_link_and_its_new_source_may_commit_in_either_order(postgres: Postgres, tenant: str) -> None:
    """The source's version is drawn first, but its row of the dirty table is written last."""
    await sql(postgres, "SELECT nextval('document_version')")
    documents = TenantDocuments(postgres, Reach(tenant))
    async with postgres.tenant(Reach(tenant), writes=True) as connection:
        version = await connection.fetchval("SELECT nextval('document_version')")
        await documents.add_edges([Edge("a", "b")])
        await drain(*workers(postgres, Recorder("graph")))
        await documents._mark(connection, ["a"], ["graph"], [version])
    assert await documents.pending(["a"]) == 1


async def test_a_renewed_claim_lasts_and_a_released_one_ends(postgres: Postgres, tenant: str) -> None:
    await TenantDocuments(postgres, Reach(tenant)).put([(Document("a"), None)])
    one, two = DirtyRows(postgres, "vector"), DirtyRows(postgres, "vector")
    claims = await one.claim(10)
    await run_out(postgres)
    assert await one.renew(claims)
    assert not await two.renew(claims)
    assert await two.claim(10) == []
    await two.release(claims)  # not its own
    assert await two.claim(10) == []
    await one.release(claims)
    assert len(await two.claim(10)) == 1
    await dirty.release_all(postgres, ["vector"])
    assert len(await one.claim(10)) == 1


async def test_a_poison_document_is_set_aside_and_its_neighbours_go_through(postgres: Postgres, tenant: str) -> None:
    sink = Recorder("vector")
    [worker] = workers(postgres, sink)
    documents = TenantDocuments(postgres, Reach(tenant))
    await documents.put([(Document(id), None) for id in ("a", "poison", "z")])

    def refuse(change: Change) -> None:
        if any(document.id == "poison" for document in change.documents):
            raise TierInvalid("cannot hold this")

    sink.before = refuse
    await drain(worker)
    assert set(sink.now) == {"a", "z"}
    [row] = await sql(
        postgres,
        "SELECT attempts, error, next_try > now() AS later FROM dirty WHERE document_id = 'poison' AND sink = 'vector'",
    )
    assert (row["attempts"], row["later"]) == (1, True)
    assert row["error"] == "cannot hold this"
    [seen] = await Backlog(postgres).refused(tenant, 10)
    assert (seen["id"], seen["tier"], seen["attempts"], seen["error"]) == ("poison", "vector", 1, "cannot hold this")
    assert (await Backlog(postgres).state())["vector"] == {"pending": 1, "refused": 1, "held": 0, "unconfirmed": 0}
    sink.before = lambda change: None
    assert await worker.apply_once() == 0
    assert await Backlog(postgres).retry(tenant, "poison", "graph") == 0
    assert await Backlog(postgres).retry(tenant, "poison", "vector") == 1
    assert await worker.apply_once() == 1
    await documents.put([(Document("poison", title="cured"), None)])
    await drain(worker)
    assert sink.now["poison"].title == "cured"


async def test_what_an_error_quotes_is_not_kept(postgres: Postgres, tenant: str) -> None:
    [worker] = workers(postgres, sink := Recorder("vector"))
    await TenantDocuments(postgres, Reach(tenant)).put([(Document("a", content="a secret"), None)])

    def fail(change: Change) -> None:
        raise ValueError(change.documents[0].content)

    sink.before = fail
    await worker.apply_once()
    assert [row["error"] for row in await Backlog(postgres).refused(tenant, 10)] == ["ValueError"]


async def test_who_writes_too_fast_is_refused_and_others_are_not(postgres: Postgres, tenant: str) -> None:
    now = [0.0]
    admission = Admission(Backlog(postgres), 30, clock=lambda: now[0])
    other = await Tenants(postgres).ensure(f"t{next(_numbers)}")
    writer = Writer(postgres, 3, admission=admission)
    await writer.put(Reach(tenant), [(Document(f"d{n}"), None) for n in range(31)])
    await writer.put(Reach(other), [(Document("a"), None)])
    with pytest.raises(BacklogFull, match="32 documents wait to be indexed, and 30 may"):
        await writer.admit(Reach(tenant))
    await writer.admit(Reach(other))
    waiting = asyncio.create_task(writer.room(Reach(tenant)))
    await drain(*workers(postgres, Recorder("vector"), Recorder("graph")))
    with pytest.raises(BacklogFull):  # not looked again yet
        await writer.admit(Reach(tenant))
    now[0] = 0.5
    await writer.admit(Reach(tenant))
    async with asyncio.timeout(5):
        await waiting


async def test_workers_of_other_processes_hear_of_a_write(postgres: Postgres) -> None:
    heard = asyncio.Event()
    near, far = Bell(postgres, lambda: None), Bell(postgres, heard.set)
    tasks = [asyncio.create_task(near.keep_ringing()), asyncio.create_task(far.keep_listening())]
    async with asyncio.timeout(5):
        await heard.wait()  # it looks once when it begins to listen
        heard.clear()
        near.ring()
        await heard.wait()
        heard.clear()
        await end_listeners(postgres)
        await heard.wait()  # and once when it listens again
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def end_listeners(postgres: Postgres) -> None:
    await postgres.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
        " AND usename = current_user AND datname = current_database()"
    )


async def test_a_tombstone_stays_until_every_sink_has_applied_it(postgres: Postgres, tenant: str) -> None:
    vector, graph = Recorder("vector"), Recorder("graph")
    one, two = workers(postgres, vector, graph)
    documents = TenantDocuments(postgres, Reach(tenant))
    await documents.put([(Document("a"), None)])
    await drain(one, two)
    await documents.delete("a")
    await drain(one)
    assert "a" not in vector.now
    assert await documents.pending(["a"]) == 1
    await drain(two)
    assert "a" not in graph.now
    assert await sql(postgres, "SELECT FROM dirty WHERE tenant_id = $1", tenant) == []


async def test_a_document_written_again_before_its_deletion_was_applied_stays(postgres: Postgres, tenant: str) -> None:
    sink = Recorder("vector")
    documents = TenantDocuments(postgres, Reach(tenant))
    await documents.put([(Document("a", title="one"), None)])
    await documents.delete("a")
    await documents.put([(Document("a", title="two"), None)])
    await drain(*workers(postgres, sink))
    assert sink.now["a"].title == "two"


async def test_links_follow_their_source_and_arrive_with_their_target(postgres: Postgres, tenant: str) -> None:
    sink = Recorder("graph")
    [worker] = workers(postgres, sink)
    documents = TenantDocuments(postgres, Reach(tenant))
    link = Edge("a", "b", "supports", 0.5)
    await documents.put([(Document("a"), [link])])
    await drain(worker)
    await documents.put([(Document("b"), None)])
    await drain(worker)
    assert sink.links == {"a": {link}, "b": {link}}
    await documents.delete_edges([{"source": "a", "target": "b", "type": None}])
    await drain(worker)
    assert sink.links["a"] == set()


async def test_many_writers_and_workers_on_the_same_documents_never_lock_each_other_out(
    postgres: Postgres, tenant: str
) -> None:
    sinks = [Recorder("vector"), Recorder("graph")]
    running = [asyncio.create_task(worker.run()) for worker in workers(postgres, *sinks)]
    documents = TenantDocuments(postgres, Reach(tenant))
    ids = [f"d{n}" for n in range(40)]

    async def write(number: int) -> None:
        order = ids if number % 2 else ids[::-1]
        links = [Edge(a, b) for a, b in itertools.pairwise(order)]
        await documents.put([(Document(id, title=str(number)), [e for e in links if e.source == id]) for id in order])
        await documents.add_edges(links[::-1])
        await documents.delete_edges([{"source": e.source, "target": e.target, "type": None} for e in links[::3]])
        if number % 5 == 0:
            await asyncio.gather(*(documents.delete(id) for id in order[::7]))

    await asyncio.gather(*(write(number) for number in range(24)))
    async with asyncio.timeout(20):
        while await documents.pending(ids):  # noqa: ASYNC110 - PostgreSQL has the answer, not an event
            await asyncio.sleep(0.01)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    stored = {document.id: document.version for document in await documents.page(None, Filter(), "", 99)}
    for sink in sinks:
        assert {id: document.version for id, document in sink.now.items()} == stored
