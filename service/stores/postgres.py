"""PostgreSQL, the source of truth: the pool, and the one way in and out of it.

Whatever belongs to a tenant is read and written in a transaction that says for whom it works; row security shows it
that tenant's rows and no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import asyncpg
import orjson

from service.errors import BraidError, Forbidden, InvalidInput, QuotaExceeded, SetupError, StoreUnavailable
from service.model import Reach
from service.stores.liveness import ANSWER_S, WRITE_ANSWER_S, watched

Connection = Any  # asyncpg ships no types; a pooled connection or a plain one

# What asyncpg raises when the server is gone, going, not letting us in yet, or asks us to try again.
_GONE = (
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
    ssl.SSLError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)

_APART_S = 5.0
_QUOTA = "BRQ01"  # raised by hold_quota in migrations/0001_spine.sql


class Postgres:
    """A pool that is opened once and heals by itself."""

    def __init__(self, url: str, *, pool_size: int = 10, acquire_timeout_s: float = 0.7) -> None:
        self._url = url
        self._pool_size = pool_size
        self._acquire_timeout = acquire_timeout_s
        self._pool: Any = None

    async def open(self) -> None:
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._pool_size,
                timeout=self._acquire_timeout,
                command_timeout=30,
                init=_speak_json,
                reset=_reset,
                server_settings={"application_name": "braid", "jit": "off"},
            )
        except (*_GONE, asyncpg.PostgresError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise SetupError(f"cannot connect to PostgreSQL ({reason}): check BRAID_POSTGRES_URL") from error
        except ValueError as error:  # its text may quote a part of the password
            raise SetupError("cannot read BRAID_POSTGRES_URL: write postgresql://user:password@host:5432/db") from error

    async def close(self) -> None:
        if self._pool is None:
            return
        try:
            await asyncio.wait_for(self._pool.close(), 2)
        except _GONE:
            self._pool.terminate()

    def use(self) -> tuple[int, int, int]:
        """Connections at work, idle, and at most."""
        size, idle = self._pool.get_size(), self._pool.get_idle_size()
        return size - idle, idle, self._pool_size

    async def ping(self) -> None:
        async with self.connection() as connection:
            await connection.fetchval("SELECT 1")

    @asynccontextmanager
    async def connection(self, *, writes: bool = False) -> AsyncIterator[Connection]:
        """A pooled connection; errors of the driver come out as ours."""
        with _translated():
            async with self._pool.acquire(timeout=self._acquire_timeout) as connection:
                with watched(connection, self._url, WRITE_ANSWER_S if writes else ANSWER_S):
                    yield connection

    @asynccontextmanager
    async def apart(self) -> AsyncIterator[Connection]:
        """A connection that is not of the pool, for who keeps it."""
        with _translated():
            connection = await asyncpg.connect(self._url, timeout=_APART_S)
            try:
                yield connection
            finally:
                connection.terminate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A transaction for nobody in particular: it sees nothing that belongs to a tenant."""
        async with self.connection(writes=True) as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def tenant(self, reach: Reach, *, writes: bool = False) -> AsyncIterator[Connection]:
        """A transaction that sees what `reach` covers."""
        # In the text, to begin in one round trip. It is no caller's text: only a UUID passes.
        begin = f"BEGIN; SET LOCAL app.tenant = '{uuid.UUID(reach.tenant)}'"
        async with self._begun(begin, writes) as connection:
            if reach.project is not None or reach.namespaces is not None:
                names = None if reach.namespaces is None else list(reach.namespaces)
                await connection.execute(_NARROW, reach.project, names)
            yield connection

    @asynccontextmanager
    async def service(self, role: Literal["admin", "worker"]) -> AsyncIterator[Connection]:
        """A transaction of the service itself: an admin sees tenants and keys, a worker the dirty rows of all."""
        async with self._begun(f"BEGIN; SET LOCAL app.role = '{role}'", True) as connection:
            yield connection

    @asynccontextmanager
    async def _begun(self, begin: str, writes: bool) -> AsyncIterator[Connection]:
        async with self.connection(writes=writes) as connection:
            await connection.execute(begin)
            try:
                yield connection  # after other errors the pool's reset rolls back
            except (asyncpg.PostgresError, BraidError):  # a refusal, which is no reason for asyncpg to log a warning
                with contextlib.suppress(*_GONE, asyncpg.PostgresError):
                    await connection.execute("ROLLBACK")
                raise
            await connection.execute("COMMIT")

    async def fetch(self, statement: str, *arguments: object) -> Sequence[Any]:
        async with self.connection() as connection:
            rows: Sequence[Any] = await connection.fetch(statement, *arguments)
            return rows

    async def fetchrow(self, statement: str, *arguments: object) -> Any:
        async with self.connection() as connection:
            return await connection.fetchrow(statement, *arguments)


_NARROW = "SELECT set_config('app.project', $1, true), set_config('app.namespaces', $2::text[]::text, true)"


async def _reset(connection: Connection) -> None:
    """No setting outlives its transaction, so there is nothing to reset but an open one."""
    if connection.is_in_transaction():
        await connection.execute("ROLLBACK")


class _translated:  # noqa: N801 - reads as a statement: `with _translated():`
    """Turns what asyncpg raises into our own errors, at the boundary."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _GONE):
            raise StoreUnavailable(f"PostgreSQL cannot serve this now ({type(error).__name__})") from error
        if isinstance(error, asyncpg.InsufficientPrivilegeError):
            raise Forbidden("this API key cannot reach that namespace, or the document stands in one") from error
        if isinstance(error, asyncpg.PostgresError) and error.sqlstate == _QUOTA:
            raise QuotaExceeded(str(error)) from error
        if isinstance(error, asyncpg.ForeignKeyViolationError):
            raise StoreUnavailable("what this belongs to was deleted in the meantime: try again") from error
        if isinstance(error, asyncpg.exceptions.ProgramLimitExceededError):
            raise InvalidInput("content", "too many distinct words to index: the limit is 1 MB of them") from error


async def _speak_json(connection: Connection) -> None:
    def encode(value: object) -> bytes:
        return b"\x01" + orjson.dumps(value)

    def decode(value: bytes) -> object:
        return orjson.loads(value[1:])

    await connection.set_type_codec("jsonb", schema="pg_catalog", format="binary", encoder=encode, decoder=decode)
