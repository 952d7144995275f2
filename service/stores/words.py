"""The keyword index of PostgreSQL: what is known of a tenant's documents as a whole, and how their words weigh.

A term's weight in a query depends on how many documents have it, and its impact in a document on how long documents
are on average. Both are counted afresh, per tenant, once enough has changed; searches never wait for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from service.model import Reach
from service.stores import epochs
from service.stores.postgres import Postgres

BM25 = "bm25"
TS_RANK_CD = "ts_rank_cd"
WITHOUT_BM25 = (
    "keyword: ranks with ts_rank_cd, far behind BM25, as PostgreSQL had no pgvector when the tables were made: "
    "see docs/operations.md#without-pgvector"
)
_BATCH = 500

# Of the column, not of the extension: that may have come, or gone, since.
_HAS_IMPACTS = """
SELECT EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
               WHERE a.attrelid = 'words'::regclass AND a.attname = 'impacts' AND t.typname = 'sparsevec')
"""
# Small tenants at once; large ones when a twentieth has changed, or when it has been a while.
_STALE = """
SELECT u.tenant_id FROM (SELECT tenant_id, sum(changes) AS changes FROM usage GROUP BY 1) AS u
LEFT JOIN corpus c ON c.tenant_id = u.tenant_id
WHERE c.weighed_to IS NOT NULL OR u.changes > coalesce(c.changes, 0) AND (
    coalesce(c.documents, 0) < 2000 OR u.changes - c.changes >= 0.05 * c.documents
    OR c.refreshed_at < now() - interval '1 minute' * (1 + c.documents / 100000))
ORDER BY 1 LIMIT $1
"""
_REFRESH = "SELECT refresh_corpus($1)"
_UNWEIGHED = "SELECT weighed_to FROM corpus WHERE tenant_id = $1 AND weighed_to IS NOT NULL FOR UPDATE SKIP LOCKED"
_WEIGH = """
WITH batch AS MATERIALIZED (
    SELECT id FROM words WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3 FOR UPDATE
), done AS (
    UPDATE words w SET impacts = impacts_of(w.tsv, w.length, c.weighed_by, $4, $5, $6, $7)
    FROM batch, corpus c WHERE w.tenant_id = $1 AND w.id = batch.id AND c.tenant_id = $1 RETURNING w.id
)
SELECT max(id) FROM done
"""
_ALIKE = "SELECT namespace, word, alike FROM words_alike($1, $2, $3, $4, $5, $6)"
_WEIGHED = "UPDATE corpus SET weighed_to = $2 WHERE tenant_id = $1"


@dataclass(frozen=True, slots=True)
class Weighing:
    """BM25's parameters, and how much a word in the title or a tag counts compared with one in the content.

    `language` is that of namespaces for which none was chosen.
    """

    title: float = 3.0
    tags: float = 1.0
    k1: float = 1.2
    b: float = 0.75
    language: str = "english"

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        return self.title, self.tags, self.k1, self.b

    @property
    def shape(self) -> str:
        """What impacts that were computed with these are known by."""
        return ",".join(f"{number:g}" for number in self.numbers)


class Corpora:
    """The statistics of every tenant's documents."""

    def __init__(self, postgres: Postgres, weighing: Weighing) -> None:
        self._postgres = postgres
        self._weighing = weighing

    async def stale(self, limit: int = 100) -> list[str]:
        """The tenants whose statistics are out of date."""
        async with self._postgres.service("worker") as connection:
            return [str(row["tenant_id"]) for row in await connection.fetch(_STALE, limit)]

    async def refresh(self, tenant: str) -> None:
        """Counts a tenant's terms, and weighs its documents again where the average has moved."""
        async with self._postgres.tenant(Reach(tenant), writes=True) as connection:
            await connection.execute(_REFRESH, self._weighing.shape)
            await epochs.advance(connection, tenant)
        while await self._weigh_some(tenant):
            pass

    async def _weigh_some(self, tenant: str) -> bool:
        """One batch, in a transaction of its own, so that writers wait for moments only. False when all is done."""
        async with self._postgres.tenant(Reach(tenant), writes=True) as connection:
            start = await connection.fetchval(_UNWEIGHED, tenant)
            if start is None:
                return False
            last = await connection.fetchval(_WEIGH, tenant, start, _BATCH, *self._weighing.numbers)
            await connection.execute(_WEIGHED, tenant, last)
            await epochs.advance(connection, tenant)
            return last is not None


async def words_alike(
    postgres: Postgres, reach: Reach, words: Mapping[str, Collection[str]], wanted: Sequence[str]
) -> dict[str, dict[str, set[str]]]:
    """For words of each namespace, those of the wanted ones that mean the same in its language."""
    names = None if reach.namespaces is None else list(reach.namespaces)
    there = [(namespace, word) for namespace, some in words.items() for word in some]
    places, texts = [namespace for namespace, _ in there], [word for _, word in there]
    found: dict[str, dict[str, set[str]]] = {namespace: defaultdict(set) for namespace in words}
    for row in await postgres.fetch(_ALIKE, reach.tenant, reach.project, names, places, texts, list(wanted)):
        found[row["namespace"]][row["word"]].add(row["alike"])
    return found


async def best_ranker(postgres: Postgres) -> str:
    """BM25, where the tables were made with pgvector to compute it with."""
    return BM25 if (await postgres.fetchrow(_HAS_IMPACTS))[0] else TS_RANK_CD
