"""A Braid of its own for every file of tests that break it, and the tools to break it with."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running, running

QUERY = "Dipper in a storm"
DOCUMENTS = [
    {"id": "stow", "title": "Stowing the dish", "content": "In a storm it points straight up.", "entities": ["Dipper"]},
    {"id": "keeper", "title": "Bram de Wit", "content": "He greases the bearings.", "entities": ["Dipper"]},
    {"id": "weather", "title": "Gale warning", "content": "Strong winds and heavy rain tonight."},
]


@dataclass(frozen=True)
class Engine:
    """An embedded engine, by the lock file in which its warden keeps its pid."""

    lock: Path

    @property
    def pid(self) -> int:
        return int(self.lock.read_text())

    @contextmanager
    def down(self) -> Iterator[None]:
        """Killed, and not started again before the end: its warden is held still for so long."""
        warden = int(shown("ppid=", "-p", str(self.pid))[0])
        os.kill(warden, signal.SIGSTOP)
        try:
            os.kill(self.pid, signal.SIGKILL)
            yield
        finally:
            os.kill(warden, signal.SIGCONT)

    @contextmanager
    def frozen(self, *, server: bool = True) -> Iterator[None]:
        """Alive and silent, as behind a network that swallows packets; without `server`, only its children are."""
        pids = [*([self.pid] if server else []), *map(int, shown("pid=", "--ppid", str(self.pid)))]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)


def shown(*arguments: str) -> list[str]:
    return subprocess.run(["ps", "-o", *arguments], capture_output=True, text=True, check=False).stdout.split()


@dataclass
class Breakable:
    """A running Braid and one tenant of it with a few documents that every tier finds."""

    braid: Running
    client: httpx.AsyncClient
    falkordb: Engine
    postgres: Engine

    async def search(self, query: str = QUERY, **body: Any) -> httpx.Response:
        return await self.client.post("/v1/search", json={"query": query, **body})

    async def whole(self, seconds: float = 5.0) -> dict[str, Any]:
        """The first answer that misses no tier, if it comes in time."""
        until = time.monotonic() + seconds
        while True:
            answer = await self.search()
            if answer.status_code == 200 and not answer.json()["degraded"]:
                return dict(answer.json())
            assert time.monotonic() < until, f"not whole again after {seconds} s: {answer.text}"
            await asyncio.sleep(0.05)

    async def finds(self, tier: str, query: str, id: str, seconds: float = 10.0) -> None:
        """Waits until `tier` alone finds a document."""
        alone = {"keyword": 0, "vector": 0, "graph": 0} | {tier: 1}
        until = time.monotonic() + seconds
        while id not in ids((await self.search(query, weights=alone)).json()):
            assert time.monotonic() < until, f"the {tier} tier does not find {id} after {seconds} s"
            await asyncio.sleep(0.05)

    async def counted(self, metric: str) -> float:
        """A counter's value, by its name and some of its labels as /metrics prints them."""
        name, *labels = re.split(r"[{},]", metric.rstrip("}"))
        lines = (await self.client.get("/metrics")).text.splitlines()
        meant = [line for line in lines if line.startswith(f"{name}{{") and all(label in line for label in labels)]
        return sum(float(line.rpartition(" ")[2]) for line in meant)


def ids(answer: dict[str, Any]) -> list[str]:
    return [result["id"] for result in answer["results"]]


async def breakable(braid: Running, data_dir: Path) -> Breakable:
    client = await braid.tenant()
    client.timeout = httpx.Timeout(10)
    return Breakable(braid, client, Engine(data_dir / "falkordb.lock"), Engine(data_dir / "postgres.lock"))


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        yield Path(folder) / "data"


@pytest.fixture(scope="module")
async def own() -> AsyncIterator[Breakable]:
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        data_dir = Path(folder) / "data"
        async with running(data_dir, index_poll_ms=50) as braid:
            broken = await breakable(braid, data_dir)
            await broken.client.post("/v1/documents", params={"wait": True}, json=DOCUMENTS)
            await broken.whole()
            yield broken
