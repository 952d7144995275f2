"""The circuit breaker: its paths one by one, and then any sequence of calls against what must always hold."""

from __future__ import annotations

import copy
import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.tiers.breaker import Breaker, BreakerPolicy, Circuit, Ticket

POLICY = BreakerPolicy(calls=10, window_s=30, failure_rate=0.5, min_calls=4, open_s=2, probes=2, probe_s=1)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(POLICY, clock)


def call(breaker: Breaker, ok: bool, times: int = 1) -> None:
    for _ in range(times):
        ticket = breaker.admit()
        assert ticket is not None
        breaker.report(ticket, ok)


def open_up(breaker: Breaker) -> None:
    call(breaker, False, POLICY.min_calls)
    assert breaker.circuit is Circuit.OPEN


def probed(breaker: Breaker) -> Ticket:
    ticket = breaker.probe()
    assert ticket is not None
    return ticket


def test_it_starts_closed_and_successes_keep_it_so(breaker: Breaker) -> None:
    call(breaker, True, 100)
    assert breaker.circuit is Circuit.CLOSED
    assert breaker.wait_s == 0
    assert breaker.probe() is None


def test_too_few_calls_prove_nothing(breaker: Breaker) -> None:
    call(breaker, False, POLICY.min_calls - 1)
    assert breaker.circuit is Circuit.CLOSED


def test_it_opens_when_enough_of_the_last_calls_failed(breaker: Breaker) -> None:
    call(breaker, True, 100)
    call(breaker, False, 4)
    assert breaker.circuit is Circuit.CLOSED
    call(breaker, False)
    assert breaker.circuit is Circuit.OPEN
    assert breaker.admit() is None
    assert breaker.wait_s == POLICY.open_s


def test_a_success_never_opens_it(breaker: Breaker) -> None:
    """Three failures of three are too few; the fourth call makes them enough, but it is good news."""
    call(breaker, False, 3)
    call(breaker, True)
    assert breaker.circuit is Circuit.CLOSED


def test_what_is_long_ago_is_forgotten(breaker: Breaker, clock: Clock) -> None:
    call(breaker, False, 3)
    clock.now += POLICY.window_s + 1
    call(breaker, False, 3)
    assert breaker.circuit is Circuit.CLOSED
    call(breaker, False)
    assert breaker.circuit is Circuit.OPEN


def test_no_probe_goes_before_the_pause_is_over(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    clock.now += POLICY.open_s - 0.01
    assert breaker.probe() is None
    assert breaker.circuit is Circuit.OPEN
    clock.now += 0.01
    assert probed(breaker)
    assert breaker.circuit is Circuit.HALF_OPEN
    assert breaker.admit() is None


def test_only_so_many_probes_go_at_once(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    clock.now += POLICY.open_s
    first = probed(breaker)
    probed(breaker)
    assert breaker.probe() is None
    breaker.report(first, ok=True)
    assert breaker.probe() is None, "the one that succeeded and the one that is out are all it takes"


def test_it_closes_by_itself_when_all_probes_succeed(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    clock.now += POLICY.open_s
    for _ in range(POLICY.probes):
        assert breaker.circuit is not Circuit.CLOSED
        breaker.report(probed(breaker), ok=True)
    assert breaker.circuit is Circuit.CLOSED
    call(breaker, False, POLICY.min_calls - 1)
    assert breaker.circuit is Circuit.CLOSED, "it begins with a clean slate"


def test_one_failed_probe_opens_it_for_another_pause(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    clock.now += POLICY.open_s
    breaker.report(probed(breaker), ok=True)
    breaker.report(probed(breaker), ok=False)
    assert breaker.circuit is Circuit.OPEN
    assert breaker.wait_s == POLICY.open_s


def test_a_probe_that_never_reports_does_not_wedge_it(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    clock.now += POLICY.open_s
    lost = probed(breaker)
    clock.now += POLICY.probe_s
    assert breaker.circuit is Circuit.OPEN
    breaker.report(lost, ok=True)
    assert breaker.circuit is Circuit.OPEN, "too late to count"
    clock.now += POLICY.open_s
    breaker.report(probed(breaker), ok=True)
    breaker.report(probed(breaker), ok=True)
    assert breaker.circuit is Circuit.CLOSED


@pytest.mark.parametrize("ok", [True, False])
def test_an_answer_to_a_call_from_before_counts_for_nothing(breaker: Breaker, clock: Clock, ok: bool) -> None:
    early = breaker.admit()
    assert early is not None
    open_up(breaker)
    clock.now += POLICY.open_s
    probed(breaker)
    breaker.report(early, ok)
    assert breaker.circuit is Circuit.HALF_OPEN


def test_a_probe_counts_once(breaker: Breaker, clock: Clock) -> None:
    open_up(breaker)
    clock.now += POLICY.open_s
    ticket = probed(breaker)
    breaker.report(ticket, ok=True)
    breaker.report(ticket, ok=True)
    assert breaker.circuit is Circuit.HALF_OPEN


def test_every_sequence_of_eight_calls_opens_it_exactly_when_half_of_them_failed() -> None:
    for outcomes in itertools.product([True, False], repeat=8):
        breaker = Breaker(POLICY, Clock())
        for count, ok in enumerate(outcomes, 1):
            call(breaker, ok)
            due = not ok and count >= POLICY.min_calls and outcomes[:count].count(False) >= count / 2
            assert (breaker.circuit is Circuit.OPEN) == due, outcomes[:count]
            if due:
                break


class AnySequence(RuleBasedStateMachine):
    """Calls, probes, lost probes and time in any order: what must hold after every step."""

    @initialize()
    def start(self) -> None:
        self.clock = Clock()
        self.breaker = Breaker(POLICY, self.clock)
        self.out: list[Ticket] = []
        self.probes: list[Ticket] = []

    @rule(seconds=st.floats(0, 5))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def ask(self) -> None:
        closed = self.breaker.circuit is Circuit.CLOSED
        ticket = self.breaker.admit()
        assert (ticket is not None) == closed, "asked when closed, and only then"
        self.out += [] if ticket is None else [ticket]

    @rule()
    def try_a_probe(self) -> None:
        ticket = self.breaker.probe()
        if ticket is not None:
            assert self.breaker.circuit is Circuit.HALF_OPEN
            self.probes.append(ticket)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), ok=st.booleans())
    def a_call_reports(self, data: st.DataObject, ok: bool) -> None:
        before = self.breaker.circuit
        self.breaker.report(self.out.pop(data.draw(st.integers(0, len(self.out) - 1))), ok)
        if ok or before is not Circuit.CLOSED:
            assert self.breaker.circuit is before, "a call's success moves nothing, nor does a call from before"

    @precondition(lambda self: self.probes)
    @rule(data=st.data(), ok=st.booleans())
    def a_probe_reports(self, data: st.DataObject, ok: bool) -> None:
        before = self.breaker.circuit
        self.breaker.report(self.probes.pop(data.draw(st.integers(0, len(self.probes) - 1))), ok)
        if before is not Circuit.HALF_OPEN:
            assert self.breaker.circuit is before
        elif not ok:
            assert self.breaker.circuit in (Circuit.OPEN, Circuit.HALF_OPEN)

    @invariant()
    def the_pause_is_bounded(self) -> None:
        assert 0 <= self.breaker.wait_s <= POLICY.open_s

    @invariant()
    def it_can_always_close_again(self) -> None:
        """From wherever it is, a copy closes within one lost probe, one pause, and the probes it takes."""
        breaker = copy.deepcopy(self.breaker)
        clock: Clock = breaker._clock  # type: ignore[assignment]
        clock.now += POLICY.probe_s
        clock.now += breaker.wait_s
        for _ in range(POLICY.probes):
            ticket = breaker.probe()
            if ticket is not None:
                breaker.report(ticket, ok=True)
        assert breaker.circuit is Circuit.CLOSED

    @invariant()
    def no_more_probes_are_out_than_allowed(self) -> None:
        assert len(self.breaker._probes) <= POLICY.probes


AnySequence.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnySequence = AnySequence.TestCase
