"""The embedded engines, for real: they start, they die with the service however it dies, and they keep their data."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
import redis

from service import embedded
from service.embedded import Addresses, EmbeddedEngines, check_platform, running
from service.errors import SetupError

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from service.embedded import EmbeddedEngines
EmbeddedEngines(Path(sys.argv[1]), postgres=True, falkordb=True).start()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Short, as pytest's own folder may be too long for a socket; below a 0700 folder, as mkdtemp makes it."""
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        yield Path(folder) / "data"


def both(data_dir: Path) -> EmbeddedEngines:
    return EmbeddedEngines(data_dir, postgres=True, falkordb=True)


def processes(data_dir: Path) -> list[str]:
    """Commands that name the data folder; on Linux also those that work in it, as PostgreSQL's children do."""
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if f"{data_dir}/" in line or works_in(line.split()[0], data_dir)]


def works_in(pid: str, data_dir: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(data_dir)
    except OSError:
        return False


def eventually(check: Callable[[], bool], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if check():
            return True
        time.sleep(0.05)
    return check()


def sql(addresses: Addresses, statement: str) -> object:
    async def ask() -> object:
        connection = await asyncpg.connect(addresses.postgres_url)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(ask())


def cypher(addresses: Addresses, query: str) -> list[list[object]]:
    with redis.Redis.from_url(addresses.falkordb_url or "") as client:
        answer: list[list[list[object]]] = client.execute_command("GRAPH.QUERY", "g", query)
        return answer[1] if len(answer) == 3 else []


def pid_of(data_dir: Path, engine: str) -> int:
    return int((data_dir / f"{engine}.lock").read_text() or 0)


def start_holder(data_dir: Path) -> subprocess.Popen[str]:
    """A service of its own process, to be killed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(data_dir)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    assert holder.stdout.readline() == "ready\n"
    return holder


def kill(holder: subprocess.Popen[str], number: signal.Signals = signal.SIGKILL) -> None:
    holder.send_signal(number)
    holder.wait()
    assert holder.stdout
    holder.stdout.close()


def parent_of(pid: int) -> int:
    shown = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
    return int(shown)


def test_start_serves_and_stop_leaves_nothing_running(data_dir: Path) -> None:
    engines = both(data_dir)
    addresses = engines.start()
    assert sql(addresses, "SHOW listen_addresses") == ""
    assert sql(addresses, "SHOW fsync") == "on"
    assert sql(addresses, "SELECT datcollate || datlocale FROM pg_database WHERE datname = 'postgres'") == "CC.UTF-8"
    assert cypher(addresses, "RETURN 1") == [[1]]
    assert running(data_dir) == addresses
    assert json.loads((data_dir / "run.json").read_text())["pid"] == os.getpid()
    assert (data_dir / "run.json").stat().st_mode & 0o777 == 0o600
    assert data_dir.stat().st_mode & 0o777 == 0o700

    engines.stop()
    engines.stop()
    assert processes(data_dir) == []
    assert running(data_dir) is None
    assert not (data_dir / "run.json").exists()

    began = time.monotonic()
    engines.start()
    assert time.monotonic() - began < 2
    engines.stop()


def test_only_what_is_asked_for_is_started(data_dir: Path) -> None:
    engines = EmbeddedEngines(data_dir, postgres=False, falkordb=False)
    assert engines.start() == Addresses(None, None)
    assert processes(data_dir) == []
    assert running(data_dir) == Addresses(None, None)
    engines.stop()


def test_a_killed_service_takes_its_engines_along_and_loses_no_data(data_dir: Path) -> None:
    holder = start_holder(data_dir)
    addresses = running(data_dir)
    assert addresses
    sql(addresses, "CREATE TABLE kept AS SELECT 42 AS answer")
    cypher(addresses, "CREATE (:Kept {answer: 42})")
    kill(holder)
    assert eventually(lambda: processes(data_dir) == [])
    assert running(data_dir) is None

    engines = both(data_dir)
    addresses = engines.start()
    try:
        assert sql(addresses, "SELECT answer FROM kept") == 42
        assert cypher(addresses, "MATCH (k:Kept) RETURN k.answer") == [[42]]
    finally:
        engines.stop()


def test_a_start_right_after_a_kill_waits_for_the_old_engines(data_dir: Path) -> None:
    holder = start_holder(data_dir)
    old = {pid_of(data_dir, "postgres"), pid_of(data_dir, "falkordb")}
    kill(holder)
    engines = both(data_dir)
    addresses = engines.start()
    try:
        assert not old & {pid_of(data_dir, "postgres"), pid_of(data_dir, "falkordb")}
        time.sleep(0.3)
        assert sql(addresses, "SELECT 1") == 1
        assert cypher(addresses, "RETURN 1") == [[1]]
    finally:
        engines.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_killed_wardens_leave_no_orphans(data_dir: Path) -> None:
    engines = both(data_dir)
    engines.start()
    for name in ("postgres", "falkordb"):
        os.kill(parent_of(pid_of(data_dir, name)), signal.SIGKILL)
    assert eventually(lambda: not [line for line in processes(data_dir) if "<defunct>" not in line])
    engines.stop()


def test_stale_pid_files_and_a_half_made_database_do_not_stop_a_start(data_dir: Path) -> None:
    """In a container the pid in postmaster.pid is soon that of another process of ours."""
    (data_dir / "postgres.new" / "base").mkdir(parents=True)
    engines = EmbeddedEngines(data_dir, postgres=True, falkordb=False)
    engines.start()
    engines.stop()
    assert not (data_dir / "postgres.new").exists()
    (data_dir / "postgres" / "postmaster.pid").write_text(f"{os.getpid()}\n{data_dir}/postgres\n1\n5432\n\n\n1 1\n")
    assert sql(engines.start(), "SELECT 1") == 1
    engines.stop()


def test_a_truncated_append_only_file_loads(data_dir: Path) -> None:
    engines = EmbeddedEngines(data_dir, postgres=False, falkordb=True)
    addresses = engines.start()
    cypher(addresses, "CREATE (:Kept {answer: 42})")
    cypher(addresses, "CREATE (:Lost {answer: 43})")
    engines.stop()
    log = max((data_dir / "falkordb" / "appendonlydir").glob("*.incr.aof"))
    os.truncate(log, log.stat().st_size - 5)
    assert cypher(engines.start(), "MATCH (k:Kept) RETURN k.answer") == [[42]]
    engines.stop()


def test_a_second_instance_is_refused_in_one_line(data_dir: Path) -> None:
    first = EmbeddedEngines(data_dir, postgres=False, falkordb=False)
    first.start()
    second = both(data_dir)
    with pytest.raises(SetupError) as refusal:
        second.start()
    second.stop()
    assert str(refusal.value) == (
        f"another Braid (pid {os.getpid()}) is already running on {data_dir}: "
        "stop it, or set BRAID_DATA_DIR to another folder"
    )
    assert running(data_dir) is not None
    first.stop()


@pytest.mark.parametrize("name", ["postgres", "falkordb"])
def test_a_killed_engine_comes_back(data_dir: Path, name: str) -> None:
    engines = EmbeddedEngines(data_dir, postgres=name == "postgres", falkordb=name == "falkordb")
    engines.start()
    [started] = engines._running
    os.kill(pid_of(data_dir, name), signal.SIGKILL)
    assert eventually(lambda: started.engine.probe() == "absent", 2)
    assert eventually(lambda: started.engine.probe() == "ready")
    engines.stop()


def test_an_interrupt_or_a_hangup_of_the_warden_changes_nothing(data_dir: Path) -> None:
    engines = EmbeddedEngines(data_dir, postgres=False, falkordb=True)
    addresses = engines.start()
    pid = pid_of(data_dir, "falkordb")
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(parent_of(pid), number)
    time.sleep(0.2)
    assert pid_of(data_dir, "falkordb") == pid
    assert cypher(addresses, "RETURN 1") == [[1]]
    engines.stop()


def test_a_long_and_odd_path_works(data_dir: Path) -> None:
    odd = data_dir / ("deep, and 'ödd' " + "x" * 100)
    engines = both(odd)
    addresses = engines.start()
    elsewhere = (odd / "run").readlink()
    try:
        assert sql(addresses, "SELECT 1") == 1
        assert cypher(addresses, "RETURN 1") == [[1]]
    finally:
        engines.stop()
    assert not elsewhere.exists()


def test_surroundings_do_not_reach_the_engines(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A locale that is not installed stops Redis, and PGPORT renames PostgreSQL's socket."""
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    monkeypatch.setenv("PGPORT", "9999")
    engines = both(data_dir)
    assert cypher(engines.start(), "RETURN 1") == [[1]]
    engines.stop()


def test_an_engine_that_cannot_start_says_why_and_leaves_nothing(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "READY_TIMEOUT", 0.5)
    monkeypatch.setitem(embedded.falkordb.MODULE_SETTINGS, "NO_SUCH_SETTING", 1)
    engines = EmbeddedEngines(data_dir, postgres=False, falkordb=True)
    with pytest.raises(SetupError, match=r"FalkorDB did not start: .*falkordb\.log") as failure:
        engines.start()
    assert "\n" not in str(failure.value)
    assert processes(data_dir) == []
    assert running(data_dir) is None


def test_a_data_folder_that_is_a_file_is_refused(data_dir: Path) -> None:
    data_dir.write_text("")
    with pytest.raises(SetupError, match="set BRAID_DATA_DIR to another folder"):
        both(data_dir).start()


@pytest.mark.parametrize(
    ("host", "version", "message"),
    [
        (("linux", "aarch64", "glibc"), (3, 11, 0), "not for .* aarch64"),
        (("darwin", "x86_64", ""), (3, 11, 0), "not for .* x86_64"),
        (("win32", "AMD64", ""), (3, 11, 0), "not for .* AMD64"),
        (("linux", "x86_64", ""), (3, 11, 0), "need glibc"),
        (("linux", "x86_64", "glibc"), (3, 14, 0), "need CPython 3.11 to 3.13"),
        (("darwin", "arm64", ""), (3, 13, 0), None),
        (("linux", "x86_64", "glibc"), (3, 12, 0), None),
    ],
)
def test_a_platform_without_wheels_is_refused(
    monkeypatch: pytest.MonkeyPatch, host: tuple[str, str, str], version: tuple[int, ...], message: str | None
) -> None:
    system, machine, libc = host
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", system)
        patch.setattr(platform, "machine", lambda: machine)
        patch.setattr(platform, "libc_ver", lambda: (libc, ""))
        patch.setattr(sys, "version_info", version)
        refusal = refused()
    if message is None:
        assert refusal is None
    else:
        expected = "point BRAID_POSTGRES_URL, BRAID_QDRANT_URL and BRAID_FALKORDB_URL at servers instead"
        assert refusal is not None
        assert refusal.endswith(expected)
        assert re.search(message, refusal)


def refused() -> str | None:
    try:
        check_platform()
    except SetupError as error:
        return str(error)
    return None
