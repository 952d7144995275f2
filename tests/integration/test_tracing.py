"""Traces and log lines of a real search: who asked, what took how long, and never what was searched for."""

from __future__ import annotations

import io
import json
import logging
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service import logs, tracing
from service.errors import SetupError
from tests.conftest import running

SECRET = "zanzibar"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TIERS = {"search keyword": "postgresql", "search vector": "qdrant", "search graph": "falkordb"}


@contextmanager
def collecting() -> Iterator[tuple[str, list[bytes]]]:
    """What an OpenTelemetry collector is to its clients: a place that takes posts."""
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def log_lines() -> Iterator[io.StringIO]:
    """Everything that is logged meanwhile, at any level, as JSON."""
    written, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logs.JsonLines())
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield written
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


@pytest.fixture(scope="module")
async def observed() -> AsyncIterator[dict[str, Any]]:
    """One search that is part of a trace from outside, in a Braid that is told to trace and finds it slow."""
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder, collecting() as (endpoint, bodies):
        async with running(Path(folder) / "data", otlp_endpoint=endpoint, slow_search_ms=1, index_poll_ms=50) as braid:
            key = await braid.key()
            client, tenant = braid.client(key), await braid.tenant_of(key)
            await client.put(f"/v1/documents/{SECRET}?wait=true", json={"title": SECRET, "entities": [SECRET]})
            with log_lines() as written:
                headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-ID": "observed"}
                reply = await client.post("/v1/search", json={"query": f"who saw {SECRET}"}, headers=headers)
                assert len(reply.json()["results"]) == 1
            lines = [json.loads(line) for line in written.getvalue().splitlines()]
        requests = [ExportTraceServiceRequest.FromString(body) for body in bodies]
        spans = [s for r in requests for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]
        yield {"tenant": tenant, "bodies": bodies, "spans": spans, "lines": lines}


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


async def test_a_search_is_a_part_of_the_callers_trace(observed: dict[str, Any]) -> None:
    ours = [span for span in observed["spans"] if span.trace_id.hex() == TRACE]
    [request] = [span for span in ours if span.name == "POST /v1/search"]
    assert request.parent_span_id.hex() == PARENT
    told = attributes(request)
    assert (told["http.route"], told["http.response.status_code"]) == ("/v1/search", 200)
    assert told["braid.request_id"] == "observed"
    assert {span.name for span in ours} == {"POST /v1/search", *TIERS, "embed", "fuse", "hydrate"}
    below = {span.name: span.parent_span_id for span in ours}
    vector = next(span for span in ours if span.name == "search vector")
    assert below["embed"] == vector.span_id
    assert {below[name] for name in (*TIERS, "fuse", "hydrate")} == {request.span_id}


async def test_a_tiers_span_says_which_database_was_asked_and_what_it_returned(observed: dict[str, Any]) -> None:
    for span in observed["spans"]:
        if span.trace_id.hex() == TRACE and span.name in TIERS:
            told = attributes(span)
            assert told["db.system.name"] == TIERS[span.name]
            assert (told["db.operation.name"], told["db.response.returned_rows"]) == ("search", 1)
            assert told["braid.status"] == "ok"


async def test_no_trace_and_no_log_line_holds_the_query_or_the_document(observed: dict[str, Any]) -> None:
    assert observed["bodies"]
    assert not any(SECRET.encode() in body for body in observed["bodies"])
    assert SECRET not in json.dumps(observed["lines"])


async def test_a_slow_search_is_logged_with_its_explanation_its_request_and_its_tenant(
    observed: dict[str, Any],
) -> None:
    [line] = [line for line in observed["lines"] if "search" in line]
    assert (line["request_id"], line["tenant"], line["level"]) == ("observed", observed["tenant"], "warning")
    told = line["search"]
    assert {name: tier["status"] for name, tier in told["tiers"].items()} == dict.fromkeys(
        ("keyword", "vector", "graph"), "ok"
    )
    assert told["results"] == 1
    assert set(told["shares"][0]) == {"keyword", "vector", "graph"}
    assert sum(told["weights"].values()) == pytest.approx(1)


async def test_the_query_is_told_only_where_that_was_asked_for() -> None:
    for queries in (False, True):
        exporter = InMemorySpanExporter()
        on = tracing.Tracing("http://127.0.0.1:1/v1/traces", queries=queries)
        on.start(SimpleSpanProcessor(exporter))
        with tracing.asking("keyword", "walrus"):
            pass
        await on.stop()
        [span] = exporter.get_finished_spans()
        assert ("db.query.text" in (span.attributes or {})) is queries


def test_without_an_endpoint_nothing_is_traced_and_a_span_is_one_and_the_same() -> None:
    assert tracing.span("fuse") is tracing.asking("keyword", "walrus") is tracing.request("GET", {}, "x")


def test_an_endpoint_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SetupError, match=r"braid-search\[tracing\]"):
        tracing.Tracing("http://127.0.0.1:1/v1/traces", queries=False).start()
