"""Braid as several processes on real engines: an API, workers of the graph, PostgreSQL and FalkorDB, each to be killed.

The API process owns embedded Qdrant, as no other may, and applies what is dirty there; so a kill of the API is one of
Qdrant and of its worker too. The graph's workers are processes of their own. PostgreSQL and FalkorDB are started by
address, each under a warden that starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import httpx

from service.app import EMBEDDED_ROLE, make_key, prepare, with_user
from service.embedded import Addresses, EmbeddedEngines
from service.stores.keys import Keys, NewKey
from service.stores.postgres import Postgres
from service.stores.tenants import Tenants

DIMENSION = 8
PEPPER = "crash"
WEIGHTS = {"api": 2, "worker": 3, "FalkorDB": 3, "PostgreSQL": 2}
"""How often each is killed: an API takes seconds to come back, and nobody writes until then."""
ROOT = Path(__file__).parents[3]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Process:
    """One of Braid's own processes: `braid serve` or `braid worker`, whole or sabotaged."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command = command
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.start()

    def stop(self) -> float:
        """In order, as an operator would. Returns how many seconds that took."""
        assert self._process is not None
        began = time.monotonic()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return time.monotonic() - began

    @property
    def fell(self) -> bool:
        """Whether it ended by itself, which nobody asked it to: its engine may be down while it starts."""
        return self._process is not None and self._process.poll() is not None


class Engine:
    """PostgreSQL or FalkorDB, by the lock file in which its warden keeps its pid."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock

    def kill(self) -> None:
        text = self._lock.read_text()
        if text.isdigit():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(text), signal.SIGKILL)


class Cluster:
    """Everything that can be killed, and where to find it."""

    def __init__(self, folder: Path, seed: int, sabotage: str = "none", workers: int = 2) -> None:
        self.folder = folder
        self.port = free_port()
        self.kills: dict[str, int] = {}
        self.vectors = folder / "api" / "qdrant"
        self._random = Random(seed)
        self._engines = EmbeddedEngines(folder / "engines", postgres=True, falkordb=True)
        self._sabotage = sabotage
        self._workers = workers
        self.addresses = Addresses(None, None)
        self.targets: dict[str, Process | Engine] = {}
        self.key = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.addresses = await asyncio.to_thread(self._engines.start)
        owner = self.addresses.postgres_url or ""
        await prepare(owner, with_user(owner, EMBEDDED_ROLE), embedded=True)
        postgres = Postgres(with_user(owner, EMBEDDED_ROLE), pool_size=2)
        await postgres.open()
        self.key = await make_key(Tenants(postgres), Keys(postgres, PEPPER.encode(), time.monotonic), "crash", NewKey())
        await postgres.close()
        self.targets = {"api": self._process("serve", "vector")}
        self.targets |= {f"worker {n}": self._process("worker", "graph") for n in range(self._workers)}
        for process in self.targets.values():
            assert isinstance(process, Process)
            process.start()
        locks = {"PostgreSQL": "postgres.lock", "FalkorDB": "falkordb.lock"}
        self.targets |= {name: Engine(self.folder / "engines" / lock) for name, lock in locks.items()}
        await self.up()

    def _process(self, command: str, sinks: str) -> Process:
        owner = self.addresses.postgres_url or ""
        settings = {
            "DATA_DIR": str(self.folder / "api"),
            "PORT": str(self.port),
            "POSTGRES_URL": with_user(owner, EMBEDDED_ROLE),
            "POSTGRES_ADMIN_URL": owner,
            "FALKORDB_URL": self.addresses.falkordb_url or "",
            "KEY_PEPPER": PEPPER,
            "EMBEDDER": "none",
            "EMBEDDER_DIMENSION": str(DIMENSION),
            "INDEX_SINKS": sinks,
            "INDEX_POLL_MS": "100",
            "LOG_LEVEL": "warning",
        }
        others = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}
        environment = others | {f"BRAID_{name}": value for name, value in settings.items()}
        entry = [sys.executable, "-m", "tests.faults.crash.sabotage", self._sabotage, command]
        return Process(entry, environment, self.folder / "braid.log")

    def raise_fallen(self) -> None:
        """As an operator's supervisor does."""
        for process in self.targets.values():
            if isinstance(process, Process) and process.fell:
                process.start()

    async def up(self, seconds: float = 60) -> None:
        """Until the API answers and knows all engines to be well."""
        async with asyncio.timeout(seconds), httpx.AsyncClient(base_url=self.url, timeout=5) as client:
            while not await _ready(client):
                self.raise_fallen()
                await asyncio.sleep(0.1)

    async def keep_killing(
        self, kills: int, among: tuple[str, ...] = ("api", "worker", "FalkorDB", "PostgreSQL")
    ) -> None:
        """One after the other, each at some moment; mostly when everything is up, sometimes while something starts."""
        while sum(self.kills.values()) < kills:
            if self._random.random() < 0.7:
                await self.up()
            await asyncio.sleep(self._random.uniform(0.05, 1.2))
            self.raise_fallen()
            [kind] = self._random.choices(among, [WEIGHTS[kind] for kind in among])
            name = self._random.choice([name for name in self.targets if name.startswith(kind)])
            await asyncio.to_thread(self.targets[name].kill)
            self.kills[kind] = self.kills.get(kind, 0) + 1

    def last_blow(self, among: Sequence[str]) -> None:
        """Braid's own processes once more, now that no later write covers up what they leave undone."""
        for name, process in self.targets.items():
            if isinstance(process, Process) and name.startswith(tuple(among)):
                process.kill()

    def stop_api(self) -> float:
        api = self.targets["api"]
        assert isinstance(api, Process)
        return api.stop()

    def stop(self) -> None:
        for process in self.targets.values():
            if isinstance(process, Process):
                process.stop()
        self._engines.stop()


async def _ready(client: httpx.AsyncClient) -> bool:
    try:
        answer = await client.get("/readyz")
        return answer.status_code == 200 and answer.json()["status"] == "ok"
    except (httpx.HTTPError, ValueError):
        return False
