"""An engine as the service sees it: what to run, how to ask whether it is ready, and its warden's process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from service.embedded import warden

LOG_LIMIT = 16 * 1024 * 1024
STOP_TIMEOUT = warden.STOP_GRACE + 4
KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class Readiness(StrEnum):
    """What an engine says when asked whether it serves."""

    ABSENT = "absent"
    LOADING = "loading"
    READY = "ready"


@dataclass(frozen=True)
class Engine:
    """One engine: its name, its address, its log, its warden's orders, and the question whether it is ready."""

    name: str
    url: str
    log: Path
    spec: warden.Spec
    probe: Callable[[], Readiness]


def environment() -> dict[str, str]:
    """Only what an engine needs: a stray PGPORT, or a locale that is not installed, stops them; secrets stay here."""
    return {key: os.environ[key] for key in KEPT_VARIABLES if key in os.environ} | {"LC_ALL": "C"}


class Running:
    """A started engine: the warden's process and the pipe that keeps it going."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._log_start = rotate(engine.log)
        with engine.log.open("ab") as log:
            self._warden = subprocess.Popen(  # noqa: S603 (our own script)
                [sys.executable, "-I", warden.__file__, json.dumps(asdict(engine.spec))],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                close_fds=True,
                start_new_session=True,
            )

    @property
    def given_up(self) -> bool:
        return self._warden.poll() is not None

    def stop(self) -> None:
        if self._warden.stdin:
            self._warden.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._warden.wait(STOP_TIMEOUT)
        if self._warden.poll() is None:
            self._warden.send_signal(signal.SIGKILL)
            self._warden.wait()

    def last_words(self) -> str:
        """The line of this start's log that most likely says what is wrong."""
        with self.engine.log.open("rb") as log:
            log.seek(self._log_start)
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if re.search(r"FATAL|PANIC|error", line, re.IGNORECASE)]
        by_engine = [line for line in telling if " warden: " not in line]
        return (by_engine or telling or lines or ["it wrote no log"])[-1]


def rotate(log: Path) -> int:
    """Put a log that has grown large aside, and say where the new lines begin."""
    size = log.stat().st_size if log.exists() else 0
    if size <= LOG_LIMIT:
        return size
    log.replace(log.with_suffix(".log.1"))
    return 0
