"""Pure ASGI middleware around everything: request id, limits, headers, a timer, and what nobody foresaw."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect

from service import logs, metrics, tracing
from service.api import surface
from service.api.handlers import Refused, problem
from service.api.limits import Limits, applying, too_deep
from service.errors import outline

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
NDJSON = "application/x-ndjson"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMiddleware:
    """Wraps the whole application, so that refusals and failures are timed, counted and protected too."""

    def __init__(self, app: App, limits: Limits, ops_port: int | None) -> None:
        self._app = app
        self._limits = limits
        self._ops_port = ops_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=dict(scope))
        request_id = _request_id(headers)
        scope["braid.request_id"] = request_id
        logs.request_id.set(request_id)
        logs.tenant.set("")
        with tracing.request(scope["method"], headers, request_id) as span:
            await self._timed(scope, headers, receive, send, span)

    async def _timed(self, scope: Scope, headers: Headers, receive: Receive, send: Send, span: Any) -> None:
        request_id = scope["braid.request_id"]
        scope["braid.headers"] = {}  # what endpoints want said beside their answer, whatever becomes of it
        status = 0
        started = time.perf_counter()

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                answered = MutableHeaders(scope=message)
                answered["X-Request-ID"] = request_id
                answered.update(scope["braid.headers"])
                surface.protect(answered, scope["path"])
            await send(message)

        try:
            with applying(self._limits):
                await self._answer(scope, self._bounded(headers, receive), respond)
        except ClientDisconnect:
            status = status or 499
        except Exception as error:  # noqa: BLE001 - whatever it is, it is answered and logged, without what it says
            log.error("request %s failed: %s", request_id, outline(error))  # noqa: TRY400
            if not status:
                await unforeseen(scope)(scope, receive, respond)
        finally:
            _count(scope, status or 500, time.perf_counter() - started)
            tracing.answered(span, scope["method"], _route(scope), status or 500)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        # By the socket that the request came in on, not by what the request says.
        port = (scope.get("server") or ("", None))[1]
        if self._ops_port is None or surface.answers(scope["path"], ops_port=port == self._ops_port):
            await self._app(scope, receive, send)
        else:
            await problem(Request(scope), 404, "not_found", "Not Found")(scope, receive, send)

    def _bounded(self, headers: Headers, receive: Receive) -> Receive:
        # A stream of lines has no limit of its own: each of its lines has.
        streamed = headers.get("content-type", "").startswith(NDJSON)
        declared = headers.get("content-length", "")
        return receive if streamed else bounded(receive, self._limits, int(declared) if declared.isdecimal() else 0)


def bounded(receive: Receive, limits: Limits, declared: int = 0) -> Receive:
    """Refuses a body while it comes in: as soon as it is too large, and at its end where it nests too deep."""
    size = 0
    parts: list[bytes] = []

    async def receive_some() -> Message:
        nonlocal size
        if declared > limits.max_body_bytes:
            raise _too_large(limits)
        message = await receive()
        if message["type"] != "http.request":
            return message
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limits.max_body_bytes:
            raise _too_large(limits)
        if not message.get("more_body") and too_deep(b"".join(parts), limits.max_json_depth):
            raise Refused(422, "invalid_input", "body", f"must nest at most {limits.max_json_depth} levels deep")
        return message

    return receive_some


def _too_large(limits: Limits) -> Refused:
    message = f"must have at most {limits.max_body_bytes} bytes; send documents as NDJSON for more"
    return Refused(413, "content_too_large", "body", message)


def unforeseen(scope: Scope) -> App:
    detail = "something went wrong here; the request id is in our log"
    return problem(Request(scope), 500, "internal_error", detail)


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "unmatched")


def _count(scope: Scope, status: int, seconds: float) -> None:
    route = _route(scope)
    method = scope["method"] if scope["method"] in _METHODS else "other"
    metrics.HTTP_REQUESTS.labels(method, route, str(status)).inc()
    metrics.HTTP_SECONDS.labels(method, route).observe(seconds)
    if "braid.problem" in scope:
        metrics.HTTP_ERRORS.labels(method, route, scope["braid.problem"]).inc()
