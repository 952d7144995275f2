"""The guard around tiers that misbehave, each in one way. The engines themselves are broken in tests/faults."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from service import metrics
from service.errors import StoreUnavailable, TierInvalid, TierUnavailable
from service.model import Hit, Query, Reach, Status, TierAnswer
from service.tiers.breaker import BreakerPolicy, Circuit
from service.tiers.deadline import Budget, in_time
from service.tiers.guard import Guard, GuardPolicy

QUERY = Query(Reach("t"), "q", ("default",))
QUICK = BreakerPolicy(calls=4, min_calls=2, open_s=0.02, probes=2, probe_s=0.1)
HITS = [Hit("a", 1.0)]

Behaviour = Callable[[], Awaitable[list[Hit]]]


class Scripted:
    """A tier that does what a test says, and counts how often it is asked."""

    name = "scripted"

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0

    async def search(self, query: Query, limit: int, timeout_ms: int) -> list[Hit]:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self.behaviour()
        finally:
            self.at_once -= 1


def raising(error: Exception) -> Behaviour:
    async def behave() -> list[Hit]:
        raise error

    return behave


async def fine() -> list[Hit]:
    return HITS


async def never() -> list[Hit]:
    await asyncio.sleep(60)
    return HITS


@asynccontextmanager
async def guarded(behaviour: Behaviour, **policy: object) -> AsyncIterator[tuple[Guard, Scripted]]:
    tier = Scripted(behaviour)
    guard = Guard(tier, GuardPolicy(**{"share": 1.0, "breaker": QUICK, **policy}))  # type: ignore[arg-type]
    yield guard, tier
    await guard.close()


async def ask(guard: Guard, ms: float = 500) -> TierAnswer:
    return await guard.ask(QUERY, 10, ms)


async def until(circuit: Circuit, guard: Guard) -> None:
    async with asyncio.timeout(5):
        while guard.circuit is not circuit:  # noqa: ASYNC110 - nothing sets an event
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (TierUnavailable("down"), Status.UNAVAILABLE),
        (TierInvalid("gibberish"), Status.INVALID),
        (RuntimeError("a bug"), Status.INVALID),
    ],
)
async def test_a_failure_is_an_answer_that_says_why(error: Exception, status: Status) -> None:
    async with guarded(raising(error)) as (guard, _):
        answer = await ask(guard)
    assert answer.status is status
    assert answer.reason
    assert "a bug" not in answer.reason


async def test_without_postgresql_there_is_no_answer() -> None:
    async with guarded(raising(StoreUnavailable("gone"))) as (guard, _):
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                await ask(guard)
        assert guard.circuit is Circuit.CLOSED, "it is not the tier that failed"


async def test_a_tier_has_its_share_of_what_is_left() -> None:
    async with guarded(never, share=0.5) as (guard, _):
        answer = await ask(guard, 40)
    assert (answer.status, answer.reason) == (Status.TIMEOUT, "no answer in 20 ms")


async def test_who_does_not_react_to_being_cancelled_does_not_delay_the_answer() -> None:
    released = asyncio.Event()

    async def stubborn() -> list[Hit]:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return HITS

    async with guarded(stubborn) as (guard, tier):
        answer = await asyncio.wait_for(ask(guard, 10), 5)
        assert answer.status is Status.TIMEOUT
        assert tier.at_once == 1, "it is still at work, and nobody waits for it"
        released.set()
        await asyncio.sleep(0.01)
        assert tier.at_once == 0


async def test_a_thread_that_cannot_be_stopped_does_not_delay_the_answer() -> None:
    release = threading.Event()
    async with guarded(lambda: asyncio.to_thread(lambda: [*HITS] if release.wait(30) else [])) as (guard, _):
        answer = await asyncio.wait_for(ask(guard, 10), 5)
        release.set()
    assert answer.status is Status.TIMEOUT


async def test_work_that_is_left_alone_keeps_its_slot_until_it_ends() -> None:
    release = asyncio.Event()

    async def deaf() -> list[Hit]:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return HITS

    async with guarded(deaf, concurrency=2, breaker=BreakerPolicy(min_calls=100, calls=100)) as (guard, tier):
        await asyncio.gather(*(ask(guard, 20) for _ in range(6)))
        assert tier.asked == tier.most_at_once == 2
        release.set()
        assert (await ask(guard)).status is Status.OK


async def test_no_more_questions_are_at_work_than_the_tier_may_have() -> None:
    async def slow() -> list[Hit]:
        await asyncio.sleep(0.005)
        return HITS

    async with guarded(slow, concurrency=3) as (guard, tier):
        answers = await asyncio.gather(*(ask(guard, 5000) for _ in range(20)))
    assert {answer.status for answer in answers} == {Status.OK}
    assert tier.most_at_once == 3


async def test_a_tier_that_keeps_failing_is_not_asked_and_costs_nothing() -> None:
    async with guarded(raising(TierUnavailable("down")), breaker=BreakerPolicy(min_calls=2, open_s=60)) as (
        guard,
        tier,
    ):
        await ask(guard)
        await ask(guard)
        answers = [await ask(guard) for _ in range(50)]
        assert {answer.status for answer in answers} == {Status.CIRCUIT_OPEN}
        assert "tried again in" in (answers[0].reason or "")
        assert tier.asked == 2
        assert metrics.TIER_CIRCUIT.labels("scripted")._value.get() == 2


async def test_it_is_asked_again_by_itself_when_it_is_well_without_anybody_searching() -> None:
    async with guarded(raising(TierUnavailable("down"))) as (guard, tier):
        await ask(guard)
        await ask(guard)
        assert guard.circuit is Circuit.OPEN
        await asyncio.sleep(0.1)
        assert guard.circuit is not Circuit.CLOSED
        tier.behaviour = fine
        await until(Circuit.CLOSED, guard)
        assert (await ask(guard)).status is Status.OK
        assert metrics.TIER_CIRCUIT.labels("scripted")._value.get() == 0


async def test_a_probe_that_hangs_does_not_wedge_the_breaker() -> None:
    async with guarded(raising(TierUnavailable("down"))) as (guard, tier):
        await ask(guard)
        await ask(guard)
        tier.behaviour = never
        await until(Circuit.HALF_OPEN, guard)
        assert (await ask(guard)).status is Status.CIRCUIT_OPEN
        tier.behaviour = fine
        await until(Circuit.CLOSED, guard)


async def test_a_caller_in_a_hurry_does_not_open_the_breaker_for_all() -> None:
    async with guarded(never, patience_ms=100) as (guard, _):
        answers = await asyncio.gather(*(ask(guard, 5) for _ in range(10)))
        assert {answer.status for answer in answers} == {Status.TIMEOUT}
        assert guard.circuit is Circuit.CLOSED
        await asyncio.gather(*(ask(guard, 100) for _ in range(3)))
        assert guard.circuit is Circuit.OPEN


async def test_hits_that_cannot_be_are_dropped_and_the_rest_is_used() -> None:
    async def partly() -> list[Hit]:
        return [Hit("a", math.nan), Hit("b", 0.5), Hit("\0", 0.4)]

    async with guarded(partly) as (guard, _):
        answer = await ask(guard)
    assert (answer.status, answer.hits, answer.dropped) == (Status.OK, (Hit("b", 0.5),), 2)


async def test_a_tier_none_of_whose_hits_can_be_is_invalid() -> None:
    async def rubbish() -> list[Hit]:
        return [Hit("a", math.nan), Hit("", 1.0)]

    async with guarded(rubbish) as (guard, _):
        answer = await ask(guard)
    assert (answer.status, answer.hits, answer.dropped) == (Status.INVALID, (), 2)
    assert answer.reason


async def test_more_hits_than_asked_for_are_cut() -> None:
    async def plenty() -> list[Hit]:
        return [Hit(str(n), 1.0 - n / 100) for n in range(50)]

    async with guarded(plenty) as (guard, _):
        assert len((await ask(guard)).hits) == 10


async def test_who_waits_no_longer_takes_the_work_with_them() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    waiting = asyncio.create_task(in_time(work(), 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(ended.wait(), 5)


async def test_work_that_fails_after_its_time_is_not_complained_about(recwarn: pytest.WarningsRecorder) -> None:
    async def fails_late() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise RuntimeError("late")

    with pytest.raises(TimeoutError):
        await in_time(fails_late(), 0.001)
    await asyncio.sleep(0.01)
    assert not recwarn.list


async def test_a_budget_keeps_some_time_for_reading_the_documents() -> None:
    assert 970 < Budget(1000).asking_ms <= 975
    assert 9 < Budget(20).asking_ms <= 10
    assert Budget(1000).left_ms <= 1000


async def test_postgresql_gets_no_more_than_is_left_and_always_a_moment() -> None:
    budget = Budget(1)
    time.sleep(0.002)  # noqa: ASYNC251 - the budget is over
    assert budget.left_ms == 0
    assert await budget.store(fine()) == HITS
    with pytest.raises(StoreUnavailable, match="longer than the 1 ms"):
        await budget.store(never())
