"""Tenants and their API keys: `braid_<prefix>.<secret>`, found by prefix, kept only as a keyed digest."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from service.errors import Unauthorized
from service.stores.postgres import Postgres

SCOPES = ("search", "write")

_TENANT = """
INSERT INTO tenants (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id
"""
_ADD = "INSERT INTO api_keys (prefix, tenant_id, digest, scopes) VALUES ($1, $2, $3, $4)"
_FIND = """
SELECT tenant_id, digest, scopes FROM api_keys
WHERE prefix = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking: a tenant, through a key with these scopes."""

    tenant: str
    scopes: tuple[str, ...]


class Keys:
    """Creates and checks API keys. A good key is remembered for a few seconds, so a revoked one soon stops working."""

    def __init__(self, postgres: Postgres, pepper: bytes, clock: Callable[[], float], ttl_s: float = 5.0) -> None:
        self._postgres = postgres
        self._pepper = pepper
        self._clock = clock
        self._ttl = ttl_s
        self._known: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()

    async def create_tenant(self, name: str) -> str:
        """The tenant's id; the same name gives the same tenant."""
        return str((await self._postgres.fetchrow(_TENANT, name))["id"])

    async def create(self, tenant: str, scopes: Sequence[str] = SCOPES) -> str:
        """A new key, shown here and never again."""
        prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        await self._postgres.fetch(_ADD, prefix, tenant, self._digest(secret), list(scopes))
        return f"braid_{prefix}.{secret}"

    async def check(self, key: str) -> Caller:
        """Who this key belongs to. Takes as long for an unknown prefix as for a wrong secret."""
        digest = self._digest(key)
        remembered = self._known.get(digest)
        if remembered is not None and remembered[0] > self._clock():
            return remembered[1]
        caller = await self._look_up(key)
        self._remember(digest, caller)
        return caller

    async def _look_up(self, key: str) -> Caller:
        prefix, _, secret = key.removeprefix("braid_").partition(".")
        row = await self._postgres.fetchrow(_FIND, prefix) if prefix.isalnum() and prefix.isascii() else None
        expected = bytes(32) if row is None else bytes(row["digest"])
        if not hmac.compare_digest(self._digest(secret), expected) or row is None:
            raise Unauthorized("this API key is not known, or has been revoked")
        return Caller(str(row["tenant_id"]), tuple(row["scopes"]))

    def _remember(self, digest: bytes, caller: Caller) -> None:
        self._known[digest] = (self._clock() + self._ttl, caller)
        if len(self._known) > 10_000:
            self._known.popitem(last=False)

    def _digest(self, secret: str) -> bytes:
        return hmac.digest(self._pepper, secret.encode("utf-8", "surrogatepass"), hashlib.sha256)
