"""The workers that bring the derived engines up to date: a sink an engine, and who feeds it.

A worker claims dirty rows, re-reads the documents, applies them and records the version it applied: whatever dies in
between, the rows stay dirty and are applied again. Applying is idempotent, and carries the claim's fence: an engine
refuses what comes late, and a worker that was slower than its claim does not write at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from service import metrics
from service.errors import BraidError, ClaimLost, TierUnavailable, outline
from service.model import Document, Edge
from service.stores.dirty import CLAIM_SECONDS, Claim, DirtyRows, by_tenant
from service.stores.embedder import Embedder
from service.stores.falkordb import GraphStore
from service.stores.postgres import Postgres
from service.stores.qdrant import VectorStore

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 5.0


class Lease:
    """Until when, by its own clock, a worker may write what it holds, and under which fence."""

    def __init__(self, fence: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.fence = fence
        self._clock = clock
        self._until = clock() + CLAIM_SECONDS

    def renewed(self, since: float) -> None:
        self._until = since + CLAIM_SECONDS

    def lost(self) -> None:
        self._until = float("-inf")

    def check(self) -> None:
        """To be asked right before something is written."""
        if self._clock() >= self._until:
            raise ClaimLost("the claim ran out before the engine could be written to")


@dataclass(frozen=True, slots=True)
class Change:
    """What a sink has to apply for one tenant: these documents as they are now, and these ids gone."""

    tenant: str
    documents: Sequence[Document]
    deleted: Sequence[str]
    edges: Sequence[Edge]
    lease: Lease


class Sink(Protocol):
    """A derived engine, seen from the writing side."""

    @property
    def name(self) -> str: ...

    @property
    def linked(self) -> bool:
        """Whether applying a document touches others of its tenant: then one worker at a time has the tenant."""
        ...

    async def apply(self, change: Change) -> None: ...


class VectorSink:
    """Embeds documents and keeps their vectors in Qdrant."""

    name = "vector"
    linked = False

    def __init__(self, store: VectorStore, embedder: Embedder) -> None:
        self._store = store
        self._embedder = embedder

    async def apply(self, change: Change) -> None:
        points = await embedded(change.documents, self._embedder)
        fence = change.lease.fence
        change.lease.check()
        if points:
            await self._store.upsert(change.tenant, points, fence)
        # A document without any vector must not be found by an older one.
        with_vector = {document.id for document, _ in points}
        gone = [*change.deleted, *(d.id for d in change.documents if d.id not in with_vector)]
        if gone:
            change.lease.check()
            await self._store.delete(change.tenant, gone, fence)


async def embedded(documents: Sequence[Document], embedder: Embedder) -> list[tuple[Document, Sequence[float]]]:
    """Each document with the vector it brought or gets; without an embedder, only those that brought one."""
    points: list[tuple[Document, Sequence[float]]] = [(d, d.vector) for d in documents if d.vector is not None]
    others = [d for d in documents if d.vector is None]
    if others and embedder.name != "none":
        with metrics.EMBEDDING_SECONDS.labels("documents").time():
            vectors = await embedder.embed_documents([embedded_text(d) for d in others])
        points += zip(others, vectors, strict=True)
    return points


class GraphSink:
    """Keeps documents, what they are about and their links in FalkorDB."""

    name = "graph"
    linked = True

    def __init__(self, store: GraphStore) -> None:
        self._store = store

    async def apply(self, change: Change) -> None:
        change.lease.check()
        if change.deleted:
            await self._store.delete(change.tenant, change.deleted, change.lease.fence)
        if change.documents:
            change.lease.check()
            await self._store.apply(change.tenant, with_links(change), change.lease.fence)


def with_links(change: Change) -> list[tuple[Document, Sequence[Edge]]]:
    touching: dict[str, list[Edge]] = defaultdict(list)
    for edge in change.edges:
        touching[edge.source].append(edge)
        touching[edge.target].append(edge)
    return [(document, touching[document.id]) for document in change.documents]


def embedded_text(document: Document) -> str:
    return f"{document.title}\n{document.content}".strip()


class Worker:
    """Applies dirty rows to one sink, in batches, for ever. Polling is the guarantee; waking only makes it quick."""

    def __init__(self, postgres: Postgres, sink: Sink, *, batch: int, poll_s: float) -> None:
        self._dirty = DirtyRows(postgres, sink.name, whole_tenants=sink.linked)
        self._sink = sink
        self._batch = batch
        self._poll = poll_s
        self._woken = asyncio.Event()
        self._failures = 0

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        while True:
            self._woken.clear()
            try:
                applied = await self.apply_once()
                self._failures = 0
            except ClaimLost as error:
                applied = 0
                log.warning("the %s worker was too slow: %s", self._sink.name, error)
            except Exception as error:  # noqa: BLE001 - a worker that ended would leave its index behind for ever
                self._failures += 1
                applied = 0
                metrics.INDEX_FAILURES.labels(self._sink.name).inc()
                foreseen = isinstance(error, BraidError)
                log.warning("the %s index is behind: %s", self._sink.name, error if foreseen else outline(error))
            if not applied:
                await self._pause()

    async def _pause(self) -> None:
        """Until woken or until the next poll; longer, and deaf, while the engine is down."""
        if self._failures:
            await asyncio.sleep(self._backoff() * random.uniform(0.5, 1))  # noqa: S311 - jitter
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await self._woken.wait()

    def _backoff(self) -> float:
        return min(_LONGEST_PAUSE_S, 0.1 * 2.0 ** min(self._failures, 10))

    async def apply_once(self) -> int:
        """Claims one batch, applies it, records it. Returns how many rows were applied or set aside."""
        asked = time.monotonic()
        claims = await self._dirty.claim(self._batch)
        if claims:
            lease = Lease(claims[0].fence)
            lease.renewed(asked)
            async with self._holding(claims, lease):
                for tenant, some in by_tenant(claims).items():
                    await self._apply(tenant, some, lease)
        return len(claims)

    @asynccontextmanager
    async def _holding(self, claims: Sequence[Claim], lease: Lease) -> AsyncIterator[None]:
        """Keeps the claims alive while a slow embedder works; gives back what was not applied."""
        renewing = asyncio.create_task(self._keep(claims, lease))
        try:
            yield
        except BaseException as error:
            within = self._backoff() if isinstance(error, TierUnavailable) else 0
            with contextlib.suppress(BraidError):
                await self._dirty.release(claims, within)
            raise
        finally:
            renewing.cancel()

    async def _keep(self, claims: Sequence[Claim], lease: Lease) -> None:
        while True:
            await asyncio.sleep(CLAIM_SECONDS / 3)
            asked = time.monotonic()
            with contextlib.suppress(BraidError):
                await self._dirty.renew(claims)
                lease.renewed(asked)

    async def _apply(self, tenant: str, claims: Sequence[Claim], lease: Lease) -> None:
        try:
            await self._sink.apply(await self._change(tenant, claims, lease))
        except (TierUnavailable, ClaimLost):
            raise
        except Exception as error:  # noqa: BLE001 - one document may be poison: find out which
            log.warning("the %s sink refused a batch of %d: %s", self._sink.name, len(claims), outline(error))
            await self._apply_singly(tenant, claims, lease)
        else:
            await self._record(tenant, claims)

    async def _apply_singly(self, tenant: str, claims: Sequence[Claim], lease: Lease) -> None:
        """A refused document is set aside with its error; its neighbours go through."""
        for claim in claims:
            try:
                await self._sink.apply(await self._change(tenant, [claim], lease))
            except (TierUnavailable, ClaimLost):
                raise
            except Exception as error:  # noqa: BLE001 - kept with the row, where an operator sees it
                metrics.INDEX_FAILURES.labels(self._sink.name).inc()
                await self._dirty.refused(claim, _told(error))
            else:
                await self._record(tenant, [claim])

    async def _record(self, tenant: str, claims: Sequence[Claim]) -> None:
        lost = await self._dirty.applied(tenant, claims)
        metrics.INDEX_APPLIED.labels(self._sink.name).inc(len(claims) - lost)
        if lost:
            log.warning("%d documents were no longer this %s worker's: they are applied again", lost, self._sink.name)

    async def _change(self, tenant: str, claims: Sequence[Claim], lease: Lease) -> Change:
        """The documents as they are now; ids that PostgreSQL no longer has are to be deleted."""
        ids = [claim.document_id for claim in claims]
        documents = await self._dirty.documents(tenant, ids)
        known = {document.id for document in documents}
        links = await self._dirty.links(tenant, sorted(known)) if self._sink.linked else []
        return Change(tenant, documents, [id for id in ids if id not in known], links, lease)


def _told(error: Exception) -> str:
    """Our own words; of an error that nobody foresaw only the kind, as its text may quote the document."""
    return str(error)[:500] if isinstance(error, BraidError) else type(error).__name__
