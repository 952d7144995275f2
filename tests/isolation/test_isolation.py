"""Tenants whose documents are full of canaries, visited by everybody with every kind of call: nobody sees a foreign
one. `python -m bench.isolation` is the long run of this."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.isolation.canaries import KINDS
from tests.isolation.checker import Checker
from tests.isolation.operations import OPERATIONS
from tests.isolation.probes import probe
from tests.isolation.world import World, created

CALLS = 1500


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        async with created(Path(folder), 20) as made:
            yield made


async def test_nobody_sees_a_foreign_canary(world: World) -> None:
    report = await Checker(world, seed=1).run(CALLS)
    assert report.leaks == []
    assert report.calls >= CALLS
    # And it had eyes to see: every call was made, every kind of answer came, every kind of canary was rightly shown.
    assert {operation.__name__ for operation in OPERATIONS} <= set(report.operations)
    assert {200, 201, 204, 401, 403, 404, 405, 409, 413, 422} <= set(report.statuses), report.statuses
    assert report.kinds == KINDS


async def test_each_wall_holds_alone(world: World) -> None:
    assert await probe(world) == []
