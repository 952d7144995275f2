"""What Braid asks of a Qdrant server, over HTTP, answered by the client package's own local mode.

No Qdrant server comes as a Python package, and faults on the wire need a wire. This shows how Braid's adapter, its
client and its HTTP connections take what networks do; it says nothing about how a Qdrant server itself fails.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import uvicorn
from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_POINTS: TypeAdapter[list[models.PointStruct]] = TypeAdapter(list[models.PointStruct])
_ALIASES: TypeAdapter[list[models.CreateAliasOperation]] = TypeAdapter(list[models.CreateAliasOperation])

Work = Callable[[str, dict[str, Any]], Any]


class StandIn:
    """A collection in memory, behind the paths that Braid's adapter uses."""

    def __init__(self) -> None:
        self._client = QdrantClient(":memory:")
        self.app = Starlette(
            routes=[
                Route("/collections/aliases", self._answers(self._alias), methods=["POST"]),
                Route("/collections/{name}", self._answers(self._show), methods=["GET"]),
                Route("/collections/{name}", self._answers(self._create), methods=["PUT"]),
                Route("/collections/{name}/exists", self._answers(self._exists), methods=["GET"]),
                Route("/collections/{name}/index", self._answers(lambda *_: _done()), methods=["PUT"]),
                Route("/collections/{name}/points", self._answers(self._upsert), methods=["PUT"]),
                Route("/collections/{name}/points/query", self._answers(self._query), methods=["POST"]),
                Route("/collections/{name}/points/delete", self._answers(self._delete), methods=["POST"]),
                Route("/collections/{name}/points/count", self._answers(self._count), methods=["POST"]),
            ]
        )

    def _answers(self, work: Work) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            body = await request.body()
            name = request.path_params.get("name", "")
            result = work(name, orjson.loads(body) if body else {})
            shown = result.model_dump(mode="json") if hasattr(result, "model_dump") else result
            answer = {"result": shown, "status": "ok", "time": 0.0}
            return Response(orjson.dumps(answer), media_type="application/json")

        return endpoint

    def _show(self, name: str, _: dict[str, Any]) -> Any:
        return self._client.get_collection(name)

    def _exists(self, name: str, _: dict[str, Any]) -> Any:
        return {"exists": self._client.collection_exists(name)}

    def _create(self, name: str, body: dict[str, Any]) -> Any:
        return self._client.create_collection(name, models.VectorParams.model_validate(body["vectors"]))

    def _alias(self, _: str, body: dict[str, Any]) -> Any:
        return self._client.update_collection_aliases(_ALIASES.validate_python(body["actions"]))

    def _upsert(self, name: str, body: dict[str, Any]) -> Any:
        self._client.upsert(name, _POINTS.validate_python(body["points"]))
        return _done()

    def _query(self, name: str, body: dict[str, Any]) -> Any:
        asked = models.QueryRequest.model_validate(body)
        return self._client.query_points(
            name,
            query=asked.query,  # type: ignore[arg-type]
            query_filter=asked.filter,
            limit=asked.limit or 10,
            with_payload=["id"],
        )

    def _delete(self, name: str, body: dict[str, Any]) -> Any:
        kind: Any = models.PointIdsList if "points" in body else models.FilterSelector
        self._client.delete(name, kind.model_validate(body))
        return _done()

    def _count(self, name: str, body: dict[str, Any]) -> Any:
        return self._client.count(name, models.Filter.model_validate(body["filter"]), exact=True)


def _done() -> dict[str, Any]:
    return {"operation_id": 0, "status": "completed"}


@asynccontextmanager
async def qdrant_stand_in() -> AsyncIterator[int]:
    """It answers at this port until the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the local mode says that it is meant for small collections
        stand_in = StandIn()
    config = uvicorn.Config(stand_in.app, port=0, log_level="warning", access_log=False, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn sets no event
        await asyncio.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving
