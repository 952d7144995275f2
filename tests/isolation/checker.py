"""Sends random calls as every kind of visitor, and looks for canaries where they must not be."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from service import logs
from tests.isolation.canaries import KINDS, NAMESPACE, Canary, canaries
from tests.isolation.operations import OPERATIONS, Call, Draw, admin
from tests.isolation.world import Visitor, World, document, key_name, tenant_name

AT_ONCE = 8
# Who calls how often, among the visitors of a tenant and those of none.
KINDS_OF_VISITORS = {
    "whole": 30, "search": 8, "write": 6, "names": 14, "aside": 12, "token": 6, "token of names": 6, "token aside": 6,
    "expired": 1, "revoked": 1, "expired token": 1, "none": 1, "garbage": 1, "admin": 7,
}  # fmt: skip
WRITES = ("POST", "PUT", "DELETE")
UNFORESEEN = (500, 501, 502)
NOTHING: set[Canary] = set()
# What is kept here names the namespaces that a caller asked for, whoever has one of that name.
REPEATING = ("state.recall", "state.searcher.defaults")


@dataclass
class Report:
    """What was seen: how much was asked, how it was answered, and every leak."""

    calls: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    own: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> str:
        """The kinds of canaries that somebody was rightly shown: a checker that is blind to one would miss its leak."""
        return "".join(kind for kind in KINDS if self.own[kind])


@dataclass
class Checker:
    """One run over one world."""

    world: World
    seed: int = 0
    report: Report = field(default_factory=Report)
    progress: Callable[[], None] = lambda: None

    async def run(self, calls: int, seconds: float = math.inf) -> Report:
        """At least so many random calls, several at once; fewer where the time is over before."""
        end = time.monotonic() + seconds
        with watching_logs(self.report, self.secrets()):
            await asyncio.gather(*(self._walk(walker, calls, end) for walker in range(AT_ONCE)))
            await self._look_in_public()
        self.report.leaks += held_together(self.world)
        return self.report

    def secrets(self) -> list[str]:
        bearers = [visitor.bearer or "" for visitor in self.world.visitors]
        return [bearer.rpartition(".")[2] for bearer in bearers if bearer]

    async def _walk(self, walker: int, calls: int, end: float) -> None:
        random = Random(f"{self.seed} {walker}")
        async with httpx.AsyncClient(base_url=self.world.braid.url, timeout=60, verify=False) as client:
            while self.report.calls < calls and time.monotonic() < end:
                if random.random() < 0.002:
                    await self._whole_life(client, random, walker)
                else:
                    draw = self._draw(random)
                    choose = admin if draw.visitor.kind == "admin" and random.random() < 0.8 else drawn(random)
                    self.report.operations[choose.__name__] += 1
                    await self.send(client, draw.visitor, choose(draw))

    def _draw(self, random: Random) -> Draw:
        own, other = random.sample(range(self.world.size), 2)
        [kind] = random.choices(list(KINDS_OF_VISITORS), list(KINDS_OF_VISITORS.values()))
        fitting = [v for v in self.world.visitors if v.kind == kind and v.tenant in (None, own)]
        busy = kind == "admin" and random.random() < 0.5  # one that comes so often that it is told to wait
        return Draw(random, fitting[0] if busy else random.choice(fitting), own, other)

    async def send(self, client: httpx.AsyncClient, visitor: Visitor, call: Call) -> httpx.Response:
        headers = {"Content-Type": "application/json", **call.headers}
        if visitor.bearer is not None:
            headers["Authorization"] = f"Bearer {visitor.bearer}"
        if visitor.tenant in self.world.known and call.method in WRITES:
            self.world.known[visitor.tenant] |= {c for c in call.sent if c.owner != visitor.tenant}
        if visitor.tenant is not None:
            named = {c for c in call.sent if c.kind == NAMESPACE and c.owner != visitor.tenant}
            self.world.named.setdefault(visitor.tenant, set()).update(named)
        response = await client.request(
            call.method, call.path, params=call.params, headers=headers, content=call.content
        )
        self._check(visitor, call, response)
        return response

    def _check(self, visitor: Visitor, call: Call, response: httpx.Response) -> None:
        self.report.calls += 1
        self.report.statuses[response.status_code] += 1
        self.progress()
        told = canaries(f"{response.headers} {response.text}")
        seen = {c for c in told if not call.public and visitor.may_see(c, call.about)}
        self.report.own.update(canary.kind for canary in seen)
        whose = call.about if visitor.tenant is None else visitor.tenant
        leaked = told - seen - call.sent - self.world.known.get(whose, NOTHING)
        if leaked or response.status_code in UNFORESEEN:
            self.report.leaks.append(
                f"{visitor.kind} of {visitor.tenant}: {call.method} {call.path} answered {response.status_code} "
                f"with {sorted(map(str, leaked))}"
            )

    async def _whole_life(self, client: httpx.AsyncClient, random: Random, walker: int) -> None:
        """A tenant from its making to its end, another one suspended for a moment, and a key used after its end."""
        self.report.operations["life"] += 1
        owner, keeper = 90 + walker, random.choice([v for v in self.world.visitors if v.kind == "admin"])
        below = f"/v1/admin/tenants/{tenant_name(owner)}"
        neighbour = f"/v1/admin/tenants/{tenant_name(random.randrange(self.world.size))}"
        made = [
            await self.send(
                client, keeper, Call("POST", "/v1/admin/tenants", {"name": tenant_name(owner)}, about=owner)
            ),
            await self.send(client, keeper, Call("POST", f"{below}/keys", {"name": key_name(owner, 1)}, about=owner)),
        ]
        if made[1].status_code == 201:
            guest = Visitor("guest", made[1].json()["key"], owner, frozenset({0}))
            await self.send(client, guest, Call("POST", "/v1/documents", [document(owner, n, random) for n in (0, 4)]))
            await self.send(client, guest, Call("POST", "/v1/search", {"query": "walrus Hvaldimir", "limit": 100}))
            about = int(next(iter(canaries(neighbour))).owner)
            await self.send(client, keeper, Call("PATCH", neighbour, {"state": "suspended"}, about=about))
            await self.send(client, guest, Call("GET", "/v1/documents"))
        for _ in range(20):  # until they were done, however often this admin has called
            ended = await self.send(client, keeper, Call("DELETE", below, about=owner))
            resumed = await self.send(client, keeper, Call("PATCH", neighbour, {"state": "active"}))
            if ended.status_code in (200, 404) and resumed.status_code == 200:
                break
            await asyncio.sleep(1)
        if made[1].status_code == 201:
            await self.send(client, guest, Call("GET", "/v1/documents"))

    async def _look_in_public(self) -> None:
        async with httpx.AsyncClient(base_url=self.world.braid.url, timeout=60, verify=False) as client:
            for path in ("/metrics", "/readyz", "/openapi.json"):
                await self.send(client, Visitor("none", None), Call("GET", path, public=True))


def drawn(random: Random) -> Callable[[Draw], Call]:
    [chosen] = random.choices(list(OPERATIONS), list(OPERATIONS.values()))
    return chosen


class _Watch(logging.Handler):
    def __init__(self, report: Report, secrets: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._report = report
        self._secrets = secrets
        self._formatter = logs.JsonLines()

    def emit(self, record: logging.LogRecord) -> None:
        fields = json.loads(self._formatter.format(record))
        fields.pop("request_id", None)  # the caller's own choice, and meant to be found here
        line = json.dumps(fields)
        told = sorted(map(str, canaries(line)))
        if told or any(secret in line for secret in self._secrets):
            self._report.leaks.append(f"the log of {record.name} quotes {told or 'a secret'}")


@contextmanager
def watching_logs(report: Report, secrets: list[str]) -> Iterator[None]:
    """Reads every logger at debug level. The HTTP client here is ours, not the service's."""
    root, watch = logging.getLogger(), _Watch(report, secrets)
    before = root.level
    quiet = {name: logging.getLogger(name).level for name in ("httpx", "httpcore", "asyncpg.pool")}
    for name in quiet:
        logging.getLogger(name).setLevel(logging.ERROR)
    root.addHandler(watch)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(watch)
        for name, level in quiet.items():
            logging.getLogger(name).setLevel(level)


def held_together(world: World) -> list[str]:
    """Looks through everything that the service keeps in memory: no entry of any mapping, cache or not, may hold
    canaries of two tenants, or of another tenant than the one whose id it carries."""
    owners = {id: owner for owner, id in world.ids.items()}
    leaks = []
    for path, entry in _entries(world.braid.app.state.braid):
        told: set[Canary] = {c for c in canaries(entry) if c.owner in world.known}
        named = {owner for id, owner in owners.items() if id in entry}
        if path.startswith(REPEATING):
            holders = {c.owner for c in told} | named
            told = {c for c in told if not any(c in world.named.get(o, NOTHING) for o in holders - {c.owner})}
        if len({c.owner for c in told} | (named if told else set())) > 1:
            leaks.append(f"{path} holds {sorted(map(str, told))} together")
    return leaks


def _entries(root: Any) -> Iterator[tuple[str, str]]:
    """Each entry of each mapping below an object of ours, as text."""
    todo, seen = [("state", root)], set()
    while todo:
        path, value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            yield from ((path, f"{key!r} {each!r}") for key, each in list(value.items()))
            todo += [(path, each) for each in list(value.values())]
        elif isinstance(value, (list, tuple, set, frozenset)):
            todo += [(path, each) for each in list(value)]
        elif type(value).__module__.startswith("service."):
            todo += [(f"{path}.{name}", each) for name, each in _attributes(value)]


def _attributes(value: Any) -> list[tuple[str, Any]]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    held = {name: getattr(value, name, None) for name in slots if not name.startswith("__")}
    return list({**held, **getattr(value, "__dict__", {})}.items())
