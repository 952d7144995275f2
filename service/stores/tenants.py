"""Tenants: what they are, hold and may hold, and the record of who changed what.

Everything here runs in a transaction of an admin, and writes its line of the audit table in the same transaction.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from service.errors import Conflict, InvalidInput, NotFound
from service.stores import epochs
from service.stores.postgres import Connection, Postgres

DEFAULT = "default"
DELETING = "deleting"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}$"

# What a tenant has rows in, in the order in which they can go. The tenant's own row takes its keys along.
_HELD = ("documents", "edges", "dirty", "usage", "epochs", "namespaces", "projects")
_BATCHED = ("edges", "documents")
_BATCH = 2000

_SHOWN = "id, name, state, max_documents, max_bytes, ranking, created_at"
_ADD = f"""
INSERT INTO tenants (name, max_documents, max_bytes) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING
RETURNING {_SHOWN}
"""  # noqa: S608
_FIND = f"SELECT {_SHOWN} FROM tenants WHERE name = $1"  # noqa: S608
_HOLD = f"{_FIND} FOR NO KEY UPDATE"
_IDS = "SELECT id FROM tenants WHERE state <> 'deleting' ORDER BY name"
_NAMES = "SELECT id, name FROM tenants WHERE id = ANY($1::uuid[])"
_LIST = f"SELECT {_SHOWN} FROM tenants WHERE name > $1 ORDER BY name LIMIT $2"  # noqa: S608
_CHANGE = f"""
UPDATE tenants SET state = $2, max_documents = $3, max_bytes = $4, ranking = $5 WHERE id = $1 RETURNING {_SHOWN}
"""  # noqa: S608
_USAGE = """
SELECT coalesce(sum(documents), 0)::bigint AS documents, coalesce(sum(bytes), 0)::bigint AS bytes
FROM usage WHERE tenant_id = $1
"""
_ADD_PROJECT = "INSERT INTO projects (tenant_id, name) VALUES ($1, $2)"
_AUDIT = "INSERT INTO audit (actor, action, tenant_id, detail) VALUES ($1, $2, $3, $4)"
# By name, or by id: a deleted tenant has no other.
_AUDITED = """
SELECT id, at, actor, action, tenant_id, detail FROM audit
WHERE id > $2 AND ($1::text IS NULL
    OR tenant_id = coalesce((SELECT t.id FROM tenants t WHERE t.name = $1), $4::uuid))
ORDER BY id LIMIT $3
"""
_CONDEMN = "UPDATE tenants SET state = 'deleting' WHERE id = $1"
# Whoever writes holds the row of its active tenant until it is done: this waits for the last of them.
_SEIZE = "SELECT FROM tenants WHERE id = $1 FOR UPDATE"
_ERASE = "DELETE FROM tenants WHERE id = $1"
_COUNT_KEYS = "SELECT count(*) FROM api_keys WHERE tenant_id = $1"
_COUNT_TENANTS = "SELECT count(*) FROM tenants WHERE id = $1"


class Tenants:
    """The tenants, seen by an admin; `actor` is who the audit table names: a key's prefix, or `cli`."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = self._postgres = postgres

    async def ensure(self, name: str, actor: str = "cli") -> str:
        """The id of the tenant of this name, made where there is none."""
        async with self.admin() as connection:
            found = await connection.fetchrow(_FIND, name) or await self._create(connection, actor, name, {})
            return str(found["id"])

    async def create(self, actor: str, name: str, quotas: Mapping[str, int | None]) -> dict[str, Any]:
        async with self.admin() as connection:
            return dict(await self._create(connection, actor, name, quotas))

    async def listed(self, after: str, limit: int) -> list[dict[str, Any]]:
        async with self.admin() as connection:
            return [dict(row) for row in await connection.fetch(_LIST, after, limit)]

    async def get(self, name: str) -> dict[str, Any]:
        """The tenant, and what it holds."""
        async with self.admin() as connection:
            found = await _found(connection, _FIND, name)
            await _enter(connection, str(found["id"]))
            return {**found, "usage": dict(await connection.fetchrow(_USAGE, found["id"]))}

    async def change(self, actor: str, name: str, changes: Mapping[str, Any]) -> None:
        """Changes its state or its quotas. A tenant that is being deleted stays so."""
        async with self.admin() as connection:
            found = await _found(connection, _HOLD, name)
            _refuse_deleting(found)
            new = {**found, **changes}
            values = [new[name] for name in ("state", "max_documents", "max_bytes", "ranking")]
            await connection.fetchrow(_CHANGE, found["id"], *values)
            await record(connection, actor, "tenant.change", str(found["id"]), {"name": name, **changes})
            await _enter(connection, str(found["id"]))
            await epochs.advance(connection, str(found["id"]))  # kept answers were ranked by the old defaults

    async def ids(self) -> list[str]:
        """Of all tenants that are not being deleted."""
        async with self.admin() as connection:
            return [str(row["id"]) for row in await connection.fetch(_IDS)]

    async def names(self, ids: Collection[str]) -> dict[str, str]:
        """What the tenants of these ids are called."""
        async with self.admin() as connection:
            return {str(row["id"]): row["name"] for row in await connection.fetch(_NAMES, list(ids))}

    async def note(self, actor: str, action: str, tenant: str | None, detail: Mapping[str, Any]) -> None:
        """A line of the audit for what was done elsewhere."""
        async with self.admin() as connection:
            await record(connection, actor, action, tenant, detail)

    async def audited(self, tenant: str | None, after: int, limit: int) -> list[dict[str, Any]]:
        """The audit's lines, of all or of one tenant, in order of writing."""
        async with self.admin() as connection:
            return [dict(row) for row in await connection.fetch(_AUDITED, tenant, after, limit, _uuid(tenant))]

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Connection]:
        """A transaction of an admin, who sees tenants, keys and the audit."""
        async with self._postgres.service("admin") as connection:
            yield connection

    @asynccontextmanager
    async def opened(self, name: str, *, changing: bool = True) -> AsyncIterator[tuple[Connection, str]]:
        """A transaction of an admin who also sees what belongs to this tenant, and the tenant's id."""
        async with self.admin() as connection:
            found = await _found(connection, _FIND, name)
            if changing:
                _refuse_deleting(found)
            await _enter(connection, str(found["id"]))
            yield connection, str(found["id"])
            if changing:
                await epochs.advance(connection, str(found["id"]))

    async def condemn(self, actor: str, name: str) -> str:
        """From here on nobody writes, its keys are refused and no worker claims what it wrote. There is no way back."""
        async with self.admin() as connection:
            found = await _found(connection, _HOLD, name)
            if found["state"] != DELETING:
                await connection.execute(_CONDEMN, found["id"])
                await record(connection, actor, "tenant.delete", str(found["id"]), {"name": name})
        async with self.admin() as connection:
            await connection.execute(_SEIZE, found["id"])
        return str(found["id"])

    async def erase(self, actor: str, tenant: str, name: str) -> dict[str, int]:
        """Deletes a condemned tenant's rows, in bounded batches as long as there are many. Says how many of what."""
        gone = {table: await self._thin_out(tenant, table) for table in _BATCHED}
        async with self.admin() as connection:
            await _enter(connection, tenant)
            await connection.execute(_SEIZE, tenant)
            gone["api_keys"] = await connection.fetchval(_COUNT_KEYS, tenant)
            for table in _HELD:
                done = await connection.execute(f"DELETE FROM {table} WHERE tenant_id = $1", tenant)  # noqa: S608
                gone[table] = gone.get(table, 0) + _affected(done)
            gone["tenants"] = _affected(await connection.execute(_ERASE, tenant))
            if gone["tenants"]:
                await record(connection, actor, "tenant.deleted", tenant, {"name": name, "removed": gone})
        return gone

    async def remaining(self, tenant: str) -> dict[str, int]:
        """What PostgreSQL holds of a tenant, counted table by table."""
        async with self.admin() as connection:
            await _enter(connection, tenant)
            held = {
                table: await connection.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = $1", tenant)  # noqa: S608
                for table in _HELD
            }
            held["api_keys"] = await connection.fetchval(_COUNT_KEYS, tenant)
            held["tenants"] = await connection.fetchval(_COUNT_TENANTS, tenant)
        return held

    async def _thin_out(self, tenant: str, table: str) -> int:
        some = f"SELECT ctid FROM {table} WHERE tenant_id = $1 LIMIT {_BATCH}"  # noqa: S608
        batch = f"DELETE FROM {table} WHERE ctid = ANY (ARRAY({some})) AND tenant_id = $1"  # noqa: S608
        total = 0
        while True:
            async with self.admin() as connection:
                await _enter(connection, tenant)
                gone = _affected(await connection.execute(batch, tenant))
            total += gone
            if gone < _BATCH:
                return total

    async def _create(self, connection: Connection, actor: str, name: str, quotas: Mapping[str, int | None]) -> Any:
        if not re.fullmatch(NAME, name):
            raise InvalidInput("name", "must be 1 to 128 of A-Z a-z 0-9 _ . @ -, and begin with a letter or a digit")
        made = await connection.fetchrow(_ADD, name, quotas.get("max_documents"), quotas.get("max_bytes"))
        if made is None:
            raise Conflict(f"there is a tenant {name!r} already")
        await _enter(connection, str(made["id"]))
        await connection.execute(_ADD_PROJECT, made["id"], DEFAULT)
        await record(connection, actor, "tenant.create", str(made["id"]), {"name": name, **quotas})
        return made


async def record(
    connection: Connection, actor: str, action: str, tenant: str | None, detail: Mapping[str, Any]
) -> None:
    """A line of the audit table: what was done, never a secret."""
    await connection.execute(_AUDIT, actor, action, tenant, dict(detail))


async def _found(connection: Connection, statement: str, name: str) -> Any:
    found = await connection.fetchrow(statement, name)
    if found is None:
        raise NotFound(f"there is no tenant {name!r}")
    return found


def _refuse_deleting(found: Any) -> None:
    if found["state"] == DELETING:
        raise Conflict(f"the tenant {found['name']!r} is being deleted")


async def _enter(connection: Connection, tenant: str) -> None:
    await connection.execute("SELECT set_config('app.tenant', $1, true)", tenant)


def _affected(answer: str) -> int:
    """PostgreSQL says `DELETE 12`."""
    return int(answer.rpartition(" ")[2])


def _uuid(text: str | None) -> str | None:
    hexed = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text or "", re.IGNORECASE)
    return text if hexed else None
