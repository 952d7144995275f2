"""One write, end to end, and the workers that bring the derived engines up to date.

A write goes to PostgreSQL in one transaction that also marks a dirty row a (document, sink). A worker a sink claims
dirty rows, re-reads the documents, applies them and records the version it applied: whatever dies in between, the
rows stay dirty and are applied again. Applying is idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from service import metrics
from service.errors import BraidError, TierUnavailable, outline
from service.model import Document, Edge, Reach
from service.stores.completions import Completions
from service.stores.dirty import CLAIM_SECONDS, Claim, DirtyRows, by_tenant
from service.stores.documents import TenantDocuments, Written
from service.stores.embedder import Embedder
from service.stores.falkordb import GraphStore
from service.stores.postgres import Postgres
from service.stores.qdrant import VectorStore
from service.stores.words import Corpora, Weighing

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
            with metrics.EMBEDDING_SECONDS.labels("documents").time():
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

    def __init__(
        self,
        postgres: Postgres,
        workers: Sequence[Worker],
        dimension: int,
        weighing: Weighing = Weighing(),  # noqa: B008
    ) -> None:
        self._postgres = postgres
        self._weighing = weighing
        self._workers = workers
        self.dimension = dimension

    def documents(self, reach: Reach) -> TenantDocuments:
        return TenantDocuments(self._postgres, reach, self._weighing)

    async def put(self, reach: Reach, documents: Sequence[Linked]) -> list[Written]:
        """Writes documents in order; an id that comes twice is written twice, the last one stays."""
        written: list[Written] = []
        for batch in without_repeats(documents):
            written += await self.documents(reach).put(batch)
        self.wake()
        return written

    def wake(self) -> None:
        for worker in self._workers:
            worker.wake()

    async def settled(self, reach: Reach, ids: Sequence[str], timeout_ms: int) -> bool:
        """Waits until every sink has applied these documents; False when that took too long."""
        documents = self.documents(reach)
        return await _until(lambda: documents.pending(ids), timeout_ms)

    async def settled_since(self, reach: Reach, version: int, timeout_ms: int) -> bool:
        """The same for all that was written since, however many they are."""
        documents = self.documents(reach)
        last = await documents.last_version()
        return await _until(lambda: documents.pending_between(version, last), timeout_ms)


async def _until(pending: Callable[[], Awaitable[int]], timeout_ms: int) -> bool:
    pause = 0.005
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while await pending():
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
        self._dirty = DirtyRows(postgres, sink.name)
        self._sink = sink
        self._batch = batch
        self._poll = poll_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        failures = 0
        while True:
            self._woken.clear()
            try:
                applied = await self.apply_once()
                failures = 0
            except Exception as error:  # a worker that ended would leave its index behind for ever
                failures += 1
                applied = 0
                metrics.INDEX_FAILURES.labels(self._sink.name).inc()
                foreseen = isinstance(error, BraidError)
                log.warning("the %s index is behind: %s", self._sink.name, error, exc_info=not foreseen)
            if not applied:
                await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        """Until woken or until the next poll; longer, and deaf, while the engine is down."""
        if failures:
            await asyncio.sleep(min(5.0, 0.1 * 2**failures) * random.uniform(0.5, 1))  # noqa: S311 - jitter
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await self._woken.wait()

    async def apply_once(self) -> int:
        """Claims one batch, applies it, records it. Returns how many rows were applied or set aside."""
        claims = await self._dirty.claim(self._batch)
        if claims:
            async with self._holding(claims):
                for tenant, some in by_tenant(claims).items():
                    await self._apply(tenant, some)
        return len(claims)

    @asynccontextmanager
    async def _holding(self, claims: Sequence[Claim]) -> AsyncIterator[None]:
        """Keeps the claims alive while a slow embedder works; gives back what was not applied."""
        renewing = asyncio.create_task(self._keep(claims))
        try:
            yield
        except BaseException:
            with contextlib.suppress(BraidError):
                await self._dirty.release(claims)
            raise
        finally:
            renewing.cancel()

    async def _keep(self, claims: Sequence[Claim]) -> None:
        while True:
            await asyncio.sleep(CLAIM_SECONDS / 3)
            with contextlib.suppress(BraidError):
                await self._dirty.renew(claims)

    async def _apply(self, tenant: str, claims: Sequence[Claim]) -> None:
        try:
            await self._sink.apply(await self._change(tenant, claims))
        except TierUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one document may be poison: find out which
            log.warning("the %s sink refused a batch of %d: %s", self._sink.name, len(claims), outline(error))
            await self._apply_singly(tenant, claims)
        else:
            await self._record(tenant, claims)

    async def _apply_singly(self, tenant: str, claims: Sequence[Claim]) -> None:
        """A refused document is set aside with its error; its neighbours go through."""
        for claim in claims:
            try:
                await self._sink.apply(await self._change(tenant, [claim]))
            except TierUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - kept with the row, where an operator sees it
                metrics.INDEX_FAILURES.labels(self._sink.name).inc()
                await self._dirty.refused(claim, repr(error)[:500])
            else:
                await self._record(tenant, [claim])

    async def _record(self, tenant: str, claims: Sequence[Claim]) -> None:
        await self._dirty.applied(tenant, claims)
        metrics.INDEX_APPLIED.labels(self._sink.name).inc(len(claims))

    async def _change(self, tenant: str, claims: Sequence[Claim]) -> Change:
        """The documents as they are now; ids that PostgreSQL no longer has are to be deleted."""
        ids = [claim.document_id for claim in claims]
        documents = await self._dirty.documents(tenant, ids)
        known = {document.id for document in documents}
        links = await self._dirty.links(tenant, sorted(known))
        return Change(tenant, documents, [id for id in ids if id not in known], links)


async def keep_counting(corpora: Corpora, every_s: float) -> None:
    """Refreshes the statistics of tenants whose documents have changed, for ever."""
    await _keep_up("the keyword statistics are", corpora.stale, corpora.refresh, every_s)


async def keep_completing(completions: Completions, every_s: float) -> None:
    """Counts what was written for completions, for ever."""
    await _keep_up("the completions are", completions.behind, completions.fold, every_s)


async def _keep_up(
    what: str, behind: Callable[[], Awaitable[list[str]]], catch_up: Callable[[str], Awaitable[None]], every_s: float
) -> None:
    while True:
        try:
            for tenant in await behind():
                await catch_up(tenant)
        except Exception as error:  # ending would leave every tenant behind for ever
            log.warning("%s behind: %s", what, error, exc_info=not isinstance(error, BraidError))
        await asyncio.sleep(every_s)
