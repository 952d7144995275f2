"""The dirty table: which documents which sink has still to apply. All calls run in the worker's own transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from service.model import Document, Edge
from service.stores.documents import document_from
from service.stores.postgres import Connection, Postgres

# The row lock is held until the batch is applied: no second worker, and no newer version, can slip in between.
_CLAIM = """
SELECT tenant_id, document_id, wanted_version, attempts FROM dirty
WHERE sink = $1 AND applied_version < wanted_version AND next_try <= now()
ORDER BY wanted_version LIMIT $2 FOR UPDATE SKIP LOCKED
"""
_CURRENT = """
SELECT id, namespace, title, content, metadata, type, tags, entities, confidence, priority, created_at, vector, version
FROM documents WHERE tenant_id = $1 AND id = ANY($2::text[]) ORDER BY id
"""
_TOUCHING = """
SELECT source, target, type, strength FROM edges WHERE tenant_id = $1 AND source = ANY($2::text[])
UNION SELECT source, target, type, strength FROM edges WHERE tenant_id = $1 AND target = ANY($2::text[])
"""
_APPLIED = """
UPDATE dirty d SET applied_version = c.version, attempts = 0, error = NULL
FROM unnest($3::text[], $4::bigint[]) AS c (id, version)
WHERE d.tenant_id = $1 AND d.sink = $2 AND d.document_id = c.id
"""
# A tombstone has done its duty when every sink has applied it.
_BURY = """
DELETE FROM dirty d WHERE d.tenant_id = $1 AND d.document_id = ANY($2::text[])
AND NOT EXISTS (SELECT FROM documents o WHERE o.tenant_id = $1 AND o.id = d.document_id)
AND NOT EXISTS (SELECT FROM dirty p WHERE p.tenant_id = $1 AND p.document_id = d.document_id
                AND p.applied_version < p.wanted_version)
"""
_REFUSED = """
UPDATE dirty SET attempts = attempts + 1, error = $5,
    next_try = now() + least(interval '1 hour', interval '1 second' * power(2, least($6, 12)))
WHERE tenant_id = $1 AND sink = $2 AND document_id = $3 AND wanted_version = $4
"""
_BACKLOG = "SELECT sink, count(*) FROM dirty WHERE applied_version < wanted_version GROUP BY sink"


@dataclass(frozen=True, slots=True)
class Claim:
    """One dirty row that this worker holds."""

    tenant: str
    document_id: str
    version: int
    attempts: int


async def claim(connection: Connection, sink: str, limit: int) -> list[Claim]:
    return [Claim(str(row[0]), *row[1:]) for row in map(tuple, await connection.fetch(_CLAIM, sink, limit))]


def by_tenant(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    grouped: dict[str, list[Claim]] = defaultdict(list)
    for one in claims:
        grouped[one.tenant].append(one)
    return grouped


async def current(connection: Connection, tenant: str, ids: Sequence[str]) -> list[Document]:
    return [document_from(row) for row in await connection.fetch(_CURRENT, tenant, list(ids))]


async def touching(connection: Connection, tenant: str, ids: Sequence[str]) -> list[Edge]:
    """Every link that begins or ends at one of these documents."""
    return [Edge(*row) for row in await connection.fetch(_TOUCHING, tenant, list(ids))]


async def applied(connection: Connection, sink: str, tenant: str, claims: Sequence[Claim]) -> None:
    ids = [c.document_id for c in claims]
    await connection.execute(_APPLIED, tenant, sink, ids, [c.version for c in claims])
    await connection.execute(_BURY, tenant, ids)


async def refused(connection: Connection, sink: str, tenant: str, claim: Claim, error: str) -> None:
    arguments = (tenant, sink, claim.document_id, claim.version, error, claim.attempts)
    await connection.execute(_REFUSED, *arguments)


async def backlog(postgres: Postgres) -> dict[str, int]:
    return dict(await postgres.fetch(_BACKLOG))
