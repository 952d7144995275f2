"""A Braid whose three engines all stand behind proxies that break: what the fault matrix and `make chaos` run on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
from pydantic import SecretStr

from service.app import prepare
from service.embedded import EmbeddedEngines
from tests.conftest import Running, running
from tests.faults.proxy import Proxy, proxied
from tests.faults.qdrant_stand_in import qdrant_stand_in

TIERS = ("keyword", "vector", "graph")
MISSING = {"timeout", "unavailable", "invalid", "circuit_open"}
QUERY = "Dipper in a storm"
DOCUMENTS = [
    {"id": "stow", "title": "Stowing the dish", "content": "In a storm it points straight up.", "entities": ["Dipper"]},
    {"id": "keeper", "title": "Bram de Wit", "content": "He greases the bearings.", "entities": ["Dipper"]},
    {"id": "weather", "title": "Gale warning", "content": "Strong winds and heavy rain tonight."},
]


@dataclass(frozen=True)
class Seen:
    """One answer: how long it took, its status, and what it says."""

    seconds: float
    status: int
    body: dict[str, Any]
    retry_after: str | None

    @property
    def ids(self) -> list[str]:
        return [result["id"] for result in self.body["results"]]

    @property
    def missing(self) -> set[str]:
        return {name for name, tier in self.body["tiers"].items() if tier["status"] in MISSING}


@dataclass
class Rig:
    """A running Braid, its proxies by tier, one tenant with documents, and what it finds while all is well."""

    braid: Running
    client: httpx.AsyncClient
    proxies: dict[str, Proxy]
    whole: list[str]
    without: dict[str, list[str]]

    async def search(self, **body: Any) -> Seen:
        began = time.perf_counter()
        answer = await self.client.post("/v1/search", json={"query": QUERY, **body})
        return Seen(time.perf_counter() - began, answer.status_code, answer.json(), answer.headers.get("retry-after"))

    async def load(self, clients: int, seconds: float) -> list[Seen]:
        """So many clients who each ask again as soon as they are answered."""
        until = time.monotonic() + seconds

        async def ask() -> list[Seen]:
            seen = [await self.search()]
            while time.monotonic() < until:
                seen.append(await self.search())
            return seen

        return [seen for some in await asyncio.gather(*(ask() for _ in range(clients))) for seen in some]

    async def healed(self, seconds: float) -> float:
        """How long it took until three answers in a row missed nothing."""
        began, well = time.monotonic(), 0
        while well < 3:
            seen = await self.search()
            well = well + 1 if seen.status == 200 and not seen.body["degraded"] else 0
            assert time.monotonic() - began < seconds, f"not whole again after {seconds} s: {seen}"
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    def wrong(self, seen: Seen, tier: str) -> str | None:
        """What is wrong with an answer during a fault of one tier; None where it is what it should be.

        An answer that misses nothing must be the whole ranking, one that misses the tier the ranking without it, and
        no other tier may be missing.
        """
        if tier == "keyword" and seen.status == 503:
            return None if seen.retry_after else "a 503 without Retry-After"
        if seen.status != 200:
            return f"status {seen.status}: {seen.body}"
        if seen.body["degraded"] != bool(seen.missing):
            return f"degraded is {seen.body['degraded']} and missing {seen.missing}"
        if seen.missing - {tier}:
            return f"another tier is missing: {seen.body['tiers']}"
        expected = self.without[tier] if seen.missing else self.whole
        return None if seen.ids == expected else f"found {seen.ids}, not {expected}, missing {seen.missing}"


@asynccontextmanager
async def rigged(folder: Path, **settings: Any) -> AsyncIterator[Rig]:
    """Engines, proxies in front of them, and a Braid that knows only the proxies."""
    async with AsyncExitStack() as stack:
        engines = EmbeddedEngines(folder / "engines", postgres=True, falkordb=True)
        stack.push_async_callback(asyncio.to_thread, engines.stop)
        addresses = await asyncio.to_thread(engines.start)
        owner = urlsplit(addresses.postgres_url or "")
        sockets = Path(parse_qs(owner.query)["host"][0])
        graph = Path(unquote(urlsplit(addresses.falkordb_url or "").path))
        port = await stack.enter_async_context(qdrant_stand_in())
        proxies = {
            "keyword": await stack.enter_async_context(proxied(sockets / ".s.PGSQL.5432")),
            "vector": await stack.enter_async_context(proxied(("127.0.0.1", port))),
            "graph": await stack.enter_async_context(proxied(graph)),
        }
        url = f"postgresql://braid_app@127.0.0.1:{proxies['keyword'].port}/postgres?sslmode=disable"
        await prepare(owner.geturl(), url, embedded=True)
        given: dict[str, Any] = {
            "postgres_url": SecretStr(url),
            "key_pepper": SecretStr("for tests only"),
            "qdrant_url": f"http://127.0.0.1:{proxies['vector'].port}",
            "falkordb_url": f"redis://127.0.0.1:{proxies['graph'].port}",
            "index_poll_ms": 50,
        }
        braid = await stack.enter_async_context(running(folder / "data", **given | settings))
        yield await _filled(braid, proxies)


async def _filled(braid: Running, proxies: dict[str, Proxy]) -> Rig:
    rig = Rig(braid, await braid.tenant(), proxies, [], {})
    written = await rig.client.post("/v1/documents", params={"wait": True}, json=DOCUMENTS)
    assert written.json()["visible"], written.text
    await rig.healed(10)
    await asyncio.sleep(1.5)  # until the keyword statistics know the documents: they move scores, and so the order
    rig.whole = (await rig.search()).ids
    rig.without = {tier: (await rig.search(weights={tier: 0})).ids for tier in TIERS}
    return rig
