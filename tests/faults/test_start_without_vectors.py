"""A Qdrant server that takes connections and says nothing when Braid starts, and answers later."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.conftest import running
from tests.faults.conftest import DOCUMENTS, breakable, ids
from tests.faults.proxy import BLACK_HOLE, WELL, proxied
from tests.faults.qdrant_stand_in import qdrant_stand_in


async def test_braid_starts_without_qdrant_says_so_and_fills_it_when_it_comes(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with qdrant_stand_in() as port, proxied(("127.0.0.1", port)) as proxy:
        await proxy.become(BLACK_HOLE)
        url = f"http://127.0.0.1:{proxy.port}"
        with caplog.at_level(logging.WARNING, logger="service.app"):
            async with running(data_dir, index_poll_ms=50, qdrant_url=url) as braid:
                own = await breakable(braid, data_dir)
                assert (await own.client.post("/v1/documents", json=DOCUMENTS)).json()["errors"] is False
                await own.finds("graph", "Dipper", "keeper")
                answer = (await own.search(timeout_ms=300)).json()
                assert answer["tiers"]["vector"]["status"] in ("timeout", "unavailable")
                assert {"stow", "keeper"} <= set(ids(answer))
                await proxy.become(WELL)
                await own.finds("vector", "bad weather", "weather")
                await own.whole()
    assert "starting without Qdrant" in caplog.text
