"""One write, end to end, and the workers that bring the derived engines up to date.

A write goes to PostgreSQL in one transaction that also marks a dirty row a (document, sink). A worker a sink claims
dirty rows with FOR UPDATE SKIP LOCKED, re-reads the documents, applies them and records the version it applied, all
in one transaction: whatever dies in between, the rows stay dirty and are applied again. Applying is idempotent.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from service import metrics
from service.errors import BraidError, StoreUnavailable, TierUnavailable
from service.model import Document, Edge
from service.stores import dirty
from service.stores.documents import TenantDocuments, Written
from service.stores.embedder import Embedder
from service.stores.falkordb import GraphStore
from service.stores.postgres import Postgres
from service.stores.qdrant import VectorStore

log = logging.getLogger(__name__)

Linked = tuple[Document, Sequence[Edge] | None]


@dataclass(frozen=True, slots=True)
class Change:
    """What a sink has to apply for one tenant: these documents as they are now, and these ids gone."""

    tenant: str
    documents: Sequence[Document]
    deleted: Sequence[str]
    edges: Sequence[Edge]


class Sink(Protocol):
    """A derived engine, seen from the writing side."""

    @property
    def name(self) -> str: ...

    async def apply(self, change: Change) -> None: ...


class VectorSink:
    """Embeds documents and keeps their vectors in Qdrant."""

    name = "vector"

    def __init__(self, store: VectorStore, embedder: Embedder) -> None:
        self._store = store
        self._embedder = embedder

    async def apply(self, change: Change) -> None:
        own = [(d, d.vector) for d in change.documents if d.vector is not None]
        others = [d for d in change.documents if d.vector is None]
        if others and self._embedder.name != "none":
            vectors = await self._embedder.embed_documents([embedded_text(d) for d in others])
            own += [(d, tuple(v)) for d, v in zip(others, vectors, strict=True)]
            others = []
        if own:
            await self._store.upsert(change.tenant, own)
        # A document without any vector must not be found by an older one.
        gone = [*change.deleted, *(d.id for d in others)]
        if gone:
            await self._store.delete(change.tenant, gone)


class GraphSink:
    """Keeps documents, what they are about and their links in FalkorDB."""

    name = "graph"

    def __init__(self, store: GraphStore) -> None:
        self._store = store

    async def apply(self, change: Change) -> None:
        touching: dict[str, list[Edge]] = defaultdict(list)
        for edge in change.edges:
            touching[edge.source].append(edge)
            touching[edge.target].append(edge)
        if change.deleted:
            await self._store.delete(change.tenant, change.deleted)
        if change.documents:
            await self._store.apply(change.tenant, [(d, touching[d.id]) for d in change.documents])


def embedded_text(document: Document) -> str:
    return f"{document.title}\n{document.content}".strip()


class Writer:
    """The writing side of the service."""

    def __init__(self, postgres: Postgres, workers: Sequence[Worker], dimension: int) -> None:
        self._postgres = postgres
        self._workers = workers
        self.dimension = dimension

    def documents(self, tenant: str) -> TenantDocuments:
        return TenantDocuments(self._postgres, tenant)

    async def put(self, tenant: str, documents: Sequence[Linked]) -> list[Written]:
        """Writes documents in order; an id that comes twice is written twice, the last one stays."""
        written: list[Written] = []
        for batch in without_repeats(documents):
            written += await self.documents(tenant).put(batch)
        self.wake()
        return written

    def wake(self) -> None:
        for worker in self._workers:
            worker.wake()

    async def settled(self, tenant: str, ids: Sequence[str], timeout_ms: int) -> bool:
        """Waits until every sink has applied these documents; False when that took too long."""
        pause = 0.005
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while await self.documents(tenant).pending(ids):
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, 0.1)
        except TimeoutError:
            return False
        return True


def without_repeats(pairs: Sequence[Linked]) -> list[list[Linked]]:
    """Cuts a list of documents wherever an id comes again, so that no id stands twice in a batch."""
    batches: list[list[Linked]] = [[]]
    seen: set[str] = set()
    for pair in pairs:
        if pair[0].id in seen:
            batches.append([])
            seen.clear()
        seen.add(pair[0].id)
        batches[-1].append(pair)
    return [batch for batch in batches if batch]


class Worker:
    """Applies dirty rows to one sink, in batches, for ever. Polling is the guarantee; waking only makes it quick."""

    def __init__(self, postgres: Postgres, sink: Sink, *, batch: int, poll_s: float) -> None:
        self._postgres = postgres
        self._sink = sink
        self._batch = batch
        self._poll = poll_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                applied = await self.apply_once()
                failures = 0
            except BraidError as error:
                failures += 1
                applied = 0
                metrics.INDEX_FAILURES.labels(self._sink.name).inc()
                log.warning("the %s index is behind: %s", self._sink.name, error)
            if not applied:
                await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        """Until woken or until the next poll; longer, and deaf, while the engine is down."""
        if failures:
            await asyncio.sleep(min(5.0, 0.1 * 2**failures) * random.uniform(0.5, 1))  # noqa: S311 - jitter
            return
        try:
            async with asyncio.timeout(self._poll):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    async def apply_once(self) -> int:
        """Claims one batch, applies it, records it. Returns how many rows that settled or set back."""
        async with self._postgres.transaction() as connection:
            claims = await dirty.claim(connection, self._sink.name, self._batch)
            if claims:
                await self._apply(connection, claims)
        if claims:
            metrics.INDEX_APPLIED.labels(self._sink.name).inc(len(claims))
        return len(claims)

    async def _apply(self, connection: Any, claims: Sequence[dirty.Claim]) -> None:
        for tenant, some in dirty.by_tenant(claims).items():
            try:
                await self._sink.apply(await read_change(connection, tenant, [c.document_id for c in some]))
            except (TierUnavailable, StoreUnavailable):
                raise
            except Exception as error:  # noqa: BLE001 - one document may be poison: find out which
                log.warning("the %s sink refused a batch of %d: %r", self._sink.name, len(some), error)
                await self._apply_singly(connection, tenant, some)
            else:
                await dirty.applied(connection, self._sink.name, tenant, some)

    async def _apply_singly(self, connection: Any, tenant: str, claims: Sequence[dirty.Claim]) -> None:
        """A refused document is set back with its error; its neighbours go through."""
        for claim in claims:
            try:
                await self._sink.apply(await read_change(connection, tenant, [claim.document_id]))
            except TierUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - kept with the row, where an operator sees it
                metrics.INDEX_FAILURES.labels(self._sink.name).inc()
                await dirty.refused(connection, self._sink.name, tenant, claim, repr(error)[:500])
            else:
                await dirty.applied(connection, self._sink.name, tenant, [claim])


async def read_change(connection: Any, tenant: str, ids: Sequence[str]) -> Change:
    """The documents as they are now; ids that PostgreSQL no longer has are to be deleted."""
    documents = await dirty.current(connection, tenant, ids)
    known = {document.id for document in documents}
    edges = await dirty.touching(connection, tenant, sorted(known))
    return Change(tenant, documents, [id for id in ids if id not in known], edges)
