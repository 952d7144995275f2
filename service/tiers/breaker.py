"""A circuit breaker as a state machine: no I/O and no clock of its own, so that every path through it can be tested.

    closed ──(too many of the last calls failed)──> open ──(a pause)──> half-open ──(all probes succeed)──> closed
                                                     ^                      │
                                                     └──(a probe fails, or does not report in time)

Whoever asks gets a ticket and reports with it. A ticket of an earlier state counts for nothing: an answer that was
asked for before the circuit opened says nothing about whether it may close.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Circuit(StrEnum):
    """Whether a tier is asked."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Opens when of the last `calls`, none older than `window_s`, at least `failure_rate` failed, once there are
    `min_calls`. Tries again after `open_s`, and closes when `probes` have succeeded, each within `probe_s`."""

    calls: int = 20
    window_s: float = 30.0
    failure_rate: float = 0.5
    min_calls: int = 10
    open_s: float = 1.0
    probes: int = 2
    probe_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """The right to ask once, in the state of that moment."""

    epoch: int
    number: int


class Breaker:
    """One tier's circuit."""

    def __init__(self, policy: BreakerPolicy, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._clock = clock
        self._circuit = Circuit.CLOSED
        self._epoch = 0
        self._number = 0
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=policy.calls)
        self._probes: dict[int, float] = {}  # those that are out, and when each must have reported
        self._succeeded = 0
        self._open_until = 0.0

    @property
    def circuit(self) -> Circuit:
        self._overdue()
        return self._circuit

    @property
    def wait_s(self) -> float:
        """How long until a probe may go; 0 where one may go now, or none is needed."""
        return max(0.0, self._open_until - self._clock()) if self.circuit is Circuit.OPEN else 0.0

    def admit(self) -> Ticket | None:
        """A ticket for an ordinary call; None unless the circuit is closed."""
        return self._ticket() if self.circuit is Circuit.CLOSED else None

    def probe(self) -> Ticket | None:
        """A ticket for a probe; None where it is too early, needless, or enough of them are out."""
        if self.circuit is Circuit.OPEN and self.wait_s == 0:
            self._enter(Circuit.HALF_OPEN)
        if self._circuit is not Circuit.HALF_OPEN or len(self._probes) + self._succeeded >= self._policy.probes:
            return None
        ticket = self._ticket()
        self._probes[ticket.number] = self._clock() + self._policy.probe_s
        return ticket

    def report(self, ticket: Ticket, ok: bool) -> None:
        """What became of a call. One that is reported twice, or from an earlier state, is not counted."""
        if ticket.epoch != self._epoch:
            return
        if self.circuit is Circuit.CLOSED:
            self._count(ok)
        elif self._probes.pop(ticket.number, None) is not None:
            self._settle(ok)

    def _count(self, ok: bool) -> None:
        now = self._clock()
        self._outcomes.append((now, ok))
        while self._outcomes[0][0] < now - self._policy.window_s:
            self._outcomes.popleft()
        failures = sum(not each for _, each in self._outcomes)
        total = len(self._outcomes)
        if not ok and total >= self._policy.min_calls and failures >= self._policy.failure_rate * total:
            self._open()

    def _settle(self, ok: bool) -> None:
        if not ok:
            self._open()
            return
        self._succeeded += 1
        if self._succeeded >= self._policy.probes:
            self._enter(Circuit.CLOSED)

    def _overdue(self) -> None:
        """A probe that never reports must not hold the circuit half-open for ever: it has failed."""
        if any(until <= self._clock() for until in self._probes.values()):
            self._open()

    def _open(self) -> None:
        self._open_until = self._clock() + self._policy.open_s
        self._enter(Circuit.OPEN)

    def _enter(self, circuit: Circuit) -> None:
        self._circuit = circuit
        self._epoch += 1
        self._outcomes.clear()
        self._probes.clear()
        self._succeeded = 0

    def _ticket(self) -> Ticket:
        self._number += 1
        return Ticket(self._epoch, self._number)
