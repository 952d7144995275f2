"""Vectors in Qdrant: the protocol, and what both adapters share."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID, uuid5

from service.errors import SetupError, TierInvalid
from service.facets import facets_of, numbers_of
from service.model import Document, Filter, Held, Hit, NumberRange

CLOSED = "the vector store is closed"

Point = tuple[Document, Sequence[float]]


class VectorStore(Protocol):
    """Where vectors live. Each call names its tenant, and never sees another's points."""

    async def open(self) -> None: ...

    async def renew(self) -> None:
        """Forget all vectors, of every tenant, to hold those of another model. Before it is opened."""
        ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Ask the engine itself; `TierUnavailable` where it does not answer."""
        ...

    async def search(
        self,
        tenant: str,
        vector: Sequence[float],
        namespaces: Sequence[str] | None,
        filter: Filter,
        limit: int,
    ) -> list[Hit]:
        """The nearest documents by cosine, clamped to 0..1, best first, ties by id."""
        ...

    async def upsert(self, tenant: str, points: Sequence[Point], fence: int = 0) -> None:
        """Writes points, but for those that were written under a higher fence."""
        ...

    async def delete(self, tenant: str, ids: Sequence[str], fence: int = 0) -> None:
        """Forgets documents, but for those that were written under a higher fence."""
        ...

    async def drop(self, tenant: str) -> None:
        """Forget everything about a tenant."""
        ...

    async def count(self, tenant: str) -> int: ...

    def everything(self, tenant: str) -> AsyncIterator[Held]:
        """All that is held of a tenant, in pages, in no order."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two Qdrant packages call the same five things."""

    filter: Callable[..., Any]
    field: Callable[..., Any]
    match_any: Callable[..., Any]
    numbers: Callable[..., Any]
    times: Callable[..., Any]
    has_id: Callable[..., Any]


def compile_filter(dialect: Dialect, namespaces: Sequence[str] | None, only: Filter, tenant: str | None = None) -> Any:
    """The tenant, the namespaces and the caller's filter as one conjunction."""
    place = [("tenant", [tenant])] if tenant is not None else []
    if namespaces is not None:
        place.append(("namespace", list(namespaces)))
    return _conjunction(dialect, only, [_among(dialect, key, values) for key, values in place])


def _conjunction(dialect: Dialect, only: Filter, must: list[Any]) -> Any:
    must += [_among(dialect, "facets", group) for group in only.any_of]
    must += [_number_range(dialect, bounds) for bounds in only.ranges]
    if only.created_after is not None or only.created_before is not None:
        window = dialect.times(gte=rfc3339(only.created_after), lt=rfc3339(only.created_before))
        must.append(dialect.field(key="created_at", range=window))
    must += [dialect.filter(should=[_conjunction(dialect, part, []) for part in group]) for group in only.one_of]
    return dialect.filter(must=must, must_not=[_conjunction(dialect, part, []) for part in only.none_of])


def not_newer(dialect: Dialect, fence: int, ids: Sequence[str] | None = None) -> Any:
    """What was not written under a higher fence: of these points, or whichever is asked about."""
    newer = dialect.field(key="fence", range=dialect.numbers(gt=fence))
    return dialect.filter(must=[] if ids is None else [dialect.has_id(set(ids))], must_not=[newer])


def _among(dialect: Dialect, key: str, values: Sequence[str | None]) -> Any:
    return dialect.field(key=key, match=dialect.match_any(any=list(values)))


def matches_nothing(namespaces: Sequence[str] | None, only: Filter) -> bool:
    """An empty choice can't be met: no need to learn what an engine makes of it."""
    return (namespaces is not None and not namespaces) or not all(only.any_of)


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


def payload_of(document: Document, fence: int) -> dict[str, Any]:
    """What is stored beside a vector: enough to filter by, and the id to answer with."""
    payload: dict[str, Any] = {
        "id": document.id,
        "namespace": document.namespace,
        "facets": list(facets_of(document)),
        "numbers": {number_key(path): values for path, values in numbers_of(document.metadata).items()},
        "version": document.version,
        "fence": fence,
    }
    if document.created_at is not None:
        payload["created_at"] = rfc3339(document.created_at)
    return payload


def other_model(where: str, held: str, wanted: str) -> SetupError:
    return SetupError(
        f"{where} holds vectors of {held}, the embedder gives those of {wanted}, and they cannot be compared: "
        "go back to that embedder, or stop Braid and run `braid rebuild --tier vector`"
    )


HELD = ["id", "version", "fence"]


def to_held(payload: Any) -> Held:
    """What a point says of itself; one that Braid did not write has no id, and is held under none."""
    told = payload or {}
    return Held(str(told.get("id", "")), int(told.get("version", 0)), int(told.get("fence", 0)))


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
        hits = [Hit(str(point.payload["id"]), _clamped(point.score)) for point in scored]
    except (KeyError, TypeError) as error:
        raise TierInvalid("Qdrant answered with a point that Braid did not write") from error
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def _clamped(score: float) -> float:
    """From 0 to 1; what is no number stays none, for the guard to drop and count."""
    return min(1.0, max(0.0, score)) if math.isfinite(score) else math.nan
