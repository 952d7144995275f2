"""The dirty table against a simple model, step by step, on a real PostgreSQL.

The model knows what was written, and what each of two workers has seen of it. Hypothesis draws writes, deletes, claims,
applications, failures and claims that run out, in any order; in the end the engine must hold what PostgreSQL does.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from service.app import EMBEDDED_ROLE, prepare, with_user
from service.model import Document, Reach
from service.stores.dirty import Claim, DirtyRows
from service.stores.documents import TenantDocuments
from service.stores.postgres import Postgres
from service.stores.tenants import Tenants
from tests.conftest import Running

IDS = st.sampled_from(["a", "b", "c"])
WORKERS = st.integers(0, 1)
_numbers = itertools.count()


@dataclass
class Engine:
    """What an engine keeps: a title and the fence under which it was written, and it refuses what is older."""

    held: dict[str, tuple[str, int]] = field(default_factory=dict)

    def write(self, id: str, title: str | None, fence: int) -> None:
        if self.held.get(id, ("", 0))[1] > fence:
            return
        if title is None:
            self.held.pop(id, None)
        else:
            self.held[id] = (title, fence)


@dataclass
class Batch:
    """What a worker claimed, and read of it; `None` is a document that is gone."""

    claims: list[Claim]
    read: dict[str, str | None]


class Model(RuleBasedStateMachine):
    """`truth` is what was acknowledged. A worker's write may arrive long after its claim ran out."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.postgres = Postgres(self.url, pool_size=2, acquire_timeout_s=20)
        self.do(self.postgres.open())
        self.tenant = self.do(Tenants(self.postgres).ensure(f"model-{next(_numbers)}"))
        self.documents = TenantDocuments(self.postgres, Reach(self.tenant))
        self.workers = [DirtyRows(self.postgres, "vector") for _ in range(2)]
        self.truth: dict[str, str] = {}
        self.engine = Engine()
        self.holding: list[Batch | None] = [None, None]
        self.revision = 0

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @rule(ids=st.lists(IDS, min_size=1, max_size=3, unique=True))
    def put(self, ids: list[str]) -> None:
        self.revision += 1
        self.do(self.documents.put([(Document(id, title=f"r{self.revision}"), None) for id in ids]))
        self.truth |= dict.fromkeys(ids, f"r{self.revision}")

    @rule(id=IDS)
    def delete(self, id: str) -> None:
        assert (self.do(self.documents.delete(id)) is not None) == (id in self.truth)
        self.truth.pop(id, None)
        self.other_sink()

    def other_sink(self) -> None:
        """It is always up to date, so that tombstones wait for this one only."""
        self.sql("UPDATE dirty SET applied_version = wanted_version WHERE sink = 'graph'")

    @rule(worker=WORKERS)
    def claim(self, worker: int) -> None:
        if self.holding[worker] is None:
            claims = self.do(self.workers[worker].claim(10))
            held = (
                {c.document_id for batch in self.holding if batch for c in batch.claims} if not self.overdue else set()
            )
            assert not held & {claim.document_id for claim in claims}, "two workers hold one document"
            ids = [claim.document_id for claim in claims]
            now = {d.id: d.title for d in self.do(self.workers[worker].documents(self.tenant, ids))}
            self.holding[worker] = Batch(claims, {id: now.get(id) for id in ids}) if claims else None

    overdue = False

    @rule(worker=WORKERS)
    def apply_and_record(self, worker: int) -> None:
        if batch := self.holding[worker]:
            self.arrive(batch)
            self.do(self.workers[worker].applied(self.tenant, batch.claims))
            self.holding[worker] = None

    @rule(worker=WORKERS)
    def apply_and_die(self, worker: int) -> None:
        """Nothing is recorded; another process takes its place, and the claim runs out."""
        if batch := self.holding[worker]:
            self.arrive(batch)
            self.workers[worker] = DirtyRows(self.postgres, "vector")
            self.holding[worker] = None

    @rule(worker=WORKERS)
    def fail(self, worker: int) -> None:
        if batch := self.holding[worker]:
            self.do(self.workers[worker].release(batch.claims))
            self.holding[worker] = None

    @rule()
    def run_out(self) -> None:
        self.overdue = True
        self.sql("UPDATE dirty SET claimed_until = now() - interval '1 second' WHERE claimed_by IS NOT NULL")

    @precondition(lambda self: self.overdue)
    @rule()
    def later(self) -> None:
        """A minute has passed."""
        self.sql("UPDATE dirty SET confirm_at = now() WHERE confirm_at IS NOT NULL")

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """Where the engine differs from PostgreSQL, a row says so: it is wanted, held, or to be applied once more."""
        rows = self.sql(
            "SELECT document_id FROM dirty WHERE tenant_id = $1 AND sink = 'vector' "
            "AND (applied_version < wanted_version OR claimed_by IS NOT NULL OR confirm_at IS NOT NULL)",
            self.tenant,
        )
        known = {row["document_id"] for row in rows}
        late = {c.document_id for batch in self.holding if batch for c in batch.claims}
        for id in self.truth.keys() | self.engine.held.keys():
            if id not in late and self.truth.get(id) != self.engine.held.get(id, (None, 0))[0]:
                assert id in known, f"{id} is {self.engine.held.get(id)}, not {self.truth.get(id)}, and nobody knows"

    def teardown(self) -> None:
        """Whoever is still at work ends; then everything is applied, and applied once more."""
        for worker in (0, 1):
            self.apply_and_record(worker)
        for _ in range(3):
            self.run_out()
            self.sql("UPDATE dirty SET confirm_at = now(), next_try = now() WHERE tenant_id = $1", self.tenant)
            self.claim(0)
            self.apply_and_record(0)
        assert {id: title for id, (title, _) in self.engine.held.items()} == self.truth
        self.do(self.postgres.close())
        self.loop.close()

    def arrive(self, batch: Batch) -> None:
        for claim in batch.claims:
            self.engine.write(claim.document_id, batch.read[claim.document_id], claim.fence)

    def sql(self, statement: str, *arguments: object) -> list[Any]:
        async def run() -> list[Any]:
            async with self.postgres.service("worker") as connection:
                rows: list[Any] = await connection.fetch(statement, *arguments)
                return rows

        found: list[Any] = self.do(run())
        return found


@pytest.fixture(scope="module")
async def database(braid: Running) -> str:
    await braid.sql("CREATE DATABASE dirty_model")
    owner = braid.database("dirty_model")
    url = with_user(owner, EMBEDDED_ROLE)
    await prepare(owner, url, embedded=True)
    return url


async def test_the_dirty_table_keeps_its_promises_in_any_order(database: str) -> None:
    Model.url = database
    few = settings(
        max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    await asyncio.to_thread(run_state_machine_as_test, Model, settings=few)
