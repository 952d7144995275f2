"""Tenants full of canaries, and every kind of visitor that may knock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import httpx

from service.model import Reach
from service.stores.keys import NewKey
from tests.conftest import Running, running
from tests.integration.issuer import AUDIENCE, Issuer, issuing
from tests.isolation.canaries import (
    CONTENT,
    ENTITY,
    ID,
    KEY,
    LINK,
    METADATA,
    NAMES,
    NAMESPACE,
    PROJECT,
    TAG,
    TENANT,
    TITLE,
    TYPE,
    UNSHOWN,
    Canary,
)

# Namespaces of a tenant: `default`, a name that all share; two of its own; and one in a project of its own.
PLACES = (0, 1, 2, 3)
ASIDE = 3
DOCUMENTS = 24
A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody with a bearer, or without: whose it is, and which places it may see."""

    kind: str
    bearer: str | None
    tenant: int | None = None
    places: frozenset[int] = frozenset()

    def may_see(self, canary: Canary, about: int | None) -> bool:
        """`about` is the tenant that a call to the admin API names."""
        if self.kind == "admin":
            return canary.kind in NAMES and about in (None, canary.owner)
        return canary.owner == self.tenant and canary.place in self.places


@dataclass
class World:
    """All there is. `known` are foreign canaries that a tenant wrote down itself, such as targets of its links."""

    braid: Running
    size: int
    visitors: list[Visitor] = field(default_factory=list)
    ids: dict[int, str] = field(default_factory=dict)
    known: dict[int, set[Canary]] = field(default_factory=dict)

    def reach(self, tenant: int, places: frozenset[int] | None = None) -> Reach:
        """Of a key of the whole tenant, of the project aside, or of the namespaces of these places."""
        if places is None:
            return Reach(self.ids[tenant])
        if places == {ASIDE}:
            return Reach(self.ids[tenant], project_name(tenant))
        return Reach(self.ids[tenant], None, tuple(namespace_name(tenant, place) for place in sorted(places)))


def tenant_name(owner: int) -> str:
    return str(Canary(owner, TENANT, UNSHOWN))


def project_name(owner: int) -> str:
    return str(Canary(owner, PROJECT, UNSHOWN))


def namespace_name(owner: int, place: int) -> str:
    return str(Canary(owner, NAMESPACE, place)) if place else "default"


def key_name(owner: int, serial: int) -> str:
    return str(Canary(owner, KEY, UNSHOWN, serial))


def place_of(number: int) -> int:
    return number % len(PLACES)


def document_id(owner: int, number: int) -> str:
    """Half of the ids are the same for all tenants, half are canaries."""
    return f"doc-{number}" if number // len(PLACES) % 2 else str(Canary(owner, ID, place_of(number), number))


def document(owner: int, number: int, draw: Random) -> dict[str, Any]:
    """A document with a canary in every field. All tenants' documents are about the same, and stay in their place."""

    def mark(kind: str, serial: int = number) -> str:
        return str(Canary(owner, kind, place_of(number), serial))

    near = document_id(owner, (number + len(PLACES)) % DOCUMENTS)
    far = f"doc-{len(PLACES) + draw.randrange(len(PLACES))}"  # in any place, so no canary
    return {
        "id": document_id(owner, number),
        "namespace": namespace_name(owner, place_of(number)),
        "title": f"Walrus {mark(TITLE)} on ice",
        "content": f"The walrus {mark(CONTENT)} rests at hole {draw.randrange(1000)}.",
        "type": mark(TYPE),
        "tags": ["sea", mark(TAG)],
        "entities": ["Hvaldimir", f"Whale {mark(ENTITY)}"],
        "metadata": {"depth": number, mark(METADATA): mark(METADATA, number + 1000)},
        "links": [{"to": near, "type": mark(LINK), "strength": 0.9}, {"to": far, "type": mark(LINK, number + 1000)}],
    }


@asynccontextmanager
async def created(folder: Path, size: int, seed: int = 0, **settings: Any) -> AsyncIterator[World]:
    """A Braid that accepts the tokens of an issuer, with `size` tenants in it."""
    async with issuing() as issuer:
        chosen = {
            "index_poll_ms": 50,
            "max_body_bytes": 65_536,
            "rate_limit_key": 20,
            "rate_limit_failures": 0,
            "slow_search_ms": 1,
            "oidc_issuer": issuer.url,
            "oidc_audience": AUDIENCE,
            **settings,
        }
        async with running(folder / "data", **chosen) as braid:
            world = World(braid, size)
            world.visitors += [Visitor("none", None), Visitor("garbage", f"braid_{'0' * 12}.nothing")]
            turns = asyncio.Semaphore(4)
            await asyncio.gather(*(_settle(world, owner, issuer, turns, seed) for owner in range(size)))
            yield world


async def _settle(world: World, owner: int, issuer: Issuer, turns: asyncio.Semaphore, seed: int) -> None:
    """Makes one tenant through the admin API, with its keys and its documents."""
    async with turns:
        await _make(world, owner, issuer, Random(f"{seed} {owner}"))


async def _make(world: World, owner: int, issuer: Issuer, draw: Random) -> None:
    admin_key, _ = await world.braid.app.state.braid.key_desk.create("cli", None, NewKey(f"admin-{owner}", ("admin",)))
    admin = _client(world, admin_key)
    quota = {"max_documents": DOCUMENTS} if owner == 0 else {}
    name = tenant_name(owner)
    world.ids[owner] = (await _made(admin, "/v1/admin/tenants", {"name": name, **quota}))["id"]
    world.known[owner] = set()
    below = f"/v1/admin/tenants/{name}"
    await _made(admin, f"{below}/projects", {"name": project_name(owner)})
    for place in PLACES[1:]:
        project = {"project": project_name(owner)} if place == ASIDE else {}
        await _made(admin, f"{below}/namespaces", {"name": namespace_name(owner, place), **project})
    world.visitors += [Visitor("admin", admin_key), *await _keys(world, owner, admin), *_tokens(owner, issuer)]
    whole = next(v for v in world.visitors if v.tenant == owner and v.kind == "whole")
    written = [document(owner, number, draw) for number in range(DOCUMENTS)]
    client = _client(world, whole.bearer)
    answer = (await client.post("/v1/documents?wait=true", json=written)).json()
    assert (answer["errors"], answer["visible"]) == (False, True), answer


def _client(world: World, bearer: str | None) -> httpx.AsyncClient:
    """Without reading the machine's certificates, which takes longer than all that the client does here."""
    headers = {"Authorization": f"Bearer {bearer}"}
    client = httpx.AsyncClient(base_url=world.braid.url, headers=headers, timeout=60, verify=False)
    world.braid.clients.append(client)
    return client


async def _made(admin: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await admin.post(path, json=body)
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


async def _keys(world: World, owner: int, admin: httpx.AsyncClient) -> list[Visitor]:
    below = f"/v1/admin/tenants/{tenant_name(owner)}/keys"
    kinds: dict[str, tuple[dict[str, Any], set[int]]] = {
        "whole": ({}, set(PLACES)),
        "search": ({"scopes": ["search"]}, set(PLACES)),
        "write": ({"scopes": ["write"]}, set()),
        "names": ({"namespaces": [namespace_name(owner, 1)]}, {1}),
        "aside": ({"project": project_name(owner)}, {ASIDE}),
        "revoked": ({}, set()),
    }
    visitors = []
    for serial, (kind, (terms, places)) in enumerate(kinds.items()):
        made = await _made(admin, below, {"name": key_name(owner, serial), **terms})
        visitors.append(Visitor(kind, made["key"], owner, frozenset(places)))
        if kind == "revoked":
            assert (await admin.delete(f"{below}/{made['prefix']}")).status_code == 204
    past = datetime.now(UTC) - timedelta(seconds=1)  # which the admin API would refuse
    expired = NewKey(key_name(owner, len(kinds)), expires_at=past)
    key, _ = await world.braid.app.state.braid.key_desk.create("cli", tenant_name(owner), expired)
    return [*visitors, Visitor("expired", key, owner)]


def _tokens(owner: int, issuer: Issuer) -> list[Visitor]:
    def token(kind: str, places: set[int], ends_in: int = A_DAY, **claims: Any) -> Visitor:
        bearer = issuer.token(braid_tenant=tenant_name(owner), exp=int(time.time()) + ends_in, **claims)
        return Visitor(kind, bearer, owner, frozenset(places))

    return [
        token("token", set(PLACES)),
        token("token of names", {2}, braid_namespaces=[namespace_name(owner, 2)]),
        token("token aside", {ASIDE}, braid_project=project_name(owner)),
        token("expired token", set(), ends_in=-A_DAY),
    ]
