"""FalkorDB: the graphs of all tenants, one each, over one pool of connections. A search is one round trip.

What is said to the engine is made in `cypher` (writing, parameters, filters) and in `walk` (the search).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from falkordb.asyncio.graph import AsyncGraph
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from service.errors import TierInvalid, TierUnavailable
from service.model import Document, Edge, Filter, Held, Hit
from service.stores import cypher, walk

_CONNECT_SECONDS = 0.5
_PAGE = 2000
_WRITE_MS = 30_000
_SLACK_SECONDS = 0.25
_INDEX_SECONDS = 0.001
_BUSY = ("timed out", "pending queries", "timeout")
_NO_GRAPH = "empty key"
_NO_MODULE = "unknown command"
# uvloop says RuntimeError, where asyncio says ConnectionError, of a connection that the server has closed.
_LOST = (RedisConnectionError, RuntimeError)


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

    async def apply(self, tenant: str, nodes: Sequence[tuple[Document, Sequence[Edge]]], fence: int = 0) -> None:
        """Make the graph hold these documents, with exactly these entities and links. Safe to repeat. A document that
        was written under a higher fence is left alone.

        A search in the meantime finds what it found before, or what it will find after, never less than both.
        """
        latest = {document.id: (document, edges) for document, edges in nodes}
        if not latest:
            return
        documents = [document for document, _ in latest.values()]
        ids, mark = list(latest), {"stamp": _stamp(), "fence": fence}
        await self._ensure_indexes(tenant)
        rows = [cypher.document_row(document) for document in documents]
        await self._write(tenant, cypher.PUT_DOCUMENTS, rows=rows, fence=fence)
        cut = await self._write(tenant, cypher.REPLACE_ABOUT, rows=cypher.about_rows(documents), ids=ids, **mark)
        await self._write(tenant, cypher.REPLACE_LINKS, rows=cypher.link_rows(latest), ids=ids, **mark)
        await self._drop_orphans(tenant, cut)

    async def delete(self, tenant: str, ids: Sequence[str], fence: int = 0) -> None:
        """Forget these documents, their links, and the entities that no other document is about. A document that was
        written under a higher fence stays."""
        if not ids or not await self.exists(tenant):
            return
        cut = await self._write(tenant, cypher.DELETE_DOCUMENTS, ids=list(ids), fence=fence)
        await self._drop_orphans(tenant, cut)

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
        rows = await self._read(tenant, cypher.COUNT, {}, self._timeout_ms)
        return int(rows[0][0]) if rows else 0

    async def everything(self, tenant: str) -> AsyncIterator[Held]:
        """All that is held of a tenant, in pages. The engine's own ids tell nodes of one id apart."""
        after = -1
        while page := await self._read(tenant, cypher.EVERYTHING, {"after": after, "limit": _PAGE}, _WRITE_MS):
            for number, id, version, fence in page:
                yield Held(id, version, fence)
                after = number

    async def search(  # noqa: PLR0913 - a search has this many sides
        self,
        tenant: str,
        words: Sequence[str],
        namespaces: Sequence[str] | None,
        filter: Filter,
        limit: int,
        *,
        hops: int = 2,
        fan_out: int = 50,
        timeout_ms: int | None = None,
    ) -> list[Hit]:
        """The documents best connected to what `words` (of `names.words`) name: best first; of equal ones the
        nearer first, then by id. `walk` says how, and what bounds it."""
        if not words or (namespaces is not None and not namespaces) or limit < 1:
            return []
        text, params = walk.search_query(words, namespaces, filter, limit, hops=hops, fan_out=fan_out)
        rows = await self._read(tenant, text, params, timeout_ms or self._timeout_ms)
        return walk.read_hits(rows)

    async def _ensure_indexes(self, tenant: str) -> None:
        """Asked before every batch, not remembered: the engine may have lost its data since the last one."""
        with _translated():
            async with asyncio.timeout(_WRITE_MS / 1000):
                while missing := cypher.INDEXES.keys() - await self._ready_indexes(tenant):
                    for index in missing:
                        await self._create_index(tenant, cypher.INDEXES[index])
                    await asyncio.sleep(_INDEX_SECONDS)

    async def _ready_indexes(self, tenant: str) -> set[tuple[str, str, str]]:
        rows = await self._read(tenant, cypher.LIST_INDEXES, {}, self._timeout_ms)
        return {(label, field, kind) for label, types in rows for field, kinds in types.items() for kind in kinds}

    async def _create_index(self, tenant: str, statement: str) -> None:
        with _translated():
            try:
                await self._graph(tenant).query(statement, timeout=_WRITE_MS)
            except ResponseError as error:
                if "already indexed" not in str(error):
                    raise

    async def _drop_orphans(self, tenant: str, cut: Sequence[Sequence[Any]]) -> None:
        """Forget those of the entities in `cut`, rows with a list of keys, that nothing is about any more."""
        keys = sorted({key for row in cut for key in row[0]})
        if keys:
            await self._write(tenant, cypher.DROP_ORPHANS, keys=keys)

    async def exists(self, tenant: str) -> bool:
        """Whether the engine has a graph for the tenant, be it empty."""
        with _translated():
            return bool(await self._redis.exists(_name(tenant)))

    async def _write(self, tenant: str, statement: str, **params: Any) -> list[list[Any]]:
        checked = cypher.safe_params(params)
        with _translated():
            answer = await self._graph(tenant).query(statement, checked, timeout=_WRITE_MS)
            return list(answer.result_set)

    async def _read(self, tenant: str, text: str, params: Mapping[str, Any], timeout_ms: int) -> list[list[Any]]:
        """Ask one question; a tenant without a graph knows nothing."""
        checked = cypher.safe_params(params)
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


def _stamp() -> int:
    """A number that no other apply has: it tells the edges of this one from those to cut."""
    return uuid4().int >> 66


def _name(tenant: str) -> str:
    return f"braid:{cypher.safe_text(tenant)}"


def _pool(url: str, password: str | None, timeout_ms: int, max_connections: int) -> BlockingConnectionPool:
    """Connections that give up soon, and try once more where the server closed an idle one."""
    options: dict[str, Any] = {} if password is None else {"password": password}
    return BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_ms / 1000,
        socket_connect_timeout=_CONNECT_SECONDS,
        socket_timeout=_WRITE_MS / 1000 + _SLACK_SECONDS,
        retry=Retry(NoBackoff(), 1, supported_errors=_LOST),  # type: ignore[arg-type]
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
    except (*_LOST, OSError) as error:
        raise TierUnavailable("FalkorDB cannot be reached") from error
    except ResponseError as error:
        raise _refusal(str(error)) from error
    except (RedisError, ValueError, TypeError, LookupError) as error:
        raise TierInvalid(f"FalkorDB's answer cannot be read: {type(error).__name__}") from error


def _refusal(message: str) -> TierUnavailable | TierInvalid:
    if _NO_MODULE in message.lower():
        return TierUnavailable("this Redis has no graph module: it is no FalkorDB")
    if any(sign in message.lower() for sign in _BUSY):
        return TierUnavailable(f"FalkorDB gave up: {message[:100]}")
    return TierInvalid(f"FalkorDB refused: {message[:200]}")
