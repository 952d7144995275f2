"""The keyword tier: exact words, names, ids and phrases, through PostgreSQL's full-text index."""

from __future__ import annotations

from service.model import Hit, Query
from service.ranking.typed import parse
from service.stores.documents import TenantDocuments
from service.stores.postgres import Postgres
from service.stores.words import BM25


class KeywordTier:
    """Finds documents by the words that people typed, and scores about `bound` of them at most."""

    name = "keyword"

    def __init__(self, postgres: Postgres, ranker: str = BM25, bound: int = 1000) -> None:
        self._postgres = postgres
        self._ranker = ranker
        self._bound = bound

    async def search(self, query: Query, limit: int, timeout_ms: int) -> list[Hit]:
        documents = TenantDocuments(self._postgres, query.reach)
        ranker = query.ranker or self._ranker
        return await documents.match(
            parse(query.text), query.namespaces, query.filter, limit, bound=self._bound, ranker=ranker
        )
