"""Who may work now: so many at once, the others in a queue that is fair to tenants, and nobody who would be too late.

Those who wait are served tenant by tenant in turn, so that a tenant who sends a thousand at once waits behind itself,
not before the others. Whoever would wait longer than `patience_s`, by how long others took of late, is refused at once:
a refusal now is worth more than an answer that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from service import metrics
from service.errors import Overloaded

_NEW = 0.1  # how much the latest duration moves what is expected of the next


class Gate:
    """Holds `slots` at most. The clock gives seconds."""

    def __init__(self, slots: int, patience_s: float, clock: Callable[[], float]) -> None:
        self._slots = slots
        self._patience = patience_s
        self._clock = clock
        self._busy = 0
        self._takes_s = 0.0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def busy(self) -> int:
        return self._busy

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
            self._takes_s += _NEW * (self._clock() - began - self._takes_s)
            self._leave()

    def wait_s(self, whose: str) -> float:
        """How long one more of this tenant would wait, by what is known now."""
        if self._busy < self._slots:
            return 0.0
        own = len(self._waiting.get(whose, ()))
        ahead = sum(min(len(queue), own + 1) for name, queue in self._waiting.items() if name != whose) + own
        return (ahead + 1) * self._takes_s / self._slots

    async def _enter(self, whose: str) -> None:
        if self._busy < self._slots:
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
        """The slot goes to the tenant whose turn it is, who then stands last in line."""
        if not self._waiting:
            self._busy -= 1
            return
        whose, queue = self._waiting.popitem(last=False)
        queue.popleft().set_result(None)
        if queue:
            self._waiting[whose] = queue

    def _refuse(self) -> None:
        metrics.SHED.inc()
        raise Overloaded("there is more to do here than can be done in time: try again in a moment")
