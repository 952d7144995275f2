"""Compares the derived indexes with PostgreSQL, and has what differs applied again.

For each tenant and tier: how many entries there are, and a hash over each entry's id and fence, which tells the very
application it came from. Only where these differ is every entry looked at. What is on its way counts as neither right
nor wrong; what differs is looked at twice, as it may have been on its way in between.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from service import metrics
from service.errors import BraidError
from service.indexing import Writer
from service.model import Held, Reach
from service.stores import dirty
from service.stores.dirty import Expected
from service.stores.postgres import Postgres

log = logging.getLogger(__name__)

KINDS = ("missing", "phantom", "stale", "duplicate")
_PAUSE_S = 0.5
_BATCH = 500
_ANY_FENCE = 2**53

Differences = dict[str, list[str]]


class Index(Protocol):
    """A derived engine, as far as one has to look at it."""

    def everything(self, tenant: str) -> AsyncIterator[Held]: ...

    async def delete(self, tenant: str, ids: Sequence[str], fence: int = 0) -> None: ...


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in one tier of one tenant: entries by kind of difference."""

    tenant: str
    tier: str
    documents: int
    differences: Differences = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        return not any(self.differences.values())


class Verification:
    """Looks at every tenant's tiers. `vectors_given` says that only documents which brought a vector have one."""

    def __init__(
        self, postgres: Postgres, writer: Writer, indexes: Mapping[str, Index], *, vectors_given: bool = False
    ) -> None:
        self._postgres = postgres
        self._writer = writer
        self._indexes = indexes
        self._vectors_given = vectors_given

    @property
    def tiers(self) -> tuple[str, ...]:
        return ("keyword", *self._indexes)

    async def verify(self, tenant: str, tier: str, *, repair: bool) -> Report:
        """One tenant's tier; with `repair`, what differs is applied again."""
        if tier == "keyword":
            return await self._keyword(tenant, repair)
        expected = await self._expected(tenant, tier)
        held = [each async for each in self._indexes[tier].everything(tenant)]
        differences = await asyncio.to_thread(compared, expected, held)  # seconds, for a million documents
        if any(differences.values()):
            differences = await self._again(tenant, tier, expected, differences)
        for kind, ids in differences.items():
            metrics.INDEX_DIFFERENCES.labels(tier, kind).inc(len(ids))
        if repair and any(differences.values()):
            await self._repair(tenant, tier, differences)
        return Report(tenant, tier, len(expected.fences), differences)

    async def _again(self, tenant: str, tier: str, before: Expected, first: Differences) -> Differences:
        """Those differences that a second look finds too, at documents that nothing happened to in between."""
        await asyncio.sleep(_PAUSE_S)
        now = await self._expected(tenant, tier)
        second = compared(now, [each async for each in self._indexes[tier].everything(tenant)])
        moved = {id for id in before.fences.keys() | now.fences.keys() if before.fences.get(id) != now.fences.get(id)}
        return {kind: sorted((set(first[kind]) & set(second[kind])) - moved) for kind in KINDS}

    async def _expected(self, tenant: str, tier: str) -> Expected:
        return await dirty.expected(self._postgres, tenant, tier, vectors_given=self._vectors_given)

    async def _repair(self, tenant: str, tier: str, differences: Differences) -> None:
        if differences["duplicate"]:
            await self._indexes[tier].delete(tenant, differences["duplicate"], _ANY_FENCE)
        await self.apply_again(tenant, tier, sorted({id for ids in differences.values() for id in ids if id}))

    async def apply_again(self, tenant: str, tier: str, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _BATCH):
            async with self._postgres.tenant(Reach(tenant), writes=True) as connection:
                await dirty.again(connection, tenant, tier, ids[start : start + _BATCH])
        self._writer.wake()

    async def _keyword(self, tenant: str, repair: bool) -> Report:
        """Words are written with the document, and go with it: only ever missing, if anything."""
        documents = self._writer.documents(Reach(tenant))
        count, missing = await documents.without_words()
        if repair and missing:
            await documents.index_words(missing)
        return Report(tenant, "keyword", count, {kind: missing if kind == "missing" else [] for kind in KINDS})

    async def rebuild(self, tenant: str, tier: str) -> int:
        """Makes a tenant's tier anew from PostgreSQL, in place: every document is applied again, and what should not
        be there goes. Searches and writes go on; what was not done yet is done after a crash. Returns how many."""
        documents, after, total = self._writer.documents(Reach(tenant)), "", 0
        while ids := await documents.ids(after, _BATCH):
            if tier == "keyword":
                await documents.index_words(ids)
            else:
                await self.apply_again(tenant, tier, ids)
            after, total = ids[-1], total + len(ids)
        if tier != "keyword":
            held = [each async for each in self._indexes[tier].everything(tenant)]
            phantom = compared(await self._expected(tenant, tier), held)["phantom"]
            await self.apply_again(tenant, tier, [id for id in phantom if id])
        return total

    async def keep_looking(self, tenants: Tenants, every_s: float) -> None:
        """Every tenant, one after the other, slowly and for ever; what differs is repaired and told in the log."""
        while True:
            await asyncio.sleep(every_s)
            try:
                for tenant in await tenants():
                    for tier in self.tiers:
                        report = await self.verify(tenant, tier, repair=True)
                        if not report.agrees:
                            counts = {kind: len(ids) for kind, ids in report.differences.items() if ids}
                            log.warning("the %s index of tenant %s differed: %s", tier, tenant, counts)
                        await asyncio.sleep(_PAUSE_S)
            except Exception as error:  # ending would leave differences for ever
                log.warning("the indexes cannot be looked at: %s", error, exc_info=not isinstance(error, BraidError))


class Tenants(Protocol):
    """Says who there is."""

    async def __call__(self) -> list[str]: ...


def compared(expected: Expected, held: Sequence[Held]) -> Differences:
    """By count and hash first; entry by entry where these differ. What is on its way is left out of both."""
    settled = [each for each in held if each.id not in expected.moving]
    entries = [(each.id, each.fence) for each in settled]
    if len(entries) == len(expected.fences) and hash_of(entries) == hash_of(expected.fences.items()):
        return {kind: [] for kind in KINDS}
    counts, fences = Counter(id for id, _ in entries), dict(entries)
    return {
        "missing": sorted(expected.fences.keys() - fences.keys()),
        "phantom": sorted(fences.keys() - expected.fences.keys()),
        "stale": sorted(id for id, fence in expected.fences.items() if fences.get(id, fence) != fence),
        "duplicate": sorted(id for id, count in counts.items() if count > 1),
    }


def hash_of(entries: Iterable[tuple[str, int]]) -> int:
    """Of (id, fence) pairs in any order."""
    digests = (hashlib.blake2b(f"{fence}:{id}".encode(), digest_size=8).digest() for id, fence in entries)
    return sum(int.from_bytes(digest) for digest in digests) % 2**64
