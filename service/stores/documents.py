"""Documents and links in PostgreSQL: all the SQL about them, each statement named, each bound to one tenant."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from service.errors import Forbidden
from service.model import Document, Edge, Facts, Filter, Hit, Neighbor, Reach
from service.ranking.typed import Typed
from service.stores import epochs
from service.stores.filters import Condition, traits_of
from service.stores.postgres import Connection, Postgres
from service.stores.words import Weighing

SINKS = ("vector", "graph")

_COLUMNS = """d.id, d.namespace, d.title, d.content, d.metadata, d.type, d.tags, d.entities, d.confidence, d.priority,
    d.created_at, d.version"""

# Held until the write is done, so that whoever deletes the tenant can wait for it.
_ACTIVE = "SELECT FROM tenants WHERE id = $1 AND state = 'active' FOR KEY SHARE"
_NAME_SPACES = """
INSERT INTO namespaces (tenant_id, name, project, language)
SELECT $1, name, coalesce(app_project(), 'default'), quote_ident($3)::regconfig FROM unnest($2::text[]) AS name
ON CONFLICT (tenant_id, name) DO NOTHING
"""
# A document whose digest is unchanged is not touched, and so not indexed again.
_UPSERT = """
INSERT INTO documents AS d (tenant_id, id, namespace, title, content, metadata, type, tags, entities, confidence,
    priority, created_at, vector, version, bytes, digest, traits)
SELECT $1, row.id, row.namespace, row.title, row.content, row.metadata, row.type, row.tags, row.entities,
    row.confidence, row.priority, moment, row.vector, nextval('document_version'), row.bytes,
    decode(row.digest, 'hex'),
    row.traits || jsonb_build_object('created', (extract(epoch FROM moment) * 1000000)::bigint)
FROM jsonb_to_recordset($2) AS row (id text, namespace text, title text, content text, metadata jsonb, type text,
    tags text[], entities text[], confidence float8, priority smallint, created_at timestamptz, vector real[],
    bytes integer, digest text, traits jsonb)
LEFT JOIN documents old ON old.tenant_id = $1 AND old.id = row.id
CROSS JOIN LATERAL coalesce(row.created_at, old.created_at, now()) AS moment
ORDER BY row.id COLLATE "C"
ON CONFLICT (tenant_id, id) DO UPDATE SET namespace = excluded.namespace, title = excluded.title,
    content = excluded.content, metadata = excluded.metadata, type = excluded.type, tags = excluded.tags,
    entities = excluded.entities, confidence = excluded.confidence, priority = excluded.priority,
    created_at = excluded.created_at, vector = excluded.vector, version = excluded.version, bytes = excluded.bytes,
    digest = excluded.digest, traits = excluded.traits
WHERE d.digest <> excluded.digest
RETURNING d.id, d.version, d.xmax = 0 AS created
"""
INDEX_WORDS = """
WITH put AS (
    INSERT INTO words (tenant_id, id, namespace, length, tsv, impacts)
    SELECT $1, d.id, d.namespace, size.length, v.tsv,
        impacts_of(v.tsv, size.length, coalesce(c.weighed_by, greatest(size.length, 1)), $3, $4, $5, $6)
    FROM documents d
    JOIN namespaces n ON n.tenant_id = $1 AND n.name = d.namespace
    LEFT JOIN corpus c ON c.tenant_id = $1
    CROSS JOIN LATERAL tagged(words_of(n.language, d.title, d.tags, d.content), tag($1)) AS v (tsv)
    CROSS JOIN LATERAL (SELECT coalesce(sum(tf), 0) AS length FROM term_counts(v.tsv, $3, $4)) AS size
    WHERE d.tenant_id = $1 AND d.id = ANY($2::text[])
    ORDER BY d.id
    ON CONFLICT (tenant_id, id) DO UPDATE SET namespace = excluded.namespace, length = excluded.length,
        tsv = excluded.tsv, impacts = excluded.impacts
    RETURNING 1
)
INSERT INTO usage AS u (tenant_id, slot, documents, bytes, changes)
SELECT $1, pg_backend_pid() % 8, 0, 0, count(*) FROM put
ON CONFLICT (tenant_id, slot) DO UPDATE SET changes = u.changes + excluded.changes
"""
_DELETE = "DELETE FROM documents WHERE tenant_id = $1 AND id = ANY($2::text[])"
_LOCK = "SELECT id FROM documents WHERE tenant_id = $1 AND id = ANY($2::text[]) ORDER BY id FOR NO KEY UPDATE"
_LOCK_SOME = """
SELECT id FROM documents WHERE tenant_id = $1 AND namespace = $2 ORDER BY id LIMIT $3 FOR NO KEY UPDATE
"""
_LOCK_LINKS = """
SELECT FROM edges WHERE tenant_id = $1 AND source = ANY($2::text[]) ORDER BY source, target, type FOR UPDATE
"""
_DROP_DECLARED = "DELETE FROM edges WHERE tenant_id = $1 AND declared AND source = ANY($2::text[])"
_DROP_LINKS = "DELETE FROM edges WHERE tenant_id = $1 AND source = ANY($2::text[])"
_ADD_EDGES = """
INSERT INTO edges (tenant_id, source, target, type, strength, declared)
SELECT $1, source, target, type, strength, $3
FROM jsonb_to_recordset($2) AS row (source text, target text, type text, strength float8)
ON CONFLICT (tenant_id, source, target, type) DO UPDATE
SET strength = excluded.strength, declared = edges.declared AND excluded.declared
"""
_DROP_EDGES = """
DELETE FROM edges e USING jsonb_to_recordset($2) AS row (source text, target text, type text)
WHERE e.tenant_id = $1 AND e.source = row.source AND e.target = row.target AND (row.type IS NULL OR e.type = row.type)
RETURNING e.source
"""
# What a document is applied for only grows: a put and a link to the same new document may commit in either order.
_MARK = """
INSERT INTO dirty AS d (tenant_id, document_id, sink, wanted_version)
SELECT $1, row.id, sink, coalesce(row.version, nextval('document_version'))
FROM unnest($2::text[], $4::bigint[]) AS row (id, version), unnest($3::text[]) AS sink
ORDER BY row.id COLLATE "C", sink
ON CONFLICT (tenant_id, document_id, sink) DO UPDATE
SET wanted_version = CASE WHEN excluded.wanted_version > d.wanted_version THEN excluded.wanted_version
                          ELSE nextval('document_version') END,
    attempts = 0, next_try = now(), error = NULL,
    wanted_since = CASE WHEN d.applied_version < d.wanted_version THEN d.wanted_since ELSE now() END
"""
_PENDING = """
SELECT count(*) FROM dirty
WHERE tenant_id = $1 AND document_id = ANY($2::text[]) AND applied_version < least(wanted_version, $3)
"""
_WORDLESS = """
SELECT t.documents, m.id FROM (SELECT count(*) AS documents FROM documents WHERE tenant_id = $1) AS t
LEFT JOIN (SELECT d.id FROM documents d LEFT JOIN words w ON w.tenant_id = $1 AND w.id = d.id
           WHERE d.tenant_id = $1 AND w.id IS NULL) AS m ON true
"""
_IDS = "SELECT id FROM documents WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3"
_BATCH = 500
_VERSIONS = "SELECT id, version FROM documents WHERE tenant_id = $1 AND id = ANY($2::text[])"
_LAST_VERSION = "SELECT last_value FROM document_version"
_NEXT_VERSION = "SELECT nextval('document_version')"
_STATUS = """
SELECT sink, wanted_version AS wanted, applied_version AS applied, error, next_try FROM dirty
WHERE tenant_id = $1 AND document_id = $2
    AND ($3 OR EXISTS (SELECT FROM documents d WHERE d.tenant_id = $1 AND d.id = $2))
"""
_PENDING_SINCE = """
SELECT EXISTS (SELECT FROM dirty WHERE sink = ANY($2::text[]) AND wanted_version > $3 AND wanted_version <= $4
    AND applied_version < wanted_version AND tenant_id = $1)
"""
_GET = f"SELECT {_COLUMNS} FROM documents d WHERE tenant_id = $1 AND id = $2"  # noqa: S608
_LINKS = "SELECT target, type, strength FROM edges WHERE tenant_id = $1 AND source = $2 ORDER BY target, type LIMIT $3"
_FETCH = "SELECT * FROM documents_by_id($1, $2, $3, $4, $5)"
_MAXIMUM = "SELECT query_maximum($1, $2, $3)"
_FACTS = "SELECT * FROM facts_by_id($1, $2, $3, $4, $5, $6)"
_NAMESPACES = """
SELECT n.name FROM namespaces n
WHERE n.tenant_id = $1 AND ($2::text[] IS NULL OR n.name = ANY($2::text[]))
    AND EXISTS (SELECT FROM documents d WHERE d.tenant_id = $1 AND d.namespace = n.name)
ORDER BY n.name
"""
_COUNTS = "SELECT namespace, count(*) AS documents FROM documents WHERE tenant_id = $1 GROUP BY 1 ORDER BY 1"
_NEIGHBORS = """
SELECT n.id, n.namespace, n.title, e.type, e.strength, e.direction
FROM (SELECT target AS id, type, strength, 'out' AS direction FROM edges WHERE tenant_id = $1 AND source = $2
      UNION ALL
      SELECT source, type, strength, 'in' FROM edges WHERE tenant_id = $1 AND target = $2) AS e
JOIN documents n ON n.tenant_id = $1 AND n.id = e.id
WHERE n.id <> $2
ORDER BY e.strength DESC, n.id, e.type, e.direction LIMIT $3
"""
_MATCH = "SELECT id, score FROM documents_by_word($1, $2, $3, $4, $5, $6::text::jsonpath, $7, $8, $9, $10)"
_PAGE = f"""
SELECT {_COLUMNS} FROM documents d
WHERE d.tenant_id = $1 AND d.id > $2 AND ($3::text[] IS NULL OR d.namespace = ANY($3::text[]))
    AND ($4::text IS NULL OR jsonb_path_match(d.traits, $4::text::jsonpath, $5))
ORDER BY d.id LIMIT $6
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one document in a write, and the version it has since."""

    id: str
    version: int
    created: bool = False
    changed: bool = True


class TenantDocuments:
    """One tenant's documents. There is no way to name another tenant from here.

    Whoever writes locks the documents first, then their links, then dirty rows, each in order of the key, and the
    tenant's epoch last: writers may wait for each other, but never in a circle.
    """

    def __init__(self, postgres: Postgres, reach: Reach, weighing: Weighing = Weighing()) -> None:  # noqa: B008
        self._postgres = postgres
        self._weighing = weighing
        self._reach = reach
        self._tenant = reach.tenant

    async def put(self, documents: Sequence[tuple[Document, Sequence[Edge] | None]]) -> list[Written]:
        """Writes documents with their links, and marks what changed as dirty, in one transaction."""
        rows = [_row(document, links) for document, links in sorted(documents, key=lambda pair: pair[0].id)]
        async with self._writing() as connection:
            names = sorted({d.namespace for d, _ in documents})
            await connection.execute(_NAME_SPACES, self._tenant, names, self._weighing.language)
            changed = {r["id"]: r for r in await connection.fetch(_UPSERT, self._tenant, rows)}
            await connection.execute(INDEX_WORDS, self._tenant, sorted(changed), *self._weighing.numbers)
            relinked = [(d, links) for d, links in documents if links is not None and d.id in changed]
            await self._relink(connection, relinked)
            await self._mark(connection, sorted(changed), SINKS, [changed[id]["version"] for id in sorted(changed)])
            same = await self._versions(connection, [d.id for d, _ in documents if d.id not in changed])
        return [
            Written(d.id, changed[d.id]["version"], changed[d.id]["created"])
            if d.id in changed
            else Written(d.id, same[d.id], changed=False)
            for d, _ in documents
        ]

    async def without_words(self) -> tuple[int, list[str]]:
        """How many documents there are, and which of them the keyword tier cannot find."""
        rows = await self._fetch(_WORDLESS)
        return rows[0]["documents"], [row["id"] for row in rows if row["id"] is not None]

    async def index_words(self, ids: Sequence[str]) -> None:
        """Makes the words of these documents anew, in batches, so that writers wait for moments only."""
        for start in range(0, len(ids), _BATCH):
            async with self._writing() as connection:
                some = sorted(ids[start : start + _BATCH])
                held = [row["id"] for row in await connection.fetch(_LOCK, self._tenant, some)]
                await connection.execute(INDEX_WORDS, self._tenant, held, *self._weighing.numbers)

    async def ids(self, after: str, limit: int) -> list[str]:
        return [row["id"] for row in await self._fetch(_IDS, after, limit)]

    async def delete(self, id: str) -> int | None:
        """Deletes a document and the links it holds; its dirty rows become tombstones. Returns their version."""
        async with self._writing() as connection:
            if await connection.fetchval(_LOCK, self._tenant, [id]) is None:
                return None
            version: int = await connection.fetchval(_NEXT_VERSION)
            await self._delete(connection, [id], [version])
        return version

    async def delete_some(self, namespace: str, limit: int) -> int:
        """Deletes up to so many documents of a namespace."""
        async with self._postgres.tenant(self._reach, writes=True) as connection:
            ids = [row["id"] for row in await connection.fetch(_LOCK_SOME, self._tenant, namespace, limit)]
            await self._delete(connection, ids)
            await epochs.advance(connection, self._tenant)
        return len(ids)

    async def add_edges(self, edges: Sequence[Edge]) -> None:
        async with self._writing() as connection:
            await connection.execute(_LOCK, self._tenant, [edge.source for edge in edges])
            await connection.execute(_ADD_EDGES, self._tenant, _edge_rows(edges), False)
            await self._mark(connection, sorted({edge.source for edge in edges}), ("graph",))

    async def delete_edges(self, edges: Sequence[Mapping[str, str | None]]) -> int:
        async with self._writing() as connection:
            sources = [edge["source"] for edge in edges]
            await connection.execute(_LOCK, self._tenant, sources)
            await connection.execute(_LOCK_LINKS, self._tenant, sources)
            gone = await connection.fetch(_DROP_EDGES, self._tenant, list(edges))
            await self._mark(connection, sorted({row["source"] for row in gone}), ("graph",))
        return len(gone)

    async def pending(self, ids: Sequence[str], upto: int = 2**62) -> int:
        """How many (document, sink) pairs of these have still to be applied, up to some version."""
        return int((await self._fetch(_PENDING, list(ids), upto))[0][0])

    async def status(self, id: str) -> dict[str, dict[str, Any]]:
        """What each sink has still to do for a document, or for one that was deleted. Empty where neither is known,
        to this caller: whether a deleted one was within its reach nobody can say."""
        whole = self._reach.project is None and self._reach.namespaces is None
        rows = await self._fetch(_STATUS, id, whole)
        return {row["sink"]: {name: row[name] for name in ("wanted", "applied", "error", "next_try")} for row in rows}

    async def last_version(self) -> int:
        """Every write from here on has a higher one."""
        async with self._postgres.connection() as connection:
            return int(await connection.fetchval(_LAST_VERSION))

    async def pending_between(self, first: int, last: int) -> bool:
        """Whether something this tenant wrote between two moments has still to be applied."""
        return bool((await self._fetch(_PENDING_SINCE, list(SINKS), first, last))[0][0])

    async def get(self, id: str) -> Document | None:
        return next((document_from(row) for row in await self._fetch(_GET, id)), None)

    async def links(self, id: str, limit: int) -> list[Edge]:
        rows = await self._fetch(_LINKS, id, limit)
        return [Edge(id, row["target"], row["type"], row["strength"]) for row in rows]

    async def fetch(self, ids: Sequence[str], namespaces: Sequence[str] | None) -> dict[str, Document]:
        """The documents behind these ids that stand in these namespaces, or in any; others vanish."""
        names = None if self._reach.namespaces is None else list(self._reach.namespaces)
        wanted = (list(ids), None if namespaces is None else list(namespaces))
        rows = await self._postgres.fetch(_FETCH, self._tenant, self._reach.project, names, *wanted)
        return {row["id"]: document_from(row) for row in rows}

    async def facts(
        self, ids: Sequence[str], namespaces: Sequence[str] | None, grouping: Sequence[str] | None = None
    ) -> dict[str, Facts]:
        """What is known of these documents without their content; `grouping` is a path into their metadata."""
        names = None if self._reach.namespaces is None else list(self._reach.namespaces)
        wanted = (list(ids), None if namespaces is None else list(namespaces), grouping and list(grouping))
        rows = await self._postgres.fetch(_FACTS, self._tenant, self._reach.project, names, *wanted)
        return {row[0]: Facts(*row[1:]) for row in rows}

    async def query_maximum(self, words: str, namespaces: Sequence[str] | None) -> float | None:
        """The highest BM25 that any document could reach for these words."""
        row = await self._postgres.fetchrow(
            _MAXIMUM, self._tenant, words, None if namespaces is None else list(namespaces)
        )
        most: float | None = row[0]
        return most

    async def page(self, namespaces: Sequence[str] | None, filter: Filter, after: str, limit: int) -> list[Document]:
        """A page in order of id, starting behind `after`."""
        only, condition = None if namespaces is None else list(namespaces), Condition(filter)
        rows = await self._fetch(_PAGE, after, only, condition.path, condition.operands, limit)
        return [document_from(row) for row in rows]

    async def namespaces(self, among: Sequence[str] | None = None) -> list[str]:
        """The namespaces that hold documents, of these or of all."""
        return [row["name"] for row in await self._fetch(_NAMESPACES, None if among is None else list(among))]

    async def namespace_counts(self) -> dict[str, int]:
        return dict(await self._fetch(_COUNTS))

    async def neighbors(self, id: str, limit: int) -> list[Neighbor]:
        return [Neighbor(*row) for row in await self._fetch(_NEIGHBORS, id, limit)]

    async def match(  # noqa: PLR0913 - a search has this many sides
        self, typed: Typed, namespaces: Sequence[str] | None, filter: Filter, limit: int, *, bound: int, ranker: str
    ) -> list[Hit]:
        """The keyword tier's question, in one round trip. Namespaces are not narrowed here, but given."""
        condition = Condition(filter)
        words = (typed.as_json(), typed.plain, typed.words)
        place = None if namespaces is None else list(namespaces)
        asked = (place, condition.path, condition.operands, limit, bound, ranker)
        rows = await self._postgres.fetch(_MATCH, self._tenant, *words, *asked)
        return [Hit(row["id"], row["score"]) for row in rows]

    async def _fetch(self, statement: str, *arguments: object) -> Sequence[Any]:
        async with self._postgres.tenant(self._reach) as connection:
            rows: Sequence[Any] = await connection.fetch(statement, self._tenant, *arguments)
            return rows

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Connection]:
        """A transaction that writes. The key was looked at seconds ago, or longer where a body streams in."""
        async with self._postgres.tenant(self._reach, writes=True) as connection:
            if await connection.fetchrow(_ACTIVE, self._tenant) is None:
                raise Forbidden("this tenant is suspended or deleted")
            yield connection
            await epochs.advance(connection, self._tenant)

    async def _versions(self, connection: Connection, ids: Sequence[str]) -> dict[str, int]:
        return dict(await connection.fetch(_VERSIONS, self._tenant, list(ids))) if ids else {}

    async def _delete(self, connection: Connection, ids: Sequence[str], versions: Sequence[int] = ()) -> None:
        await connection.execute(_LOCK_LINKS, self._tenant, ids)
        await connection.execute(_DROP_LINKS, self._tenant, ids)
        await connection.execute(_DELETE, self._tenant, ids)
        await self._mark(connection, ids, SINKS, versions)

    async def _relink(self, connection: Connection, linked: Sequence[tuple[Document, Sequence[Edge] | None]]) -> None:
        sources = [document.id for document, _ in linked]
        await connection.execute(_LOCK_LINKS, self._tenant, sources)
        await connection.execute(_DROP_DECLARED, self._tenant, sources)
        await connection.execute(
            _ADD_EDGES, self._tenant, _edge_rows([e for _, edges in linked for e in edges or ()]), True
        )

    async def _mark(
        self,
        connection: Connection,
        ids: Sequence[str],
        sinks: Sequence[str],
        versions: Sequence[int] = (),
    ) -> None:
        """Makes these dirty, under these versions or, where none are given, under new ones."""
        if ids:
            given: Sequence[int | None] = versions or [None for _ in ids]
            await connection.execute(_MARK, self._tenant, list(ids), list(sinks), given)


def document_from(row: Any) -> Document:
    values = dict(row)
    values["tags"], values["entities"] = tuple(values["tags"]), tuple(values["entities"])
    if values.get("vector") is not None:
        values["vector"] = tuple(values["vector"])
    return Document(**values)


def _edge_rows(edges: Sequence[Edge]) -> list[dict[str, object]]:
    """Sorted, so that two writers lock rows in one order; the last of equal edges wins."""
    unique = {(e.source, e.target, e.type): e for e in edges}
    return [
        {"source": e.source, "target": e.target, "type": e.type, "strength": e.strength}
        for _, e in sorted(unique.items())
    ]


def _row(document: Document, links: Sequence[Edge] | None) -> dict[str, object]:
    body: dict[str, object] = {
        "id": document.id,
        "namespace": document.namespace,
        "title": document.title,
        "content": document.content,
        "metadata": dict(document.metadata),
        "type": document.type,
        "tags": list(document.tags),
        "entities": list(document.entities),
        "confidence": document.confidence,
        "priority": document.priority,
        "created_at": document.created_at,
        "vector": None if document.vector is None else list(document.vector),
    }
    metadata = orjson.dumps(body["metadata"])
    signature = [body, None if links is None else _edge_rows(links)]
    digest = hashlib.sha256(orjson.dumps(signature, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return body | {
        "digest": digest,
        "traits": traits_of(document),
        "bytes": sum(len(text.encode()) for text in (document.title, document.content)) + len(metadata),
    }
