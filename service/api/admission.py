"""The gate before the application: searches take turns, and what would come too late is refused before it is read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.datastructures import Headers

from service import metrics
from service.admission import Gate
from service.api.handlers import problem
from service.errors import Overloaded

if TYPE_CHECKING:
    from service.api.middleware import App, Receive, Scope, Send

_SEARCHES = ("/v1/search", "/v1/search/", "/v1/explain")
_REMEMBERED = 10_000
_RETRY = {"Retry-After": "1"}


class AdmissionMiddleware:
    """Lets searches through a gate that is fair to tenants, and of all calls to the API so many at once.

    Whose call it is, it knows from calls before: looking a key up is work too. Callers it does not know share a turn.
    """

    def __init__(self, app: App, gate: Gate, most: int) -> None:
        self._app = app
        self._gate = gate
        self._most = most
        self._at_work = 0
        self._known: OrderedDict[int, str] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        self._at_work += 1
        metrics.AT_WORK.set(self._at_work)
        try:
            await self._admit(scope, receive, send)
        except Overloaded as error:
            refusal = problem(Request(scope), 503, "overloaded", str(error), headers=_RETRY)
            await refusal(scope, receive, send)
        finally:
            self._at_work -= 1
            metrics.AT_WORK.set(self._at_work)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._at_work > self._most:
            metrics.SHED.inc()
            raise Overloaded(f"{self._most} calls are at work here, and that is the most: try again in a moment")
        if scope["path"] not in _SEARCHES:
            await self._app(scope, receive, send)
            return
        bearer = hash(Headers(scope=dict(scope)).get("authorization", ""))
        scope["braid.caller"] = caller = dict[str, str]()
        async with self._gate.entered(self._known.get(bearer, "")):
            await self._app(scope, receive, send)
        if "tenant" in caller:
            self._learn(bearer, caller["tenant"])

    def _learn(self, bearer: int, tenant: str) -> None:
        self._known[bearer] = tenant
        self._known.move_to_end(bearer)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
