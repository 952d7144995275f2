"""Who may work now: so many at once, the others in a queue that is fair to tenants, and nobody who would be too late.

Those who wait are served tenant by tenant in turn, so that a tenant who sends a thousand at once waits behind itself,
not before the others. Whoever would wait longer than `patience_s`, by how long others took of late, is refused at once:
a refusal now is worth more than an answer that nobody waits for any more.

How many are let in at once follows how long they take, as TCP follows losses (AIMD): fewer by a third when one took
longer than it should, at most once in that time, and one more for every round of those that did not.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from service import metrics
from service.errors import Overloaded

_LEAST = 4
_FEWER = 0.7
_NEW = 0.1  # how much the latest duration moves what is expected of the next


class Gate:
    """Lets `slots` in at most, and fewer while they take longer than `target_s`. The clock gives seconds."""

    def __init__(self, slots: int, patience_s: float, target_s: float, clock: Callable[[], float]) -> None:
        self._most = slots
        self._slots = float(slots)
        self._target = target_s
        self._fewer_since = float("-inf")
        self._patience = patience_s
        self._clock = clock
        self._busy = 0
        self._takes_s = 0.0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def busy(self) -> int:
        return self._busy

    @property
    def slots(self) -> int:
        return int(self._slots)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def entered(self, whose: str) -> AsyncIterator[None]:
        """Within, one slot is held. Raises `Overloaded` where that would come too late."""
        await self._enter(whose)
        began = self._clock()
        try:
            yield
        finally:
            self._took(self._clock() - began)
            self._leave()

    def _took(self, seconds: float) -> None:
        self._takes_s += _NEW * (seconds - self._takes_s)
        if seconds <= self._target:
            self._slots = min(self._most, self._slots + 1 / self._slots)
        elif self._clock() - self._fewer_since > self._target:
            self._slots = max(min(_LEAST, self._most), self._slots * _FEWER)
            self._fewer_since = self._clock()

    def wait_s(self, whose: str) -> float:
        """How long one more of this tenant would wait, by what is known now."""
        if self._busy < self.slots:
            return 0.0
        own = len(self._waiting.get(whose, ()))
        ahead = sum(min(len(queue), own + 1) for name, queue in self._waiting.items() if name != whose) + own
        return (ahead + 1) * self._takes_s / self.slots

    async def _enter(self, whose: str) -> None:
        if self._busy < self.slots:
            self._busy += 1
            return
        if self.wait_s(whose) > self._patience:
            self._refuse()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(whose, deque()).append(turn)
        try:
            await asyncio.wait({turn}, timeout=self._patience)
        except asyncio.CancelledError:
            self._give_up(whose, turn)
            raise
        if not turn.done():
            self._give_up(whose, turn)
            self._refuse()

    def _give_up(self, whose: str, turn: asyncio.Future[None]) -> None:
        """Out of the queue; or on to the next, where the turn has just come."""
        if turn.done():
            self._leave()
            return
        queue = self._waiting[whose]
        queue.remove(turn)
        if not queue:
            del self._waiting[whose]

    def _leave(self) -> None:
        """The slot goes to the tenant whose turn it is, who then stands last in line; or to nobody, if fewer may."""
        if not self._waiting or self._busy > self.slots:
            self._busy -= 1
            return
        whose, queue = self._waiting.popitem(last=False)
        queue.popleft().set_result(None)
        if queue:
            self._waiting[whose] = queue

    def _refuse(self) -> None:
        metrics.SHED.inc()
        raise Overloaded("there is more to do here than can be done in time: try again in a moment")
