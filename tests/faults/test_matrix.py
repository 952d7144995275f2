"""Every fault on the wire against every tier, under concurrent load. `make chaos` is the long version of this."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.proxy import FAULTS, FLAP, LATENCY, Fault
from tests.faults.rig import Rig, rigged

LIMIT = 1.5  # a second by design; the rest is for a busy machine
QUICK = {"breaker_min_calls": 4, "breaker_calls": 8, "breaker_open_ms": 200}

each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "_"))


@pytest.fixture(scope="module")
async def rig() -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        async with rigged(Path(folder), **QUICK) as started:
            yield started


@each_fault
@pytest.mark.parametrize("tier", ["vector", "graph"])
async def test_every_answer_is_in_time_right_and_says_what_it_misses(rig: Rig, tier: str, fault: Fault) -> None:
    async with rig.proxies[tier].broken(fault):
        seen = await rig.load(clients=4, seconds=0.3)
        after = await rig.search()
        ready = (await rig.client.get("/readyz")).json()
    assert [wrong for each in seen if (wrong := rig.wrong(each, tier))] == []
    assert max(each.seconds for each in seen) < LIMIT
    if fault is LATENCY:
        assert not any(each.missing for each in seen), "slow is not down"
    else:
        assert any(each.missing for each in seen)
    if fault not in (LATENCY, FLAP):
        assert after.body["tiers"][tier]["status"] == "circuit_open"
        assert ready["circuits"][tier] in ("open", "half_open")
        assert ready["status"] == "degraded"
    await rig.healed(5)


@each_fault
async def test_without_postgresql_every_call_is_told_soon_and_the_process_lives(rig: Rig, fault: Fault) -> None:
    async with rig.proxies["keyword"].broken(fault):
        seen = await rig.load(clients=4, seconds=0.3)
        alive = await rig.client.get("/healthz")
        ready = await rig.client.get("/readyz")
    assert [wrong for each in seen if (wrong := rig.wrong(each, "keyword"))] == []
    assert max(each.seconds for each in seen) < LIMIT
    assert alive.status_code == 200
    if fault not in (LATENCY, FLAP):
        assert {each.status for each in seen} == {503}
        assert ready.status_code == 503
    await rig.healed(5)


async def test_connections_do_not_pile_up(rig: Rig) -> None:
    """After all of the above: what a fault broke was closed, not left behind."""
    await rig.load(clients=4, seconds=0.3)
    assert rig.proxies["keyword"].connections <= 10 + 1
    assert rig.proxies["graph"].connections <= 16
    assert rig.proxies["vector"].connections <= 16
