"""Tokens without a network: what may be configured, what is taken for a token, and how long a good one is believed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from service.app import _trust
from service.errors import SetupError, Unauthorized
from service.settings import Settings
from service.stores import oidc
from service.stores.jwks import ALGORITHMS, KeySet, PublicKey
from service.stores.oidc import Tokens, Trust
from service.stores.postgres import Postgres

ISSUER, AUDIENCE = "https://issuer.example.com", "search"
KEY = ec.generate_private_key(ec.SECP256R1())


class Found:
    """Stands for the key set and for PostgreSQL: knows the one key and the one tenant, and counts the questions."""

    def __init__(self, key: PublicKey = PublicKey(KEY.public_key(), ("ES256",))) -> None:  # noqa: B008 - frozen
        self.key = key
        self.asked = 0
        self.now = 0.0
        self.meanwhile: Callable[[], None] = lambda: None

    async def find(self, kid: str) -> PublicKey:
        return self.key

    @asynccontextmanager
    async def service(self, role: str) -> AsyncIterator[Any]:
        yield SimpleNamespace(fetchrow=self.fetchrow)

    async def fetchrow(self, statement: str, name: str) -> dict[str, str]:
        self.asked += 1
        self.meanwhile()
        return {"id": "00000000-0000-0000-0000-000000000001", "state": "active"}

    def clock(self) -> float:
        return self.now

    def tokens(self) -> Tokens:
        return Tokens(cast("Postgres", self), Trust(ISSUER, AUDIENCE), cast("KeySet", self), self.clock)


def token(**claims: Any) -> str:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 300, "braid_tenant": "team", **claims}
    return jwt.encode(said, KEY, "ES256", headers={"kid": "one"})


async def test_a_good_token_is_believed_for_seconds_and_then_looked_at_again() -> None:
    found = Found()
    tokens, one = found.tokens(), token()
    for found.now in (0.0, 1.0, 3.9):
        await tokens.check(one, datetime.now(UTC))
    assert found.asked == 1
    found.now = 4.0
    await tokens.check(one, datetime.now(UTC))
    assert found.asked == 2
    tokens.forget()
    await tokens.check(one, datetime.now(UTC))
    assert found.asked == 3


async def test_what_is_forgotten_while_it_is_looked_up_is_not_remembered() -> None:
    found = Found()
    tokens, one = found.tokens(), token()
    found.meanwhile = tokens.forget
    await tokens.check(one, datetime.now(UTC))
    await tokens.check(one, datetime.now(UTC))
    assert found.asked == 2


@pytest.mark.parametrize(("left_s", "believed"), [(2.0, True), (0.5, False), (-10.0, False)])
async def test_no_token_is_believed_beyond_its_end(left_s: float, believed: bool) -> None:
    found = Found()
    now = datetime.now(UTC)
    tokens, one = found.tokens(), token(exp=now.timestamp() + left_s)
    await tokens.check(one, now)
    found.now = 1.0
    await tokens.check(one, now)
    assert found.asked == (1 if believed else 2)


async def test_an_accepted_algorithm_is_no_use_where_the_key_is_for_another() -> None:
    """Both are accepted and the signature is right, but the issuer published this key for RS256."""
    key = rsa.generate_private_key(65537, 2048)
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 300, "braid_tenant": "team"}
    trust = Trust(ISSUER, AUDIENCE, algorithms=("RS256", "PS256"))
    found = Found(PublicKey(key.public_key(), ("RS256",)))
    tokens = Tokens(cast("Postgres", found), trust, cast("KeySet", found), found.clock)
    await tokens.check(jwt.encode(said, key, "RS256", headers={"kid": "one"}), datetime.now(UTC))
    with pytest.raises(Unauthorized):
        await tokens.check(jwt.encode(said, key, "PS256", headers={"kid": "one"}), datetime.now(UTC))


async def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "_REMEMBERED", 3)
    found = Found()
    tokens = found.tokens()
    for subject in range(10):
        await tokens.check(token(sub=str(subject)), datetime.now(UTC))
    assert len(tokens._known) == 3


async def test_callers_are_told_apart_without_showing_who_they_are() -> None:
    tokens = Found().tokens()
    names = [(await tokens.check(token(sub=sub, jti=str(n)), datetime.now(UTC))).name for n, sub in enumerate("aab")]
    assert names[0] == names[1] != names[2]
    assert all(name.startswith("oidc:") and len(name) == 21 for name in names)


@pytest.mark.parametrize(
    ("bearer", "taken"),
    [
        ("eyJhbGciOiJSUzI1NiJ9.e30.c2ln", True),
        ("eyJhbGciOiJub25lIn0.e30.", True),
        ("braid_0123456789ab.secret", False),
        ("braid_0123456789ab.se.cret", False),
        ("", False),
        ("a.b", False),
        ("a.b.c.d", False),
    ],
)
def test_what_is_taken_for_a_token(bearer: str, taken: bool) -> None:
    assert Tokens.takes(bearer) is taken


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "", "HS256", "HS384", "HS512", "hs256", "rs256", "RS1", "ES256K", "dir"]
)
def test_only_signatures_by_a_private_key_can_be_configured(algorithm: str) -> None:
    with pytest.raises(SetupError, match=r"^BRAID_OIDC_ALGORITHMS: .* is refused; use some of: RS256, [^\n]*$"):
        Trust(ISSUER, AUDIENCE, algorithms=("RS256", algorithm))


def test_what_can_be_configured_can_be_verified() -> None:
    assert Trust(ISSUER, AUDIENCE, algorithms=ALGORITHMS).algorithms == ALGORITHMS
    assert set(ALGORITHMS) <= set(jwt.algorithms.get_default_algorithms())
    assert not any(name.startswith("HS") or name == "none" for name in ALGORITHMS)


@pytest.mark.parametrize(
    "address",
    ["http://issuer.example.com", "issuer.example.com", "https://", "ftp://localhost", "file:///keys", "https://[", ""],
)
def test_addresses_that_could_be_tampered_with_are_refused(address: str) -> None:
    with pytest.raises(SetupError, match=r"^BRAID_OIDC_ISSUER must be an https:// address"):
        Trust(address, AUDIENCE)
    with pytest.raises(SetupError, match=r"^BRAID_OIDC_JWKS_URL must be an https:// address"):
        Trust(ISSUER, AUDIENCE, jwks_url=address)


@pytest.mark.parametrize("address", ["https://issuer.example.com/realm", "http://localhost:8081", "http://[::1]:80/"])
def test_addresses_that_are_safe_are_taken(address: str) -> None:
    assert Trust(address, AUDIENCE, jwks_url=address).issuer == address


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"oidc_issuer": ISSUER}, "needs BRAID_OIDC_AUDIENCE"),
        ({"oidc_audience": AUDIENCE}, "need BRAID_OIDC_ISSUER"),
        ({"oidc_jwks_url": ISSUER}, "need BRAID_OIDC_ISSUER"),
        (
            {"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_algorithms": " , "},
            "BRAID_OIDC_ALGORITHMS is empty",
        ),
    ],
)
def test_half_of_the_settings_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        _trust(Settings(**cast("Any", given)))


def test_without_an_issuer_there_are_no_tokens() -> None:
    assert _trust(Settings()) is None
