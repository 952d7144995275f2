"""The public keys of the issuer of tokens (its JWKS): fetched when one is needed, kept, and never fetched in a hurry.

Whatever callers send, the issuer is asked at most once in PAUSE_S seconds. Keys that are older than FRESH_S are fetched
again in the background; where the issuer does not answer, they go on working until they are STALE_S old.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import jwt
import orjson

from service.errors import IssuerUnavailable, Unauthorized

log = logging.getLogger(__name__)

FRESH_S = 300.0
STALE_S = 3600.0
PAUSE_S = 10.0
_TIMEOUT_S = 5.0
_MAX_BYTES = 256 * 1024
_MAX_KEYS = 100
_MIN_RSA_BITS = 2048

# What a key may verify follows from its kind and curve, never from what a token says. Nothing symmetric is among these.
_FITTING: Mapping[tuple[str, str | None], tuple[str, ...]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
ALGORITHMS = tuple(name for names in _FITTING.values() for name in names)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key of the issuer, and the accepted algorithms that it fits."""

    key: Any
    algorithms: tuple[str, ...]


class KeySet:
    """The issuer's keys by their `kid`."""

    def __init__(self, issuer: str, url: str | None, algorithms: Sequence[str], clock: Callable[[], float]) -> None:
        self._issuer = issuer
        self._url = url
        self._algorithms = algorithms
        self._clock = clock
        self._client = httpx.AsyncClient(timeout=_TIMEOUT_S, headers={"Accept-Encoding": "identity"})
        self._keys: Mapping[str, PublicKey] = {}
        self._fetched_at = -math.inf
        self._next_fetch = -math.inf
        self._failed = False
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str) -> PublicKey:
        """The key of this id. One that we do not know may be new: then the issuer is asked, if it is time to."""
        if self._age() > FRESH_S:
            self._fetch()
        if kid not in self._usable() and (fetching := self._fetch()) is not None:
            await asyncio.shield(fetching)  # others wait for it too: it outlives a caller who hangs up
        key = self._usable().get(kid)
        if key is None and self._failed:
            raise IssuerUnavailable("the issuer's keys cannot be fetched now, so this token cannot be checked")
        if key is None:
            raise Unauthorized("the token is signed with a key that its issuer does not publish")
        return key

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
        await self._client.aclose()

    def _age(self) -> float:
        return self._clock() - self._fetched_at

    def _usable(self) -> Mapping[str, PublicKey]:
        return self._keys if self._age() <= STALE_S else {}

    def _fetch(self) -> asyncio.Task[None] | None:
        """The latest fetch, which may be over; a new one where it is time."""
        if self._clock() >= self._next_fetch:
            self._next_fetch = self._clock() + PAUSE_S  # longer than a fetch can take, so there is one at a time
            self._fetching = asyncio.create_task(self._replace())
        return self._fetching

    async def _replace(self) -> None:
        """Keeps the keys we have where the issuer gives none."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                self._keys = await self._published()
            self._fetched_at, self._failed = self._clock(), False
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, _Unusable) as error:
            self._failed = True
            reason = str(error) if isinstance(error, _Unusable) else type(error).__name__
            log.warning("the keys of the issuer of tokens cannot be fetched: %s", reason)

    async def _published(self) -> Mapping[str, PublicKey]:
        listed = (await self._get(self._url or await self._discovered())).get("keys")
        keys = dict(_usable_keys(listed if isinstance(listed, list) else [], self._algorithms))
        if not keys:
            raise _Unusable(f"there is none among them for {', '.join(self._algorithms)}")
        return keys

    async def _discovered(self) -> str:
        """Where the issuer says its keys are (OpenID Connect Discovery 1.0)."""
        said = await self._get(self._issuer.rstrip("/") + "/.well-known/openid-configuration")
        if said.get("issuer") != self._issuer:
            raise _Unusable("the issuer calls itself by another name than BRAID_OIDC_ISSUER")
        url = said.get("jwks_uri")
        if not isinstance(url, str) or (self._issuer.startswith("https:") and not url.startswith("https:")):
            raise _Unusable("the issuer names no safe address for them")
        return url

    async def _get(self, url: str) -> dict[str, Any]:
        """A JSON object, read no further than we take. Redirects are not followed."""
        body = bytearray()
        async with self._client.stream("GET", url) as answer:
            if answer.status_code != httpx.codes.OK:
                raise _Unusable(f"status {answer.status_code} from {answer.url.host}")
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise _Unusable(f"more than {_MAX_BYTES} bytes from {answer.url.host}")
        try:
            said = orjson.loads(body)
        except orjson.JSONDecodeError:
            said = None
        if not isinstance(said, dict):
            raise _Unusable(f"no JSON object from {answer.url.host}")
        return said


class _Unusable(Exception):
    """What the issuer sent is not what we need. The message is ours, not a quotation."""


def _usable_keys(listed: Sequence[Any], algorithms: Sequence[str]) -> Iterable[tuple[str, PublicKey]]:
    """The keys that can verify something that we accept; others in the set are none of our business."""
    for entry in listed[:_MAX_KEYS]:
        fitting = _fitting(entry, algorithms) if isinstance(entry, dict) else ()
        key = _loaded(entry, fitting[0]) if fitting else None
        if key is not None:
            yield entry["kid"], PublicKey(key, fitting)


def _fitting(entry: Mapping[str, Any], algorithms: Sequence[str]) -> tuple[str, ...]:
    """Which accepted algorithms an entry of the set may be used with. A private key made public is used with none."""
    if not isinstance(entry.get("kid"), str) or entry.get("use", "sig") != "sig" or "d" in entry:
        return ()
    kind, curve = entry.get("kty"), entry.get("crv")
    fitting = next((names for known, names in _FITTING.items() if known == (kind, curve)), ())
    return tuple(name for name in fitting if name in algorithms and entry.get("alg", name) == name)


def _loaded(entry: dict[str, Any], algorithm: str) -> Any:
    try:
        key: Any = jwt.PyJWK(entry, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return None if getattr(key, "key_size", _MIN_RSA_BITS) < _MIN_RSA_BITS and entry["kty"] == "RSA" else key
