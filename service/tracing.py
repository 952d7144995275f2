"""OpenTelemetry spans, for those who want them. Off, a span costs one call; nothing is imported or sent.

Attributes follow OpenTelemetry's semantic conventions for HTTP and for databases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from service import __version__
from service.errors import SetupError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Tracer

# Which engine a tier asks, as `db.system.name` has it.
ENGINES = {"keyword": "postgresql", "vector": "qdrant", "graph": "falkordb"}


class _Off:
    """A span that is none."""

    def __enter__(self) -> _Off:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        return None

    def set_attribute(self, key: str, value: Any) -> None:
        """Nobody looks."""


_OFF = _Off()
_tracer: Tracer | None = None
_with_queries = False


def span(name: str, attributes: Mapping[str, Any] | None = None) -> AbstractContextManager[Any]:
    """Something that takes a while inside the service."""
    return _OFF if _tracer is None else _tracer.start_as_current_span(name, attributes=attributes)


def asking(tier: str, text: str) -> AbstractContextManager[Any]:
    """A tier's question to its engine. What was typed is told only where that was asked for."""
    if _tracer is None:
        return _OFF
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - only where it is on

    attributes = {"db.system.name": ENGINES.get(tier, tier), "db.operation.name": "search", "braid.tier": tier}
    if _with_queries:
        attributes["db.query.text"] = text
    return _tracer.start_as_current_span(f"search {tier}", kind=SpanKind.CLIENT, attributes=attributes)


def hydrating() -> AbstractContextManager[Any]:
    return span("hydrate", {"db.system.name": "postgresql", "db.operation.name": "SELECT"})


def request(method: str, headers: Mapping[str, str], request_id: str) -> AbstractContextManager[Any]:
    """A call, as a part of the trace that its `traceparent` names."""
    if _tracer is None:
        return _OFF
    from opentelemetry.trace import SpanKind  # noqa: PLC0415 - only where it is on
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    parent = TraceContextTextMapPropagator().extract(headers)
    attributes = {"http.request.method": method, "braid.request_id": request_id}
    return _tracer.start_as_current_span(method, parent, kind=SpanKind.SERVER, attributes=attributes)


def answered(span: Any, method: str, route: str, status: int) -> None:
    """What is known of a call only at its end."""
    if span is _OFF:
        return
    span.update_name(f"{method} {route}")
    span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)


class Tracing:
    """Spans on their way to a collector, from `start` to `stop`. For the whole process."""

    def __init__(self, endpoint: str, *, queries: bool) -> None:
        self._endpoint = endpoint if urlsplit(endpoint).path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"
        self._queries = queries
        self._provider: Any = None

    def start(self, processor: SpanProcessor | None = None) -> None:
        global _tracer, _with_queries
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError as error:
            raise SetupError("BRAID_OTLP_ENDPOINT needs tracing: pip install 'braid-search[tracing]'") from error
        resource = Resource.create({"service.name": "braid", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter(endpoint=self._endpoint)))
        _tracer, _with_queries = self._provider.get_tracer("braid", __version__), self._queries

    async def stop(self) -> None:
        """Sends what is left; on a thread, as a collector that is gone is waited for."""
        global _tracer  # noqa: PLW0603
        _tracer = None
        await asyncio.to_thread(self._provider.shutdown)
