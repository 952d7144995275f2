"""`/v1/namespaces`: where a tenant's documents stand."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.answers import NamespaceOut, NamespacesOut
from service.api.deps import Reader, StateDep
from service.api.handlers import PROBLEMS

router = APIRouter(prefix="/v1/namespaces", tags=["namespaces"], responses=PROBLEMS)


@router.get("")
async def namespaces(state: StateDep, caller: Reader) -> NamespacesOut:
    """The namespaces that hold documents, with counts."""
    counts = await state.writer.documents(caller.reach).namespace_counts()
    return NamespacesOut(namespaces=[NamespaceOut(name=name, documents=count) for name, count in counts.items()])
