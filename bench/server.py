"""A Braid of its own for the benchmark: `braid serve` in another process, on embedded engines and empty data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.evaluation.throwaway import throw_away

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
    """Braid on a free port, with these settings and otherwise its defaults; it and its data are gone at the end."""
    with throw_away({f"BRAID_{name.upper()}": value for name, value in settings.items()}) as braid:
        yield Server(braid.port, braid.key(TENANT), braid.pid, braid.admin_key(), braid.owner_url)


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
