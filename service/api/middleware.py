"""Pure ASGI middleware: a request id, a bound on the body, a timer."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from service import metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
NDJSON = "application/x-ndjson"


class RequestMiddleware:
    """Wraps the whole application, so that refusals are timed and counted too."""

    def __init__(self, app: App, max_body_bytes: int) -> None:
        self._app = app
        self._max_body = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=dict(scope))
        request_id = _request_id(headers)
        scope["braid.request_id"] = request_id
        status = 500
        started = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        # A stream of lines has no limit of its own: each of its lines has.
        streamed = headers.get("content-type", "").startswith(NDJSON)
        try:
            await self._app(scope, receive if streamed else bounded(receive, self._max_body), send_with_id)
        finally:
            _count(scope, status, time.perf_counter() - started)


def bounded(receive: Receive, limit: int) -> Receive:
    """Stops reading once a body is larger than we take."""
    size = 0

    async def receive_some() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise HTTPException(413, f"the body is larger than {limit} bytes; send NDJSON for more")
        return message

    return receive_some


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _count(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path", "unmatched")
    metrics.HTTP_REQUESTS.labels(scope["method"], route, str(status)).inc()
    metrics.HTTP_SECONDS.labels(scope["method"], route).observe(seconds)
