"""Vectors in Qdrant's own engine, inside this process: one shard, and one folder, for each tenant.

The engine's calls release the GIL, and run on threads of their own. Its `optimize()` holds the GIL for minutes and
is never called: a shard answers by an exact scan instead.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import qdrant_edge as edge

from service.errors import BraidError, SetupError, TierInvalid, TierUnavailable
from service.model import Document, Filter, Held, Hit
from service.stores.qdrant import (
    CLOSED,
    HELD,
    Dialect,
    Point,
    checked,
    compile_filter,
    matches_nothing,
    not_newer,
    other_model,
    payload_of,
    point_id,
    tenant_id,
    to_held,
    to_hits,
)

T = TypeVar("T")
Shard = Any  # edge.EdgeShard, which is outside our type checking

EDGE = Dialect(
    edge.Filter, edge.FieldCondition, edge.MatchAny, edge.RangeFloat, edge.RangeDateTime, edge.HasIdCondition
)

_THREADS = 4
_PAGE = 2000
_EMPTY: tuple[list[Any], Any] = ([], None)
_DROPPED = ".dropped-"
_BROKEN = "Service runtime error"
_INDEXES = {
    "namespace": edge.PayloadSchemaType.Keyword,
    "facets": edge.PayloadSchemaType.Keyword,
    "created_at": edge.PayloadSchemaType.Datetime,
}


class EdgeVectorStore:
    """A folder of shards, each opened when it is first asked for."""

    def __init__(self, folder: Path, dimension: int, model: str = "") -> None:
        self._folder = folder
        self._model = model
        self._dimension = dimension
        self._shards: dict[str, Shard] = {}
        self._closed: set[str] = set()
        self._opening = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        """Make the store ready, and open again what was closed."""
        async with self._opening:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="qdrant-edge")
            await self._run(lambda: _prepare_folder(self._folder, self._dimension, self._model))
            self._closed.clear()

    async def renew(self) -> None:
        """All in one rename: a crash on the way leaves the old index, or none."""
        await asyncio.to_thread(_remove, self._folder)

    async def close(self) -> None:
        async with self._opening:
            if self._threads is None:
                return
            for name in list(self._shards):
                await self._release(name)
            threads, self._threads = self._threads, None
            await asyncio.to_thread(threads.shutdown)

    async def close_shard(self, tenant: str) -> None:
        """Take one tenant's shard away until `open` is called again."""
        async with self._opening:
            name = tenant_id(tenant).hex
            self._closed.add(name)
            await self._release(name)

    async def ping(self) -> None:
        await self._run((self._folder / "meta.json").read_bytes)
        if self._closed:
            raise TierUnavailable(f"{CLOSED} for {len(self._closed)} tenants")
        for name, shard in list(self._shards.items()):
            await self._ask(name, shard, lambda shard: shard.info())

    async def search(
        self,
        tenant: str,
        vector: Sequence[float],
        namespaces: Sequence[str] | None,
        filter: Filter,
        limit: int,
    ) -> list[Hit]:
        wanted = checked(vector, self._dimension)
        if matches_nothing(namespaces, filter):
            return []

        def query(shard: Shard) -> list[Hit]:
            conditions = compile_filter(EDGE, namespaces, filter)
            nearest = edge.Query.Nearest(wanted)
            request = edge.QueryRequest(limit=limit, query=nearest, filter=conditions, with_payload=["id"])
            return to_hits(shard.query(request))

        return await self._with_existing(tenant, query, [])

    async def upsert(self, tenant: str, points: Sequence[Point], fence: int = 0) -> None:
        """Points are checked before the shard is made: a refused write leaves nothing behind."""
        name = tenant_id(tenant).hex
        batch = await self._run(lambda: [self._point(tenant, fence, *each) for each in points])
        if batch:
            write = edge.UpdateOperation.upsert_points(batch, condition=not_newer(EDGE, fence))
            await self._ask(name, await self._shard(name, create=True), lambda shard: shard.update(write))

    async def delete(self, tenant: str, ids: Sequence[str], fence: int = 0) -> None:
        points = [point_id(tenant, each) for each in ids]
        remove = edge.UpdateOperation.delete_points_by_filter(not_newer(EDGE, fence, points))
        await self._with_existing(tenant, lambda shard: shard.update(remove), None)

    async def drop(self, tenant: str) -> None:
        """The folder is renamed first: a crash half-way leaves rubbish to clear, never half a shard."""
        name = tenant_id(tenant).hex
        async with self._opening:
            await self._release(name)
            await self._run(lambda: _remove(self._folder / name))

    async def count(self, tenant: str) -> int:
        exact = edge.CountRequest(exact=True)
        return await self._with_existing(tenant, lambda shard: int(shard.count(exact)), 0)

    async def everything(self, tenant: str) -> AsyncIterator[Held]:
        offset: Any = None
        while True:
            request = edge.ScrollRequest(offset=offset, limit=_PAGE, with_payload=HELD)
            page, offset = await self._with_existing(tenant, partial(_scroll, request), _EMPTY)
            for record in page:
                yield to_held(record.payload)
            if offset is None:
                return

    def _point(self, tenant: str, fence: int, document: Document, vector: Sequence[float]) -> edge.Point:
        values = checked(vector, self._dimension)
        return edge.Point(point_id(tenant, document.id), values, payload_of(document, fence))

    async def _with_existing(self, tenant: str, work: Callable[[Shard], T], otherwise: T) -> T:
        """Ask a tenant's shard; a tenant that never wrote has none, and gets none by being asked about."""
        name = tenant_id(tenant).hex
        shard = await self._shard(name, create=False)
        return otherwise if shard is None else await self._ask(name, shard, work)

    async def _shard(self, name: str, *, create: bool) -> Shard | None:
        if self._threads is None:
            raise TierUnavailable(CLOSED)
        if name in self._closed:
            raise TierUnavailable(f"{CLOSED} for this tenant")
        if name in self._shards:
            return self._shards[name]
        async with self._opening:
            if name not in self._shards:
                shard = await self._run(lambda: _open_shard(self._folder / name, self._dimension, create))
                if shard is None:
                    return None
                self._shards[name] = shard
            return self._shards[name]

    async def _ask(self, name: str, shard: Shard, work: Callable[[Shard], T]) -> T:
        """Do the work on a thread. A shard that broke is let go, so that the next call loads it afresh."""
        try:
            return await self._run(lambda: work(shard))
        except TierUnavailable:
            if self._shards.get(name) is shard:
                await self._release(name)
            raise

    async def _release(self, name: str) -> None:
        shard = self._shards.pop(name, None)
        if shard is not None and self._threads is not None:
            await self._run(lambda: _close(shard))

    async def _run(self, work: Callable[[], T]) -> T:
        if self._threads is None:
            raise TierUnavailable(CLOSED)
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: _translated(work))


def _scroll(request: Any, shard: Shard) -> tuple[list[Any], Any]:
    page, offset = shard.scroll(request)
    return page, offset


def _translated(work: Callable[[], T]) -> T:
    """Run engine code. Its errors are bare `Exception`s told apart by their text, and panics `BaseException`s."""
    try:
        return work()
    except BraidError:
        raise
    except OSError as error:
        raise TierUnavailable(f"the vector index cannot be read: {error.strerror}") from error
    except Exception as error:
        if str(error).startswith(_BROKEN):
            raise TierUnavailable(f"the vector index failed: {_told(error)}") from error
        raise TierInvalid(f"the vector index refused the request: {type(error).__name__}") from error
    except BaseException as error:
        raise TierUnavailable("the vector index failed: the engine panicked") from error


def _told(error: Exception) -> str:
    reason = str(error).removeprefix(f"{_BROKEN}: ")
    if "not initialized" in reason:
        return "its shard is closed"
    return "another process has it open" if "WouldBlock" in reason else reason


def _prepare_folder(folder: Path, dimension: int, model: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rubbish in (*folder.glob(f"{_DROPPED}*"), *folder.parent.glob(f"{_DROPPED}{folder.name}")):
        shutil.rmtree(rubbish)
    meta = folder / "meta.json"
    held = _read_meta(meta) if meta.exists() else {}
    size, name = held.get("dimension", dimension), held.get("model", model)
    if size != dimension or name != model:
        raise other_model(f"the index in {folder}", f"{name} ({size} dimensions)", f"{model} ({dimension} dimensions)")
    if held != {"dimension": dimension, "model": model}:
        draft = folder / "meta.json.new"
        draft.write_text(json.dumps({"dimension": dimension, "model": model}))
        draft.replace(meta)


def _read_meta(meta: Path) -> dict[str, Any]:
    try:
        held = json.loads(meta.read_text())
        return {**held, "dimension": int(held["dimension"])}
    except (ValueError, KeyError, TypeError) as error:
        raise SetupError(f"{meta} is damaged: stop Braid and run `braid rebuild --tier vector`") from error


def _open_shard(path: Path, dimension: int, create: bool) -> Shard | None:
    if not path.exists() and not create:
        return None
    shard = _load(path) if path.exists() else None
    if shard is None:
        shard = edge.EdgeShard.create(str(path), _config(dimension))
    held = shard.info().payload_schema
    for field, schema in _INDEXES.items():
        if field not in held:
            shard.update(edge.UpdateOperation.create_field_index(field, schema))
    return shard


def _load(path: Path) -> Shard | None:
    """The shard of a folder; None, and no folder, where a crash came before anything was stored in it."""
    try:
        return edge.EdgeShard.load(str(path))
    except Exception:
        if any(path.glob("segments/*/segment.json")):
            raise
        shutil.rmtree(path)
        return None


def _config(dimension: int) -> Any:
    """Payloads cached: filters read them, and are several times faster so."""
    vectors = edge.EdgeVectorParams(size=dimension, distance=edge.Distance.Cosine)
    return edge.EdgeConfig(vectors=vectors, payload_memory=edge.Memory.Cached, max_search_threads=_THREADS)


def _close(shard: Shard) -> None:
    """A shard that is already broken cannot be flushed; its log has what it held."""
    try:
        shard.flush()
    except Exception as error:
        if not str(error).startswith(_BROKEN):
            raise
    finally:
        shard.close()


def _remove(path: Path) -> None:
    if path.exists():
        rubbish = path.with_name(f"{_DROPPED}{path.name}")
        shutil.rmtree(rubbish, ignore_errors=True)
        path.rename(rubbish)
        shutil.rmtree(rubbish)
