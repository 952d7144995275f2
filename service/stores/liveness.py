"""Tells a slow PostgreSQL from a dead one: a frozen server or a lost connection must not hold a request.

No time-out on a statement can do that: a bulk write or a migration may rightly take minutes. So whoever waits for
long has the server asked, over a connection of its own, whether it still answers and has heard the statement at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

# Together well below the second in which a caller hears that PostgreSQL is down.
PATIENCE_S = 0.25
ANSWER_S = 0.4
# A write that is cut off by mistake, on a machine that is merely busy, costs more than hearing of an outage later.
WRITE_ANSWER_S = 5.0
_GRACE_S = 0.05

_STATE = "SELECT state FROM pg_stat_activity WHERE pid = $1"


@contextmanager
def watched(connection: Any, url: str, answer_s: float = ANSWER_S) -> Iterator[None]:
    """Ends `connection` where nobody is at its other end; what waits for it then fails at once."""
    watching: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    timer = loop.call_later(PATIENCE_S, lambda: watching.append(loop.create_task(_watch(connection, url, answer_s))))
    try:
        yield
    finally:
        timer.cancel()
        for task in watching:
            task.cancel()


async def _watch(connection: Any, url: str, answer_s: float) -> None:
    while await _heard(url, connection.get_server_pid(), answer_s):  # noqa: ASYNC110 - nothing could set an event
        await asyncio.sleep(PATIENCE_S)
    await asyncio.sleep(_GRACE_S)  # an answer that is on its way ends this watch
    connection.terminate()


async def _heard(url: str, backend: int, answer_s: float) -> bool:
    """Whether the server answers, and the backend works on something or cannot be seen."""
    try:
        async with asyncio.timeout(answer_s):
            return await _state(url, backend) != "idle"
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError):
        return False
    except asyncpg.PostgresError:
        return True  # a refusal, such as too many connections, is an answer too


async def _state(url: str, backend: int) -> str | None:
    connection = await asyncpg.connect(url)
    try:
        state: str | None = await connection.fetchval(_STATE, backend)
        return state
    finally:
        connection.terminate()
