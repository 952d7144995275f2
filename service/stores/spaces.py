"""Projects and namespaces, seen by an admin. Like all that admins do, every change writes its line of the audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.errors import Conflict, InvalidInput, NotFound
from service.stores.postgres import Connection
from service.stores.tenants import DEFAULT, Tenants, record

_ADD_PROJECT = """
INSERT INTO projects (tenant_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING name, created_at
"""
_LIST_PROJECTS = """
SELECT name, created_at FROM projects WHERE tenant_id = $1 AND name > $2 ORDER BY name LIMIT $3
"""
_HOLD_PROJECT = "SELECT name FROM projects WHERE tenant_id = $1 AND name = $2 FOR UPDATE"
_FIND_PROJECT = "SELECT name FROM projects WHERE tenant_id = $1 AND name = $2 FOR KEY SHARE"
_NAMESPACES_OF = "SELECT name FROM namespaces WHERE tenant_id = $1 AND project = $2 ORDER BY name LIMIT $3"
_DROP_PROJECT = "DELETE FROM projects WHERE tenant_id = $1 AND name = $2"
# A key of a project must not come back to life with a new project of that name.
_REVOKE = """
UPDATE api_keys SET revoked_at = now() WHERE tenant_id = $1 AND project = $2 AND revoked_at IS NULL RETURNING prefix
"""
_LANGUAGE = "(SELECT c.cfgname::text FROM pg_ts_config c WHERE c.oid = language)"
_SHOWN = f"name, project, {_LANGUAGE} AS language, weights, ranking, created_at"
_ADD = f"""
INSERT INTO namespaces (tenant_id, name, project, language, weights, ranking)
VALUES ($1, $2, $3, quote_ident($4)::regconfig, $5, $6) ON CONFLICT DO NOTHING RETURNING {_SHOWN}
"""  # noqa: S608
_LIST = f"SELECT {_SHOWN} FROM namespaces WHERE tenant_id = $1 AND name > $2 ORDER BY name LIMIT $3"  # noqa: S608
_HOLD = f"SELECT {_SHOWN} FROM namespaces WHERE tenant_id = $1 AND name = $2 FOR UPDATE"  # noqa: S608
_CHANGE = f"""
UPDATE namespaces SET project = $3, language = quote_ident($4)::regconfig,
    worded_to = CASE WHEN language = quote_ident($4)::regconfig THEN worded_to ELSE '' END, weights = $5, ranking = $6
WHERE tenant_id = $1 AND name = $2
RETURNING {_SHOWN}
"""  # noqa: S608
_OCCUPIED = "SELECT EXISTS (SELECT FROM documents WHERE tenant_id = $1 AND namespace = $2)"
_DROP = "DELETE FROM namespaces WHERE tenant_id = $1 AND name = $2"
_LANGUAGES = "SELECT cfgname::text AS name FROM pg_ts_config WHERE pg_ts_config_is_visible(oid) ORDER BY 1"

_NEW = {"project": DEFAULT, "language": "english", "weights": None, "ranking": None}


class Spaces:
    """What a tenant is divided into."""

    def __init__(self, tenants: Tenants, language: str = "english") -> None:
        self._tenants = tenants
        self._new = {**_NEW, "language": language}

    async def projects(self, tenant: str, after: str, limit: int) -> list[dict[str, Any]]:
        async with self._tenants.opened(tenant, changing=False) as (connection, id):
            return [dict(row) for row in await connection.fetch(_LIST_PROJECTS, id, after, limit)]

    async def add_project(self, actor: str, tenant: str, name: str) -> dict[str, Any]:
        async with self._tenants.opened(tenant) as (connection, id):
            made = await connection.fetchrow(_ADD_PROJECT, id, name)
            if made is None:
                raise Conflict(f"there is a project {name!r} already")
            await record(connection, actor, "project.create", id, {"project": name})
            return dict(made)

    async def namespaces_of(self, tenant: str, project: str, limit: int) -> list[str]:
        """Some of the namespaces of a project."""
        async with self._tenants.opened(tenant) as (connection, id):
            return [row["name"] for row in await connection.fetch(_NAMESPACES_OF, id, project, limit)]

    async def drop_project(self, actor: str, tenant: str, name: str) -> list[str]:
        """Drops an empty project and revokes the keys that were bound to it, of which it returns the prefixes."""
        if name == DEFAULT:
            raise Conflict("the project 'default' stays: what names no project belongs to it")
        async with self._tenants.opened(tenant) as (connection, id):
            if await connection.fetchrow(_HOLD_PROJECT, id, name) is None:
                raise NotFound(f"there is no project {name!r}")
            some = [row["name"] for row in await connection.fetch(_NAMESPACES_OF, id, name, 3)]
            if some:
                raise Conflict(f"the project has namespaces ({', '.join(some)} ...): ?force=true deletes them too")
            revoked = [row["prefix"] for row in await connection.fetch(_REVOKE, id, name)]
            await connection.execute(_DROP_PROJECT, id, name)
            await record(connection, actor, "project.delete", id, {"project": name, "revoked": revoked})
            return revoked

    async def namespaces(self, tenant: str, after: str, limit: int) -> list[dict[str, Any]]:
        async with self._tenants.opened(tenant, changing=False) as (connection, id):
            return [dict(row) for row in await connection.fetch(_LIST, id, after, limit)]

    async def add_namespace(self, actor: str, tenant: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        async with self._tenants.opened(tenant) as (connection, id):
            chosen = await _checked(connection, id, {**self._new, **settings})
            made = await connection.fetchrow(_ADD, id, name, *chosen)
            if made is None:
                raise Conflict(f"there is a namespace {name!r} already")
            await record(connection, actor, "namespace.create", id, {"namespace": name, **settings})
            return dict(made)

    async def change_namespace(self, actor: str, tenant: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        async with self._tenants.opened(tenant) as (connection, id):
            held = await _held(connection, id, name)
            chosen = await _checked(connection, id, {**held, **settings})
            changed = await connection.fetchrow(_CHANGE, id, name, *chosen)
            await record(connection, actor, "namespace.change", id, {"namespace": name, **settings})
            return dict(changed)

    async def doom_namespace(self, actor: str, tenant: str, name: str) -> str:
        """Records that a namespace is going to be deleted. Returns the tenant's id."""
        async with self._tenants.opened(tenant) as (connection, id):
            await _held(connection, id, name)
            await record(connection, actor, "namespace.delete", id, {"namespace": name})
            return id

    async def drop_namespace(self, actor: str, tenant: str, name: str, documents: int) -> bool:
        """Drops an empty namespace; False where it is not, because something was written in the meantime."""
        async with self._tenants.opened(tenant) as (connection, id):
            await _held(connection, id, name)  # from here on nobody writes into it
            if await connection.fetchval(_OCCUPIED, id, name):
                return False
            await connection.execute(_DROP, id, name)
            await record(connection, actor, "namespace.deleted", id, {"namespace": name, "documents": documents})
            return True


async def _held(connection: Connection, tenant: str, name: str) -> dict[str, Any]:
    held = await connection.fetchrow(_HOLD, tenant, name)
    if held is None:
        raise NotFound(f"there is no namespace {name!r}")
    return dict(held)


async def _checked(connection: Connection, tenant: str, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    project, language = settings["project"], settings["language"]
    if await connection.fetchrow(_FIND_PROJECT, tenant, project) is None:
        raise InvalidInput("project", f"there is no project {project!r}")
    known = [row["name"] for row in await connection.fetch(_LANGUAGES)]
    if language not in known:
        raise InvalidInput("language", f"PostgreSQL has no text search configuration of this name: {', '.join(known)}")
    return project, language, settings["weights"], settings["ranking"]
