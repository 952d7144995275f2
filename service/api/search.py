"""`/v1/search`: validate, search, answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from service.api.answers import JSON, ExplainOut, SearchOut, explain_body, search_body
from service.api.deps import Reader, State, StateDep
from service.api.fields import Namespaces, SomeQueryText
from service.api.handlers import MISSING, PROBLEMS
from service.api.limits import AtMost
from service.api.ranking_schemas import Weights
from service.api.schemas import ExplainIn, SearchIn
from service.errors import InvalidInput
from service.stores.keys import Caller
from service.stores.words import BM25

router = APIRouter(prefix="/v1", tags=["search"], responses=PROBLEMS)


@router.post("/search", response_model=SearchOut)
async def search(body: SearchIn, request: Request, state: StateDep, caller: Reader) -> JSON:
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
) -> JSON:
    """The same search for links and quick looks; everything else wants the POST."""
    weights = Weights(keyword=keyword, vector=vector, graph=graph)
    body = SearchIn(
        query=q,
        limit=limit,
        include_namespaces=namespace,
        weights=weights,
        explain=explain,
        highlight=highlight,
    )
    return await _answer(body, request, state, caller)


@router.post("/explain", response_model=ExplainOut, responses=MISSING)
async def explain(body: ExplainIn, request: Request, state: StateDep, caller: Reader) -> JSON:
    """Says where a document stands in a search, found or not: in each tier, after fusion, and why not on the page."""
    _check_answerable(body, state)
    explained = await state.searcher.explain(body.to_query(caller.reach, state.search_timeout_max_ms), body.id)
    return JSON(explain_body(explained, request.scope["braid.request_id"]))


def _check_answerable(body: SearchIn, state: State) -> None:
    wanted = state.writer.dimension
    if body.vector is not None and len(body.vector) != wanted:
        raise InvalidInput("vector", f"has {len(body.vector)} dimensions; this service uses {wanted}")
    if body.keyword is not None and body.keyword.ranker == BM25 and state.ranker != BM25:
        raise InvalidInput("keyword.ranker", "bm25 needs pgvector, which this server's PostgreSQL did not have")


async def _answer(body: SearchIn, request: Request, state: State, caller: Caller) -> JSON:
    _check_answerable(body, state)
    result = await state.searcher.search(body.to_query(caller.reach, state.search_timeout_max_ms))
    return JSON(search_body(result, explain=body.explain, request_id=request.scope["braid.request_id"]))
