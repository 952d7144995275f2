"""The crash harness, short: nothing acknowledged is lost, whatever dies; and it notices where something would be."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.faults.crash.__main__ import CONVERGE_S, crash


async def test_nothing_is_lost_whatever_dies() -> None:
    with tempfile.TemporaryDirectory(prefix="bc-", dir="/tmp") as folder:
        findings, told, cluster = await crash(Path(folder), 20, 5)
    print(f"{dict(cluster.kills)}, {dict(told)}, converged after {findings.converged_s:.1f} s")
    assert findings.examples == []
    assert findings.converged_s < CONVERGE_S
    assert told["500"] == 0
    assert told["200"] + told["201"] + told["204"] > 50


@pytest.mark.parametrize(
    ("sabotage", "among", "noticed"),
    [
        ("acknowledge before commit", ("api",), {"lost", "resurrected", "stale"}),
        ("drop tombstones", ("worker",), {"resurrected"}),
        ("record before applying", ("worker",), {"lost", "stale", "resurrected"}),
    ],
)
async def test_the_harness_notices_a_promise_that_is_broken(
    sabotage: str, among: tuple[str, ...], noticed: set[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="bc-", dir="/tmp") as folder:
        findings, _, _ = await crash(Path(folder), 2, 7, sabotage=sabotage, among=among)
    assert {kind.split()[0] for kind in findings.counts} & noticed, findings.examples
