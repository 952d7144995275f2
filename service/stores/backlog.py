"""What the sinks have still to apply and what they refused, for those who look after it and for who writes too fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.errors import BacklogFull
from service.stores.documents import SINKS
from service.stores.postgres import Postgres

_STATE = """
SELECT sink, count(*) FILTER (WHERE applied_version < wanted_version) AS pending,
    count(*) FILTER (WHERE error IS NOT NULL) AS refused,
    count(*) FILTER (WHERE claimed_until >= now()) AS held,
    count(*) FILTER (WHERE confirm_at IS NOT NULL) AS unconfirmed
FROM dirty WHERE applied_version < wanted_version OR claimed_by IS NOT NULL OR confirm_at IS NOT NULL GROUP BY sink
"""
_REFUSED = """
SELECT d.tenant_id, d.document_id AS id, d.sink AS tier, d.wanted_version AS wanted, d.applied_version AS applied,
    d.attempts, d.error, d.next_try
FROM dirty d WHERE d.error IS NOT NULL AND ($1::uuid IS NULL OR d.tenant_id = $1)
ORDER BY d.tenant_id, d.document_id, d.sink LIMIT $2
"""
_RETRY = """
UPDATE dirty d SET next_try = now(), attempts = 0 FROM (
    SELECT r.tenant_id, r.document_id, r.sink FROM dirty r
    WHERE r.error IS NOT NULL AND ($1::uuid IS NULL OR r.tenant_id = $1) AND ($2::text IS NULL OR r.document_id = $2)
        AND ($3::text IS NULL OR r.sink = $3)
    ORDER BY r.tenant_id, r.document_id, r.sink FOR UPDATE) AS chosen
WHERE d.tenant_id = chosen.tenant_id AND d.document_id = chosen.document_id AND d.sink = chosen.sink
"""
# How far each tenant's slowest sink is behind.
_BY_TENANT = """
SELECT tenant_id, max(pending) AS pending FROM (
    SELECT tenant_id, count(*) AS pending FROM dirty WHERE applied_version < wanted_version GROUP BY tenant_id, sink
) AS by_sink GROUP BY 1
"""


class Backlog:
    """The dirty rows of all tenants, seen from above."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def state(self) -> dict[str, dict[str, int]]:
        """Each sink's pending, refused, held and unconfirmed documents."""
        async with self._postgres.service("worker") as connection:
            rows = {row["sink"]: dict(row) for row in await connection.fetch(_STATE)}
        names = ("pending", "refused", "held", "unconfirmed")
        return {sink: {name: rows.get(sink, {}).get(name, 0) for name in names} for sink in SINKS}

    async def refused(self, tenant: str | None, limit: int) -> list[dict[str, Any]]:
        """What was refused, of one tenant or of all, with the error and when it is tried again."""
        async with self._postgres.service("worker") as connection:
            return [dict(row) for row in await connection.fetch(_REFUSED, tenant, limit)]

    async def retry(self, tenant: str | None, document: str | None, sink: str | None) -> int:
        """Lets what was refused be tried at once: everything, or of one tenant, one document, one sink."""
        async with self._postgres.service("worker") as connection:
            return int((await connection.execute(_RETRY, tenant, document, sink)).rpartition(" ")[2])

    async def by_tenant(self) -> dict[str, int]:
        async with self._postgres.service("worker") as connection:
            return {str(row["tenant_id"]): row["pending"] for row in await connection.fetch(_BY_TENANT)}


class Admission:
    """Refuses writes while the sinks are too far behind. Looks every so often, not at each write.

    Beyond the bound, who has less than a tenth of it waiting may go on: it is not they whom the sinks can't follow.
    """

    def __init__(self, backlog: Backlog, bound: int, *, every_s: float = 0.5, clock: Callable[[], float]) -> None:
        self._backlog = backlog
        self._bound = bound
        self._every = every_s
        self._clock = clock
        self._looked = float("-inf")
        self._waiting: Mapping[str, int] = {}

    async def check(self, tenant: str) -> None:
        if self._clock() - self._looked >= self._every:
            self._looked = self._clock()
            self._waiting = await self._backlog.by_tenant()
        total = sum(self._waiting.values())
        if total > self._bound and self._waiting.get(tenant, 0) > self._bound / 10:
            raise BacklogFull(total, self._bound)
