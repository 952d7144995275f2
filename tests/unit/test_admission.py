"""The gate: so many at once, tenants in turn, and a refusal at once for whoever would be too late."""

from __future__ import annotations

import asyncio

import pytest

from service.admission import Gate
from service.errors import Overloaded


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Work:
    """Calls that hold a slot until a test lets them go, by name, in the order in which they got in."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.inside: list[str] = []
        self.refused: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.ends: dict[str, asyncio.Event] = {}

    async def start(self, *names: str) -> None:
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks.add(asyncio.create_task(self._call(name)))
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _call(self, name: str) -> None:
        try:
            async with self.gate.entered(name[0]):
                self.inside.append(name)
                await self.ends[name].wait()
        except Overloaded:
            self.refused.append(name)

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
            for _ in range(5):
                await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def taught(clock: Clock, slots: int, patience: float, takes: float) -> tuple[Gate, Work]:
    """A gate that has seen calls take so long."""
    gate = Gate(slots, patience, 1000, clock)
    for _ in range(200):
        async with gate.entered("x"):
            clock.now += takes
    return gate, Work(gate)


async def test_so_many_are_in_at_once_and_the_next_follows_when_one_leaves(clock: Clock) -> None:
    gate, work = await taught(clock, slots=2, patience=5, takes=1)
    await work.start("a1", "a2", "a3")
    assert work.inside == ["a1", "a2"]
    assert (gate.busy, gate.waiting) == (2, 1)
    await work.end("a1")
    assert work.inside == ["a1", "a2", "a3"]
    await work.end("a2", "a3")
    assert (gate.busy, gate.waiting) == (0, 0)


async def test_tenants_take_turns_whoever_sends_most(clock: Clock) -> None:
    _, work = await taught(clock, slots=1, patience=50, takes=1)
    await work.start("a0", "a1", "a2", "a3", "b1", "b2", "c1")
    order = ["a0", "a1", "b1", "c1", "a2", "b2", "a3"]
    for name in order:
        assert work.inside[-1] == name
        await work.end(name)
    assert work.inside == order


async def test_who_would_wait_too_long_is_refused_at_once_and_others_are_not(clock: Clock) -> None:
    gate, work = await taught(clock, slots=1, patience=3.5, takes=1)
    await work.start("a0", "a1", "a2", "a3", "a4", "a5")
    assert work.refused == ["a4", "a5"], "four ahead of it at a second each"
    assert gate.wait_s("a") == pytest.approx(4, rel=0.01)
    await work.start("b1")
    assert work.refused == ["a4", "a5"], "another tenant is next but one, however many a sends"
    await work.end("a0", "a1")
    assert work.inside[-1] == "b1"
    await work.end("b1", "a2", "a3")
    assert gate.busy == 0


async def test_what_is_expected_follows_how_long_calls_take(clock: Clock) -> None:
    gate, work = await taught(clock, slots=4, patience=10, takes=2)
    assert gate.wait_s("a") == 0
    await work.start("a1", "a2", "a3", "a4")
    assert gate.wait_s("a") == pytest.approx(2 / 4, rel=0.01)
    await work.end("a1", "a2", "a3", "a4")


async def test_a_wrong_guess_is_corrected_while_waiting() -> None:
    gate = Gate(1, 0.02, 1000, Clock())
    work = Work(gate)
    await work.start("a1", "a2")
    await asyncio.sleep(0.1)
    assert work.refused == ["a2"]
    assert gate.waiting == 0
    await work.end("a1")
    assert gate.busy == 0


async def test_who_goes_away_while_waiting_leaves_no_trace(clock: Clock) -> None:
    gate, work = await taught(clock, slots=1, patience=50, takes=1)
    await work.start("a1")
    waiting = asyncio.create_task(work._call("a1"))
    await asyncio.sleep(0.01)
    assert gate.waiting == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert gate.waiting == 0
    await work.end("a1")
    assert gate.busy == 0


async def test_a_turn_that_comes_as_its_caller_goes_is_not_lost(clock: Clock) -> None:
    gate, work = await taught(clock, slots=1, patience=50, takes=1)
    await work.start("a1")
    work.ends["b1"] = asyncio.Event()
    waiting = asyncio.create_task(work._call("b1"))
    await asyncio.sleep(0.01)
    work.ends["a1"].set()
    await asyncio.sleep(0)  # a1 has left, and b1 has its turn but has not run yet
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert gate.busy == 0, "the slot is free again"


async def test_a_failure_inside_frees_the_slot(clock: Clock) -> None:
    gate = Gate(1, 1, 1000, clock)
    with pytest.raises(ZeroDivisionError):
        async with gate.entered("a"):
            1 / 0  # noqa: B018
    assert gate.busy == 0


async def run(gate: Gate, clock: Clock, seconds: float, times: int = 1) -> None:
    for _ in range(times):
        async with gate.entered("a"):
            clock.now += seconds


async def test_fewer_are_let_in_while_they_take_too_long_and_more_again_when_they_do_not(clock: Clock) -> None:
    gate = Gate(20, 1, 0.5, clock)
    await run(gate, clock, 0.4, 10)
    assert gate.slots == 20, "never more than the most"
    await run(gate, clock, 0.6)
    assert gate.slots == 14
    await run(gate, clock, 0.6, 50)
    assert gate.slots == 4, "never fewer than a few"
    await run(gate, clock, 0.1, 4)
    assert gate.slots == 4
    await run(gate, clock, 0.1, 2)
    assert gate.slots == 5
    await run(gate, clock, 0.1, 500)
    assert gate.slots == 20


async def test_many_that_end_late_together_count_once(clock: Clock) -> None:
    gate = Gate(20, 1, 0.5, clock)
    work = Work(gate)
    names = [f"a{number}" for number in range(15)]
    await work.start(*names)
    clock.now += 0.6
    await work.end(*names)
    assert gate.slots == 14
    assert gate.busy == 0


async def test_when_fewer_may_a_slot_that_is_left_stays_empty(clock: Clock) -> None:
    gate = Gate(6, 100, 0.5, clock)
    work = Work(gate)
    await work.start("a1", "a2", "a3", "a4", "a5", "a6", "b1", "b2")
    clock.now += 0.6
    await work.end("a1")
    assert (gate.slots, gate.busy, gate.waiting) == (4, 5, 2)
    await work.end("a2")
    assert (gate.busy, gate.waiting) == (4, 2)
    await work.end("a3")
    assert (gate.busy, gate.waiting) == (4, 1)
    await work.end("a4", "a5", "a6", "b1", "b2")
    assert (gate.busy, gate.waiting) == (0, 0)
