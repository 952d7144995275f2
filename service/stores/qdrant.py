"""Vectors in Qdrant: the protocol, what both adapters share, and the adapter that talks to a server."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID, uuid5

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from service.errors import SetupError, TierInvalid, TierUnavailable
from service.facets import facets_of, numbers_of
from service.model import Document, Filter, Hit, NumberRange

MEMORY = ":memory:"
CLOSED = "the vector store is closed"
_REFUSED = (400, 409, 413, 422)

Point = tuple[Document, Sequence[float]]


class VectorStore(Protocol):
    """Where vectors live. Each call names its tenant, and never sees another's points."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Ask the engine itself; `TierUnavailable` where it does not answer."""
        ...

    async def search(
        self,
        tenant: str,
        vector: Sequence[float],
        namespaces: Sequence[str],
        filter: Filter,
        limit: int,
    ) -> list[Hit]:
        """The nearest documents by cosine, clamped to 0..1, best first, ties by id."""
        ...

    async def upsert(self, tenant: str, points: Sequence[Point]) -> None: ...

    async def delete(self, tenant: str, ids: Sequence[str]) -> None: ...

    async def drop(self, tenant: str) -> None:
        """Forget everything about a tenant."""
        ...

    async def count(self, tenant: str) -> int: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two Qdrant packages call the same five things."""

    filter: Callable[..., Any]
    field: Callable[..., Any]
    match_any: Callable[..., Any]
    numbers: Callable[..., Any]
    times: Callable[..., Any]


SERVER = Dialect(models.Filter, models.FieldCondition, models.MatchAny, models.Range, models.DatetimeRange)


def compile_filter(dialect: Dialect, namespaces: Sequence[str], only: Filter, tenant: str | None = None) -> Any:
    """The tenant, the namespaces and the caller's filter as one conjunction."""
    groups = [("tenant", [tenant])] if tenant is not None else []
    groups += [("namespace", list(namespaces)), *(("facets", list(group)) for group in only.any_of)]
    must = [dialect.field(key=key, match=dialect.match_any(any=values)) for key, values in groups]
    must += [_number_range(dialect, bounds) for bounds in only.ranges]
    if only.has_time:
        window = dialect.times(gte=rfc3339(only.created_after), lt=rfc3339(only.created_before))
        must.append(dialect.field(key="created_at", range=window))
    return dialect.filter(must=must)


def matches_nothing(namespaces: Sequence[str], only: Filter) -> bool:
    """An empty choice can't be met: no need to learn what an engine makes of it."""
    return not namespaces or not all(only.any_of)


def _number_range(dialect: Dialect, bounds: NumberRange) -> Any:
    span = dialect.numbers(gte=bounds.gte, gt=bounds.gt, lte=bounds.lte, lt=bounds.lt)
    return dialect.field(key=f"numbers.{number_key(bounds.path)}", range=span)


def number_key(path: str) -> str:
    """In hex, so that no caller's text is ever read as a JSON path."""
    return path.encode().hex()


def rfc3339(moment: datetime | None) -> str | None:
    """In UTC, to the microsecond. A naive time is taken as UTC."""
    if moment is None:
        return None
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.isoformat(timespec="microseconds").replace("+00:00", "Z")


def payload_of(document: Document) -> dict[str, Any]:
    """What is stored beside a vector: enough to filter by, and the id to answer with."""
    payload: dict[str, Any] = {
        "id": document.id,
        "namespace": document.namespace,
        "facets": list(facets_of(document)),
        "numbers": {number_key(path): values for path, values in numbers_of(document.metadata).items()},
        "version": document.version,
    }
    if document.created_at is not None:
        payload["created_at"] = rfc3339(document.created_at)
    return payload


def tenant_id(tenant: str) -> UUID:
    try:
        return UUID(tenant)
    except ValueError as error:
        raise TierInvalid("a tenant of the vector store must be a UUID") from error


def point_id(tenant: str, document_id: str) -> str:
    """The same document always gets the same point, so that writing twice is writing once."""
    return str(uuid5(tenant_id(tenant), document_id))


def checked(vector: Sequence[float], dimension: int) -> list[float]:
    """The vector as a list, if the index can hold it."""
    if len(vector) != dimension:
        raise TierInvalid(f"the vector has {len(vector)} dimensions, the index has {dimension}")
    if not all(map(math.isfinite, vector)):
        raise TierInvalid("the vector holds a number that is not finite")
    return list(vector)


def to_hits(scored: Sequence[Any]) -> list[Hit]:
    """Scored points of either package as hits."""
    try:
        hits = [Hit(str(point.payload["id"]), min(1.0, max(0.0, point.score))) for point in scored]
    except (KeyError, TypeError) as error:
        raise TierInvalid("Qdrant answered with a point that Braid did not write") from error
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


class ServerVectorStore:
    """All tenants in one collection of a Qdrant server, kept apart by a tenant index.

    The collection sits behind an alias, so that a new one can be built beside it and swapped in.
    """

    def __init__(self, url: str, api_key: str | None, collection: str, dimension: int, timeout_s: float) -> None:
        self._url = url
        self._api_key = api_key
        self._alias = collection
        self._collection = f"{collection}_v1"
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
            await self._prepare(self._client)
        except TierUnavailable:
            self._ready = False

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
        namespaces: Sequence[str],
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

    async def upsert(self, tenant: str, points: Sequence[Point]) -> None:
        client = await self._opened()
        if not points:
            return
        with self._translated():
            structs = [self._struct(tenant, document, vector) for document, vector in points]
            await client.upsert(self._alias, structs, wait=True)

    async def delete(self, tenant: str, ids: Sequence[str]) -> None:
        client = await self._opened()
        if not ids:
            return
        with self._translated():
            points: list[models.ExtendedPointId] = [point_id(tenant, each) for each in ids]
            await client.delete(self._alias, models.PointIdsList(points=points), wait=True)

    async def drop(self, tenant: str) -> None:
        client = await self._opened()
        with self._translated():
            await client.delete(self._alias, models.FilterSelector(filter=_of_tenant(tenant)), wait=True)

    async def count(self, tenant: str) -> int:
        client = await self._opened()
        with self._translated():
            return (await client.count(self._alias, _of_tenant(tenant), exact=True)).count

    def _connect(self) -> AsyncQdrantClient:
        if self._url == MEMORY:
            return AsyncQdrantClient(MEMORY)
        return AsyncQdrantClient(
            self._url, api_key=self._api_key, timeout=math.ceil(self._timeout_s), check_compatibility=False
        )

    def _struct(self, tenant: str, document: Document, vector: Sequence[float]) -> models.PointStruct:
        payload = payload_of(document) | {"tenant": _canonical(tenant)}
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
                self._check_dimension((await client.get_collection(self._alias)).config.params.vectors)
            self._ready = True

    async def _create(self, client: AsyncQdrantClient) -> None:
        """Another replica may be doing the same: what counts is that the collection is there afterwards."""
        params = models.VectorParams(size=self._dimension, distance=models.Distance.COSINE)
        try:
            await client.create_collection(self._collection, vectors_config=params)
        except (UnexpectedResponse, ValueError):
            if not await client.collection_exists(self._collection):
                raise
        alias = models.CreateAlias(collection_name=self._collection, alias_name=self._alias)
        await client.update_collection_aliases([models.CreateAliasOperation(create_alias=alias)])

    async def _create_indexes(self, client: AsyncQdrantClient) -> None:
        for field, schema in _INDEXES.items():
            with _quiet_about_indexes(self._url == MEMORY):
                await client.create_payload_index(self._alias, field, schema, wait=True)

    def _check_dimension(self, params: models.VectorParams | Mapping[str, models.VectorParams] | None) -> None:
        size = params.size if isinstance(params, models.VectorParams) else None
        if size != self._dimension:
            raise SetupError(
                f"the Qdrant collection {self._alias!r} holds vectors of {size} dimensions, the embedder gives "
                f"{self._dimension}: the vector index must be rebuilt (delete that collection, or name another in "
                "BRAID_QDRANT_COLLECTION)"
            )

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
