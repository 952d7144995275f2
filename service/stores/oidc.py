"""Bearer tokens of an OpenID Connect issuer (JWTs), as another way than API keys to say who is calling.

A token is believed for its signature by a key that the issuer publishes, and for nothing else in it. Which issuer,
audience and algorithms are accepted stands in the settings. What it says of itself never decides how it is verified,
and no part of it is logged or quoted in an answer.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import jwt

from service.errors import Forbidden, SetupError, Unauthorized
from service.model import Reach
from service.stores.jwks import ALGORITHMS, KeySet
from service.stores.keys import SCOPES, Caller
from service.stores.postgres import Postgres

# How far the issuer's clock and ours may differ.
LEEWAY_S = 30
_REMEMBERED = 10_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_REQUIRED = ("exp", "iss", "aud", "sub")
_FIND_TENANT = "SELECT id, state FROM tenants WHERE name = $1"

_REFUSALS: Mapping[type[Exception], str] = {
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidAudienceError: "the token is meant for another audience",
    jwt.InvalidIssuerError: "the token is of another issuer",
    jwt.MissingRequiredClaimError: f"the token must carry {', '.join(_REQUIRED)}",
}


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose tokens are accepted, and in which claims they say what. What could not be safe is refused at the start."""

    issuer: str
    audience: str
    jwks_url: str | None = None
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    tenant_claim: str = "braid_tenant"
    scope_claim: str = "scope"
    project_claim: str = "braid_project"
    namespaces_claim: str = "braid_namespaces"
    max_bytes: int = 8192

    def __post_init__(self) -> None:
        if not self.audience:
            raise SetupError("BRAID_OIDC_ISSUER needs BRAID_OIDC_AUDIENCE: what the issuer calls this service")
        if not self.algorithms:
            raise SetupError(f"BRAID_OIDC_ALGORITHMS is empty; use some of: {', '.join(ALGORITHMS)}")
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise SetupError(f"BRAID_OIDC_ALGORITHMS: {name!r} is refused; use some of: {', '.join(ALGORITHMS)}")
        _check_address("BRAID_OIDC_ISSUER", self.issuer)
        if self.jwks_url is not None:
            _check_address("BRAID_OIDC_JWKS_URL", self.jwks_url)


def _check_address(setting: str, url: str) -> None:
    """Whoever can change the keys on their way to us can make tokens."""
    if not _safe(url):
        raise SetupError(f"{setting} must be an https:// address (http:// only on this machine)")


def _safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )


class Tokens:
    """Turns a token into a caller. A good one is remembered for seconds, never beyond its own end."""

    def __init__(
        self, postgres: Postgres, trust: Trust, keys: KeySet, clock: Callable[[], float], ttl_s: float = 4.0
    ) -> None:
        self._postgres = postgres
        self._trust = trust
        self._keys = keys
        self._clock = clock
        self._ttl = ttl_s
        self._known: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._forgotten = 0

    @staticmethod
    def takes(bearer: str) -> bool:
        """Whether this is for us and not an API key: three parts with dots between."""
        return not bearer.startswith("braid_") and bearer.count(".") == 2

    async def check(self, token: str, now: datetime) -> Caller:
        """Who this token speaks for."""
        if len(token) > self._trust.max_bytes:
            raise Unauthorized(f"the token is longer than {self._trust.max_bytes} characters")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is not None and known[0] > self._clock():
            return known[1]
        forgotten = self._forgotten
        claims = await self._verified(token)
        caller = await self._caller(claims)
        if forgotten == self._forgotten:  # else this may be what was to be forgotten
            self._remember(digest, caller, claims["exp"] - now.timestamp())
        return caller

    def forget(self) -> None:
        """Looks every tenant up again, e.g. after one was suspended."""
        self._known.clear()
        self._forgotten += 1

    async def _verified(self, token: str) -> dict[str, Any]:
        """The claims of a token that is what it should be. On the event loop: it takes 0.2 ms."""
        with _refusals():
            header = jwt.get_unverified_header(token)
        if header.get("alg") not in self._trust.algorithms:
            raise Unauthorized("the token is signed in a way that is not accepted here")
        if "kid" not in header:
            raise Unauthorized("the token does not name the key that it is signed with (kid)")
        key = await self._keys.find(header["kid"])
        with _refusals():
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=key.algorithms,  # of the settings and of the key: the token has no say in it
                issuer=self._trust.issuer,
                audience=self._trust.audience,
                leeway=LEEWAY_S,
                options={"require": list(_REQUIRED)},
            )
            return {**claims, "exp": float(claims["exp"])}

    async def _caller(self, claims: Mapping[str, Any]) -> Caller:
        trust = self._trust
        tenant = _name(claims.get(trust.tenant_claim), trust.tenant_claim)
        project = _name(claims[trust.project_claim], trust.project_claim) if trust.project_claim in claims else None
        reach = Reach(await self._tenant(tenant), project, _names(claims, trust.namespaces_claim))
        granted = _words(claims.get(trust.scope_claim))
        scopes = tuple(scope for scope in SCOPES if f"braid:{scope}" in granted)
        return Caller(_pseudonym(reach.tenant, claims["sub"]), scopes, reach)

    async def _tenant(self, name: str) -> str:
        async with self._postgres.service("admin") as connection:
            row = await connection.fetchrow(_FIND_TENANT, name)
        if row is None:
            raise Forbidden("the token is good, but there is no tenant of the name that it carries")
        if row["state"] != "active":
            raise Forbidden(f"this tenant is {row['state']}")
        return str(row["id"])

    def _remember(self, digest: bytes, caller: Caller, left_s: float) -> None:
        self._known[digest] = (self._clock() + min(self._ttl, left_s), caller)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


@contextmanager
def _refusals() -> Iterator[None]:
    """Whatever is wrong with a token is a 401 in words of ours: the library's may quote it."""
    try:
        yield
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
        reason = next((said for kind, said in _REFUSALS.items() if isinstance(error, kind)), "the token is not valid")
        raise Unauthorized(reason) from None


def _pseudonym(tenant: str, subject: str) -> str:
    """Names the caller for limits and counts, without showing whom the token names."""
    return "oidc:" + hashlib.sha256(f"{tenant}\n{subject}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _words(claim: Any) -> list[Any]:
    """Words between spaces, as in OAuth's `scope`, or a list of them."""
    if isinstance(claim, str):
        return claim.split()
    return claim if isinstance(claim, list) else []


def _names(claims: Mapping[str, Any], claim: str) -> tuple[str, ...] | None:
    """The namespaces that a token is narrowed to; none where it does not say. What cannot be read opens nothing."""
    if claim not in claims:
        return None
    return tuple(_name(name, claim) for name in _words(claims[claim]) or [None])


def _name(value: Any, claim: str) -> str:
    """A name that PostgreSQL can hold. An empty one would mean all, so it is refused like none."""
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise Forbidden(f"the token's claim `{claim}` must hold a name")
    return value
