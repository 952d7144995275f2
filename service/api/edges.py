"""`/v1/edges`: links between documents, in bulk."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import ValidationError

from service.api.answers import JSON, BulkOut, DeletedOut
from service.api.deps import Author, State, StateDep, Wait
from service.api.handlers import PROBLEMS, field_errors
from service.api.limits import AtMost
from service.api.schemas import EdgeIn, EdgeKey
from service.stores.keys import Caller

router = APIRouter(prefix="/v1/edges", tags=["edges"], responses=PROBLEMS)

_EXAMPLE = [{"source": "manual-17", "target": "note-3", "type": "supports", "strength": 0.9}]
Items = Annotated[list[dict[str, Any]], AtMost("max_bulk_items", "items"), Body(min_length=1, examples=[_EXAMPLE])]


@router.post("", response_model=BulkOut, responses={202: {"model": BulkOut}})
async def add_edges(items: Items, state: StateDep, caller: Author, wait: Wait = False) -> JSON:
    """Adds or changes links. A link to a document that isn't there yet is kept, and becomes real when it comes."""
    read = [_read(item) for item in items]
    edges = [edge.to_edge() for edge in read if isinstance(edge, EdgeIn)]
    if edges:
        await state.writer.admit(caller.reach)
        await state.writer.documents(caller.reach).add_edges(edges)
        state.writer.wake()
    answer = _answer(read)
    if wait:
        answer["visible"] = await _settled(state, caller, [edge.source for edge in edges])
    return JSON(answer, 202 if answer.get("visible") is False else 200)


@router.delete("", response_model=DeletedOut, responses={202: {"model": DeletedOut}})
async def delete_edges(
    items: Annotated[list[EdgeKey], AtMost("max_bulk_items", "items"), Body(min_length=1)],
    state: StateDep,
    caller: Author,
    wait: Wait = False,
) -> JSON:
    """Deletes links; without a type, all links from source to target."""
    gone = await state.writer.documents(caller.reach).delete_edges([item.model_dump() for item in items])
    state.writer.wake()
    if not wait:
        return JSON({"deleted": gone})
    visible = await _settled(state, caller, [item.source for item in items])
    return JSON({"deleted": gone, "visible": visible}, 200 if visible else 202)


async def _settled(state: State, caller: Caller, sources: list[str]) -> bool:
    return await state.writer.settled(caller.reach, sorted(set(sources)), state.wait_timeout_ms)


def _read(item: dict[str, Any]) -> EdgeIn | str:
    """The link, or why it is refused."""
    try:
        return EdgeIn.model_validate(item)
    except ValidationError as error:
        return "; ".join(f"{e['field']}: {e['message']}" for e in field_errors(error.errors())[:3])


def _answer(read: list[EdgeIn | str]) -> dict[str, Any]:
    answers = [
        {"id": f"{one.source}->{one.target}", "status": "updated"}
        if isinstance(one, EdgeIn)
        else {"id": None, "status": "error", "error": one}
        for one in read
    ]
    return {"errors": any(isinstance(one, str) for one in read), "items": answers}
