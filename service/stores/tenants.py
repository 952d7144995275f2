"""Tenants, their projects and namespaces, what they hold and may hold, and the record of who changed what.

Everything here runs in a transaction of an admin, and writes its line of the audit table in the same transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from service.errors import InvalidInput, NotFound
from service.stores.postgres import Connection, Postgres

DEFAULT = "default"

_ADD = """
INSERT INTO tenants (name, max_documents, max_bytes) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING RETURNING id
"""
_FIND = "SELECT id FROM tenants WHERE name = $1"
_ADD_PROJECT = "INSERT INTO projects (tenant_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING name"
_AUDIT = "INSERT INTO audit (actor, action, tenant_id, detail) VALUES ($1, $2, $3, $4)"


class Tenants:
    """The tenants, seen by an admin; `actor` is who the audit table names: a key's prefix, or `cli`."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def ensure(self, name: str, actor: str = "cli") -> str:
        """The id of the tenant of this name, made where there is none."""
        async with self._postgres.service("admin") as connection:
            found = await connection.fetchval(_FIND, name)
            return str(found) if found is not None else await self._create(connection, actor, name, {})

    async def create(self, actor: str, name: str, quotas: Mapping[str, int | None]) -> str:
        async with self._postgres.service("admin") as connection:
            return await self._create(connection, actor, name, quotas)

    @asynccontextmanager
    async def opened(self, name: str) -> AsyncIterator[tuple[Connection, str]]:
        """A transaction of an admin who also sees what belongs to this tenant, and the tenant's id."""
        async with self._postgres.service("admin") as connection:
            found = await connection.fetchval(_FIND, name)
            if found is None:
                raise NotFound(f"there is no tenant {name!r}")
            await _enter(connection, str(found))
            yield connection, str(found)

    async def _create(self, connection: Connection, actor: str, name: str, quotas: Mapping[str, int | None]) -> str:
        made = await connection.fetchval(_ADD, name, quotas.get("max_documents"), quotas.get("max_bytes"))
        if made is None:
            raise InvalidInput("name", f"there is a tenant {name!r} already")
        await _enter(connection, str(made))
        await connection.execute(_ADD_PROJECT, made, DEFAULT)
        await record(connection, actor, "tenant.create", str(made), {"name": name, **quotas})
        return str(made)


async def record(
    connection: Connection, actor: str, action: str, tenant: str | None, detail: Mapping[str, Any]
) -> None:
    """A line of the audit table: what was done, never a secret."""
    await connection.execute(_AUDIT, actor, action, tenant, dict(detail))


async def _enter(connection: Connection, tenant: str) -> None:
    await connection.execute("SELECT set_config('app.tenant', $1, true)", tenant)
