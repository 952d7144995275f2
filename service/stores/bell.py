"""Tells the workers of every process that something was written. Only to be quick: whoever misses it looks anyway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from service.errors import StoreUnavailable
from service.stores.postgres import Postgres

CHANNEL = "braid_dirty"
_GATHER_S = 0.01
_RECONNECT_S = 1.0


class Bell:
    """Rings by PostgreSQL's NOTIFY, apart from the writes: within them, every commit would wait for the one before."""

    def __init__(self, postgres: Postgres, hear: Callable[[], None]) -> None:
        self._postgres = postgres
        self._hear = hear
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wakes our own workers now, those of others in a moment."""
        self._hear()
        self._rung.set()

    async def keep_ringing(self) -> None:
        """Passes rings on, many as one, for ever."""
        while True:
            await self._rung.wait()
            await asyncio.sleep(_GATHER_S)
            self._rung.clear()
            with contextlib.suppress(StoreUnavailable):
                async with self._postgres.connection() as connection:
                    await connection.execute(f"NOTIFY {CHANNEL}")

    async def keep_listening(self) -> None:
        """Hears others ring, for ever, over a connection of its own."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                await self._listen()
            await asyncio.sleep(_RECONNECT_S)

    async def _listen(self) -> None:
        """Until the connection ends."""
        ended = asyncio.Event()
        async with self._postgres.apart() as connection:
            connection.add_termination_listener(lambda _: ended.set())
            await connection.add_listener(CHANNEL, lambda *_: self._hear())
            self._hear()  # what was rung while nobody listened
            await ended.wait()
