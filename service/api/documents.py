"""`/v1/documents`: write, read and list documents, one at a time or in bulk."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, ValidationError
from starlette.convertors import Convertor, register_url_convertor

from service.api.answers import (
    JSON,
    BulkOut,
    GoneOut,
    LinkedDocumentOut,
    NeighborsOut,
    PageOut,
    StatusOut,
    WrittenOut,
    document_body,
    status_body,
)
from service.api.bulk import BulkWrite, check_vector, lines, parse_array, status_of
from service.api.deps import Author, Reader, StateDep, Wait
from service.api.fields import TAKEN, Id, Namespaces, Text
from service.api.filters import FilterIn
from service.api.handlers import MISSING, PROBLEMS, field_errors
from service.api.limits import AtMost
from service.api.middleware import NDJSON
from service.api.schemas import DocumentBody
from service.errors import InvalidInput, NotFound
from service.model import Filter

router = APIRouter(prefix="/v1/documents", tags=["documents"], responses=PROBLEMS)


class DocumentPath(Convertor[str]):
    """An id in a path, slashes and all; but not where it ends like the address of what is asked about a document."""

    regex = rf"(?!.*(?:{'|'.join(TAKEN)})\Z).*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("document", DocumentPath())

_BULK_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Documents"}},
            NDJSON: {"schema": {"type": "string", "description": "one document a line, without limit"}},
        },
    }
}


@router.get("/{id:path}/neighbors", response_model=NeighborsOut, responses=MISSING)
async def neighbors(
    id: Id, state: StateDep, caller: Reader, limit: Annotated[int, Field(ge=1), AtMost("max_neighbors")] = 50
) -> JSON:
    """The documents one link away, in both directions, strongest first."""
    documents = state.writer.documents(caller.reach)
    if await documents.get(id) is None:
        raise NotFound(f"there is no document {id!r}")
    found = await documents.neighbors(id, limit)
    return JSON({"id": id, "neighbors": [{s: getattr(n, s) for s in n.__slots__} for n in found]})


@router.get("/{id:path}/status", response_model=StatusOut, response_model_exclude_none=True, responses=MISSING)
async def status(id: Id, state: StateDep, caller: Reader) -> StatusOut:
    """Which version of a document each tier is to have, and which it has. A deleted one is known until every tier
    has forgotten it."""
    documents = state.writer.documents(caller.reach)
    document, sinks = await documents.get(id), await documents.status(id)
    if document is None and not sinks:
        raise NotFound(f"there is no document {id!r}")
    return status_body(id, document, sinks)


@router.put(
    "/{id:document}", response_model=WrittenOut, responses={201: {"model": WrittenOut}, 202: {"model": WrittenOut}}
)
async def put_document(id: Id, body: DocumentBody, state: StateDep, caller: Author, wait: Wait = False) -> Response:
    """Writes a document. The same content again changes nothing and is not indexed again.

    With `wait` it answers when every tier has this version, or with a 202 after `BRAID_WAIT_TIMEOUT_MS`.
    """
    check_vector(body, state.writer.dimension)
    await state.writer.admit(caller.reach)
    [written] = await state.writer.put(caller.reach, [body.to_document(id)])
    answer: dict[str, Any] = {"id": id, "status": status_of(written), "version": written.version}
    if wait:
        answer["visible"] = await state.writer.settled(caller.reach, [id], state.wait_timeout_ms)
    late = answer.get("visible") is False
    return JSON(answer, 202 if late else 201 if written.created else 200)


@router.get("/{id:document}", response_model=LinkedDocumentOut, responses=MISSING)
async def get_document(id: Id, state: StateDep, caller: Reader) -> JSON:
    """A document as it is stored, with the links that begin at it."""
    documents = state.writer.documents(caller.reach)
    document = await documents.get(id)
    if document is None:
        raise NotFound(f"there is no document {id!r}")
    links = await documents.links(id, 1000)
    body = document_body(document)
    return JSON(body | {"links": [{"to": e.target, "type": e.type, "strength": e.strength} for e in links]})


@router.delete(
    "/{id:document}", status_code=204, responses={**MISSING, 202: {"model": GoneOut}}, response_class=Response
)
async def delete_document(id: Id, state: StateDep, caller: Author, wait: Wait = False) -> Response:
    """Deletes a document and the links that begin at it. With `wait`, a 202 says that a tier still has it."""
    version = await state.writer.documents(caller.reach).delete(id)
    if version is None:
        raise NotFound(f"there is no document {id!r}")
    state.writer.wake()
    if wait and not await state.writer.settled(caller.reach, [id], state.wait_timeout_ms):
        return JSON({"id": id, "status": "deleted", "version": version, "visible": True}, 202)
    return Response(status_code=204)


@router.post("", response_model=BulkOut, responses={202: {"model": BulkOut}}, openapi_extra=_BULK_BODY)
async def put_documents(request: Request, state: StateDep, caller: Author, wait: Wait = False) -> Response:
    """Writes many documents: a JSON array of up to 1,000, or NDJSON without limit. One bad item never fails another."""
    if request.headers.get("content-type", "").startswith(NDJSON):
        items = lines(request.stream())
    else:
        items = parse_array(await request.body())
    await state.writer.admit(caller.reach)
    with BulkWrite(state.writer, caller.reach) as bulk:
        await bulk.write(items)
        visible = await bulk.settled(state.wait_timeout_ms) if wait else None
        return Response(bulk.answer(visible), 202 if visible is False else 200, media_type="application/json")


@router.get("", response_model=PageOut)
async def list_documents(
    state: StateDep,
    caller: Reader,
    namespace: Annotated[Namespaces | None, Query()] = None,
    filter: Annotated[str | None, Query(max_length=8192, description="the search's `filter`, as JSON")] = None,
    after: Annotated[Text, Query(max_length=512, description="the id the last page ended with")] = "",
    limit: Annotated[int, Field(ge=1), AtMost("max_page")] = 100,
) -> JSON:
    """Documents in order of id, page by page."""
    documents = state.writer.documents(caller.reach)
    found = await documents.page(namespace, read_filter(filter), after, limit + 1)
    page, more = found[:limit], len(found) > limit
    return JSON({"documents": [document_body(d) for d in page], "next": page[-1].id if more else None})


def read_filter(text: str | None) -> Filter:
    if text is None:
        return Filter()
    try:
        return FilterIn.model_validate_json(text).to_filter()
    except ValidationError as error:
        first = field_errors(error.errors())[0]
        raise InvalidInput(f"filter.{first['field']}", first["message"]) from None
