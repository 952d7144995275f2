"""Accesses: how often each document was a result. Counted in memory, added up in PostgreSQL now and then.

A search only adds to a counter here: it waits for nothing and locks nothing. What was counted since the last flush is
lost with the process: a few seconds of popularity, and no reason to make searches write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterable

from service.errors import BraidError
from service.model import Reach
from service.stores.postgres import Postgres

HELD = 100_000
"""Documents counted between two flushes at most; what comes beyond is not counted."""
_BATCH = 1000

# In order of id, so that two instances never wait for each other in a circle.
_ADD = """
INSERT INTO accesses AS a (tenant_id, id, count)
SELECT $1, d.id, n.count FROM unnest($2::text[], $3::bigint[]) AS n (id, count)
JOIN documents d ON d.tenant_id = $1 AND d.id = n.id
ORDER BY d.id
ON CONFLICT (tenant_id, id) DO UPDATE SET count = a.count + excluded.count
"""


class Accesses:
    """What was found since the last flush, by tenant."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._held = 0

    def found(self, tenant: str, ids: Iterable[str]) -> None:
        """Counts results that a caller gets to see."""
        counts = self._counts[tenant]
        for id in ids:
            if id not in counts:
                if self._held >= HELD:
                    continue
                self._held += 1
            counts[id] += 1

    async def flush(self) -> None:
        """Adds up what was counted, tenant by tenant. What cannot be written is not tried again: it is only a count."""
        counted, self._counts, self._held = self._counts, defaultdict(Counter), 0
        for tenant, counts in counted.items():
            some = sorted(counts.items())
            for start in range(0, len(some), _BATCH):
                with contextlib.suppress(BraidError):
                    await self._add(tenant, some[start : start + _BATCH])

    async def keep_flushing(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self.flush()

    async def _add(self, tenant: str, some: list[tuple[str, int]]) -> None:
        async with self._postgres.tenant(Reach(tenant), writes=True) as connection:
            await connection.execute(_ADD, tenant, [id for id, _ in some], [count for _, count in some])
