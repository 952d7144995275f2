"""A Braid of its own for the benchmark: `braid serve` in another process, on embedded engines and empty data."""

from __future__ import annotations

import asyncio
import http.client
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.app import EMBEDDED_ROLE, make_key, with_user
from service.embedded import running
from service.stores.keys import ADMIN, KeyDesk, Keys, NewKey
from service.stores.postgres import Postgres
from service.stores.tenants import Tenants

START_SECONDS = 60
STOP_SECONDS = 20
_SERVE = [sys.executable, "-c", "from service.cli import main; main()", "serve"]
_ROOT = Path(__file__).parents[1]
_ENGINES = {"postgres": "PostgreSQL", "redis-server": "FalkorDB"}
SERVICE = "service (with Qdrant)"
TENANT = "bench"


class BenchError(Exception):
    """The benchmark cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running Braid: where it answers, with what keys, in which process, and where its tables' owner connects."""

    port: int
    key: str
    pid: int
    admin_key: str
    owner_url: str

    def memory(self) -> dict[str, float]:
        """Megabytes of each part, as PSS: pages that processes share count once. Empty where there is no /proc."""
        held = {SERVICE: 0.0}
        for pid in _family(self.pid):
            megabytes, command = _pss(pid), _command(pid)
            part = next((name for start, name in _ENGINES.items() if command.startswith(start)), SERVICE)
            held[part] = held.get(part, 0.0) + megabytes
        return held if any(held.values()) else {}


@contextmanager
def running_server(**settings: str) -> Iterator[Server]:
    """Braid on a free port, with these BRAID_* settings; it and its data are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="braid-bench-") as folder:
        port, data_dir, pepper = _free_port(), Path(folder) / "data", secrets.token_hex(32)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")} | {
            "BRAID_DATA_DIR": str(data_dir),
            "BRAID_KEY_PEPPER": pepper,
            "BRAID_PORT": str(port),
            "BRAID_SAMPLE": "false",
            "BRAID_LOG_LEVEL": "warning",
            **{f"BRAID_{name.upper()}": value for name, value in settings.items()},
        }
        log = Path(folder) / "serve.log"
        with log.open("wb") as output:
            process = subprocess.Popen(_SERVE, cwd=_ROOT, env=environment, stdout=output, stderr=output)
            try:
                _wait_until_ready(process, port, log)
                owner_url = _owner_url(data_dir)
                key, admin_key = asyncio.run(_make_keys(owner_url, pepper))
                yield Server(port, key, process.pid, admin_key, owner_url)
            finally:
                _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _ready(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise BenchError(f"Braid did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _owner_url(data_dir: Path) -> str:
    addresses = running(data_dir)
    if addresses is None or addresses.postgres_url is None:
        raise BenchError("Braid answers, but its data folder names no PostgreSQL")
    return addresses.postgres_url


async def _make_keys(owner_url: str, pepper: str) -> tuple[str, str]:
    """A tenant's and an admin's, as `braid key create` makes them, without the seconds that another Python takes."""
    postgres = Postgres(with_user(owner_url, EMBEDDED_ROLE), pool_size=2)
    await postgres.open()
    try:
        keys, tenants = Keys(postgres, pepper.encode(), time.monotonic), Tenants(postgres)
        admin_key, _ = await KeyDesk(tenants, keys).create("cli", None, NewKey(scopes=(ADMIN,)))
        return await make_key(tenants, keys, TENANT, NewKey()), admin_key
    finally:
        await postgres.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _family(root: int) -> list[int]:
    """The process and everything below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything; the parent comes second behind it.
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    family = [root]
    for member in family:
        family += children.get(member, [])
    return family


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _pss(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
