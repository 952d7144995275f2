"""Vectors in a Qdrant server. A module of its own, because its client takes seconds to import."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from service.errors import SetupError, TierInvalid, TierUnavailable
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

MEMORY = ":memory:"
SERVER = Dialect(
    models.Filter,
    models.FieldCondition,
    models.MatchAny,
    models.Range,
    models.DatetimeRange,
    lambda ids: models.HasIdCondition(has_id=list(ids)),
)
_PAGE = 2000
_REFUSED = (400, 409, 413, 422)
_OPEN_SECONDS = 2  # for the start to wait, where the server takes connections and says nothing


class ServerVectorStore:
    """All tenants in one collection of a Qdrant server, kept apart by a tenant index.

    The collection sits behind an alias, so that a new one can be built beside it and swapped in.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - where it is, and what it is to hold
        self, url: str, api_key: str | None, collection: str, dimension: int, timeout_s: float, model: str = ""
    ) -> None:
        self._url = url
        self._api_key = api_key
        self._alias = collection
        self._collection = f"{collection}_v1"
        self._model = model
        self._dimension = dimension
        self._timeout_s = timeout_s
        self._client: AsyncQdrantClient | None = None
        self._ready = False
        self._preparing = asyncio.Lock()

    async def open(self) -> None:
        """Connect. A server that is down is no reason not to start: the collection is then made on first use."""
        if self._client is None:
            self._client = self._connect()
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await self._prepare(self._client)
        except (TierUnavailable, TimeoutError):
            self._ready = False

    async def renew(self) -> None:
        """A new collection, to which the alias goes over at once; the old one is dropped."""
        client = self._client = self._client or self._connect()
        with self._translated():
            aliases = (await client.get_aliases()).aliases
            old = next((a.collection_name for a in aliases if a.alias_name == self._alias), None)
            if old is None:
                return
            self._collection = f"{self._alias}_v{int(old.rpartition('_v')[2] or 0) + 1}"
            gone = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self._alias))
            await self._create(client, [gone])
            await client.delete_collection(old)

    async def close(self) -> None:
        client, self._client, self._ready = self._client, None, False
        if client is not None:
            await client.close()

    async def ping(self) -> None:
        client = await self._opened()
        with self._translated():
            await client.get_collection(self._alias)

    async def search(
        self,
        tenant: str,
        vector: Sequence[float],
        namespaces: Sequence[str] | None,
        filter: Filter,
        limit: int,
    ) -> list[Hit]:
        client = await self._opened()
        wanted = checked(vector, self._dimension)
        if matches_nothing(namespaces, filter):
            return []
        with self._translated():
            conditions = compile_filter(SERVER, namespaces, filter, _canonical(tenant))
            answer = await client.query_points(
                self._alias, query=wanted, query_filter=conditions, limit=limit, with_payload=["id"]
            )
        return to_hits(answer.points)

    async def upsert(self, tenant: str, points: Sequence[Point], fence: int = 0) -> None:
        client = await self._opened()
        if not points:
            return
        with self._translated():
            structs = [self._struct(tenant, fence, document, vector) for document, vector in points]
            await client.upsert(self._alias, structs, wait=True, update_filter=not_newer(SERVER, fence))

    async def delete(self, tenant: str, ids: Sequence[str], fence: int = 0) -> None:
        client = await self._opened()
        if not ids:
            return
        with self._translated():
            points = not_newer(SERVER, fence, [point_id(tenant, each) for each in ids])
            await client.delete(self._alias, models.FilterSelector(filter=points), wait=True)

    async def drop(self, tenant: str) -> None:
        client = await self._opened()
        with self._translated():
            await client.delete(self._alias, models.FilterSelector(filter=_of_tenant(tenant)), wait=True)

    async def count(self, tenant: str) -> int:
        client = await self._opened()
        with self._translated():
            return (await client.count(self._alias, _of_tenant(tenant), exact=True)).count

    async def everything(self, tenant: str) -> AsyncIterator[Held]:
        client = await self._opened()
        offset: Any = None
        while True:
            with self._translated():
                page, offset = await client.scroll(
                    self._alias, _of_tenant(tenant), limit=_PAGE, offset=offset, with_payload=HELD
                )
            for record in page:
                yield to_held(record.payload)
            if offset is None:
                return

    def _connect(self) -> AsyncQdrantClient:
        if self._url == MEMORY:
            return AsyncQdrantClient(MEMORY)
        return AsyncQdrantClient(
            self._url, api_key=self._api_key, timeout=math.ceil(self._timeout_s), check_compatibility=False
        )

    def _struct(self, tenant: str, fence: int, document: Document, vector: Sequence[float]) -> models.PointStruct:
        payload = payload_of(document, fence) | {"tenant": _canonical(tenant)}
        values = checked(vector, self._dimension)
        return models.PointStruct(id=point_id(tenant, document.id), vector=values, payload=payload)

    async def _opened(self) -> AsyncQdrantClient:
        """The client, with the collection known to be there."""
        client = self._client
        if client is None:
            raise TierUnavailable(CLOSED)
        if not self._ready:
            try:
                await self._prepare(client)
            except SetupError as error:
                raise TierInvalid(str(error)) from error
        return client

    async def _prepare(self, client: AsyncQdrantClient) -> None:
        async with self._preparing:
            if self._ready:
                return
            with self._translated():
                if not await client.collection_exists(self._alias):
                    await self._create(client)
                await self._create_indexes(client)
                self._check_model((await client.get_collection(self._alias)).config)
            self._ready = True

    async def _create(self, client: AsyncQdrantClient, before: Sequence[models.DeleteAliasOperation] = ()) -> None:
        """Another replica may be doing the same: what counts is that the collection is there afterwards."""
        params = models.VectorParams(size=self._dimension, distance=models.Distance.COSINE)
        try:
            await client.create_collection(self._collection, vectors_config=params, metadata={"model": self._model})
        except (UnexpectedResponse, ValueError):
            if not await client.collection_exists(self._collection):
                raise
        alias = models.CreateAlias(collection_name=self._collection, alias_name=self._alias)
        await client.update_collection_aliases([*before, models.CreateAliasOperation(create_alias=alias)])

    async def _create_indexes(self, client: AsyncQdrantClient) -> None:
        for field, schema in _INDEXES.items():
            with _quiet_about_indexes(self._url == MEMORY):
                await client.create_payload_index(self._alias, field, schema, wait=True)

    def _check_model(self, config: models.CollectionConfig) -> None:
        """A collection of before names no model."""
        params = config.params.vectors
        size = params.size if isinstance(params, models.VectorParams) else None
        name = (config.metadata or {}).get("model", self._model)
        if size != self._dimension or name != self._model:
            held, wanted = f"{name} ({size} dimensions)", f"{self._model} ({self._dimension} dimensions)"
            raise other_model(f"the Qdrant collection {self._alias!r}", held, wanted)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what the client raises into what a tier may raise."""
        try:
            yield
        except UnexpectedResponse as error:
            raise self._answered(error) from error
        except ResponseHandlingException as error:
            if isinstance(error.source, ValueError):
                raise TierInvalid("Qdrant answered with something unreadable") from error
            raise TierUnavailable(f"Qdrant cannot be reached: {_reason(error.source)}") from error
        except ValueError as error:
            raise TierInvalid(f"Qdrant cannot take this: {type(error).__name__}") from error
        except (QdrantException, OSError, RuntimeError) as error:
            raise TierUnavailable(f"Qdrant cannot be reached: {_reason(error)}") from error

    def _answered(self, error: UnexpectedResponse) -> TierUnavailable | TierInvalid:
        if error.status_code == 404:
            self._ready = False  # The collection is gone: make it again on the next use.
        if error.status_code in _REFUSED:
            return TierInvalid(f"Qdrant refused the request with status {error.status_code}")
        return TierUnavailable(f"Qdrant answered with status {error.status_code}")


_INDEXES: Mapping[str, models.PayloadSchemaType | models.KeywordIndexParams] = {
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "namespace": models.PayloadSchemaType.KEYWORD,
    "facets": models.PayloadSchemaType.KEYWORD,
    "created_at": models.PayloadSchemaType.DATETIME,
}


def _canonical(tenant: str) -> str:
    return str(tenant_id(tenant))


def _of_tenant(tenant: str) -> models.Filter:
    match = models.MatchValue(value=_canonical(tenant))
    return models.Filter(must=[models.FieldCondition(key="tenant", match=match)])


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


@contextmanager
def _quiet_about_indexes(memory: bool) -> Iterator[None]:
    """The client's memory mode warns that it has no payload indexes. It never awaits, so this can't leak."""
    if not memory:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Payload indexes have no effect", category=UserWarning)
        yield
