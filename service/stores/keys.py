"""API keys: `braid_<prefix>.<secret>`, found by prefix, kept only as a keyed digest.

An API key belongs to a tenant and may be narrowed to a project or to some namespaces. An admin key belongs to none.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.errors import BraidError, Conflict, Forbidden, InvalidInput, NotFound, Unauthorized
from service.model import Reach
from service.stores.postgres import Connection, Postgres
from service.stores.tenants import Tenants, record

SCOPES = ("search", "write")
ADMIN = "admin"
# As many as a rotation needs: the old one and the new one.
LIVE_KEYS = 2
_REMEMBERED = 10_000

_FIND = "SELECT * FROM find_key($1)"
# Two who make a key of one name at once must not both count one.
_TAKE_TURNS = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_PROJECT = "SELECT EXISTS (SELECT FROM projects WHERE tenant_id = $1 AND name = $2)"
_LIVE = """
SELECT count(*) FROM api_keys WHERE tenant_id IS NOT DISTINCT FROM $1 AND name = $2 AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > now())
"""
_SHOWN = "prefix, name, scopes, project, namespaces, created_at, expires_at, revoked_at, last_used_at"
_ADD = f"""
INSERT INTO api_keys (prefix, tenant_id, name, digest, scopes, project, namespaces, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING {_SHOWN}
"""  # noqa: S608
_LIST = f"""
SELECT {_SHOWN} FROM api_keys
WHERE tenant_id IS NOT DISTINCT FROM $1 AND prefix > $2 ORDER BY prefix LIMIT $3
"""  # noqa: S608
_REVOKE = """
UPDATE api_keys SET revoked_at = now() WHERE prefix = $1 AND tenant_id IS NOT DISTINCT FROM $2 AND revoked_at IS NULL
RETURNING prefix
"""
_USED = """
UPDATE api_keys k SET last_used_at = u.at FROM unnest($1::text[], $2::timestamptz[]) AS u (prefix, at)
WHERE k.prefix = u.prefix AND (k.last_used_at IS NULL OR k.last_used_at < u.at)
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking: how far they reach and what they may do. An admin reaches no tenant's documents."""

    name: str
    scopes: tuple[str, ...]
    tenant_reach: Reach | None

    @property
    def reach(self) -> Reach:
        if self.tenant_reach is None:
            raise Forbidden("an admin key reaches no documents: use an API key of the tenant")
        return self.tenant_reach


@dataclass(frozen=True, slots=True)
class NewKey:
    """What a key to be made may do, and for how long."""

    name: str = "default"
    scopes: Sequence[str] = SCOPES
    project: str | None = None
    namespaces: Sequence[str] | None = None
    expires_at: datetime | None = None


class Keys:
    """Makes, checks and revokes keys. A good key is remembered for seconds, so a revoked one soon stops working."""

    def __init__(self, postgres: Postgres, pepper: bytes, clock: Callable[[], float], ttl_s: float = 4.0) -> None:
        self._postgres = postgres
        self._pepper = pepper
        self._clock = clock
        self._ttl = ttl_s
        self._known: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._forgotten = 0
        self._used: dict[str, datetime] = {}

    async def add(self, connection: Connection, tenant: str | None, wanted: NewKey) -> tuple[str, dict[str, Any]]:
        """A new key, and what is known of it, in the caller's transaction."""
        await connection.execute(_TAKE_TURNS, f"key {tenant} {wanted.name}")
        if await connection.fetchval(_LIVE, tenant, wanted.name) >= LIVE_KEYS:
            raise Conflict(f"there are {LIVE_KEYS} live keys of the name {wanted.name!r} already: revoke one first")
        if wanted.project is not None and not await connection.fetchval(_PROJECT, tenant, wanted.project):
            raise InvalidInput("project", f"there is no project {wanted.project!r}")
        prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        names = None if wanted.namespaces is None else list(wanted.namespaces)
        terms = (list(wanted.scopes), wanted.project, names, wanted.expires_at)
        made = await connection.fetchrow(_ADD, prefix, tenant, wanted.name, self._digest(secret), *terms)
        return f"braid_{prefix}.{secret}", dict(made)

    async def check(self, key: str, now: datetime) -> Caller:
        """Who this key belongs to. Takes as long for an unknown prefix as for a wrong secret."""
        digest = self._digest(key)
        remembered = self._known.get(digest)
        caller = remembered[1] if remembered and remembered[0] > self._clock() else await self._look_up(key, digest)
        self._used[caller.name] = now
        return caller

    async def flush(self) -> None:
        """Records when keys were last used: now and then, not with every request."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            async with self._postgres.service("admin") as connection:
                await connection.execute(_USED, list(used), list(used.values()))
        except BraidError:
            self._used = used | self._used
            raise

    async def keep_flushing(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            with contextlib.suppress(BraidError):  # next time, then
                await self.flush()

    def forget(self) -> None:
        """Looks every key up again: one was revoked, or a tenant suspended. Other instances do so within seconds."""
        self._known.clear()
        self._forgotten += 1

    async def _look_up(self, key: str, digest: bytes) -> Caller:
        prefix, _, secret = key.removeprefix("braid_").partition(".")
        forgotten = self._forgotten
        row = await self._postgres.fetchrow(_FIND, prefix) if prefix.isalnum() and prefix.isascii() else None
        expected = bytes(32) if row is None else bytes(row["digest"])
        if not hmac.compare_digest(self._digest(secret), expected) or row is None:
            raise Unauthorized("this API key is not known, or has expired or been revoked")
        caller = _caller(prefix, row)
        if forgotten == self._forgotten:  # else this may be what was to be forgotten
            self._remember(digest, caller)
        return caller

    def _remember(self, digest: bytes, caller: Caller) -> None:
        self._known[digest] = (self._clock() + self._ttl, caller)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _digest(self, secret: str) -> bytes:
        return hmac.digest(self._pepper, secret.encode("utf-8", "surrogatepass"), hashlib.sha256)


def _caller(prefix: str, row: Any) -> Caller:
    if row["tenant_id"] is None:
        return Caller(prefix, tuple(row["scopes"]), None)
    if row["tenant_state"] != "active":
        raise Forbidden(f"this tenant is {row['tenant_state']}")
    names = None if row["namespaces"] is None else tuple(row["namespaces"])
    return Caller(prefix, tuple(row["scopes"]), Reach(str(row["tenant_id"]), row["project"], names))


class KeyDesk:
    """Where admins make, list and revoke keys: a tenant's by its name, or admin keys where that is None."""

    def __init__(self, tenants: Tenants, keys: Keys) -> None:
        self._tenants = tenants
        self._keys = keys

    async def create(self, actor: str, tenant: str | None, wanted: NewKey) -> tuple[str, dict[str, Any]]:
        """A new key, shown here and never again, and what is known of it."""
        async with self._opened(tenant) as (connection, id):
            key, made = await self._keys.add(connection, id, wanted)
            told = ("prefix", "name", "scopes", "project", "namespaces", "expires_at")
            await record(connection, actor, "key.create", id, {each: made[each] for each in told})
            return key, made

    async def listed(self, tenant: str | None, after: str, limit: int) -> list[dict[str, Any]]:
        """Keys in order of prefix, the revoked and expired ones too."""
        await self._keys.flush()
        async with self._opened(tenant, changing=False) as (connection, id):
            return [dict(row) for row in await connection.fetch(_LIST, id, after, limit)]

    async def revoke(self, actor: str, tenant: str | None, prefix: str) -> None:
        async with self._opened(tenant) as (connection, id):
            if await connection.fetchval(_REVOKE, prefix, id) is None:
                raise NotFound(f"there is no live key {prefix!r}")
            await record(connection, actor, "key.revoke", id, {"prefix": prefix})
        self._keys.forget()

    @asynccontextmanager
    async def _opened(
        self, tenant: str | None, *, changing: bool = True
    ) -> AsyncIterator[tuple[Connection, str | None]]:
        if tenant is not None:
            async with self._tenants.opened(tenant, changing=changing) as (connection, id):
                yield connection, id
            return
        async with self._tenants.admin() as connection:
            yield connection, None
