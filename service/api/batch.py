"""`/v1/search/batch`: many searches in one call, each answered for itself."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.api.answers import SearchOut
from service.api.deps import Reader, State, StateDep
from service.api.fields import Strict
from service.api.handlers import PROBLEMS, Problem, field_errors, ours, problem
from service.api.schemas import SearchIn
from service.api.search import answered, asked
from service.errors import BraidError
from service.model import Query
from service.stores.keys import Caller

MOST = 50
_AT_ONCE = 4
"""Searches of one batch that are under way together: a batch must not take all connections from other callers."""

router = APIRouter(prefix="/v1/search", tags=["search"], responses=PROBLEMS)


class BatchIn(Strict):
    """Searches, each as `/v1/search` takes it. One that is refused does not fail the others."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"searches": [{"query": "antenna heater", "limit": 3}, {"query": "who repaired the pump"}]}]
        },
    )

    searches: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST)]


class BatchItemOut(BaseModel):
    """What `/v1/search` would have answered: its status, and the answer or the problem."""

    status: int
    answer: SearchOut | None = None
    problem: Problem | None = None


class BatchOut(BaseModel):
    """The answers, in the order of the searches. `errors` says whether any of them is a problem."""

    errors: bool
    items: list[BatchItemOut]


@router.post("/batch", response_model=BatchOut)
async def search_batch(body: BatchIn, request: Request, state: StateDep, caller: Reader) -> Response:
    """Up to 50 searches. Their texts are embedded in one call; each counts as one for the rate limits."""
    for _ in body.searches[1:]:
        state.rates.admit(request, caller)
    read = [_read(item, request, state, caller) for item in body.searches]
    queries = await state.recall.embedded([each for each in read if isinstance(each, Query)])
    embedded, turns = iter(queries), asyncio.Semaphore(_AT_ONCE)
    items = await asyncio.gather(
        *(_item(next(embedded) if isinstance(each, Query) else each, request, state, turns) for each in read)
    )
    errors = any(item["status"] != 200 for item in items)
    return Response(orjson.dumps({"errors": errors, "items": items}), media_type="application/json")


def _read(item: dict[str, Any], request: Request, state: State, caller: Caller) -> Query | Response:
    """A search, or the problem with it."""
    try:
        return asked(SearchIn.model_validate(item), state, caller)
    except ValidationError as error:
        errors = field_errors(error.errors())
        named = "; ".join(f"{each['field']}: {each['message']}" for each in errors[:3])
        return problem(request, 422, "invalid_input", named, errors=errors)
    except BraidError as error:
        return ours(request, error)


async def _item(read: Query | Response, request: Request, state: State, turns: asyncio.Semaphore) -> dict[str, Any]:
    if isinstance(read, Response):
        return _problem(read)
    try:
        async with turns:
            body = await answered(read, state, request.scope["braid.request_id"])
    except BraidError as error:
        return _problem(ours(request, error))
    return {"status": 200, "answer": orjson.Fragment(body)}


def _problem(response: Response) -> dict[str, Any]:
    return {"status": response.status_code, "problem": orjson.Fragment(response.body)}
