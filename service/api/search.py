"""`/v1/search`: validate, search, answer."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.answers import JSON, ExplainOut, SearchOut, explain_body, search_body, told
from service.api.deps import Reader, State, StateDep
from service.api.fields import Cursor, Namespaces, SomeQueryText
from service.api.handlers import MISSING, PROBLEMS
from service.api.limits import AtMost
from service.api.ranking_schemas import Weights
from service.api.schemas import ExplainIn, SearchIn
from service.errors import InvalidInput
from service.model import Query as Asked
from service.recall import Answer
from service.search import Searcher
from service.stores.keys import Caller
from service.stores.words import BM25

router = APIRouter(prefix="/v1", tags=["search"], responses=PROBLEMS)


@router.post("/search", response_model=SearchOut)
async def search(body: SearchIn, request: Request, state: StateDep, caller: Reader) -> Response:
    """Asks the tiers at once and answers with one fused ranking that explains itself."""
    return await _answer(body, request, state, caller)


@router.get("/search", response_model=SearchOut)
async def search_by_url(
    request: Request,
    state: StateDep,
    caller: Reader,
    q: Annotated[SomeQueryText, Query(examples=["solar panel"])],
    limit: Annotated[int, Field(ge=1), AtMost("max_results")] = 10,
    namespace: Annotated[Namespaces | None, Query()] = None,
    keyword: Annotated[
        float | None, Query(ge=0, le=1000, allow_inf_nan=False, description="the keyword tier's weight")
    ] = None,
    vector: Annotated[
        float | None, Query(ge=0, le=1000, allow_inf_nan=False, description="the vector tier's weight")
    ] = None,
    graph: Annotated[
        float | None, Query(ge=0, le=1000, allow_inf_nan=False, description="the graph tier's weight")
    ] = None,
    explain: bool = False,
    highlight: bool = False,
    cursor: Annotated[Cursor | None, Query(description="`next` of the page before")] = None,
) -> Response:
    """The same search for links and quick looks; everything else wants the POST."""
    weights = Weights(keyword=keyword, vector=vector, graph=graph)
    body = SearchIn(
        query=q,
        limit=limit,
        include_namespaces=namespace,
        weights=weights,
        explain=explain,
        highlight=highlight,
        cursor=cursor,
    )
    return await _answer(body, request, state, caller)


@router.post("/explain", response_model=ExplainOut, responses=MISSING)
async def explain(body: ExplainIn, request: Request, state: StateDep, caller: Reader) -> JSON:
    """Says where a document stands in a search, found or not: in each tier, after fusion, and why not on the page."""
    explained = await state.searcher.explain(asked(body, state, caller), body.id)
    return JSON(explain_body(explained, request.scope["braid.request_id"]))


def _check_answerable(body: SearchIn, state: State) -> None:
    wanted = state.writer.dimension
    if body.vector is not None and len(body.vector) != wanted:
        raise InvalidInput("vector", f"has {len(body.vector)} dimensions; this service uses {wanted}")
    if body.keyword is not None and body.keyword.ranker == BM25 and state.ranker != BM25:
        raise InvalidInput("keyword.ranker", "bm25 needs pgvector, which this server's PostgreSQL did not have")


async def _answer(body: SearchIn, request: Request, state: State, caller: Caller) -> Response:
    query = asked(body, state, caller)
    content = await answered(query, state, request.scope["braid.request_id"])
    return Response(content, media_type="application/json")


def asked(body: SearchIn, state: State, caller: Caller) -> Asked:
    """The search that a body asks for. Raises `InvalidInput` for what only this service can tell to be wrong."""
    _check_answerable(body, state)
    return body.to_query(caller.reach, state.search_timeout_max_ms)


async def answered(query: Asked, state: State, request_id: str) -> bytes:
    """The body of one search, remembered or new. Its results are counted either way."""
    started = time.perf_counter()
    answer = await state.recall.answer(query, partial(_searched, state.searcher))
    state.accesses.found(query.tenant, answer.ids)
    took_ms = (time.perf_counter() - started) * 1000
    return told(answer.body, cached=answer.cached, took_ms=took_ms, request_id=request_id)


async def _searched(searcher: Searcher, query: Asked) -> Answer:
    result = await searcher.search(query)
    body = orjson.dumps(search_body(result, explain=query.explain))
    return Answer(body, tuple(found.document.id for found in result.results), whole=not result.degraded)
