"""An issuer of tokens for tests: real keys, real signatures, and an HTTP server that publishes the keys."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "https://search.example.com"
CONFIGURATION = "/.well-known/openid-configuration"
PRIVATE: dict[str, Any] = {
    "RS256": rsa.generate_private_key(65537, 2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
_WRITTEN = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


def private(kid: str) -> dict[str, Any]:
    """A key set's entry as nobody should publish it."""
    return {**RSAAlgorithm.to_jwk(PRIVATE["RS256"], as_dict=True), "kid": kid, "use": "sig", "alg": "RS256"}


def published(algorithm: str, kid: str, key: Any = None) -> dict[str, Any]:
    """The public half of a key as an entry of a key set."""
    public = (key or PRIVATE[algorithm]).public_key()
    entry: dict[str, Any] = json.loads(_WRITTEN[algorithm].to_jwk(public))
    entry.pop("key_ops", None)
    return {**entry, "kid": kid, "use": "sig", "alg": algorithm}


@dataclass
class Issuer:
    """What it publishes, how often it was asked, and how it misbehaves."""

    url: str = ""
    keys: list[Any] = field(default_factory=lambda: [published(name, name) for name in PRIVATE])
    asked: list[str] = field(default_factory=list)
    name: str | None = None
    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes | None = None
    padding: int = 0
    pause_s: float = 0.0

    def token(self, algorithm: str = "RS256", kid: str | None = None, key: Any = None, **changes: Any) -> str:
        """A good token, unless something is changed. A claim of None is left out; `header` adds to the header."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "iat": now, "nbf": now, "exp": now + 300}
        header = {"kid": kid or algorithm, **changes.pop("header", {})}
        said = {**claims, "scope": "openid braid:search braid:write", **changes}
        kept = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(kept, key or PRIVATE[algorithm], algorithm, headers=header)

    @property
    def fetches(self) -> int:
        return self.asked.count("/keys")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        await asyncio.sleep(self.pause_s)
        configuration = {"issuer": self.name or self.url, "jwks_uri": f"{self.url}/keys"}
        said = configuration if scope["path"] == CONFIGURATION else {"keys": self.keys}
        body = json.dumps(said).encode() if self.body is None else self.body
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": body + b" " * self.padding})


@asynccontextmanager
async def issuing(**how: Any) -> AsyncIterator[Issuer]:
    """An issuer that answers on a free port of this machine."""
    issuer = Issuer(**how)
    config = uvicorn.Config(issuer, port=0, log_level="warning", access_log=False, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0.01)
    issuer.url = "http://{}:{}".format(*server.servers[0].sockets[0].getsockname()[:2])
    try:
        yield issuer
    finally:
        server.should_exit = True
        await serving
