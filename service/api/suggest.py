"""`/v1/suggest`: search as you type."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from service.api.answers import JSON, SuggestionsOut, suggestion_body
from service.api.deps import Reader, StateDep
from service.api.fields import Namespaces, SomeQueryText
from service.api.handlers import PROBLEMS
from service.ranking.suggestions import woven

router = APIRouter(prefix="/v1/suggest", tags=["search"], responses=PROBLEMS)

MOST = 50


@router.get("", response_model=SuggestionsOut)
async def suggest(
    state: StateDep,
    caller: Reader,
    q: Annotated[SomeQueryText, Query(description="what was typed so far", examples=["gra"])],
    limit: Annotated[int, Field(ge=1, le=MOST)] = 10,
    namespace: Annotated[Namespaces | None, Query(description="only of these; may be repeated")] = None,
) -> JSON:
    """Completes what was typed with titles, names and words of the caller's own documents."""
    typed = " ".join(q.split()) + (" " if q[-1:].isspace() else "")
    found = await state.completions.beginning(caller.reach, typed, namespace, 2 * limit)
    return JSON({"suggestions": [suggestion_body(each) for each in woven(found, typed, limit)]})
