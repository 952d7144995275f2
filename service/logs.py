"""Log lines: for people, or as JSON for machines, each with the request and the tenant it was written for.

No line holds a query, a document, its id or a secret, at any level; the isolation tests read them.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

from service.model import SearchResult

request_id: ContextVar[str] = ContextVar("request_id", default="")
tenant: ContextVar[str] = ContextVar("tenant", default="")

_CHATTY = ("httpx", "httpcore", "asyncpg.pool")  # the last logs tracebacks of what we say in a line
_SHOWN_RESULTS = 10


class JsonLines(logging.Formatter):
    """One JSON object a line. What a call passes as `extra={"braid": {...}}` becomes fields of it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value.get() for name, value in (("request_id", request_id), ("tenant", tenant)) if value.get()}
        line |= getattr(record, "braid", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class PlainLines(logging.Formatter):
    """The same for people, who see the request where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        more = getattr(record, "braid", {})
        told = f" {orjson.dumps(more, default=str).decode()}" if more else ""
        return f"{text}{told} [request {request_id.get()}]" if request_id.get() else f"{text}{told}"


def configure(level: str, style: str = "text") -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if style == "json" else PlainLines("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in _CHATTY:
        logging.getLogger(name).setLevel("ERROR")


def explanation(result: SearchResult) -> dict[str, Any]:
    """How a search came to its answer, without what was asked or found: times, outcomes, weights and shares."""
    tiers = {
        name: {"status": a.status.value, "hits": len(a.hits), "took_ms": round(a.took_ms, 2), "reason": a.reason}
        for name, a in result.answers.items()
    }
    best = result.results[:_SHOWN_RESULTS]
    shares = [{t: round(s.contribution, 4) for t, s in found.ranked.tiers.items()} for found in best]
    return {
        "took_ms": round(result.took_ms, 2),
        "degraded": result.degraded,
        "tiers": tiers,
        "weights": dict(result.weights),
        "namespaces": len(result.namespaces),
        "results": len(result.results),
        "shares": shares,
    }
