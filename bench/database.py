"""A PostgreSQL of its own for measuring the keyword tier: filled by the service's own writer, with nothing behind it.

No document is embedded and none goes to Qdrant or FalkorDB: their rows stay dirty. All else is as in the service.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from bench.measure import Step
from service.app import EMBEDDED_ROLE, prepare, with_user
from service.embedded import EmbeddedEngines
from service.evaluation.collection import Collection
from service.evaluation.measures import quality
from service.model import Document, Filter, Reach
from service.ranking.typed import parse
from service.stores.documents import TenantDocuments
from service.stores.postgres import Postgres
from service.stores.tenants import Tenants
from service.stores.words import BM25, Corpora, Weighing

BATCH = 500
BOUND = 1000
DEPTH = 100


@dataclass
class Database:
    """The open pool, and the owner's address for what the service may not do."""

    postgres: Postgres
    owner: str

    async def run(self, statement: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.owner)
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement)
            return rows
        finally:
            await connection.close()

    async def tenant(self, name: str) -> str:
        return await Tenants(self.postgres).ensure(name)


@asynccontextmanager
async def database() -> AsyncIterator[Database]:
    with tempfile.TemporaryDirectory(prefix="bb-", dir="/tmp") as folder:
        engines = EmbeddedEngines(Path(folder) / "data", postgres=True, falkordb=False)
        try:
            owner = (await asyncio.to_thread(engines.start)).postgres_url or ""
            url = with_user(owner, EMBEDDED_ROLE)
            await prepare(owner, url, embedded=True)
            postgres = Postgres(url, pool_size=4, acquire_timeout_s=30)
            await postgres.open()
            yield Database(postgres, owner)
            await postgres.close()
        finally:
            await asyncio.to_thread(engines.stop)


async def load(
    opened: Database, tenant: str, documents: Sequence[Document], weighing: Weighing, step: Step = lambda _: None
) -> None:
    """Writes documents, then counts and weighs them as the service does in the background."""
    store = TenantDocuments(opened.postgres, Reach(tenant), weighing)
    for start in range(0, len(documents), BATCH):
        some = documents[start : start + BATCH]
        await store.put([(document, None) for document in some])
        step(len(some))
    await Corpora(opened.postgres, weighing).refresh(tenant)


def documents_of(collection: Collection, suffix: str = "") -> list[Document]:
    return [
        Document(f"{d['id']}{suffix}", namespace=d["namespace"], title=d["title"], content=d["content"])
        for d in collection.documents
    ]


async def ndcg(opened: Database, tenant: str, collection: Collection, bound: int = BOUND) -> float:
    """nDCG@10 of the keyword tier alone."""
    store = TenantDocuments(opened.postgres, Reach(tenant))
    rankings: dict[str, list[str]] = {}
    for question in collection.questions:
        hits = await store.match(parse(question.text), [question.namespace], Filter(), DEPTH, bound=bound, ranker=BM25)
        rankings[question.id] = [hit.id for hit in hits]
    return quality(collection.judgements, rankings, DEPTH).ndcg
