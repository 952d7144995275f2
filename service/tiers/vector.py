"""The vector tier: documents that mean what the query means, in whatever words."""

from __future__ import annotations

from collections.abc import Sequence

from service import metrics, tracing
from service.model import Hit, Query
from service.stores.embedder import NONE, Embedder
from service.stores.qdrant import VectorStore


class VectorTier:
    """Embeds the query, unless the caller did, and asks Qdrant for its neighbours."""

    name = "vector"

    def __init__(self, store: VectorStore, embedder: Embedder) -> None:
        self._store = store
        self._embedder = embedder

    async def search(self, query: Query, limit: int, timeout_ms: int) -> list[Hit]:
        vector = await self._vector_of(query)
        if not any(vector):
            return []
        return await self._store.search(query.tenant, vector, query.namespaces, query.filter, limit)

    async def _vector_of(self, query: Query) -> Sequence[float]:
        """The caller's vector or the text's; empty where there is neither."""
        if query.vector is not None:
            return query.vector
        if self._embedder.name == NONE:
            return ()
        with metrics.EMBEDDING_SECONDS.labels("query").time(), tracing.span("embed"):
            return await self._embedder.embed_query(query.text)
