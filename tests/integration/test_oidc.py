"""Tokens of an issuer in place of API keys: what opens which door, and that nothing else does."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from service.stores.jwks import PAUSE_S, KeySet
from service.stores.oidc import Tokens, Trust
from tests.conftest import Running, running
from tests.integration.issuer import AUDIENCE, PRIVATE, Issuer, issuing, published

ROOT = Path(__file__).parents[2]
SEARCH = {"query": "walrus"}
_names = itertools.count()


@pytest.fixture(scope="module")
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as started:
        yield started


@pytest.fixture(scope="module")
async def door(issuer: Issuer) -> AsyncIterator[Running]:
    """A Braid whose settings name the issuer."""
    named = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "oidc_algorithms": "RS256, ES256 EdDSA"}
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        async with running(Path(folder) / "data", index_poll_ms=50, **named) as started:
            yield started


@pytest.fixture
async def tenant(door: Running) -> str:
    """The name of a new tenant, which holds one document in each of two namespaces."""
    name = f"team-{next(_names)}"
    with_key = door.client(await door.key(name))
    written = [{"id": place, "title": f"Walrus of {name}", "namespace": place} for place in ("ice", "sea")]
    assert (await with_key.post("/v1/documents?wait=true", json=written)).json()["errors"] is False
    return name


async def ask(door: Running, token: str) -> httpx.Response:
    return await door.client(token).post("/v1/search", json=SEARCH)


def found(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {result["id"] for result in answer.json()["results"]}


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert answer.json()["code"] == code
    return str(answer.json()["detail"])


class TestAGoodToken:
    @pytest.mark.parametrize("algorithm", PRIVATE)
    async def test_writes_and_searches_as_its_tenant(
        self, door: Running, issuer: Issuer, tenant: str, algorithm: str
    ) -> None:
        client = door.client(issuer.token(algorithm, braid_tenant=tenant))
        written = await client.put("/v1/documents/mine?wait=true", json={"title": "A walrus of mine"})
        assert written.status_code == 201
        assert found(await client.post("/v1/search", json=SEARCH)) == {"ice", "sea", "mine"}
        with_key = door.client(await door.key(tenant))
        assert (await with_key.get("/v1/documents/mine")).status_code == 200

    async def test_sees_nothing_of_another_tenant(self, door: Running, issuer: Issuer, tenant: str) -> None:
        other = f"other-{tenant}"
        hidden = door.client(await door.key(other))
        await hidden.put("/v1/documents/hidden?wait=true", json={"title": "A walrus in hiding", "namespace": "den"})
        client = door.client(issuer.token(braid_tenant=tenant))
        assert found(await client.post("/v1/search", json={**SEARCH, "namespace": "den"})) == set()
        assert (await client.get("/v1/documents/hidden")).status_code == 404
        assert "den" not in (await client.get("/v1/namespaces")).text
        assert found(await ask(door, issuer.token(braid_tenant=other))) == {"hidden"}

    async def test_may_be_for_several_audiences(self, door: Running, issuer: Issuer, tenant: str) -> None:
        token = issuer.token(braid_tenant=tenant, aud=["https://other.example.com", AUDIENCE])
        assert found(await ask(door, token)) == {"ice", "sea"}

    async def test_may_come_from_a_clock_that_is_a_little_wrong(
        self, door: Running, issuer: Issuer, tenant: str
    ) -> None:
        now = int(time.time())
        for times in ({"nbf": now + 15, "iat": now + 15}, {"exp": now - 15}):
            assert found(await ask(door, issuer.token(braid_tenant=tenant, **times))) == {"ice", "sea"}


def by_hand(header: dict[str, Any], token: str, sign: Callable[[bytes], bytes]) -> str:
    """The claims of a good token under a header and a signature that no library would make."""
    said = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode() + "." + token.split(".")[1]
    return f"{said}.{base64.urlsafe_b64encode(sign(said.encode())).rstrip(b'=').decode()}"


def pem() -> bytes:
    """The issuer's public key, as everybody has it."""
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    written: bytes = PRIVATE["RS256"].public_key().public_bytes(*form)
    return written


def with_secret(secret: bytes, good: str, kid: str = "RS256") -> str:
    header = {"alg": "HS256", "typ": "JWT", "kid": kid}
    return by_hand(header, good, lambda said: hmac.digest(secret, said, hashlib.sha256))


def changed(token: str, **claims: Any) -> str:
    """Other claims under the signature of a good token."""
    head, payload, signature = token.split(".")
    said = json.loads(base64.urlsafe_b64decode(payload + "==")) | claims
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b'=').decode()}.{signature}"


STRANGER = rsa.generate_private_key(65537, 2048)
NOW = int(time.time())
# What was done to a good token -> how it is made from the issuer `i` and the good claims `c`.
FORGERIES: dict[str, Callable[[Issuer, dict[str, Any]], str]] = {
    "wrong issuer": lambda i, c: i.token(**c, iss="https://another.example.com"),
    "issuer that only begins alike": lambda i, c: i.token(**c, iss=i.url + "/"),
    "no issuer": lambda i, c: i.token(**c, iss=None),
    "wrong audience": lambda i, c: i.token(**c, aud="https://another.example.com"),
    "no audience": lambda i, c: i.token(**c, aud=None),
    "expired": lambda i, c: i.token(**c, exp=NOW - 60),
    "no end": lambda i, c: i.token(**c, exp=None),
    "endless": lambda i, c: i.token(**c, exp=float("inf")),
    "end of 400 digits": lambda i, c: i.token(**c, exp=10**400),
    "end in words": lambda i, c: i.token(**c, exp="tomorrow"),
    "not yet valid": lambda i, c: i.token(**c, nbf=NOW + 3600),
    "issued in the future": lambda i, c: i.token(**c, iat=NOW + 3600),
    "no subject": lambda i, c: i.token(**c, sub=None),
    "signed by a stranger": lambda i, c: i.token(**c, key=STRANGER),
    "signed by a stranger who sends the key along": lambda i, c: i.token(
        **c, key=STRANGER, header={"jwk": published("RS256", "RS256", STRANGER), "jku": "https://evil.example.com"}
    ),
    "claims changed": lambda i, c: changed(i.token(**c), sub="eve"),
    "signature cut": lambda i, c: i.token(**c)[:-8],
    "no signature": lambda i, c: i.token(**c).rpartition(".")[0] + ".",
    "unknown key": lambda i, c: i.token(**c, kid="made-up"),
    "key id that is a path": lambda i, c: i.token(**c, kid="../../dev/null"),
    "no key id": lambda i, c: by_hand({"alg": "RS256"}, i.token(**c), lambda _: b"x" * 256),
    "key id that is a number": lambda i, c: by_hand({"alg": "RS256", "kid": 5}, i.token(**c), lambda _: b"x" * 256),
    "none": lambda i, c: by_hand({"alg": "none", "kid": "RS256"}, i.token(**c), lambda _: b""),
    "nOnE": lambda i, c: by_hand({"alg": "nOnE", "kid": "RS256"}, i.token(**c), lambda _: b""),
    "no algorithm": lambda i, c: by_hand({"kid": "RS256"}, i.token(**c), lambda _: b""),
    "algorithm that is a list": lambda i, c: by_hand({"alg": ["RS256"], "kid": "RS256"}, i.token(**c), lambda _: b""),
    "public key as a secret": lambda i, c: with_secret(pem(), i.token(**c)),
    "public key as a secret, without its last line's end": lambda i, c: with_secret(pem().strip(), i.token(**c)),
    "public key as a secret, as published": lambda i, c: with_secret(
        base64.urlsafe_b64decode(published("RS256", "")["n"] + "=="), i.token(**c)
    ),
    "empty secret": lambda i, c: with_secret(b"", i.token(**c)),
    "algorithm that is not pinned": lambda i, c: i.token("PS256", kid="RS256", key=PRIVATE["RS256"], **c),
    "algorithm of another key": lambda i, c: i.token(**c, kid="ES256"),
    "curve of another key": lambda i, c: i.token("ES256", key=ec.generate_private_key(ec.SECP256R1()), **c),
    "extension that must be understood": lambda i, c: i.token(**c, header={"crit": ["canary"], "canary": "needed"}),
    "too long": lambda i, c: i.token(**c, padding="x" * 8192),
    "garbage": lambda i, c: "a.b.c",
    "dots": lambda i, c: "..",
    "not in UTF-8": lambda i, c: "\xff\xfe.\xff.\xff",
    "header too deep": lambda i, c: base64.urlsafe_b64encode(b"[" * 4000).decode() + ".e30.e30",
    "header of digits": lambda i, c: base64.urlsafe_b64encode(b'{"alg":' + b"9" * 5000 + b"}").decode() + ".e30.e30",
    "four parts": lambda i, c: i.token(**c) + ".more",
}


class TestAForgedToken:
    @pytest.mark.parametrize("forgery", FORGERIES)
    async def test_opens_nothing(self, door: Running, issuer: Issuer, tenant: str, forgery: str) -> None:
        token = FORGERIES[forgery](issuer, {"braid_tenant": tenant})
        sent = {"Authorization": b"Bearer " + token.encode("latin-1")}
        answer = await door.client().post("/v1/search", json=SEARCH, headers=sent)
        refused(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert not any(part in answer.text for part in token.split(".") if len(part) > 2)

    async def test_differs_from_one_that_does(self, door: Running, issuer: Issuer, tenant: str) -> None:
        """The tools of the forgers make a good token where the true key signs."""
        header = {"alg": "RS256", "kid": "RS256"}
        key = PRIVATE["RS256"]
        made = by_hand(
            header, issuer.token(braid_tenant=tenant), lambda said: key.sign(said, padding.PKCS1v15(), hashes.SHA256())
        )
        assert found(await ask(door, made)) == {"ice", "sea"}

    @pytest.mark.parametrize(
        ("forgery", "reason"),
        [
            ("expired", "the token has expired"),
            ("not yet valid", "the token is not valid yet"),
            ("wrong issuer", "the token is of another issuer"),
            ("wrong audience", "the token is meant for another audience"),
            ("no end", "the token must carry exp, iss, aud, sub"),
            ("too long", "the token is longer than 8192 characters"),
            ("signed by a stranger", "the token is not valid"),
        ],
    )
    async def test_is_told_why(self, door: Running, issuer: Issuer, tenant: str, forgery: str, reason: str) -> None:
        answer = await ask(door, FORGERIES[forgery](issuer, {"braid_tenant": tenant}))
        assert refused(answer, 401, "unauthorized") == reason


class TestTheTenant:
    @pytest.mark.parametrize("claim", [None, "", 5, ["team"], {"name": "team"}, "no-such-team", "nul\x00", "x" * 300])
    async def test_must_be_named_and_exist(self, door: Running, issuer: Issuer, claim: Any) -> None:
        refused(await ask(door, issuer.token(braid_tenant=claim)), 403, "forbidden")

    async def test_is_not_made_by_a_token(self, door: Running, issuer: Issuer) -> None:
        await ask(door, issuer.token(braid_tenant="made-by-a-token"))
        assert await door.sql("SELECT FROM tenants WHERE name = 'made-by-a-token'") == []

    async def test_that_is_suspended_is_shut_within_five_seconds(
        self, door: Running, issuer: Issuer, tenant: str
    ) -> None:
        token = issuer.token(braid_tenant=tenant)
        assert found(await ask(door, token)) == {"ice", "sea"}
        await door.sql("UPDATE tenants SET state = 'suspended' WHERE name = $1", tenant)
        suspended = time.monotonic()
        while (answer := await ask(door, token)).status_code == 200:
            assert time.monotonic() - suspended < 5
            await asyncio.sleep(0.1)
        assert refused(answer, 403, "forbidden") == "this tenant is suspended"
        refused(await ask(door, issuer.token(braid_tenant=tenant, sub="bob")), 403, "forbidden")


class TestScopes:
    @pytest.mark.parametrize("scope", [None, "", "search write", "openid braid:admin", 5, {"braid:search": True}])
    async def test_without_any_nothing_is_allowed(self, door: Running, issuer: Issuer, tenant: str, scope: Any) -> None:
        client = door.client(issuer.token(braid_tenant=tenant, scope=scope))
        assert "`search`" in refused(await client.post("/v1/search", json=SEARCH), 403, "forbidden")
        assert "`write`" in refused(await client.delete("/v1/documents/ice"), 403, "forbidden")

    @pytest.mark.parametrize("scope", ["openid braid:search", ["braid:search", 5]])
    async def test_one_does_not_stand_for_the_other(
        self, door: Running, issuer: Issuer, tenant: str, scope: Any
    ) -> None:
        client = door.client(issuer.token(braid_tenant=tenant, scope=scope))
        assert found(await client.post("/v1/search", json=SEARCH)) == {"ice", "sea"}
        refused(await client.delete("/v1/documents/ice"), 403, "forbidden")


class TestNarrowing:
    @pytest.mark.parametrize("claim", [["ice"], "ice", "ice elsewhere"])
    async def test_to_namespaces(self, door: Running, issuer: Issuer, tenant: str, claim: Any) -> None:
        client = door.client(issuer.token(braid_tenant=tenant, braid_namespaces=claim))
        assert found(await client.post("/v1/search", json=SEARCH)) == {"ice"}
        assert (await client.get("/v1/documents/sea")).status_code == 404

    @pytest.mark.parametrize(("project", "seen"), [("default", {"ice", "sea"}), ("another", set())])
    async def test_to_a_project(self, door: Running, issuer: Issuer, tenant: str, project: str, seen: set[str]) -> None:
        assert found(await ask(door, issuer.token(braid_tenant=tenant, braid_project=project))) == seen

    @pytest.mark.parametrize("claim", ["", " ", [], [""], ["ice", 5], ["nul\x00"], 5, {"ice": True}, False])
    async def test_that_cannot_be_read_opens_nothing(
        self, door: Running, issuer: Issuer, tenant: str, claim: Any
    ) -> None:
        token = issuer.token(braid_tenant=tenant, braid_namespaces=claim)
        refused(await ask(door, token), 403, "forbidden")
        if claim != " ":  # as a project's name it is odd, and leads nowhere
            refused(await ask(door, issuer.token(braid_tenant=tenant, braid_project=claim)), 403, "forbidden")


@asynccontextmanager
async def trusting(door: Running, issuer: Issuer, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[None]:
    """Lets this Braid trust another issuer for a while: one that a test may break."""
    before = door.app.state.braid
    trust = Trust(issuer.url, AUDIENCE)
    keys = KeySet(trust.issuer, None, trust.algorithms, clock)
    door.app.state.braid = replace(before, tokens=Tokens(door.engines.postgres, trust, keys, clock))
    try:
        yield
    finally:
        door.app.state.braid = before
        await keys.close()


class TestTheIssuersKeys:
    async def test_a_new_one_is_accepted_after_one_more_fetch(self, door: Running, tenant: str) -> None:
        moved = 0.0
        fresh = ec.generate_private_key(ec.SECP256R1())
        async with issuing() as issuer:
            async with trusting(door, issuer, lambda: time.monotonic() + moved):
                assert found(await ask(door, issuer.token(braid_tenant=tenant))) == {"ice", "sea"}
                issuer.keys.append(published("ES256", "fresh", fresh))
                rotated = issuer.token("ES256", kid="fresh", key=fresh, braid_tenant=tenant)
                moved = PAUSE_S
                assert found(await ask(door, rotated)) == {"ice", "sea"}
            assert issuer.fetches == 2

    async def test_are_not_fetched_for_every_key_that_somebody_makes_up(self, door: Running, tenant: str) -> None:
        async with issuing() as issuer:
            async with trusting(door, issuer):
                tokens = [issuer.token(kid=f"made-up-{n}", braid_tenant=tenant) for n in range(50)]
                answers = await asyncio.gather(*(ask(door, token) for token in tokens))
                assert {answer.status_code for answer in answers} == {401}
                assert found(await ask(door, issuer.token(braid_tenant=tenant))) == {"ice", "sea"}
            assert 1 <= issuer.fetches <= 2

    async def test_are_not_fetched_for_what_could_never_be_good(self, door: Running, tenant: str) -> None:
        async with issuing() as issuer:
            async with trusting(door, issuer):
                for forgery in ("none", "public key as a secret", "garbage", "too long", "no key id"):
                    refused(await ask(door, FORGERIES[forgery](issuer, {"braid_tenant": tenant})), 401, "unauthorized")
            assert issuer.asked == []

    async def test_out_of_reach_stop_tokens_and_nothing_else(self, door: Running, tenant: str) -> None:
        async with issuing() as issuer:
            token = issuer.token(braid_tenant=tenant)
        async with trusting(door, issuer):
            answer = await ask(door, token)
            refused(answer, 503, "issuer_unavailable")
            assert answer.headers["retry-after"] == "10"
            assert found(await ask(door, await door.key(tenant))) == {"ice", "sea"}
            assert (await door.client().get("/readyz")).status_code == 200


async def test_no_part_of_a_token_is_logged(
    door: Running, issuer: Issuer, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [forge(issuer, {"braid_tenant": tenant}) for forge in FORGERIES.values()]
    tokens = [token for token in tokens if token.isascii()]
    async with issuing(status=500) as broken, trusting(door, broken):
        refused(await ask(door, tokens[0]), 503, "issuer_unavailable")
    for token in [issuer.token(braid_tenant=tenant, sub="somebody"), *tokens]:
        await ask(door, token)
    assert "the keys of the issuer of tokens cannot be fetched: status 500 from 127.0.0.1" in caplog.text
    secrets = {part for token in tokens for part in token.split(".") if len(part) > 16} | {"somebody", "canary"}
    assert [part for part in secrets if part in caplog.text] == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ALGORITHMS": "none"}, "BRAID_OIDC_ALGORITHMS: 'none' is refused; use some of: RS256,"),
        ({"ALGORITHMS": "RS256,HS256"}, "BRAID_OIDC_ALGORITHMS: 'HS256' is refused; use some of: RS256,"),
        ({"AUDIENCE": ""}, "BRAID_OIDC_ISSUER needs BRAID_OIDC_AUDIENCE"),
    ],
    ids=["none", "shared secret", "no audience"],
)
def test_unsafe_settings_are_refused_in_one_line(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    named = {"ISSUER": "https://issuer.example.com", "AUDIENCE": AUDIENCE, **settings}
    env = os.environ | {f"BRAID_OIDC_{name}": value for name, value in named.items()}
    env |= {"BRAID_DATA_DIR": str(tmp_path / "data"), "BRAID_PORT": "0"}
    command = [sys.executable, "-m", "service.cli", "serve"]
    ended = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr
    assert not (tmp_path / "data").exists(), "nothing was started for it"
