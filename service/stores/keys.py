"""API keys: `braid_<prefix>.<secret>`, found by prefix, kept only as a keyed digest.

An API key belongs to a tenant and may be narrowed to a project or to some namespaces. An admin key belongs to none.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.errors import Forbidden, InvalidInput, Unauthorized
from service.model import Reach
from service.stores.postgres import Connection, Postgres

SCOPES = ("search", "write")
ADMIN = "admin"
# As many as a rotation needs: the old one and the new one.
LIVE_KEYS = 2
_REMEMBERED = 10_000

_FIND = "SELECT * FROM find_key($1)"
_LIVE = """
SELECT count(*) FROM api_keys WHERE tenant_id IS NOT DISTINCT FROM $1 AND name = $2 AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > now())
"""
_ADD = """
INSERT INTO api_keys (prefix, tenant_id, name, digest, scopes, project, namespaces, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""
_LIST = """
SELECT prefix, name, scopes, project, namespaces, created_at, expires_at, revoked_at, last_used_at FROM api_keys
WHERE tenant_id IS NOT DISTINCT FROM $1 ORDER BY created_at, prefix LIMIT $2
"""
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
        self._used: dict[str, datetime] = {}

    async def create(self, connection: Connection, tenant: str | None, wanted: NewKey) -> str:
        """A new key, shown here and never again. Runs in the caller's transaction."""
        if await connection.fetchval(_LIVE, tenant, wanted.name) >= LIVE_KEYS:
            raise InvalidInput("name", f"has {LIVE_KEYS} live keys already: revoke one first")
        prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        names = None if wanted.namespaces is None else list(wanted.namespaces)
        terms = (list(wanted.scopes), wanted.project, names, wanted.expires_at)
        await connection.execute(_ADD, prefix, tenant, wanted.name, self._digest(secret), *terms)
        return f"braid_{prefix}.{secret}"

    async def listed(self, connection: Connection, tenant: str | None, limit: int) -> list[dict[str, Any]]:
        return [dict(row) for row in await connection.fetch(_LIST, tenant, limit)]

    async def revoke(self, connection: Connection, tenant: str | None, prefix: str) -> bool:
        """True where there was a live one. This instance forgets it at once, others within seconds."""
        self._known.clear()
        return await connection.fetchval(_REVOKE, prefix, tenant) is not None

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
        if used:
            async with self._postgres.service("admin") as connection:
                await connection.execute(_USED, list(used), list(used.values()))

    async def keep_flushing(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await self.flush()

    def forget(self) -> None:
        """Looks every key up again, e.g. after a tenant was suspended."""
        self._known.clear()

    async def _look_up(self, key: str, digest: bytes) -> Caller:
        prefix, _, secret = key.removeprefix("braid_").partition(".")
        row = await self._postgres.fetchrow(_FIND, prefix) if prefix.isalnum() and prefix.isascii() else None
        expected = bytes(32) if row is None else bytes(row["digest"])
        if not hmac.compare_digest(self._digest(secret), expected) or row is None:
            raise Unauthorized("this API key is not known, or has expired or been revoked")
        caller = _caller(prefix, row)
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
