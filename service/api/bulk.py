"""Bulk writes: items in, one answer an item out, in bounded memory however many there are."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import orjson
from pydantic import ValidationError

from service.api.handlers import field_errors
from service.api.limits import limits, too_deep
from service.api.schemas import DocumentBody, DocumentIn
from service.errors import InvalidInput, QuotaExceeded
from service.indexing import Linked, Writer
from service.model import Reach
from service.stores.documents import Written

_BATCH = 500
_SPOOL = 4 * 1024 * 1024


async def parse_array(body: bytes) -> AsyncIterator[Any]:
    """The items of a JSON array."""
    try:
        items = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput("body", f"is not valid JSON ({error})") from None
    most = limits().max_bulk_items
    if not isinstance(items, list) or not 1 <= len(items) <= most:
        raise InvalidInput("body", f"must be an array of 1 to {most} documents; send NDJSON for more")
    for item in items:
        yield item


async def lines(stream: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """The items of an NDJSON stream; a line that can't be read becomes an exception in its place."""
    most = limits().max_line_bytes
    rest = b""
    async for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        if any(len(line) > most for line in (*whole, rest)):
            raise InvalidInput("body", f"must have lines of at most {most} bytes")
        for line in whole:
            if line.strip():
                yield _parse(line)
    if rest.strip():
        yield _parse(rest)


def _parse(line: bytes) -> Any:
    if too_deep(line, limits().max_json_depth):
        return InvalidInput("line", f"must nest at most {limits().max_json_depth} levels deep")
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return InvalidInput("line", f"is not valid JSON ({error})")


class BulkWrite:
    """Writes a stream of items in batches. Answers go to a spooled file, so their number does not matter."""

    def __init__(self, writer: Writer, reach: Reach) -> None:
        self._writer = writer
        self._reach = reach
        self._answers = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115 - closed in __exit__
        self._count = 0
        self._errors = False
        self._before = 0

    def __enter__(self) -> BulkWrite:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answers.close()

    async def write(self, items: AsyncIterator[Any]) -> None:
        self._before = await self._writer.documents(self._reach).last_version()
        batch: list[Linked | dict[str, Any]] = []
        async for item in items:
            batch.append(self._read(item))
            if len(batch) == _BATCH:
                await self._flush(batch)
                await self._writer.room(self._reach)
                batch = []
        await self._flush(batch)

    async def settled(self, timeout_ms: int) -> bool:
        return await self._writer.settled_since(self._reach, self._before, timeout_ms)

    def answer(self, visible: bool | None) -> bytes:
        self._answers.seek(0)
        head = b'{"errors":%s,"items":[' % (b"true" if self._errors else b"false")
        tail = b"]}" if visible is None else b'],"visible":%s}' % (b"true" if visible else b"false")
        return head + self._answers.read() + tail

    def _read(self, item: Any) -> Linked | dict[str, Any]:
        """A document to write, or the answer that says why not."""
        given = item.get("id") if isinstance(item, dict) and isinstance(item.get("id"), str) else None
        try:
            if isinstance(item, InvalidInput):
                raise item
            body = DocumentIn.model_validate(item)
            check_vector(body, self._writer.dimension)
            return body.to_document(body.id or uuid.uuid4().hex)
        except ValidationError as error:
            reason = "; ".join(f"{e['field']}: {e['message']}" for e in field_errors(error.errors())[:3])
        except InvalidInput as error:
            reason = str(error)
        return {"id": given, "status": "error", "error": reason}

    async def _flush(self, batch: list[Linked | dict[str, Any]]) -> None:
        documents = [item for item in batch if isinstance(item, tuple)]
        answers = iter(await self._put(documents))
        for item in batch:
            self._say(next(answers) if isinstance(item, tuple) else item)

    async def _put(self, documents: list[Linked]) -> list[dict[str, Any]]:
        """Writes them together; one by one where one of them is refused, to find out which."""
        if not documents:
            return []
        try:
            written = await self._writer.put(self._reach, documents)
        except (InvalidInput, QuotaExceeded) as error:
            if len(documents) == 1:
                return [{"id": documents[0][0].id, "status": "error", "error": str(error)}]
            return [answer for one in documents for answer in await self._put([one])]
        return [{"id": done.id, "status": status_of(done), "version": done.version} for done in written]

    def _say(self, answer: dict[str, Any]) -> None:
        self._errors |= answer["status"] == "error"
        self._answers.write((b"," if self._count else b"") + orjson.dumps(answer))
        self._count += 1


def check_vector(body: DocumentBody, dimension: int) -> None:
    if body.vector is not None and len(body.vector) != dimension:
        raise InvalidInput("vector", f"has {len(body.vector)} dimensions; this service uses {dimension}")


def status_of(written: Written) -> str:
    return "created" if written.created else "updated" if written.changed else "unchanged"
