"""The dirty table: which documents which sink has still to apply.

A worker claims rows for a while and applies them without holding a lock, so no writer ever waits for a slow engine.
What a worker that died had claimed is free again when the claim runs out. Rows are locked in one order, by document
and sink, wherever more than one is locked: no two transactions can wait for each other.

Every claim has a fence, a number that only grows: engines refuse what comes late under an older one. A write whose
outcome nobody knows (its worker died, its engine did not answer) may come later still; so what it was about is
applied once more after a while, and tombstones stay until then.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.model import Document, Edge, Reach
from service.stores import epochs
from service.stores.documents import document_from
from service.stores.postgres import Connection, Postgres

CLAIM_SECONDS = 15
CONFIRM_SECONDS = 60
"""How long after its claim ended a write may still arrive: twice as long as any waits for an engine's answer."""

# A claimed row is not claimed again for a newer version: one worker at a time brings one document to one sink.
# A tenant that is being deleted is left alone, or a worker could bring back what was just removed from an engine.
# Materialized, as a join may run a plain subquery again and again, and every run would lock as many rows once more.
# A row that is taken over from another worker, or given back by one, has a write whose outcome is not known.
_CLAIM = """
WITH fence AS MATERIALIZED (SELECT nextval('document_version') AS number), free AS MATERIALIZED (
    SELECT tenant_id, document_id FROM dirty
    WHERE sink = $1 AND {due} AND next_try <= now() AND (claimed_until IS NULL OR claimed_until < now())
        AND tenant_id <> ALL (ARRAY(SELECT id FROM tenants WHERE state = 'deleting')) {exclusive}
    ORDER BY {order} LIMIT $4 FOR UPDATE SKIP LOCKED)
UPDATE dirty d SET claimed_by = $2, claimed_until = now() + $3::int * interval '1 second',
    confirm_at = CASE WHEN d.claimed_by IS NOT NULL THEN now() + $5::int * interval '1 second'
                      WHEN d.confirm_at > now() THEN d.confirm_at END
FROM free, fence
WHERE d.tenant_id = free.tenant_id AND d.document_id = free.document_id AND d.sink = $1
RETURNING d.tenant_id, d.document_id, d.wanted_version, fence.number AS fence
"""
_PENDING = {"due": "applied_version < wanted_version", "order": "wanted_version"}
_UNCONFIRMED = {"due": "confirm_at <= now() AND applied_version >= wanted_version", "order": "confirm_at"}
_FREE_TENANTS = """
        AND tenant_id <> ALL (ARRAY(SELECT h.tenant_id FROM dirty h WHERE h.sink = $1 AND h.claimed_by IS NOT NULL
                                    AND h.claimed_by <> $2 AND h.claimed_until >= now()))"""
_ONE_BY_ONE = "SELECT pg_advisory_xact_lock(hashtext('braid claim'), hashtext($1))"
_OURS = """
FROM (SELECT r.tenant_id, r.document_id FROM unnest($3::uuid[], $4::text[]) AS c (tenant_id, id)
      JOIN dirty r ON r.tenant_id = c.tenant_id AND r.document_id = c.id AND r.sink = $1
      ORDER BY r.tenant_id, r.document_id FOR UPDATE OF r) AS c
WHERE d.tenant_id = c.tenant_id AND d.document_id = c.document_id AND d.sink = $1 AND d.claimed_by = $2
"""
_RENEW = f"UPDATE dirty d SET claimed_until = now() + $5::int * interval '1 second' {_OURS} RETURNING 1"  # noqa: S608
# Each document waits for a moment of its own, so that they come back in other batches.
_RELEASE = f"""
UPDATE dirty d SET claimed_by = NULL, claimed_until = NULL, next_try = now() + random() * $5 * interval '1 second',
    confirm_at = now() + $6::int * interval '1 second' {_OURS}
"""  # noqa: S608
_RELEASE_ALL = """
UPDATE dirty SET claimed_by = NULL, claimed_until = NULL, confirm_at = now() + $1::int * interval '1 second'
WHERE claimed_by IS NOT NULL AND sink = ANY($2::text[])
"""
_LOCK = """
SELECT FROM dirty WHERE tenant_id = $1 AND document_id = ANY($2::text[]) ORDER BY document_id, sink FOR UPDATE
"""
_APPLIED = """
UPDATE dirty d SET applied_version = c.version, fence = $6, attempts = 0, error = NULL, claimed_by = NULL,
    claimed_until = NULL
FROM unnest($4::text[], $5::bigint[]) AS c (id, version)
WHERE d.tenant_id = $1 AND d.sink = $2 AND d.claimed_by = $3 AND d.document_id = c.id
RETURNING d.document_id
"""
# A tombstone has done its duty when every sink has applied it and nothing older can come any more.
_BURY = """
DELETE FROM dirty d WHERE d.tenant_id = $1 AND d.document_id = ANY($2::text[])
AND NOT EXISTS (SELECT FROM documents o WHERE o.tenant_id = $1 AND o.id = d.document_id)
AND NOT EXISTS (SELECT FROM dirty p WHERE p.tenant_id = $1 AND p.document_id = d.document_id
                AND (p.applied_version < p.wanted_version OR p.confirm_at IS NOT NULL))
"""
_AGAIN = """
INSERT INTO dirty AS d (tenant_id, document_id, sink, wanted_version)
SELECT $1, id, $2, nextval('document_version') FROM unnest($3::text[]) AS id ORDER BY id COLLATE "C"
ON CONFLICT (tenant_id, document_id, sink) DO UPDATE
SET wanted_version = excluded.wanted_version, next_try = now(), attempts = 0, error = NULL,
    wanted_since = CASE WHEN d.applied_version < d.wanted_version THEN d.wanted_since ELSE now() END
"""
_MARK_ALL = "UPDATE dirty SET wanted_version = nextval('document_version'), next_try = now() WHERE sink = $1"
_REFUSED = """
UPDATE dirty SET attempts = attempts + 1, error = $5, claimed_by = NULL, claimed_until = NULL,
    next_try = now() + least(interval '1 hour', interval '1 second' * power(2, least(attempts, 12)))
        * (0.5 + random() / 2)
WHERE tenant_id = $1 AND sink = $2 AND claimed_by = $3 AND document_id = $4
"""
_CURRENT = """
SELECT id, namespace, title, content, metadata, type, tags, entities, confidence, priority, created_at, vector, version
FROM documents WHERE tenant_id = $1 AND id = ANY($2::text[]) ORDER BY id
"""
_TOUCHING = """
SELECT source, target, type, strength FROM edges WHERE tenant_id = $1 AND source = ANY($2::text[])
UNION SELECT source, target, type, strength FROM edges WHERE tenant_id = $1 AND target = ANY($2::text[])
"""
# Waits for whoever is claiming: afterwards a row is either gone or seen to be claimed.
_TAKE = """
DELETE FROM dirty WHERE tenant_id = $1 AND (claimed_until IS NULL OR claimed_until < now())
AND ctid = ANY (ARRAY(SELECT ctid FROM dirty
                      WHERE tenant_id = $1 AND (claimed_until IS NULL OR claimed_until < now()) LIMIT $2))
"""
_HELD = "SELECT count(*) FROM dirty WHERE tenant_id = $1 AND claimed_until >= now()"
# A document without a row was applied by nobody: no fence is -1.
_EXPECTED = """
SELECT coalesce(o.id, d.document_id) AS id, coalesce(d.fence, -1) AS fence,
    coalesce(d.applied_version < d.wanted_version OR d.claimed_by IS NOT NULL, false) AS moving,
    o.id IS NOT NULL AND (NOT $3 OR o.vector IS NOT NULL) AS present
FROM (SELECT id, vector FROM documents WHERE tenant_id = $1) AS o
FULL JOIN (SELECT * FROM dirty WHERE tenant_id = $1 AND sink = $2) AS d ON d.document_id = o.id
"""
# The lag is that of what a sink can still apply: a document that it refused waits for a person, not for the sink.
_BACKLOG = """
SELECT sink, count(*) AS documents, count(*) FILTER (WHERE attempts > 0) AS refused,
    coalesce(extract(epoch FROM now() - min(wanted_since) FILTER (WHERE attempts = 0)), 0)::float8 AS lag_s
FROM dirty WHERE applied_version < wanted_version GROUP BY sink
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """One dirty row that a worker holds: the document, the version that was wanted when it took it, and its fence."""

    tenant: str
    document_id: str
    version: int
    fence: int


@dataclass(frozen=True, slots=True)
class Expected:
    """What a sink is to hold of a tenant: the fence under which each document was applied, and what is on its way."""

    fences: dict[str, int]
    moving: set[str]


@dataclass(frozen=True, slots=True)
class Owed:
    """How much a sink has still to apply: documents, those of them that it refused, and how long the oldest waits."""

    documents: float = 0
    refused: float = 0
    lag_s: float = 0.0


class DirtyRows:
    """One worker's view of one sink's dirty rows. It can change only what it has claimed.

    With `whole_tenants`, no two workers hold rows of one tenant at the same time.
    """

    def __init__(self, postgres: Postgres, sink: str, *, whole_tenants: bool = False) -> None:
        self._postgres = postgres
        self._sink = sink
        self._whole_tenants = whole_tenants
        self._owner = uuid.uuid4()
        self._claims = claim_statements(whole_tenants)

    async def claim(self, limit: int) -> list[Claim]:
        """The longest waiting rows, in order of writing; ours until applied, refused, released, or run out. Where
        none waits, those that are to be applied once more."""
        for statement in self._claims:
            if rows := await self._claim(statement, limit):
                break
        claims = [Claim(str(r["tenant_id"]), r["document_id"], r["wanted_version"], r["fence"]) for r in rows]
        return sorted(claims, key=lambda claim: claim.version)

    async def _claim(self, statement: str, limit: int) -> Sequence[Any]:
        async with self._postgres.service("worker") as connection:
            if self._whole_tenants:
                await connection.execute(_ONE_BY_ONE, self._sink)
            asked = (self._sink, self._owner, CLAIM_SECONDS, limit, CONFIRM_SECONDS)
            rows: Sequence[Any] = await connection.fetch(statement, *asked)
            return rows

    async def renew(self, claims: Sequence[Claim]) -> bool:
        """Holds them for longer; False where one is no longer ours."""
        return len(await self._across_tenants(_RENEW, *self._ours(claims), CLAIM_SECONDS)) == len(claims)

    async def release(self, claims: Sequence[Claim], within_s: float = 0) -> None:
        """Gives back what was not applied, for whoever comes next, each at some moment within so many seconds."""
        await self._across_tenants(_RELEASE, *self._ours(claims), within_s, CONFIRM_SECONDS)

    async def applied(self, tenant: str, claims: Sequence[Claim]) -> int:
        """Records the claimed versions. What was written since stays dirty, as it wants a higher one. What was not
        ours any more is to be applied again, as somebody newer may have been overtaken. Returns how many those are."""
        ids = [c.document_id for c in claims]
        versions, fence = [c.version for c in claims], max(c.fence for c in claims)
        async with self._postgres.tenant(Reach(tenant), writes=True) as connection:
            await connection.execute(_LOCK, tenant, ids)
            ours = await connection.fetch(_APPLIED, tenant, self._sink, self._owner, ids, versions, fence)
            lost = sorted(set(ids) - {row["document_id"] for row in ours})
            if lost:
                await connection.execute(_AGAIN, tenant, self._sink, lost)
            await connection.execute(_BURY, tenant, ids)
            await epochs.advance(connection, tenant)
        return len(lost)

    async def refused(self, claim: Claim, error: str) -> None:
        """Sets a document aside with its error, for longer each time."""
        await self._within(claim.tenant, _REFUSED, self._sink, self._owner, claim.document_id, error)

    async def documents(self, tenant: str, ids: Sequence[str]) -> list[Document]:
        return [document_from(row) for row in await self._within(tenant, _CURRENT, list(ids))]

    async def links(self, tenant: str, ids: Sequence[str]) -> list[Edge]:
        """Every link that begins or ends at one of these documents."""
        return [Edge(*row) for row in await self._within(tenant, _TOUCHING, list(ids))]

    async def _within(self, tenant: str, statement: str, *arguments: object) -> Sequence[Any]:
        async with self._postgres.tenant(Reach(tenant), writes=True) as connection:
            rows: Sequence[Any] = await connection.fetch(statement, tenant, *arguments)
            return rows

    async def _across_tenants(self, statement: str, *arguments: object) -> Sequence[Any]:
        async with self._postgres.service("worker") as connection:
            rows: Sequence[Any] = await connection.fetch(statement, *arguments)
            return rows

    def _ours(self, claims: Sequence[Claim]) -> tuple[object, ...]:
        return self._sink, self._owner, [c.tenant for c in claims], [c.document_id for c in claims]


def claim_statements(whole_tenants: bool) -> list[str]:
    """For what is pending, and for what is to be applied once more."""
    exclusive = _FREE_TENANTS if whole_tenants else ""
    return [_CLAIM.format(**due, exclusive=exclusive) for due in (_PENDING, _UNCONFIRMED)]


def by_tenant(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    grouped: dict[str, list[Claim]] = defaultdict(list)
    for one in claims:
        grouped[one.tenant].append(one)
    return grouped


async def release_all(postgres: Postgres, sinks: Sequence[str]) -> None:
    """Frees every claim of these sinks. Only for a start at which no other worker of theirs can be alive."""
    async with postgres.service("worker") as connection:
        await connection.execute(_RELEASE_ALL, CONFIRM_SECONDS, list(sinks))


async def again(connection: Connection, tenant: str, sink: str, ids: Sequence[str]) -> None:
    """Marks documents, there or not, to be applied once more."""
    await connection.execute(_AGAIN, tenant, sink, list(ids))


async def mark_all(postgres: Postgres, sink: str) -> None:
    """Has a sink apply every document of every tenant once more."""
    async with postgres.service("worker") as connection:
        await connection.execute(_MARK_ALL, sink)


async def expected(postgres: Postgres, tenant: str, sink: str, *, vectors_given: bool) -> Expected:
    """With `vectors_given`, a document that brought no vector has none to be held."""
    async with postgres.tenant(Reach(tenant)) as connection:
        rows = await connection.fetch(_EXPECTED, tenant, sink, vectors_given and sink == "vector")
    fences = {row["id"]: row["fence"] for row in rows if row["present"] and not row["moving"]}
    return Expected(fences, {row["id"] for row in rows if row["moving"]})


async def take(postgres: Postgres, tenant: str, batch: int = 2000) -> tuple[int, int]:
    """Takes the rows of a tenant that is being deleted from the workers: how many, and how many they still hold."""
    total, taken = 0, batch
    while taken == batch:
        async with postgres.tenant(Reach(tenant), writes=True) as connection:
            taken = int((await connection.execute(_TAKE, tenant, batch)).rpartition(" ")[2])
            held: int = await connection.fetchval(_HELD, tenant)
        total += taken
    return total, held


async def backlog(postgres: Postgres, tenant: str | None = None) -> dict[str, Owed]:
    """What each sink has still to apply, of all tenants or of one. A sink that owes nothing is not named."""
    entered = postgres.service("worker") if tenant is None else postgres.tenant(Reach(tenant))
    async with entered as connection:
        rows = await connection.fetch(_BACKLOG)
    return {sink: Owed(*owed) for sink, *owed in rows}
