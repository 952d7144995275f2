"""Token buckets, by a clock in the test's hand: exact numbers, and memory that does not grow with callers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.ratelimit import Buckets, Policy, Verdict

SECOND = 1_000_000_000
POLICY = Policy("key", quota=3, window_s=30)


class Clock:
    def __init__(self) -> None:
        self.now = 10**15

    def __call__(self) -> int:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


def test_a_full_bucket_gives_its_quota_and_then_one_token_at_a_time() -> None:
    clock = Clock()
    buckets = Buckets(POLICY, clock)
    assert [buckets.take("a").left for _ in range(3)] == [2, 1, 0]
    assert buckets.take("a") == Verdict(POLICY, allowed=False, left=0, full_in_s=30, retry_in_s=10)
    clock.pass_(9.9)
    assert not buckets.take("a").allowed
    clock.pass_(0.1)
    assert buckets.take("a") == Verdict(POLICY, allowed=True, left=0, full_in_s=30, retry_in_s=0)
    clock.pass_(300)
    assert buckets.take("a") == Verdict(POLICY, allowed=True, left=2, full_in_s=10, retry_in_s=0)


def test_a_refused_call_costs_nothing_and_looking_costs_nothing() -> None:
    clock = Clock()
    buckets = Buckets(POLICY, clock)
    for _ in range(3):
        assert buckets.look("a").allowed
        buckets.take("a")
    for _ in range(100):
        assert not buckets.take("a").allowed
        assert not buckets.look("a").allowed
    clock.pass_(10)
    assert buckets.look("a").allowed


def test_names_do_not_share() -> None:
    buckets = Buckets(POLICY, Clock())
    for _ in range(3):
        buckets.take("a")
    assert buckets.take("b").left == 2


def test_memory_is_bounded_and_who_called_last_is_remembered() -> None:
    clock = Clock()
    buckets = Buckets(POLICY, clock, most=100)
    for n in range(10_000):
        buckets.take("steady")
        buckets.take(f"passing-{n}")
        if n % 3 == 2:
            clock.pass_(30)
    assert len(buckets) == 100
    assert buckets.take("steady").left == 1


@given(
    st.integers(1, 1000),
    st.integers(1, 100),
    st.lists(st.integers(0, 5 * SECOND), min_size=1, max_size=200),
)
def test_no_window_holds_more_than_twice_the_quota(quota: int, window_s: int, pauses: list[int]) -> None:
    """The bucket's own promise: what is there at first, and what flows in meanwhile."""
    clock = Clock()
    buckets = Buckets(Policy("key", quota, window_s), clock)
    allowed: list[int] = []
    for pause in pauses:
        clock.now += pause
        if buckets.take("a").allowed:
            allowed.append(clock.now)
    window = window_s * SECOND
    most = max((sum(1 for at in allowed if start <= at < start + window) for start in allowed), default=0)
    assert most <= 2 * quota + 1


@given(st.integers(1, 10_000), st.integers(1, 3600))
def test_waiting_as_long_as_told_is_enough(quota: int, window_s: int) -> None:
    clock = Clock()
    buckets = Buckets(Policy("key", quota, window_s), clock)
    given_out = 0
    while (verdict := buckets.take("a")).allowed:
        given_out += 1
    assert given_out >= quota
    clock.pass_(verdict.retry_in_s)
    assert buckets.take("a").allowed
