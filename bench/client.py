"""A client that costs as little as it can: what it adds to a time is not Braid's."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from bench.server import BenchError, Server

LIMIT = 10


@dataclass(frozen=True, slots=True)
class Timed:
    """One search: the time until the last byte was here, and what the answer says about itself, in ms."""

    http_ms: float
    took_ms: float
    tiers: dict[str, float]
    degraded: bool

    @property
    def slowest_ms(self) -> float:
        return max(self.tiers.values())


class Client:
    """One connection that stays open."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        self._connection.connect()
        # http.client sends head and body apart; without this the second waits for the first one's receipt.
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = {"Authorization": f"Bearer {server.key}"}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def search(self, query: str, weights: dict[str, float] | None = None) -> Timed:
        """One search, timed; the tiers with the time each of them took."""
        body = orjson.dumps({"query": query, "limit": LIMIT, **({"weights": weights} if weights else {})})
        started = time.perf_counter()
        answer = self._send("/v1/search", body, "application/json")
        http_ms = (time.perf_counter() - started) * 1000
        told = orjson.loads(answer)
        tiers = {name: tier["took_ms"] for name, tier in told["tiers"].items() if tier["status"] != "skipped"}
        return Timed(http_ms, told["took_ms"], tiers, told["degraded"])

    def write(self, lines: Iterable[bytes], *, wait: bool = False) -> dict[str, Any]:
        """Documents as a stream of lines."""
        path = "/v1/documents?wait=true" if wait else "/v1/documents"
        answer: dict[str, Any] = orjson.loads(self._send(path, lines, "application/x-ndjson"))
        if answer["errors"]:
            refused = next(item for item in answer["items"] if item["status"] == "error")
            raise BenchError(f"a document was refused: {refused}")
        return answer

    def _send(self, path: str, body: bytes | Iterable[bytes], kind: str) -> bytes:
        headers = self._headers | {"Content-Type": kind}
        if not isinstance(body, bytes):
            headers["Transfer-Encoding"] = "chunked"
        self._connection.request("POST", path, body, headers, encode_chunked=not isinstance(body, bytes))
        response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise BenchError(f"{path} answered {response.status}: {content[:500].decode(errors='replace')}")
        return content
