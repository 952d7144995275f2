"""`/v1/admin`: tenants, their projects, namespaces and keys, admin keys, and the audit. For admin keys only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from service.api.admin_schemas import (
    AdminKeyIn,
    AdminNamespacesOut,
    AuditOut,
    IndexingOut,
    KeyIn,
    KeysOut,
    NamespaceChange,
    NamespaceGone,
    NamespaceIn,
    NamespaceOut,
    NewKeyOut,
    Prefix,
    ProjectGone,
    ProjectIn,
    ProjectName,
    ProjectOut,
    ProjectsOut,
    RebuildIn,
    RebuildOut,
    RetryIn,
    RetryOut,
    TenantChange,
    TenantGone,
    TenantIn,
    TenantName,
    TenantOut,
    TenantsOut,
    UsedTenantOut,
    VerifiedOut,
    VerifyIn,
)
from service.api.deps import Admin, State, StateDep, Wait
from service.api.fields import Namespace
from service.api.handlers import CONFLICT, MISSING, PROBLEMS
from service.errors import InvalidInput

router = APIRouter(prefix="/v1/admin", tags=["admin"], responses=PROBLEMS)

Limit = Annotated[int, Query(ge=1, le=1000)]
AfterName = Annotated[
    str, Query(max_length=128, pattern="^[^\\x00]*$", description="the name the last page ended with")
]
AfterPrefix = Annotated[str, Query(pattern="^[0-9a-f]{0,12}$", description="the prefix the last page ended with")]
GONE: dict[int | str, dict[str, Any]] = MISSING | CONFLICT


def _page(rows: Sequence[dict[str, Any]], limit: int, kind: str, key: str = "name") -> dict[str, Any]:
    """One row more than `limit` was asked for: it says whether there is another page."""
    page = rows[:limit]
    return {kind: page, "next": page[-1][key] if len(rows) > limit else None}


@router.post("/tenants", status_code=201, response_model=TenantOut, responses=CONFLICT)
async def create_tenant(body: TenantIn, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Makes a tenant, with a project `default`. A quota that is not given is none."""
    quotas = {"max_documents": body.max_documents, "max_bytes": body.max_bytes}
    return await state.tenants.create(caller.name, body.name, quotas)


@router.get("/tenants", response_model=TenantsOut)
async def list_tenants(state: StateDep, caller: Admin, after: AfterName = "", limit: Limit = 100) -> dict[str, Any]:
    """Tenants in order of name, page by page."""
    return _page(await state.tenants.listed(after, limit + 1), limit, "tenants")


@router.get("/tenants/{tenant}", response_model=UsedTenantOut, responses=MISSING)
async def get_tenant(tenant: TenantName, state: StateDep, caller: Admin) -> dict[str, Any]:
    """A tenant, its quotas, and how much it holds."""
    return await state.tenants.get(tenant)


@router.patch("/tenants/{tenant}", response_model=UsedTenantOut, responses=GONE)
async def change_tenant(tenant: TenantName, body: TenantChange, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Suspends or resumes a tenant, or changes its quotas or the defaults of its searches.

    Keys of a suspended tenant get a 403 within 5 seconds.
    """
    if body.ranking is not None:
        state.searcher.check_options(body.ranking.options())
    await state.tenants.change(caller.name, tenant, body.changes())
    state.forget_callers()
    state.searcher.defaults.forget()
    return await state.tenants.get(tenant)


@router.delete("/tenants/{tenant}", response_model=TenantGone, responses=GONE)
async def delete_tenant(tenant: TenantName, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Deletes a tenant and everything it has from all three engines, and says what each engine holds afterwards.

    Its keys are refused at once. If an engine is down the answer is a 503 and the tenant stays `deleting`: repeat the
    call to finish.
    """
    id = await state.removal.condemn(caller.name, tenant)
    state.forget_callers()
    engines = await state.removal.tenant(caller.name, id, tenant)
    state.forget_callers()
    return {"id": id, "name": tenant, "engines": engines}


@router.post("/tenants/{tenant}/projects", status_code=201, response_model=ProjectOut, responses=GONE)
async def create_project(tenant: TenantName, body: ProjectIn, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Makes a project: namespaces belong to one, and a key may be bound to one."""
    return await state.spaces.add_project(caller.name, tenant, body.name)


@router.get("/tenants/{tenant}/projects", response_model=ProjectsOut, responses=MISSING)
async def list_projects(
    tenant: TenantName, state: StateDep, caller: Admin, after: AfterName = "", limit: Limit = 100
) -> dict[str, Any]:
    """A tenant's projects in order of name, page by page."""
    return _page(await state.spaces.projects(tenant, after, limit + 1), limit, "projects")


@router.delete("/tenants/{tenant}/projects/{project}", response_model=ProjectGone, responses=GONE)
async def delete_project(
    tenant: TenantName,
    project: ProjectName,
    state: StateDep,
    caller: Admin,
    force: Annotated[bool, Query(description="delete its namespaces with their documents, too")] = False,
) -> dict[str, Any]:
    """Deletes a project and revokes the keys bound to it. Refused while it has namespaces, unless forced."""
    revoked = await state.removal.project(caller.name, tenant, project, force=force)
    state.forget_callers()
    return {"name": project, "revoked": revoked}


@router.post("/tenants/{tenant}/namespaces", status_code=201, response_model=NamespaceOut, responses=GONE)
async def create_namespace(tenant: TenantName, body: NamespaceIn, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Makes a namespace with settings of its own."""
    _check_settings(state, body)
    made = await state.spaces.add_namespace(caller.name, tenant, body.name, body.settings())
    state.searcher.defaults.forget()
    return {**made, "embedder": state.embedder}


@router.get("/tenants/{tenant}/namespaces", response_model=AdminNamespacesOut, responses=MISSING)
async def list_namespaces(
    tenant: TenantName, state: StateDep, caller: Admin, after: AfterName = "", limit: Limit = 100
) -> dict[str, Any]:
    """A tenant's namespaces, also the empty ones, in order of name, page by page."""
    rows = await state.spaces.namespaces(tenant, after, limit + 1)
    return _page([{**row, "embedder": state.embedder} for row in rows], limit, "namespaces")


@router.patch("/tenants/{tenant}/namespaces/{namespace:path}", response_model=NamespaceOut, responses=GONE)
async def change_namespace(
    tenant: TenantName, namespace: Namespace, body: NamespaceChange, state: StateDep, caller: Admin
) -> dict[str, Any]:
    """Changes a namespace's settings, or moves it to another project."""
    _check_settings(state, body)
    changed = await state.spaces.change_namespace(caller.name, tenant, namespace, body.settings())
    state.searcher.defaults.forget()
    return {**changed, "embedder": state.embedder}


@router.delete(
    "/tenants/{tenant}/namespaces/{namespace:path}",
    response_model=NamespaceGone,
    response_model_exclude_none=True,
    responses=GONE,
)
async def delete_namespace(
    tenant: TenantName, namespace: Namespace, state: StateDep, caller: Admin, wait: Wait = False
) -> dict[str, Any]:
    """Deletes a namespace with its documents. A document written into it later makes it again, with the defaults."""
    reach, before, documents = await state.removal.namespace(caller.name, tenant, namespace)
    visible = await state.writer.settled_since(reach, before, state.wait_timeout_ms) if wait else None
    return {"name": namespace, "documents": documents, "visible": visible}


def _check_settings(state: State, body: NamespaceIn | NamespaceChange) -> None:
    if body.embedder not in (None, state.embedder):
        raise InvalidInput("embedder", f"this service embeds with {state.embedder!r}, not with {body.embedder!r}")
    if body.weights is not None:
        state.searcher.check_options({"weights": body.weights.model_dump(exclude_none=True)})
    if body.ranking is not None:
        state.searcher.check_options(body.ranking.options())


@router.get("/indexing", response_model=IndexingOut, responses=MISSING)
async def indexing(
    state: StateDep, caller: Admin, tenant: TenantName | None = None, limit: Limit = 100
) -> dict[str, Any]:
    """How far each index is behind, and the documents that an engine refused, with the reason.

    They are tried again by themselves, ever more seldom, up to once an hour.
    """
    id = None if tenant is None else str((await state.tenants.get(tenant))["id"])
    refused = await state.queue.refused(id, limit)
    names = await state.tenants.names({str(row["tenant_id"]) for row in refused})
    shown = [{**row, "tenant": names.get(str(row["tenant_id"]))} for row in refused]
    return {"tiers": await state.queue.state(), "refused": shown}


@router.post("/verify", response_model=VerifiedOut, responses=MISSING)
async def verify(body: VerifyIn, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Compares indexes with PostgreSQL: counts, and hashes of every entry's id and version. With `repair`, what is
    missing, stale or should not be there is applied again."""
    tenants = await _tenants(state, body.tenant)
    tiers = [body.tier] if body.tier else state.verification.tiers
    reports = [await state.verification.verify(id, tier, repair=body.repair) for id in tenants for tier in tiers]
    if body.repair:
        detail = {"differing": sum(not report.agrees for report in reports)}
        await state.tenants.note(caller.name, "indexing.repair", next(iter(tenants)) if body.tenant else None, detail)
    shown = [
        {
            "tenant": tenants[report.tenant],
            "tier": report.tier,
            "documents": report.documents,
            **{kind: len(ids) for kind, ids in report.differences.items()},
            "examples": [id for ids in report.differences.values() for id in ids][:10],
        }
        for report in reports
    ]
    return {"agrees": all(report.agrees for report in reports), "reports": shown}


@router.post("/rebuild", status_code=202, response_model=RebuildOut, responses=MISSING)
async def rebuild(body: RebuildIn, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Makes an index anew from PostgreSQL, of one tenant or of all. Searches and writes go on meanwhile; `pending` in
    `/v1/admin/indexing` says how much is left."""
    tenants = await _tenants(state, body.tenant)
    total = 0
    for id in tenants:
        count = await state.verification.rebuild(id, body.tier)
        await state.tenants.note(caller.name, "indexing.rebuild", id, {"tier": body.tier, "documents": count})
        total += count
    return {"documents": total}


async def _tenants(state: State, name: str | None) -> dict[str, str]:
    """The tenant of this name, or all: names by id."""
    if name is not None:
        return {str((await state.tenants.get(name))["id"]): name}
    return await state.tenants.names(await state.tenants.ids())


@router.post("/indexing/retry", response_model=RetryOut, responses=MISSING)
async def retry_indexing(body: RetryIn, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Tries refused documents again at once: all, or those of a tenant, a tier, one document."""
    id = None if body.tenant is None else str((await state.tenants.get(body.tenant))["id"])
    count = await state.queue.retry(id, body.id, body.tier)
    await state.tenants.note(caller.name, "indexing.retry", id, {**body.model_dump(), "documents": count})
    state.writer.wake()
    return {"documents": count}


@router.post("/tenants/{tenant}/keys", status_code=201, response_model=NewKeyOut, responses=GONE)
async def create_key(tenant: TenantName, body: KeyIn, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Makes an API key of a tenant. It is shown once. Two live keys may share a name, so that one can be rotated."""
    return await _create_key(state, caller.name, tenant, body)


@router.get("/tenants/{tenant}/keys", response_model=KeysOut, responses=MISSING)
async def list_keys(
    tenant: TenantName, state: StateDep, caller: Admin, after: AfterPrefix = "", limit: Limit = 100
) -> dict[str, Any]:
    """A tenant's keys in order of prefix, page by page, the revoked and expired ones too."""
    return _page(await state.key_desk.listed(tenant, after, limit + 1), limit, "keys", "prefix")


@router.delete("/tenants/{tenant}/keys/{prefix}", status_code=204, response_class=Response, responses=GONE)
async def revoke_key(tenant: TenantName, prefix: Prefix, state: StateDep, caller: Admin) -> Response:
    """Revokes a tenant's key: at once on the instance that answers, within 5 seconds on others."""
    await state.key_desk.revoke(caller.name, tenant, prefix)
    return Response(status_code=204)


@router.post("/keys", status_code=201, response_model=NewKeyOut, responses=CONFLICT)
async def create_admin_key(body: AdminKeyIn, state: StateDep, caller: Admin) -> dict[str, Any]:
    """Makes an admin key. It is shown once, and reaches no tenant's documents."""
    return await _create_key(state, caller.name, None, body)


@router.get("/keys", response_model=KeysOut)
async def list_admin_keys(
    state: StateDep, caller: Admin, after: AfterPrefix = "", limit: Limit = 100
) -> dict[str, Any]:
    """Admin keys in order of prefix, page by page, the revoked and expired ones too."""
    return _page(await state.key_desk.listed(None, after, limit + 1), limit, "keys", "prefix")


@router.delete("/keys/{prefix}", status_code=204, response_class=Response, responses=MISSING)
async def revoke_admin_key(prefix: Prefix, state: StateDep, caller: Admin) -> Response:
    """Revokes an admin key, be it the caller's own: at once here, within 5 seconds on other instances."""
    await state.key_desk.revoke(caller.name, None, prefix)
    return Response(status_code=204)


async def _create_key(state: State, actor: str, tenant: str | None, body: AdminKeyIn) -> dict[str, Any]:
    key, made = await state.key_desk.create(actor, tenant, body.to_key())
    return {**made, "key": key}


@router.get("/audit", response_model=AuditOut)
async def audit(
    state: StateDep,
    caller: Admin,
    tenant: Annotated[
        TenantName | None, Query(description="a tenant's name, or its id: a deleted one has no other")
    ] = None,
    after: Annotated[int, Query(ge=0, le=2**63 - 1, description="the id the last page ended with")] = 0,
    limit: Limit = 100,
) -> dict[str, Any]:
    """What admins and keys did, oldest first, page by page. Nobody can change or remove a line."""
    return _page(await state.tenants.audited(tenant, after, limit + 1), limit, "lines", "id")
