"""`braid key` and `braid tenant`: what an operator does beside the admin API, straight on the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

import httpx
import typer
from rich.table import Table

from service.console import Url, address_of, checked, opened_postgres, out, read_settings, url_of
from service.errors import SetupError
from service.stores.keys import ADMIN, SCOPES, KeyDesk, Keys, NewKey
from service.stores.tenants import Tenants

T = TypeVar("T")
_PAGE = 1000

key_app = typer.Typer(no_args_is_help=True, help="API keys.")
tenant_app = typer.Typer(no_args_is_help=True, help="Tenants.")

TenantOption = Annotated[str | None, typer.Option(help="the tenant's name")]
AdminOption = Annotated[bool, typer.Option("--admin", help="an admin key, which belongs to no tenant")]
Name = Annotated[str, typer.Argument(help="the tenant's name")]


def _run(work: Callable[[Tenants, KeyDesk], Awaitable[T]]) -> T:
    """Does this on the database, beside a running Braid or without one."""

    async def run() -> T:
        from service.app import key_pepper  # noqa: PLC0415 - it takes long

        settings = read_settings()
        async with opened_postgres(settings) as postgres:
            tenants = Tenants(postgres)
            return await work(tenants, KeyDesk(tenants, Keys(postgres, key_pepper(settings), lambda: 0.0)))

    return asyncio.run(run())


def _owner(tenant: str | None, admin: bool) -> str | None:
    """Whose keys are meant: a tenant's, by name, or None for admin keys."""
    if (tenant is None) is not admin:
        raise SetupError("say whose key it is: --tenant with a name, or --admin")
    return tenant


@key_app.command("create", epilog="Example: braid key create --tenant my-team --scope search")
def key_create(
    tenant: Annotated[str | None, typer.Option(help="the tenant's name; made if it is new")] = None,
    admin: AdminOption = False,
    scope: Annotated[list[str] | None, typer.Option(help="search, write; both if not given")] = None,
    name: Annotated[str, typer.Option(help="what the key is for; up to two live keys share a name")] = "default",
    project: Annotated[str | None, typer.Option(help="only this project; all if not given")] = None,
    namespace: Annotated[list[str] | None, typer.Option(help="only these; may be repeated")] = None,
    days: Annotated[int | None, typer.Option(min=1, max=36_500, help="how long it is valid; ever if not given")] = None,
) -> None:
    """Make an API key. It is shown once and kept only as a digest."""
    owner = _owner(tenant, admin)
    unknown = set(scope or ()) - set(SCOPES)
    if unknown:
        raise SetupError(f"unknown scope {', '.join(sorted(unknown))}: there are {', '.join(SCOPES)}")
    if admin and (scope or project or namespace):
        raise SetupError("an admin key has one scope and no project or namespaces: leave these options out")
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    wanted = NewKey(name, (ADMIN,) if admin else scope or SCOPES, project, namespace, expires_at)

    async def create(tenants: Tenants, desk: KeyDesk) -> str:
        if owner is not None:
            await tenants.ensure(owner)
        return (await desk.create("cli", owner, wanted))[0]

    print(_run(create))  # noqa: T201 - plain, for scripts


@key_app.command("list", epilog="Example: braid key list --tenant my-team")
def key_list(tenant: TenantOption = None, admin: AdminOption = False) -> None:
    """List keys, with what they may do and when they were last used."""
    owner = _owner(tenant, admin)
    columns = ("prefix", "name", "scopes", "project", "namespaces", "expires_at", "revoked_at", "last_used_at")
    _show(columns, _run(lambda _, desk: _pages(lambda after: desk.listed(owner, after, _PAGE), "prefix")))


@key_app.command("revoke", epilog="Example: braid key revoke 0f3a9c51d2e7 --tenant my-team")
def key_revoke(
    prefix: Annotated[str, typer.Argument(help="what stands between `braid_` and the dot")],
    tenant: TenantOption = None,
    admin: AdminOption = False,
) -> None:
    """Revoke a key. A running Braid refuses it within 5 seconds."""
    owner = _owner(tenant, admin)
    _run(lambda _, desk: desk.revoke("cli", owner, prefix.removeprefix("braid_").partition(".")[0]))
    out.print("Revoked.")


@tenant_app.command("list", epilog="Example: braid tenant list")
def tenant_list() -> None:
    """List tenants and their quotas."""
    columns = ("name", "state", "max_documents", "max_bytes", "created_at", "id")
    _show(columns, _run(lambda tenants, _: _pages(lambda after: tenants.listed(after, _PAGE), "name")))


@tenant_app.command("create", epilog="Example: braid tenant create my-team --max-documents 100000")
def tenant_create(
    name: Name,
    max_documents: Annotated[int | None, typer.Option(min=0, help="no limit if not given")] = None,
    max_bytes: Annotated[int | None, typer.Option(min=0, help="no limit if not given")] = None,
) -> None:
    """Make a tenant."""
    quotas = {"max_documents": max_documents, "max_bytes": max_bytes}
    made = _run(lambda tenants, _: tenants.create("cli", name, quotas))
    print(made["id"])  # noqa: T201 - plain, for scripts


@tenant_app.command("suspend", epilog="Example: braid tenant suspend my-team")
def tenant_suspend(name: Name) -> None:
    """Refuse all of a tenant's keys, within 5 seconds; its data stays."""
    _run(lambda tenants, _: tenants.change("cli", name, {"state": "suspended"}))
    out.print("Suspended.")


@tenant_app.command("resume", epilog="Example: braid tenant resume my-team")
def tenant_resume(name: Name) -> None:
    """Let a suspended tenant in again."""
    _run(lambda tenants, _: tenants.change("cli", name, {"state": "active"}))
    out.print("Resumed.")


@tenant_app.command("delete", epilog="Example: braid tenant delete my-team --yes")
def tenant_delete(
    name: Name,
    key: Annotated[str | None, typer.Option("--key", envvar="BRAID_ADMIN_KEY", help="an admin key")] = None,
    url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete a tenant and all it has from every engine. Goes over HTTP: only a running Braid reaches all three."""
    settings = read_settings()
    if key is None:
        raise SetupError("no admin key: pass --key, or set BRAID_ADMIN_KEY (braid key create --admin makes one)")
    if not yes:
        typer.confirm(f"Delete {name} and all its documents, for good?", abort=True)
    where = url or (url_of(settings.host, settings.ops_port) if settings.ops_port else address_of(settings))
    with httpx.Client(base_url=where, headers={"Authorization": f"Bearer {key}"}, timeout=600) as client:
        engines = checked(client.delete(f"/v1/admin/tenants/{quote(name, safe='')}"))["engines"]
    for engine, proof in engines.items():
        left = sum(proof["remaining"].values())
        removed = ", ".join(f"{count} {what}" for what, count in proof["removed"].items())
        out.print(f"{engine}: removed {removed}; {left} remain", highlight=False, soft_wrap=True)


async def _pages(page: Callable[[str], Awaitable[list[dict[str, Any]]]], key: str) -> list[dict[str, Any]]:
    rows = await page("")
    while len(rows) % _PAGE == 0 and rows:
        further = await page(rows[-1][key])
        if not further:
            break
        rows += further
    return rows


def _show(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    out.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
    return "" if value is None else " ".join(map(str, value)) if isinstance(value, list) else str(value)
