"""Completions in PostgreSQL: what begins as somebody typed, and how writes become completions."""

from __future__ import annotations

from collections.abc import Sequence

from service.model import Reach, Suggestion
from service.stores.postgres import Postgres

_BATCH = 500

_BEGINNING = "SELECT kind, shown, documents FROM completions_by_prefix($1, $2, $3, $4, $5, $6)"
_BEHIND = "SELECT tenants_to_complete($1)"
_FOLD = "SELECT fold_completions($1)"


class Completions:
    """The titles, names and words of every tenant's documents, by how they begin."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def beginning(
        self, reach: Reach, typed: str, namespaces: Sequence[str] | None, limit: int
    ) -> list[Suggestion]:
        """Up to `limit` of each kind, each kind's most common first."""
        names = None if reach.namespaces is None else list(reach.namespaces)
        place = None if namespaces is None else list(namespaces)
        rows = await self._postgres.fetch(_BEGINNING, reach.tenant, reach.project, names, typed, place, limit)
        return [Suggestion(row["shown"], row["kind"], row["documents"]) for row in rows]

    async def behind(self, limit: int = 100) -> list[str]:
        """Tenants that wrote something which is not completed yet."""
        async with self._postgres.connection() as connection:
            return [str(row[0]) for row in await connection.fetch(_BEHIND, limit)]

    async def fold(self, tenant: str) -> None:
        """Counts what a tenant wrote, batch by batch, each in a transaction of its own."""
        while await self._fold_some(tenant):
            pass

    async def _fold_some(self, tenant: str) -> bool:
        async with self._postgres.tenant(Reach(tenant), writes=True) as connection:
            return bool(await connection.fetchval(_FOLD, _BATCH))
