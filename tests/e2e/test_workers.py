"""`braid serve` with several processes: they count together, are replaced, and end together."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.app import EMBEDDED_ROLE, make_key, prepare, with_user
from service.embedded import Addresses, EmbeddedEngines
from service.stores.keys import Keys, NewKey
from service.stores.postgres import Postgres
from service.stores.tenants import Tenants

PEPPER = "for this test only"
SEARCHES = 40


@pytest.fixture(scope="module")
def engines() -> Iterator[Addresses]:
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        started = EmbeddedEngines(Path(folder) / "data", postgres=True, falkordb=True)
        try:
            yield started.start()
        finally:
            started.stop()


async def made_key(addresses: Addresses) -> str:
    owner = addresses.postgres_url or ""
    await prepare(owner, with_user(owner, EMBEDDED_ROLE), embedded=True)
    postgres = Postgres(with_user(owner, EMBEDDED_ROLE), pool_size=2)
    await postgres.open()
    try:
        return await make_key(Tenants(postgres), Keys(postgres, PEPPER.encode(), time.monotonic), "many", NewKey())
    finally:
        await postgres.close()


def environment(**settings: str) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}
    return others | {f"BRAID_{name.upper()}": value for name, value in settings.items()}


def children(pid: int) -> set[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return {int(word) for word in found.stdout.split()}


def until(true: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Served:
    """A running parent: its output, where it answers and its workers."""

    def __init__(self, process: subprocess.Popen[str], key: str) -> None:
        self.process = process
        welcome = ""
        while "Ctrl-C stops it." not in welcome:
            line = process.stdout.readline() if process.stdout else ""
            assert line, welcome
            welcome += line
        self.url = re.findall(r"API +(http://\S+)/v1", welcome)[0]
        self.headers = {"Authorization": f"Bearer {key}"}

    def search(self) -> None:
        """Over a connection of its own, so that any process may get it."""
        reply = httpx.get(f"{self.url}/v1/search?q=walrus", headers=self.headers, timeout=10)
        assert reply.status_code == 200, reply.text

    def counted(self, name: str, **labels: str) -> float:
        text = httpx.get(f"{self.url}/metrics", timeout=10).text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    def told(self) -> int:
        """What the tenant is told it searched."""
        shown = httpx.get(f"{self.url}/v1/stats", headers=self.headers, timeout=10).json()
        total: int = shown["searches"]["total"]
        return total


@pytest.fixture(scope="module")
def served(engines: Addresses) -> Iterator[Served]:
    key = asyncio.run(made_key(engines))
    settings = environment(
        workers="2", port="0", key_pepper=PEPPER, qdrant_url=":memory:", falkordb_url=engines.falkordb_url or "",
        postgres_url=with_user(engines.postgres_url or "", EMBEDDED_ROLE), index_poll_ms="5000",
    )  # fmt: skip
    command = [sys.executable, "-P", "-m", "service.cli", "serve"]
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Served(process, key)
        finally:
            process.terminate()
            process.wait(20)


def test_counts_are_those_of_all_processes_and_survive_one_of_them(served: Served) -> None:
    first = children(served.process.pid)
    assert len(first) == 2
    for _ in range(SEARCHES):
        served.search()
    assert {served.counted("braid_searches_total") for _ in range(10)} == {SEARCHES}  # whoever is asked
    assert served.counted("braid_tier_duration_seconds_count", tier="keyword") == SEARCHES
    assert served.counted("braid_postgres_connections_limit") == 20
    until(lambda: served.told() == SEARCHES)  # each process saves its own every few seconds

    os.kill(min(first), signal.SIGKILL)
    until(lambda: len(children(served.process.pid)) == 2 and min(first) not in children(served.process.pid))
    served.search()
    assert served.counted("braid_searches_total") == SEARCHES + 1
    until(lambda: served.told() == SEARCHES + 1)


def test_all_end_with_the_parent_even_by_kill_9(served: Served) -> None:
    workers = children(served.process.pid)
    assert workers
    served.process.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_an_embedded_engine_refuses_to_be_shared() -> None:
    command = [sys.executable, "-P", "-m", "service.cli", "serve"]
    said = subprocess.run(command, env=environment(workers="2"), capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "BRAID_WORKERS needs servers" in said.stderr
