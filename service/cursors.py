"""Cursors: where the next page of a search begins, in a text that only we can write.

A cursor holds a mark of every result shown so far, and whose search it belongs to. The next page is the best of what
has no such mark, in the ranking as it is then. So the pages of a search never repeat a document, and leave none out
that the ranking has, whatever is written between them; while nothing is written they are the one ranking, cut into
pieces. No server keeps anything for it, and any instance with the same secret can go on.

A mark is 48 bits of a keyed digest: two of 500 documents share one in about two of a billion searches.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson

from service.errors import InvalidInput
from service.model import Query

_MARK = 6
_PRINT = 16
_TAG = 16
_VERSION = b"\x01"
# How much of an answer is shown, in which manner, and how it was come by.
_MANNER: dict[str, Any] = {
    "limit": 0,
    "explain": False,
    "highlight": False,
    "allow_degraded": True,
    "require": (),
    "timeout_ms": None,
    "cursor": None,
    "no_cache": False,
    "embedded": None,
}


class Cursors:
    """Writes and reads cursors. The key follows from the service's own secret and is used for nothing else."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"braid cursors", hashlib.sha256)

    def seal(self, query: Query, seen: Iterable[bytes]) -> str:
        """A cursor for the page behind what was seen of this search."""
        told = _VERSION + self._print(query) + b"".join(sorted(seen))
        return base64.urlsafe_b64encode(told + self._tag(told)).rstrip(b"=").decode()

    def open(self, query: Query, cursor: str) -> frozenset[bytes]:
        """What was seen. Raises `InvalidInput` unless we wrote it, for this caller and this search."""
        told, tag = _split(cursor)
        if not hmac.compare_digest(self._tag(told), tag):
            raise InvalidInput("cursor", "is none that this service gave: begin again without one")
        _, owner, marks = told[:1], told[1 : 1 + _PRINT], told[1 + _PRINT :]
        if not hmac.compare_digest(owner, self._print(query)):
            raise InvalidInput("cursor", "belongs to another search: send it with the query and options it came from")
        return frozenset(marks[at : at + _MARK] for at in range(0, len(marks), _MARK))

    def mark(self, id: str) -> bytes:
        return hashlib.blake2b(id.encode(), digest_size=_MARK, key=self._key).digest()

    def _print(self, query: Query) -> bytes:
        return hashlib.blake2b(fingerprint(query), digest_size=_PRINT, key=self._key).digest()

    def _tag(self, told: bytes) -> bytes:
        return hmac.digest(self._key, told, hashlib.sha256)[:_TAG]


def fingerprint(query: Query) -> bytes:
    """Everything that a search's ranking depends on: who asks, for what, and how; not how much of it is shown."""
    return orjson.dumps(replace(query, **_MANNER), option=orjson.OPT_SORT_KEYS)


def _split(cursor: str) -> tuple[bytes, bytes]:
    try:
        whole = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        whole = b""
    return whole[:-_TAG], whole[-_TAG:]
