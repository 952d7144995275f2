"""The graph tier: documents connected to what the query names, by the best walk that leads to them."""

from __future__ import annotations

from service.model import Hit, Query
from service.ranking import names
from service.stores.falkordb import GraphStore


class GraphTier:
    """Walks from the entities and titles in the query, up to `hops` links far and `fan_out` links wide."""

    name = "graph"

    def __init__(self, store: GraphStore, hops: int = 2, fan_out: int = 50) -> None:
        self._store = store
        self._hops = hops
        self._fan_out = fan_out

    async def search(self, query: Query, limit: int, timeout_ms: int) -> list[Hit]:
        words = names.words(query.text)
        if not words:
            return []
        return await self._store.search(
            query.tenant,
            words,
            query.namespaces,
            query.filter,
            limit,
            hops=self._hops,
            fan_out=self._fan_out,
            timeout_ms=timeout_ms,
        )
