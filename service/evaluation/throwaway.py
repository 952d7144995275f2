"""A Braid to throw away: `braid serve` in another process, on embedded engines and empty data, gone at the end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.app import EMBEDDED_ROLE, make_key, with_user
from service.embedded import running
from service.errors import SetupError
from service.stores.keys import ADMIN, KeyDesk, Keys, NewKey
from service.stores.postgres import Postgres
from service.stores.tenants import Tenants

START_SECONDS = 60
STOP_SECONDS = 20
# Ourselves, whatever else is called `service` in the folder we are called from.
_SERVE = [sys.executable, "-P", "-m", "service.cli", "serve"]
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class ThrowAway:
    """A running Braid: where it answers, in which process, and what it takes to make keys for it."""

    port: int
    pid: int
    data_dir: Path
    pepper: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def owner_url(self) -> str:
        """Where the owner of the tables connects; the service itself is another role."""
        addresses = running(self.data_dir)
        if addresses is None or addresses.postgres_url is None:
            raise SetupError("Braid answers, but its data folder names no PostgreSQL")
        return addresses.postgres_url

    def key(self, tenant: str) -> str:
        """As `braid key create` makes one, without the seconds that starting another Python takes."""
        return asyncio.run(self._make(lambda tenants, keys: make_key(tenants, keys, tenant, NewKey())))

    def admin_key(self) -> str:
        return asyncio.run(self._make(_admin_key))

    async def _make(self, making: Callable[[Tenants, Keys], Awaitable[str]]) -> str:
        postgres = Postgres(with_user(self.owner_url, EMBEDDED_ROLE), pool_size=2)
        await postgres.open()
        try:
            return await making(Tenants(postgres), Keys(postgres, self.pepper.encode(), time.monotonic))
        finally:
            await postgres.close()


async def _admin_key(tenants: Tenants, keys: Keys) -> str:
    key, _ = await KeyDesk(tenants, keys).create("cli", None, NewKey(scopes=(ADMIN,)))
    return key


@contextmanager
def throw_away(settings: dict[str, str] | None = None) -> Iterator[ThrowAway]:
    """Braid on a free port, with these BRAID_* variables and no others; it and its data are gone at the end."""
    with _leaving_in_order(), tempfile.TemporaryDirectory(prefix="braid-", ignore_cleanup_errors=True) as folder:
        braid = _describe(Path(folder) / "data")
        log = Path(folder) / "serve.log"
        with log.open("wb") as output:
            environment = _environment(braid, settings or {})
            process = subprocess.Popen(_SERVE, env=environment, stdout=output, stderr=output)  # noqa: S603 - our own
            try:
                _wait_until_ready(process, braid.url, log)
                yield ThrowAway(braid.port, process.pid, braid.data_dir, braid.pepper)
            finally:
                _stop(process)


def tuning() -> dict[str, str]:
    """Our own BRAID_* variables without those that say where an engine is: how to search, but nowhere real."""
    elsewhere = ("BRAID_POSTGRES_", "BRAID_QDRANT_", "BRAID_FALKORDB_")
    ours = {name: value for name, value in os.environ.items() if name.startswith("BRAID_")}
    return {name: value for name, value in ours.items() if not name.startswith(elsewhere)}


@contextmanager
def _leaving_in_order() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does, so that nothing we started is left behind."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _describe(data_dir: Path) -> ThrowAway:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    return ThrowAway(port, 0, data_dir, secrets.token_hex(32))


def _environment(braid: ThrowAway, settings: dict[str, str]) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("BRAID_")}
    path = os.pathsep.join(filter(None, [str(_ROOT), others.get("PYTHONPATH")]))
    return (
        others
        | settings
        | {
            "PYTHONPATH": path,
            "BRAID_DATA_DIR": str(braid.data_dir),
            "BRAID_KEY_PEPPER": braid.pepper,
            "BRAID_HOST": "127.0.0.1",
            "BRAID_PORT": str(braid.port),
            "BRAID_SAMPLE": "false",
            "BRAID_LOG_LEVEL": "warning",
        }
    )


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _ready(url):
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip()[-2000:]
            raise SetupError(f"Braid did not start: {said.removeprefix('braid: ') or 'it said nothing'}")
        time.sleep(0.05)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
