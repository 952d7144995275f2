"""Several processes behind one socket: what `braid serve` does where BRAID_WORKERS is more than one.

A process that dies is replaced; all end when this one does, even by `kill -9`. Each counts for itself, in files that
whoever is asked for /metrics adds up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from service.errors import SetupError

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # read by prometheus_client when it is first imported
READY = b"+"
_SERVE = [sys.executable, "-P", "-m", "service.cli", "serve", "--inherit"]
_PAUSE_S = 0.1
_STOP_S = 15.0
# A process that ends by itself so soon will not do better another time.
_HOPELESS_S = 5.0


class Workers:
    """The processes. `line` ties them to this one: they say on it that they serve, and see it end."""

    def __init__(self, count: int, listeners: Sequence[socket.socket], metrics_folder: str) -> None:
        self._count = count
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        self._handed = [theirs, *listeners]
        self._folder = metrics_folder
        self._born: dict[subprocess.Popen[bytes], float] = {}

    def fill(self) -> None:
        while len(self._born) < self._count:
            fds = [each.fileno() for each in self._handed]
            command = [*_SERVE, ",".join(map(str, fds))]
            environment = os.environ | {METRICS_FOLDER: self._folder}
            self._born[subprocess.Popen(command, env=environment, pass_fds=fds)] = time.monotonic()  # noqa: S603

    def bury(self) -> None:
        """Forgets who died, in the metrics of the living too. Raises where starting another one is of no use."""
        for process in [each for each in self._born if each.poll() is not None]:
            lived = time.monotonic() - self._born.pop(process)
            _forget_gauges(process.pid, self._folder)
            if process.returncode > 0 and lived < _HOPELESS_S:
                raise SetupError("a worker did not start; what it said stands above")

    def ready(self) -> int:
        """How many have said that they serve, since this was asked."""
        with contextlib.suppress(BlockingIOError):
            return len(self._line.recv(1024))
        return 0

    def stop(self) -> None:
        for process in self._born:
            process.terminate()
        deadline = time.monotonic() + _STOP_S
        for process in self._born:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _forget_gauges(pid: int, folder: str) -> None:
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - most commands need none of it

    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


def serve_with(count: int, listeners: Sequence[socket.socket], welcome: Callable[[], None]) -> None:
    """Keeps `count` processes serving until this one is told to stop."""
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: stopping.append(received))
    with tempfile.TemporaryDirectory(prefix="braid-metrics-") as folder:
        workers = Workers(count, listeners, folder)
        missing = count
        try:
            while not stopping:
                workers.fill()
                if missing > 0:
                    missing -= workers.ready()
                    if missing <= 0:
                        welcome()
                time.sleep(_PAUSE_S)
                workers.bury()
        finally:
            workers.stop()


def inherited(numbers: str) -> tuple[socket.socket, list[socket.socket]]:
    """What a worker was handed: the line to its parent, and where to listen."""
    line, *listeners = (socket.socket(fileno=int(number)) for number in numbers.split(","))
    return line, listeners
