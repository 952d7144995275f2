"""Time: what a search has left, and waiting for something no longer than that, whatever it does when cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from service.errors import StoreUnavailable

T = TypeVar("T")

# Kept from the tiers for reading the documents, where the budget is large enough to have it.
_READING_MS = 25

_left_alone: set[asyncio.Task[Any]] = set()  # asyncio holds tasks weakly: who waits for none must hold them


async def in_time(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """What `work` returns, or `TimeoutError`. Late work is cancelled and left alone: a driver that still talks to its
    server, or a thread that cannot be stopped, must not hold an answer."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait({task}, timeout=max(0.0, seconds))
    finally:
        if not task.done():
            task.cancel()
            _left_alone.add(task)
            task.add_done_callback(_forget)
    if not task.done():
        raise TimeoutError
    return task.result()


def _forget(task: asyncio.Task[Any]) -> None:
    _left_alone.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that nobody warns that it was not


class Budget:
    """The time that one search has, from when it began."""

    def __init__(self, ms: float) -> None:
        self._ms = ms
        self._started = time.perf_counter()

    @property
    def spent_ms(self) -> float:
        return (time.perf_counter() - self._started) * 1000

    @property
    def left_ms(self) -> float:
        return max(0.0, self._ms - self.spent_ms)

    @property
    def asking_ms(self) -> float:
        """What is left for the tiers: all but what it takes to read the documents afterwards, or half."""
        return max(self.left_ms - _READING_MS, self.left_ms / 2)

    async def store(self, work: Coroutine[Any, Any, T]) -> T:
        """Work of PostgreSQL's. It gets what is left, and always enough for a healthy one to answer."""
        try:
            return await in_time(work, max(self.left_ms, _READING_MS) / 1000)
        except TimeoutError as error:
            raise StoreUnavailable(f"PostgreSQL took longer than the {self._ms:.0f} ms that this search had") from error
