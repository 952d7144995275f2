"""Connections that FalkorDB closed while they lay idle, on the event loop that Braid is served with."""

from __future__ import annotations

import asyncio
from pathlib import Path

import uvloop

from service.stores.falkordb import GraphStore
from tests.faults.proxy import REFUSE, proxied
from tests.faults.test_start_without_graph import falkordb_server, free_port


async def test_a_connection_that_was_closed_is_replaced_and_nobody_notices(tmp_path: Path) -> None:
    """uvloop raises another error than asyncio when one writes to a closed connection."""
    port = free_port()

    async def scenario() -> list[BaseException | None]:
        async with proxied(("127.0.0.1", port)) as proxy:
            store = GraphStore(f"redis://127.0.0.1:{proxy.port}", password=None)
            await asyncio.gather(*(store.ping() for _ in range(8)))
            async with proxy.broken(REFUSE):
                await asyncio.sleep(0.05)
            outcomes = await asyncio.gather(*(store.ping() for _ in range(8)), return_exceptions=True)
            await store.close()
            return outcomes

    with falkordb_server(port, tmp_path):
        await asyncio.to_thread(wait_for_port, port)
        assert await asyncio.to_thread(uvloop.run, scenario()) == [None] * 8


def wait_for_port(port: int) -> None:
    import socket
    import time

    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
