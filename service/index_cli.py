"""`braid worker`, `braid rebuild` and `braid verify`: what keeps the derived indexes in step with PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import httpx
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from service.console import Url, address_of, checked, err, log_at, opened_postgres, out, read_settings, url_of
from service.embedded import running
from service.errors import SetupError
from service.settings import Settings
from service.stores.keys import ADMIN, KeyDesk, Keys, NewKey
from service.stores.tenants import Tenants

_LOOK_S = 0.3
_PATIENCE_S = 3600
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


class Tier(StrEnum):
    """What can be rebuilt, and verified."""

    KEYWORD = "keyword"
    VECTOR = "vector"
    GRAPH = "graph"


TenantOption = Annotated[str | None, typer.Option("--tenant", help="the tenant's name; all if not given")]
TierOption = Annotated[Tier | None, typer.Option("--tier", help="all if not given")]


def rebuild(tier: TierOption = None, tenant: TenantOption = None, url: Url = None) -> None:
    """Make an index anew from PostgreSQL, while searches and writes go on. What a crash interrupts goes on afterwards.

    Needed after a change of the embedder: stop Braid, run this with the new settings, start Braid.
    """
    asyncio.run(_rebuild([tier] if tier else list(Tier), tenant, url))


async def _rebuild(tiers: list[Tier], tenant: str | None, url: str | None) -> None:
    async with _admin(url, renew_vectors=Tier.VECTOR in tiers and tenant is None) as client:
        with Progress(*_COLUMNS, console=err) as progress:
            for tier in tiers:
                task = progress.add_task(f"Rebuilding {tier}", total=None)
                body = {"tier": tier, **({"tenant": tenant} if tenant else {})}
                total = checked(await client.post("/v1/admin/rebuild", json=body))["documents"]
                progress.update(task, total=total)
                while tier is not Tier.KEYWORD and (left := await _pending(client, tier)):
                    progress.update(task, completed=max(0, total - left))
                    await asyncio.sleep(_LOOK_S)
                progress.update(task, completed=total)
                out.print(f"{tier}: {total} documents.")


async def _pending(client: httpx.AsyncClient, tier: Tier) -> int:
    """Without those that the engine refused, which no waiting brings."""
    state = checked(await client.get("/v1/admin/indexing", params={"limit": 1}))["tiers"][tier]
    return int(state["pending"]) - int(state["refused"])


def verify(
    tier: TierOption = None,
    tenant: TenantOption = None,
    repair: Annotated[bool, typer.Option("--repair", help="apply again what differs")] = False,
    url: Url = None,
) -> None:
    """Compare the indexes with PostgreSQL, entry by entry where count or hash differ. Exits with 1 if one does."""
    given = {"tier": tier, "tenant": tenant, "repair": repair}
    answer = asyncio.run(_verify({name: value for name, value in given.items() if value}, url))
    table = Table(box=None, pad_edge=False)
    columns = ("tenant", "tier", "documents", "missing", "phantom", "stale", "duplicate")
    for column in columns:
        table.add_column(column)
    for report in answer["reports"]:
        table.add_row(*(str(report[column]) for column in columns))
    out.print(table)
    if answer["agrees"]:
        out.print("The indexes agree with PostgreSQL.")
        return
    out.print("What differs is applied again." if repair else "They differ: --repair applies again what does.")
    raise typer.Exit(1)


async def _verify(body: dict[str, Any], url: str | None) -> dict[str, Any]:
    async with _admin(url) as client:
        answer: dict[str, Any] = checked(await client.post("/v1/admin/verify", json=body))
        while body.get("repair") and any([await _pending(client, tier) for tier in (Tier.VECTOR, Tier.GRAPH)]):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        return answer


@contextlib.asynccontextmanager
async def _admin(url: str | None, *, renew_vectors: bool = False) -> AsyncIterator[httpx.AsyncClient]:
    """The admin API of the instance that runs, which alone may open embedded engines; or of one for this only."""
    settings = read_settings()
    log_at("error")
    if url or running(settings.data_dir):
        where = url or (url_of(settings.host, settings.ops_port) if settings.ops_port else address_of(settings))
        async with (
            opened_postgres(settings) as postgres,
            _key(settings, Tenants(postgres)) as key,
            httpx.AsyncClient(base_url=where, headers=_bearing(key), timeout=_PATIENCE_S) as client,
        ):
            yield client
        return
    from service.app import create_app  # noqa: PLC0415 - it takes long

    api = create_app(settings, renew_vectors=renew_vectors)
    async with api.router.lifespan_context(api), _key(settings, api.state.braid.tenants) as key:
        base = f"http://braid:{settings.ops_port or settings.port}"
        transport = httpx.ASGITransport(app=api)
        async with httpx.AsyncClient(
            transport=transport, base_url=base, headers=_bearing(key), timeout=_PATIENCE_S
        ) as client:
            yield client


def _bearing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@contextlib.asynccontextmanager
async def _key(settings: Settings, tenants: Tenants) -> AsyncIterator[str]:
    """An admin key for this command only: who reaches the database may make one anyway."""
    from service.app import key_pepper  # noqa: PLC0415 - it takes long

    postgres = tenants.postgres
    desk = KeyDesk(tenants, Keys(postgres, key_pepper(settings), lambda: 0.0))
    soon = datetime.now(UTC) + timedelta(days=1)
    key, made = await desk.create("cli", None, NewKey(f"cli-{secrets.token_hex(4)}", (ADMIN,), expires_at=soon))
    try:
        yield key
    finally:
        await desk.revoke("cli", None, made["prefix"])


def worker() -> None:
    """Bring the indexes of BRAID_INDEX_SINKS up to date, without an API. Every engine they need must be a server."""
    settings = read_settings()
    log_at(settings.log_level)
    needed = {"vector": settings.qdrant_url, "graph": settings.falkordb_url}
    missing = [sink for sink in settings.index_sinks.split() if needed[sink] is None]
    if settings.postgres_url is None or missing or not settings.index_sinks:
        raise SetupError(
            "a worker of its own needs servers: set BRAID_POSTGRES_URL, BRAID_QDRANT_URL for vector and "
            "BRAID_FALKORDB_URL for graph, or leave out an index in BRAID_INDEX_SINKS"
        )

    async def work() -> None:
        from service.app import working  # noqa: PLC0415 - it takes long

        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        async with working(settings):
            out.print(f"Indexing: {settings.index_sinks}. Ctrl-C stops it.")
            await stopping.wait()

    asyncio.run(work())
