"""The issuer's keys: fetched from a real server, kept, and never fetched in a hurry. The clock is ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from service.errors import IssuerUnavailable, Unauthorized
from service.stores import jwks
from service.stores.jwks import FRESH_S, PAUSE_S, STALE_S, KeySet
from tests.integration.issuer import CONFIGURATION, Issuer, issuing, private, published

PINNED = ("RS256", "ES256", "EdDSA")


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as started:
        yield started


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def opened(issuer: Issuer, clock: Clock, url: str | None = None) -> AsyncIterator[KeySet]:
    keys = KeySet(issuer.url, url, PINNED, clock)
    try:
        yield keys
    finally:
        await keys.close()


@pytest.fixture
async def keys(issuer: Issuer, clock: Clock) -> AsyncIterator[KeySet]:
    async with opened(issuer, clock) as made:
        yield made


async def known(keys: KeySet, kid: str) -> bool:
    try:
        await keys.find(kid)
    except Unauthorized:
        return False
    return True


class TestFetching:
    async def test_the_issuer_says_where_its_keys_are(self, issuer: Issuer, keys: KeySet) -> None:
        assert (await keys.find("ES256")).algorithms == ("ES256",)
        assert issuer.asked == [CONFIGURATION, "/keys"]

    async def test_a_given_address_is_asked_alone(self, issuer: Issuer, clock: Clock) -> None:
        async with opened(issuer, clock, f"{issuer.url}/keys") as keys:
            assert await known(keys, "RS256")
        assert issuer.asked == ["/keys"]

    async def test_keys_are_kept_and_then_fetched_again_behind_the_callers_back(
        self, issuer: Issuer, keys: KeySet, clock: Clock
    ) -> None:
        await keys.find("RS256")
        clock.now += FRESH_S
        await keys.find("RS256")
        assert issuer.fetches == 1
        clock.now += 1
        issuer.pause_s = 0.2
        await asyncio.wait_for(keys.find("RS256"), 0.1)
        await asyncio.sleep(0.6)
        assert issuer.fetches == 2

    async def test_many_at_once_wait_for_one_fetch(self, issuer: Issuer, keys: KeySet) -> None:
        issuer.pause_s = 0.05
        found = await asyncio.gather(*(keys.find("RS256") for _ in range(50)))
        assert len(found) == 50
        assert issuer.fetches == 1

    async def test_a_caller_who_hangs_up_does_not_take_the_fetch_along(self, issuer: Issuer, keys: KeySet) -> None:
        issuer.pause_s = 0.05
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(keys.find("RS256"), 0.02)
        assert await known(keys, "RS256")
        assert issuer.fetches == 1

    async def test_a_new_key_is_found_by_one_more_fetch(self, issuer: Issuer, keys: KeySet, clock: Clock) -> None:
        await keys.find("RS256")
        issuer.keys = [published("ES256", "new")]
        clock.now += PAUSE_S
        assert await known(keys, "new")
        assert not await known(keys, "RS256"), "what is no longer published does not count"
        assert issuer.fetches == 2

    async def test_unknown_keys_cannot_make_us_flood_the_issuer(
        self, issuer: Issuer, keys: KeySet, clock: Clock
    ) -> None:
        for second in range(31):
            clock.now = 1000.0 + second
            assert not any(await asyncio.gather(*(known(keys, f"made-up-{second}-{n}") for n in range(20))))
        assert issuer.fetches == 1 + 30 / PAUSE_S


class TestAnIssuerThatFails:
    async def test_without_any_keys_nothing_can_be_said(self, issuer: Issuer, keys: KeySet, clock: Clock) -> None:
        issuer.status = 500
        for _ in range(20):
            with pytest.raises(IssuerUnavailable):
                await keys.find("RS256")
        assert issuer.asked == [CONFIGURATION], "it is left in peace for a while"
        issuer.status = 200
        clock.now += PAUSE_S
        assert await known(keys, "RS256")

    async def test_keys_go_on_working_for_a_while(self, issuer: Issuer, keys: KeySet, clock: Clock) -> None:
        await keys.find("RS256")
        issuer.status = 500
        clock.now += STALE_S
        assert await known(keys, "RS256")
        clock.now += 1
        with pytest.raises(IssuerUnavailable):
            await keys.find("RS256")

    async def test_whether_a_key_is_new_cannot_be_said_either(self, issuer: Issuer, keys: KeySet, clock: Clock) -> None:
        await keys.find("RS256")
        issuer.status = 500
        clock.now += PAUSE_S
        with pytest.raises(IssuerUnavailable):
            await keys.find("new")
        assert await known(keys, "RS256")

    @pytest.mark.parametrize(
        "how",
        [
            {"status": 404},
            {"status": 302, "headers": [(b"location", b"/keys")]},
            {"name": "https://another.example.com"},
            {"body": b"[]"},
            {"body": b"not JSON"},
            {"body": b"[" * 100_000},
            {"padding": jwks._MAX_BYTES},
            {"keys": []},
            {"keys": "none"},
        ],
        ids=lambda how: " ".join(f"{name} {str(value)[:20]}" for name, value in how.items()),
    )
    async def test_what_is_not_a_set_of_keys_is_none(self, clock: Clock, how: dict[str, Any]) -> None:
        async with issuing(**how) as issuer, opened(issuer, clock) as keys:
            with pytest.raises(IssuerUnavailable):
                await keys.find("RS256")

    async def test_a_slow_one_is_not_waited_for(
        self, issuer: Issuer, keys: KeySet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jwks, "_TIMEOUT_S", 0.1)
        issuer.pause_s = 1
        with pytest.raises(IssuerUnavailable):
            await asyncio.wait_for(keys.find("RS256"), 0.8)

    async def test_nobody_there(self, clock: Clock) -> None:
        async with issuing() as issuer:
            pass
        async with opened(issuer, clock) as keys:
            with pytest.raises(IssuerUnavailable):
                await keys.find("RS256")

    async def test_one_on_https_cannot_send_us_to_plain_http(
        self, issuer: Issuer, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The one test with a pretended network: an issuer on https needs a certificate."""

        async def said(self: KeySet, url: str) -> dict[str, Any]:
            assert url.startswith("https://"), "went there"
            return {"issuer": "https://issuer.example.com", "jwks_uri": f"{issuer.url}/keys"}

        monkeypatch.setattr(KeySet, "_get", said)
        keys = KeySet("https://issuer.example.com", None, PINNED, clock)
        with pytest.raises(IssuerUnavailable):
            await keys.find("RS256")
        await keys.close()


SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"
RSA, EC, ED = (published(name, "x") for name in PINNED)
UNSAFE: dict[str, dict[str, Any]] = {
    "a shared secret": {"kty": "oct", "k": SECRET, "alg": "HS256"},
    "a shared secret under another name": {"kty": "oct", "k": SECRET, "alg": "RS256"},
    "a private key": private("x"),
    "too short": published("RS256", "x", rsa.generate_private_key(65537, 1024)),
    "for encryption": {**RSA, "use": "enc"},
    "for an algorithm that is not pinned": {**RSA, "alg": "PS256"},
    "for no algorithm": {**RSA, "alg": "none"},
    "of a kind that is a list": {**RSA, "kty": ["RSA"]},
    "a modulus that is a number": {**RSA, "n": 5},
    "no modulus": {**RSA, "n": None},
    "an exponent that is a list": {**RSA, "e": ["AQAB"]},
    "another curve": {**EC, "crv": "P-384"},
    "not on the curve": {**EC, "x": EC["y"]},
    "half a point": {**EC, "y": ""},
    "too few bytes": {**ED, "x": "AA"},
}


class TestWhichKeysCount:
    """Each is published beside a good one, so that the set itself is usable."""

    @pytest.mark.parametrize("why", UNSAFE)
    async def test_one_that_is_unsafe_or_broken_is_passed_over(self, clock: Clock, why: str) -> None:
        listed = [None, "x", {}, {**UNSAFE[why], "kid": "x"}, published("RS256", "good")]
        async with issuing(keys=listed) as issuer, opened(issuer, clock) as keys:
            assert await known(keys, "good")
            assert not await known(keys, "x")

    async def test_one_that_does_not_name_its_algorithm_fits_only_its_own_kind(self, clock: Clock) -> None:
        listed = [{k: v for k, v in published(name, name).items() if k != "alg"} for name in PINNED]
        async with issuing(keys=listed) as issuer, opened(issuer, clock) as keys:
            assert [(await keys.find(name)).algorithms for name in PINNED] == [(name,) for name in PINNED]
