"""One write, end to end: into PostgreSQL, in one transaction that also marks a dirty row a (document, sink), and the
wait until the workers have brought it to every engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from service.errors import BacklogFull, BraidError
from service.model import Document, Edge, Reach
from service.stores.backlog import Admission
from service.stores.completions import Completions
from service.stores.documents import TenantDocuments, Written
from service.stores.languages import Rewording
from service.stores.postgres import Postgres
from service.stores.words import Corpora, Weighing

log = logging.getLogger(__name__)

_FULL_PAUSE_S = 0.2

Linked = tuple[Document, Sequence[Edge] | None]


class Writer:
    """The writing side of the service."""

    def __init__(
        self,
        postgres: Postgres,
        dimension: int,
        wake: Callable[[], None] = lambda: None,
        admission: Admission | None = None,
        weighing: Weighing = Weighing(),  # noqa: B008
    ) -> None:
        self._postgres = postgres
        self._weighing = weighing
        self._admission = admission
        self.wake = wake
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

    async def admit(self, reach: Reach) -> None:
        """Refuses a write while too many of the tenant's wait to be indexed."""
        if self._admission is not None:
            await self._admission.check(reach.tenant)

    async def room(self, reach: Reach) -> None:
        """The same for a stream that is half read: it waits, and so makes its sender wait."""
        while True:
            try:
                return await self.admit(reach)
            except BacklogFull:
                await asyncio.sleep(_FULL_PAUSE_S)

    async def settled(self, reach: Reach, ids: Sequence[str], timeout_ms: int) -> bool:
        """Waits until every sink has applied these documents; False when that took too long."""
        documents = self.documents(reach)
        now = await documents.last_version()  # who else writes them meanwhile is not waited for
        return await _until(lambda: documents.pending(ids, now), timeout_ms)

    async def settled_since(self, reach: Reach, version: int, timeout_ms: int) -> bool:
        """The same for all that was written since, however many they are."""
        documents = self.documents(reach)
        last = await documents.last_version()
        return await _until(lambda: documents.pending_between(version, last), timeout_ms)


async def _until(pending: Callable[[], Awaitable[int]], timeout_ms: int) -> bool:
    pause, until = 0.005, time.monotonic() + timeout_ms / 1000
    while await pending():
        if time.monotonic() >= until:
            return False
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.1)
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


async def keep_counting(corpora: Corpora, every_s: float) -> None:
    """Refreshes the statistics of tenants whose documents have changed, for ever."""
    await _keep_up("the keyword statistics are", corpora.stale, corpora.refresh, every_s)


async def keep_completing(completions: Completions, every_s: float) -> None:
    """Counts what was written for completions, for ever."""
    await _keep_up("the completions are", completions.behind, completions.fold, every_s)


async def keep_wording(rewording: Rewording, every_s: float) -> None:
    """Indexes again what stands in namespaces whose language has changed, for ever."""
    await _keep_up("the words of namespaces with another language are", rewording.behind, rewording.reword, every_s)


async def _keep_up(
    what: str, behind: Callable[[], Awaitable[list[str]]], catch_up: Callable[[str], Awaitable[None]], every_s: float
) -> None:
    while True:
        with _told(what):
            for tenant in await behind():
                with _told(what):  # one that fails holds back no other
                    await catch_up(tenant)
        await asyncio.sleep(every_s)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Says what went wrong and goes on: ending would leave every tenant behind for ever."""
    try:
        yield
    except Exception as error:
        log.warning("%s behind: %s", what, error, exc_info=not isinstance(error, BraidError))
