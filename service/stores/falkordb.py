"""FalkorDB: every line of Cypher that Braid knows. One graph a tenant, one round trip a search.

    (:Document {id, namespace, title, words, tokens, facets, number_paths, number_values, created, version})
    (:Entity {key, name, words, tokens})
    (:Document)-[:ABOUT {type: 'about', strength: 1.0}]->(:Entity)
    (:Document)-[:LINK {type, strength}]->(:Document)

What callers write is always a parameter, never a part of a query: a link's type is a property. The client pastes
parameters into the query text, so `safe_params` refuses what would not survive that.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from falkordb.asyncio.graph import AsyncGraph
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.errors import TierInvalid, TierUnavailable
from service.facets import facets_of, numbers_of
from service.model import Document, Edge, Filter, Hit, NumberRange, Step
from service.ranking.names import words as words_of

STARTS = 10
"""Entities, and documents, that a walk starts from."""
CANDIDATES = 1000
"""Names, those with the rarest words of the query first, whose coverage is looked at: common words match too many."""
BEAM = 200
"""Nodes that a walk goes on from after each hop."""
MIN_COVERAGE = 0.5
"""The share of a name's words that the query must hold for the name to be named."""

_CONNECT_SECONDS = 0.5
_WRITE_MS = 30_000
_SLACK_SECONDS = 0.25
_BUSY = ("timed out", "pending queries", "timeout")
_NO_GRAPH = "empty key"
_ANYTHING = "true"
_OPERATORS = (("gte", ">="), ("gt", ">"), ("lte", "<="), ("lt", "<"))

_INDEXES = {
    ("Document", "id", "RANGE"): "CREATE INDEX FOR (d:Document) ON (d.id)",
    ("Entity", "key", "RANGE"): "CREATE INDEX FOR (e:Entity) ON (e.key)",
    ("Document", "words", "FULLTEXT"): (
        "CALL db.idx.fulltext.createNodeIndex({label: 'Document', stopwords: []}, {field: 'words', nostem: true})"
    ),
    ("Entity", "words", "FULLTEXT"): (
        "CALL db.idx.fulltext.createNodeIndex({label: 'Entity', stopwords: []}, {field: 'words', nostem: true})"
    ),
}
_LIST_INDEXES = "CALL db.indexes() YIELD label, types RETURN label, types"

_PUT_DOCUMENTS = """
UNWIND $rows AS row
MERGE (d:Document {id: row.id})
SET d.namespace = row.namespace, d.title = row.title, d.words = row.words, d.tokens = row.tokens,
    d.facets = row.facets, d.number_paths = row.number_paths, d.number_values = row.number_values,
    d.created = row.created, d.version = row.version
"""
_CUT_ENTITIES = """
UNWIND $ids AS id
MATCH (d:Document {id: id})-[r:ABOUT]->(e:Entity)
DELETE r
RETURN collect(DISTINCT e.key)
"""
_CUT_LINKS = """
UNWIND $ids AS id
MATCH (d:Document {id: id})-[r:LINK]-(:Document)
DELETE r
"""
_PUT_ENTITIES = """
UNWIND $rows AS row
MERGE (e:Entity {key: row.key})
ON CREATE SET e.name = row.name, e.words = row.key, e.tokens = row.tokens
"""
_PUT_ABOUT = """
UNWIND $rows AS row
MATCH (d:Document {id: row.id})
MATCH (e:Entity {key: row.key})
CREATE (d)-[:ABOUT {type: 'about', strength: 1.0}]->(e)
"""
_PUT_LINKS = """
UNWIND $rows AS row
MATCH (a:Document {id: row.source})
MATCH (b:Document {id: row.target})
MERGE (a)-[r:LINK {type: row.type}]->(b)
SET r.strength = row.strength
"""
_DROP_ORPHANS = """
UNWIND $keys AS key
MATCH (e:Entity {key: key})
WHERE NOT (e)<-[:ABOUT]-()
DELETE e
"""
_DELETE = """
UNWIND $ids AS id
MATCH (d:Document {id: id})
DETACH DELETE d
"""
_COUNT = "MATCH (d:Document) RETURN count(d)"

_START = """
CALL {{
  CALL db.idx.fulltext.queryNodes('{label}', $named) YIELD node, score AS rarity
  WITH node, rarity{bound}
  WITH node, rarity ORDER BY rarity DESC, node.{key} LIMIT $candidates
  WITH node, 1.0 * size([w IN node.tokens WHERE w IN $words]) / size(node.tokens) AS score
  WHERE score >= $coverage
  WITH node, score ORDER BY score DESC, size(node.tokens) DESC, node.{key} LIMIT $starts
  RETURN collect({{node: node, score: score, last: -1, id: node.{key}, vias: ['names'], tos: [node.{label_of}],
                   strengths: [score]}}) AS {out}
}}
"""
# `-[r]-` and not `-[r:ABOUT|LINK]-`: there are no other types, and naming them takes twice as long.
_HOP = """
CALL {{
  WITH {source}
  UNWIND {source}[0..$beam] AS at
  CALL {{
    WITH at
    WITH at.node AS n, at.last AS last
    MATCH (n)-[r]-(d)
    WHERE {reach} AND ID(r) <> last
    RETURN r, d{rank}
    ORDER BY {first}r.strength DESC, d.id, d.key, r.type LIMIT $fan_out
  }}
  WITH at, r, d{carry}, at.score * r.strength AS score
  ORDER BY score DESC, at.tos, r.type
  WITH d{carry}, coalesce(d.id, d.key) AS id, collect({{at: at, r: r, score: score}})[0] AS best
  ORDER BY {first}best.score DESC, id LIMIT $keep
  RETURN collect({{node: d, score: best.score, last: ID(best.r), id: id, vias: best.at.vias + [best.r.type],
                   tos: best.at.tos + [coalesce(d.name, d.id)],
                   strengths: best.at.strengths + [best.r.strength]}}) AS {out}
}}
"""
_FINISH = """
UNWIND {found} AS hit
WITH hit, hit.node AS d
WHERE d.namespace IS NOT NULL AND {wanted}
WITH hit ORDER BY hit.score DESC, size(hit.tos), hit.tos, hit.vias
WITH hit.id AS id, collect(hit)[0] AS best
RETURN id, best.score, best.vias, best.tos, best.strengths
ORDER BY best.score DESC, id LIMIT $limit
"""


class GraphStore:
    """The graphs of all tenants, over one pool of connections. Nothing is asked of the engine before it is used."""

    def __init__(self, url: str, *, password: str | None, timeout_ms: int = 1000, max_connections: int = 16) -> None:
        self._timeout_ms = timeout_ms
        self._redis = Redis(connection_pool=_pool(url, password, timeout_ms, max_connections))

    async def ping(self) -> None:
        """Raises `TierUnavailable` where the engine does not answer, or answers without the graph module."""
        with _translated():
            async with asyncio.timeout(self._timeout_ms / 1000 + _SLACK_SECONDS):
                await self._redis.execute_command("GRAPH.LIST")  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)

    async def apply(self, tenant: str, nodes: Sequence[tuple[Document, Sequence[Edge]]]) -> None:
        """Make the graph hold these documents, with exactly these entities and links. Safe to repeat."""
        latest = {document.id: (document, edges) for document, edges in nodes}
        if not latest:
            return
        documents = [document for document, _ in latest.values()]
        about, entities = _about_rows(documents)
        await self._ensure_indexes(tenant)
        await self._write(tenant, _PUT_DOCUMENTS, rows=[_document_row(document) for document in documents])
        touched = await self._cut_entities(tenant, list(latest))
        await self._write(tenant, _CUT_LINKS, ids=list(latest))
        await self._write(tenant, _PUT_ENTITIES, rows=list(entities.values()))
        await self._write(tenant, _PUT_ABOUT, rows=about)
        await self._write(tenant, _PUT_LINKS, rows=_link_rows(latest))
        await self._write(tenant, _DROP_ORPHANS, keys=sorted(touched - entities.keys()))

    async def delete(self, tenant: str, ids: Sequence[str]) -> None:
        """Forget these documents, their links, and the entities that no other document is about."""
        if not ids or not await self._exists(tenant):
            return
        touched = await self._cut_entities(tenant, list(ids))
        await self._write(tenant, _DELETE, ids=list(ids))
        await self._write(tenant, _DROP_ORPHANS, keys=sorted(touched))

    async def drop(self, tenant: str) -> None:
        """Forget everything about a tenant."""
        with _translated():
            try:
                await self._graph(tenant).delete()
            except ResponseError as error:
                if _NO_GRAPH not in str(error):
                    raise

    async def count(self, tenant: str) -> int:
        """How many documents the tenant's graph holds."""
        rows = await self._read(tenant, _COUNT, {}, self._timeout_ms)
        return int(rows[0][0]) if rows else 0

    async def search(  # noqa: PLR0913 - a search has this many sides
        self,
        tenant: str,
        words: Sequence[str],
        namespaces: Sequence[str],
        filter: Filter,
        limit: int,
        *,
        hops: int = 2,
        fan_out: int = 50,
        timeout_ms: int | None = None,
    ) -> list[Hit]:
        """The documents best connected to what `words` (of `names.words`) name: best first, ties by id."""
        if not words or not namespaces or limit < 1:
            return []
        text, params = search_query(words, namespaces, filter, limit, hops=hops, fan_out=fan_out)
        rows = await self._read(tenant, text, params, timeout_ms or self._timeout_ms)
        return [_hit(row) for row in rows]

    async def _ensure_indexes(self, tenant: str) -> None:
        """Asked before every batch, not remembered: the engine may have lost its data since the last one."""
        present = {
            (label, field, kind)
            for label, types in await self._read(tenant, _LIST_INDEXES, {}, self._timeout_ms)
            for field, kinds in types.items()
            for kind in kinds
        }
        for index in _INDEXES.keys() - present:
            await self._create_index(tenant, _INDEXES[index])

    async def _create_index(self, tenant: str, statement: str) -> None:
        with _translated():
            try:
                await self._graph(tenant).query(statement, timeout=_WRITE_MS)
            except ResponseError as error:
                if "already indexed" not in str(error):
                    raise

    async def _cut_entities(self, tenant: str, ids: list[str]) -> set[str]:
        """Take the documents off their entities; answers which entities those were."""
        rows = await self._write(tenant, _CUT_ENTITIES, ids=ids)
        return {key for row in rows for key in row[0]}

    async def _exists(self, tenant: str) -> bool:
        with _translated():
            return bool(await self._redis.exists(_name(tenant)))

    async def _write(self, tenant: str, statement: str, **params: list[Any]) -> list[list[Any]]:
        """Run one batch; each statement takes one list, and an empty one is nothing to do."""
        if not any(params.values()):
            return []
        checked = safe_params(params)
        with _translated():
            answer = await self._graph(tenant).query(statement, checked, timeout=_WRITE_MS)
            return list(answer.result_set)

    async def _read(self, tenant: str, text: str, params: Mapping[str, Any], timeout_ms: int) -> list[list[Any]]:
        """Ask one question; a tenant without a graph knows nothing."""
        checked = safe_params(params)
        with _translated():
            try:
                async with asyncio.timeout(timeout_ms / 1000 + _SLACK_SECONDS):
                    answer = await self._graph(tenant).ro_query(text, checked, timeout=timeout_ms)
            except ResponseError as error:
                if _NO_GRAPH in str(error):
                    return []
                raise
            return list(answer.result_set)

    def _graph(self, tenant: str) -> AsyncGraph:
        # Not through falkordb.FalkorDB: building one asks the server synchronously whether it is a cluster.
        return AsyncGraph(self._redis, _name(tenant))


def search_query(  # noqa: PLR0913 - a search has this many sides
    words: Sequence[str],
    namespaces: Sequence[str],
    filter: Filter,
    limit: int,
    *,
    hops: int,
    fan_out: int,
) -> tuple[str, dict[str, Any]]:
    """The one query of a search and its parameters. Only parameter names go into the text."""
    wanted, filter_params = filter_clause(filter)
    starts = [
        _START.format(label="Entity", key="key", label_of="name", bound="", out="e0"),
        _START.format(
            label="Document", key="id", label_of="id", bound=" WHERE node.namespace IN $namespaces", out="d0"
        ),
        "WITH e0 + d0 AS f0",
    ]
    walk = [part for hop in range(1, hops + 1) for part in _hop(hop, wanted, last=hop == hops)]
    finish = _FINISH.format(found=" + ".join(f"f{hop}" for hop in range(hops + 1)), wanted=wanted)
    params = {
        "named": "|".join(words),
        "words": list(words),
        "namespaces": list(namespaces),
        "coverage": MIN_COVERAGE,
        "candidates": CANDIDATES,
        "starts": STARTS,
        "beam": BEAM,
        "keep": max(BEAM, limit),
        "fan_out": fan_out,
        "limit": limit,
    }
    return "".join([*starts, *walk, finish]), params | filter_params


def _hop(hop: int, wanted: str, *, last: bool) -> list[str]:
    """One hop. Where edges must be cut, those to wanted documents stay; the last hop looks at nothing else."""
    parts = {"rank": "", "first": "", "carry": "", "reach": "d.namespace IN $namespaces"}
    if last:
        parts["reach"] += f" AND {wanted}"
    else:
        parts["reach"] = "(d.key IS NOT NULL OR d.namespace IN $namespaces)"
    if wanted != _ANYTHING and not last:
        rank = f", CASE WHEN d.key IS NOT NULL OR {wanted} THEN 0 ELSE 1 END AS rank"
        parts |= {"rank": rank, "first": "rank, ", "carry": ", rank"}
    carried = ", ".join(f"f{earlier}" for earlier in range(hop + 1))
    return [_HOP.format(source=f"f{hop - 1}", out=f"f{hop}", **parts), f"WITH {carried}"]


def filter_clause(filter: Filter) -> tuple[str, dict[str, Any]]:
    """The condition on a document `d`, and its parameters: $g0, $g1 ... for facets, $r0 ... for ranges."""
    clauses: list[str] = []
    params: dict[str, Any] = {}
    for number, group in enumerate(filter.any_of):
        clauses.append(f"any(f IN d.facets WHERE f IN $g{number})")
        params[f"g{number}"] = list(group)
    for number, bounds in enumerate(filter.ranges):
        clause, values = _range_clause(f"r{number}", bounds)
        clauses.append(clause)
        params |= values
    for name, operator, moment in (("after", ">=", filter.created_after), ("before", "<", filter.created_before)):
        if moment is not None:
            clauses.append(f"d.created {operator} ${name}")
            params[name] = moment.timestamp()
    return (f"({' AND '.join(clauses)})" if clauses else _ANYTHING), params


def _range_clause(name: str, bounds: NumberRange) -> tuple[str, dict[str, Any]]:
    params: dict[str, Any] = {name: bounds.path}
    tests = [f"d.number_paths[i] = ${name}"]
    for bound, operator in _OPERATORS:
        value = getattr(bounds, bound)
        if value is not None:
            tests.append(f"d.number_values[i] {operator} ${name}{bound}")
            params[f"{name}{bound}"] = float(value)
    return f"any(i IN range(0, size(coalesce(d.number_paths, [])) - 1) WHERE {' AND '.join(tests)})", params


def safe_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, once it is sure that the client's text form of them means the same. Raises `TierInvalid`."""
    return {name: _safe(value) for name, value in params.items()}


def _safe(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _safe_text(value)
    if isinstance(value, (int, float)):
        return _safe_number(value)
    if isinstance(value, Mapping):
        return safe_params(value)
    if isinstance(value, (list, tuple)):
        return [_safe(element) for element in value]
    raise TierInvalid(f"a graph parameter cannot be a {type(value).__name__}")


def _safe_text(value: str) -> str:
    if "\0" in value:
        raise TierInvalid("a graph parameter holds a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TierInvalid("a graph parameter holds half a surrogate pair") from None
    return value


def _safe_number(value: float) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise TierInvalid("a graph parameter is not a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise TierInvalid("a graph parameter is an integer of more than 64 bits")
    return value


def _document_row(document: Document) -> dict[str, Any]:
    tokens = list(dict.fromkeys(words_of(document.title)))
    numbers = [(path, value) for path, values in numbers_of(document.metadata).items() for value in values]
    return {
        "id": document.id,
        "namespace": document.namespace,
        "title": document.title,
        "words": " ".join(tokens),
        "tokens": tokens,
        "facets": list(facets_of(document)),
        "number_paths": [path for path, _ in numbers],
        "number_values": [value for _, value in numbers],
        "created": _seconds(document.created_at),
        "version": document.version,
    }


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _about_rows(documents: Iterable[Document]) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Who is about what, each pair once; and the entities by key. A name without a word in it is no entity."""
    about: dict[tuple[str, str], dict[str, Any]] = {}
    entities: dict[str, dict[str, Any]] = {}
    for document in documents:
        for name in document.entities:
            tokens = words_of(name)
            if tokens:
                key = " ".join(tokens)
                about[document.id, key] = {"id": document.id, "key": key}
                entities.setdefault(key, {"key": key, "name": name, "tokens": list(dict.fromkeys(tokens))})
    return list(about.values()), entities


def _link_rows(nodes: Mapping[str, tuple[Document, Sequence[Edge]]]) -> list[dict[str, Any]]:
    """Every link that touches one of the documents, once, whichever of its ends brought it."""
    links = {
        (edge.source, edge.target, edge.type): edge.strength
        for owner, (_, edges) in nodes.items()
        for edge in edges
        if owner in (edge.source, edge.target)
    }
    return [
        {"source": source, "target": target, "type": kind, "strength": float(strength)}
        for (source, target, kind), strength in links.items()
    ]


def _hit(row: Sequence[Any]) -> Hit:
    try:
        id_, score, vias, tos, strengths = row
        path = tuple(Step(str(via), str(to), float(by)) for via, to, by in zip(vias, tos, strengths, strict=True))
        return Hit(str(id_), float(score), path)
    except (TypeError, ValueError) as error:
        raise TierInvalid(f"FalkorDB answered with a row that is no hit: {error}") from error


def _name(tenant: str) -> str:
    return f"braid:{_safe_text(tenant)}"


def _pool(url: str, password: str | None, timeout_ms: int, max_connections: int) -> BlockingConnectionPool:
    """Connections that give up soon, and try once more where the server closed an idle one."""
    options: dict[str, Any] = {} if password is None else {"password": password}
    return BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_ms / 1000,
        socket_connect_timeout=_CONNECT_SECONDS,
        socket_timeout=_WRITE_MS / 1000 + _SLACK_SECONDS,
        retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        decode_responses=True,
        **options,
    )


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the client's errors into ours."""
    try:
        yield
    except (RedisTimeoutError, TimeoutError) as error:
        raise TierUnavailable("FalkorDB did not answer in time") from error
    except (RedisConnectionError, OSError) as error:
        raise TierUnavailable("FalkorDB cannot be reached") from error
    except ResponseError as error:
        raise _refusal(str(error)) from error
    except (RedisError, ValueError, TypeError, LookupError) as error:
        raise TierInvalid(f"FalkorDB's answer cannot be read: {type(error).__name__}") from error


def _refusal(message: str) -> TierUnavailable | TierInvalid:
    if any(sign in message.lower() for sign in _BUSY):
        return TierUnavailable(f"FalkorDB gave up: {message[:100]}")
    return TierInvalid(f"FalkorDB refused: {message[:200]}")
