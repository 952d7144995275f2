"""A running Braid on real engines, spoken to over HTTP. Every test has tenants of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck, settings

from service.app import Engines, create_app, make_key
from service.settings import Settings
from service.stores.keys import Caller, NewKey

# A busy machine is no failure: no test is held to a time.
settings.register_profile("braid", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("braid")
os.environ["COLUMNS"] = "120"  # read when the command is imported; a pytest worker would say 80
_names = itertools.count()
_COUNTED = """
SELECT EXISTS (SELECT FROM corpus c WHERE c.tenant_id = $1 AND c.weighed_to IS NULL
    AND c.changes = (SELECT sum(changes) FROM usage WHERE tenant_id = $1))
"""


@dataclass
class Running:
    """A Braid that answers at `url`, and its insides for tests that break them."""

    app: FastAPI
    url: str
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    @property
    def engines(self) -> Engines:
        engines: Engines = self.app.state.engines
        return engines

    async def sql(self, statement: str, *arguments: object, database: str = "postgres") -> list[Any]:
        """As the owner of the tables, whom row security would otherwise hide everything from."""
        connection = await asyncpg.connect(self.database(database))
        try:
            rows: list[Any] = await connection.fetch(statement, *arguments)
            return rows
        finally:
            await connection.close()

    def database(self, name: str) -> str:
        """The owner's address of a database."""
        return (self.engines.addresses.postgres_url or "").replace("/postgres?", f"/{name}?")

    def client(self, key: str | None = None) -> httpx.AsyncClient:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30)
        self.clients.append(client)
        return client

    async def key(self, tenant: str | None = None, scopes: Sequence[str] = ("search", "write"), **terms: Any) -> str:
        state = self.app.state.braid
        wanted = NewKey(name=f"key-{next(_names)}", scopes=scopes, **terms)
        return await make_key(state.tenants, state.keys, tenant or f"tenant-{next(_names)}", wanted)

    async def tenant_of(self, key: str) -> str:
        caller: Caller = await self.app.state.braid.keys.check(key, datetime.now(UTC))
        return caller.reach.tenant

    async def counted(self, client: httpx.AsyncClient) -> None:
        """Waits until the words of a client's documents are counted, as rankings may change until then."""
        tenant = await self.tenant_of(client.headers["Authorization"].removeprefix("Bearer "))
        for _ in range(400):
            if (await self.sql(_COUNTED, tenant))[0][0]:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the words were not counted in 20 s")

    async def tenant(self) -> httpx.AsyncClient:
        """A client that is a new tenant."""
        return self.client(await self.key())


@asynccontextmanager
async def running(data_dir: Path, **settings: Any) -> AsyncIterator[Running]:
    """Braid on a free port, stopped with everything it started."""
    app = create_app(Settings(data_dir=data_dir, **settings))
    config = uvicorn.Config(app, port=0, log_level="warning", access_log=False, lifespan="on", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:
        assert not serving.done(), "Braid did not start; the log says why"
        await asyncio.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()[:2]
    braid = Running(app, f"http://{host}:{port}")
    try:
        yield braid
    finally:
        for client in braid.clients:
            await client.aclose()
        server.should_exit = True
        await serving


@pytest.fixture(scope="session")
async def braid() -> AsyncIterator[Running]:
    """One Braid for all tests that break nothing."""
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        # Patient, as the machine may be busy with another process's tests.
        async with running(Path(folder) / "data", index_poll_ms=50, search_timeout_ms=10_000) as started:
            yield started


@pytest.fixture
async def client(braid: Running) -> httpx.AsyncClient:
    """A client that is a new tenant of the shared Braid."""
    return await braid.tenant()
