"""PostgreSQL and FalkorDB as child processes that live and die with the service, from Python wheels."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from service.embedded import falkordb, postgres
from service.embedded.engine import Readiness, Running
from service.embedded.lock import DataDirLock
from service.errors import SetupError

__all__ = ["Addresses", "EmbeddedEngines", "announce", "announced", "check_platform", "running"]

READY_TIMEOUT = 30.0
PROBE_PAUSE = 0.02
# A socket's path has 104 bytes on macOS and 108 on Linux, and asyncpg and PostgreSQL split it at commas.
PLAIN_RUN_DIR = re.compile(r"[A-Za-z0-9_./@+-]{1,75}")
USE_SERVERS = "point BRAID_POSTGRES_URL, BRAID_QDRANT_URL and BRAID_FALKORDB_URL at servers instead"


@dataclass(frozen=True)
class Addresses:
    """Where the embedded engines listen; None for one that is not embedded."""

    postgres_url: str | None
    falkordb_url: str | None


class EmbeddedEngines:
    """The embedded engines of one data folder, which is locked from `start` to `stop`."""

    def __init__(self, data_dir: Path, *, postgres: bool, falkordb: bool) -> None:
        self._data_dir = data_dir.absolute()
        self._lock = DataDirLock(self._data_dir)
        self._postgres = postgres
        self._falkordb = falkordb
        self._running: list[Running] = []

    def start(self) -> Addresses:
        """Start the engines at the same time; return when all of them serve."""
        if self._postgres or self._falkordb:
            check_platform()
        try:
            self._take_data_dir()
        except OSError as error:
            raise SetupError(
                f"cannot use the data folder {self._data_dir} ({error.strerror}): set BRAID_DATA_DIR to another folder"
            ) from error
        try:
            return self._start_engines()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the engines, FalkorDB first, and free the data folder. Idempotent."""
        if not self._lock.mine:
            return
        while self._running:
            self._running.pop().stop()
        _run_json(self._data_dir).unlink(missing_ok=True)
        _remove_run_dir(self._data_dir)
        self._lock.release()

    def _take_data_dir(self) -> None:
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock.acquire()
        _run_json(self._data_dir).unlink(missing_ok=True)
        (self._data_dir / "log").mkdir(mode=0o700, exist_ok=True)

    def _start_engines(self) -> Addresses:
        run_dir = _make_run_dir(self._data_dir)
        first = postgres.engine(self._data_dir, run_dir) if self._postgres else None
        second = falkordb.engine(self._data_dir, run_dir) if self._falkordb else None
        self._running.extend(Running(engine) for engine in (first, second) if engine)
        for started in self._running:
            _wait_until_ready(started)
        addresses = Addresses(first.url if first else None, second.url if second else None)
        _write_run_json(self._data_dir, {"pid": os.getpid(), **asdict(addresses)})
        return addresses


def running(data_dir: Path) -> Addresses | None:
    """The addresses of the instance that runs on this folder, if one does and is ready."""
    written = _read_run_json(data_dir)
    return Addresses(written["postgres_url"], written["falkordb_url"]) if written else None


def announce(data_dir: Path, url: str) -> None:
    """Leave word where the API of this instance answers. Without embedded engines there is no folder to say it in."""
    if written := _read_run_json(data_dir):
        _write_run_json(data_dir, written | {"url": url})


def announced(data_dir: Path) -> str | None:
    """Where the API of the instance that runs on this folder answers, if one does."""
    written = _read_run_json(data_dir)
    return written.get("url") if written else None


def check_platform() -> None:
    """Refuse, in one line, a platform for which there are no wheels with engines in them."""
    if (sys.platform, platform.machine()) not in (("linux", "x86_64"), ("darwin", "arm64")):
        found = f"{platform.system()} {platform.machine()}"
        raise SetupError(f"embedded engines exist for Linux x86_64 and macOS arm64, not for {found}: {USE_SERVERS}")
    if sys.platform == "linux" and platform.libc_ver()[0] != "glibc":
        raise SetupError(f"embedded engines need glibc, which this Linux does not use: {USE_SERVERS}")
    if platform.python_implementation() != "CPython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        found = f"{platform.python_implementation()} {platform.python_version()}"
        raise SetupError(f"embedded engines need CPython 3.11 to 3.13, not {found}: {USE_SERVERS}")


def _wait_until_ready(started: Running) -> None:
    """An engine that says it is loading is given time without end: a large graph needs it."""
    deadline = time.monotonic() + READY_TIMEOUT
    while (answer := started.engine.probe()) is not Readiness.READY:
        if answer is Readiness.LOADING:
            deadline = time.monotonic() + READY_TIMEOUT
        if started.given_up or time.monotonic() > deadline:
            engine = started.engine
            raise SetupError(f"{engine.name} did not start: {started.last_words()} (log: {engine.log})")
        time.sleep(PROBE_PAUSE)


def _make_run_dir(data_dir: Path) -> Path:
    """`<data_dir>/run`; or a link to a temporary folder, where the path would not do for a socket."""
    _remove_run_dir(data_dir)
    run_dir = data_dir / "run"
    if PLAIN_RUN_DIR.fullmatch(str(run_dir)):
        run_dir.mkdir(mode=0o700, exist_ok=True)
        return run_dir
    shutil.rmtree(run_dir, ignore_errors=True)
    elsewhere = Path(tempfile.mkdtemp(prefix="braid-"))
    run_dir.symlink_to(elsewhere)
    return elsewhere


def _remove_run_dir(data_dir: Path) -> None:
    """Only what is elsewhere has to go; a killed service leaves it, and its link, behind."""
    link = data_dir / "run"
    if link.is_symlink():
        target = link.readlink()
        if target.name.startswith("braid-"):
            shutil.rmtree(target, ignore_errors=True)
        link.unlink()


def _run_json(data_dir: Path) -> Path:
    return data_dir / "run.json"


def _read_run_json(data_dir: Path) -> dict[str, Any] | None:
    if not DataDirLock(data_dir).held():
        return None
    try:
        written: dict[str, Any] = json.loads(_run_json(data_dir).read_text())
    except (OSError, ValueError):
        return None
    return written


def _write_run_json(data_dir: Path, written: dict[str, Any]) -> None:
    draft = data_dir / "run.json.new"
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(written, file)
    draft.replace(_run_json(data_dir))
