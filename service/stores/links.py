"""Links of documents that a search has found, asked of PostgreSQL in one question.

PostgreSQL and not FalkorDB: here links are under row security, as new as the documents, filtered by the same conditions
as words, and there while FalkorDB is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.model import Filter, Reach
from service.ranking.activation import FACTORS, OTHER, Link
from service.stores.filters import Condition
from service.stores.postgres import Postgres

_LINKED = """
SELECT * FROM linked_documents($1, $2, $3, $4, $5, $6, $7::text::jsonpath, $8, $9, $10, $11, $12)
"""


class TenantLinks:
    """The links that one caller can see."""

    def __init__(self, postgres: Postgres, reach: Reach) -> None:
        self._postgres = postgres
        self._reach = reach

    async def around(
        self, seeds: Sequence[str], namespaces: Sequence[str] | None, filter: Filter, fan: int
    ) -> list[Link]:
        """The documents that each seed is best linked with: `fan` of those that a search may find."""
        return await self._linked(seeds, None, namespaces, filter, FACTORS, OTHER, fan)

    async def between(self, ids: Sequence[str], fan: int) -> list[Link]:
        """The strongest links that these documents have with each other: `fan` of each."""
        return await self._linked(ids, ids, None, Filter(), {}, 1.0, fan)

    async def _linked(  # noqa: PLR0913, PLR0917 - as many sides as the question has
        self,
        seeds: Sequence[str],
        among: Sequence[str] | None,
        namespaces: Sequence[str] | None,
        filter: Filter,
        factors: Mapping[str, float],
        other: float,
        fan: int,
    ) -> list[Link]:
        condition = Condition(filter)
        names, among, visible = (
            None if some is None else list(some) for some in (self._reach.namespaces, among, namespaces)
        )
        who = (self._reach.tenant, self._reach.project, names)
        where = (list(seeds), among, visible, condition.path, condition.operands)
        rows = await self._postgres.fetch(_LINKED, *who, *where, list(factors), list(factors.values()), other, fan)
        return [Link(row["seed"], row["id"], row["type"], row["strength"]) for row in rows]
