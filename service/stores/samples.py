"""Samples in PostgreSQL: what tenants searched, minute by minute, for as long as they are kept."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from typing import Any

from service import metrics
from service.errors import BraidError
from service.model import Reach
from service.stores.postgres import Postgres
from service.tally import Counts, Tally

log = logging.getLogger(__name__)

_RECORD = "SELECT record_samples($1, $2)"
_PRUNE = "DELETE FROM samples WHERE minute < now() - $1::int * interval '1 hour'"
_TOTALS = """
SELECT c.key, sum(c.value::float8) FROM samples s, jsonb_each_text(s.counts) AS c
WHERE s.tenant_id = $1 AND s.minute > now() - $2::int * interval '1 hour' GROUP BY 1
"""
# Steps begin at whole multiples of their length since 1970, and are counted from there.
_STEPS = """
SELECT floor(extract(epoch FROM s.minute) / $3::int)::bigint AS step, c.key, sum(c.value::float8)
FROM samples s, jsonb_each_text(s.counts) AS c
WHERE s.tenant_id = $1 AND s.minute > now() - $2::int * interval '1 hour' GROUP BY 1, 2
"""
_BY_TENANT = """
WITH counted AS (
    SELECT s.tenant_id, c.key, sum(c.value::float8) AS value FROM samples s, jsonb_each_text(s.counts) AS c
    WHERE s.minute > now() - $1::int * interval '1 hour' GROUP BY 1, 2
), summed AS (
    SELECT tenant_id, jsonb_object_agg(key, value) AS counts,
        sum(value) FILTER (WHERE key = ANY ('{searches.full,searches.degraded,searches.failed}')) AS searches
    FROM counted GROUP BY 1
)
SELECT t.name, s.counts FROM summed s JOIN tenants t ON t.id = s.tenant_id ORDER BY s.searches DESC, t.name LIMIT $2
"""


class Samples:
    """One process's samples on their way to PostgreSQL, and everybody's on the way back."""

    def __init__(self, postgres: Postgres, tally: Tally, keep_hours: int) -> None:
        self._postgres = postgres
        self._tally = tally
        self._keep = keep_hours
        self._writer = uuid.uuid4()

    async def flush(self, tenant: str | None = None) -> None:
        """Saves what was counted. What cannot be saved now stays, and is saved another time."""
        samples = self._tally.unsaved(tenant)
        if not samples:
            return
        rows = [{"tenant": whose, "minute": minute, "counts": c} for (whose, minute), c in samples.items()]
        try:
            async with self._postgres.service("worker") as connection:
                await connection.execute(_RECORD, self._writer, rows)
        except BraidError:
            metrics.STATS_FLUSHES.labels("failed").inc()
            raise
        self._tally.saved(samples)
        metrics.STATS_FLUSHES.labels("saved").inc()

    async def prune(self) -> None:
        async with self._postgres.service("worker") as connection:
            await connection.execute(_PRUNE, self._keep)

    async def keep_flushing(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.flush()
                await self.prune()
            except Exception as error:  # a loop that ended would lose every sample from then on
                log.warning("samples are not saved yet: %s", error, exc_info=not isinstance(error, BraidError))

    async def totals(self, tenant: str, hours: int) -> Counts:
        """A tenant's counters over the last hours, with what this process has counted up to now."""
        await self.flush(tenant)
        async with self._postgres.tenant(Reach(tenant)) as connection:
            return dict(await connection.fetch(_TOTALS, tenant, hours))

    async def history(self, tenant: str, hours: int, step_s: int) -> Mapping[int, Counts]:
        """The same in steps of so many seconds, numbered since 1970; a step in which nothing happened is left out."""
        await self.flush(tenant)
        async with self._postgres.tenant(Reach(tenant)) as connection:
            rows = await connection.fetch(_STEPS, tenant, hours, step_s)
        steps: dict[int, dict[str, float]] = {}
        for step, key, value in rows:
            steps.setdefault(step, {})[key] = value
        return steps

    async def by_tenant(self, hours: int, limit: int) -> list[tuple[str, Any]]:
        """For an admin: tenants by name, busiest first, with their counters."""
        await self.flush()
        async with self._postgres.service("admin") as connection:
            return [(name, counts) for name, counts in await connection.fetch(_BY_TENANT, hours, limit)]
