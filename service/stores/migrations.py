"""Forward-only SQL migrations: applied in order, under an advisory lock, each checksummed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from service.errors import SetupError
from service.stores.postgres import Postgres

_LOCK = 0x6272616964  # "braid"
_PATIENCE_S = 6 * 3600  # an index over millions of documents takes its time
_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of SQL."""

    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def packaged() -> list[Migration]:
    """The migrations that came with this build: inside the wheel, or beside the package in a checkout."""
    package = Path(str(files("service")))
    checkout = (package.parent / "pyproject.toml").is_file()
    folder = (package.parent if checkout else package) / "migrations"
    return [Migration(path.name, path.read_text("utf-8")) for path in sorted(folder.glob("*.sql"))]


async def migrate(postgres: Postgres, migrations: list[Migration] | None = None) -> list[str]:
    """Applies what is missing and returns its names. Several instances may call this at once.

    Needs the role that owns the tables; the service's own role may not change them.
    """
    wanted = packaged() if migrations is None else migrations
    async with postgres.transaction() as connection:
        await connection.execute("SET LOCAL lock_timeout = '10s'")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_LEDGER)
        done = dict(await connection.fetch("SELECT name, checksum FROM schema_migrations"))
        refuse_edited(wanted, done)
        return [await _apply(connection, migration) for migration in wanted if migration.name not in done]


def refuse_edited(wanted: list[Migration], done: dict[str, str]) -> None:
    for migration in wanted:
        if done.get(migration.name, migration.checksum) != migration.checksum:
            raise SetupError(
                f"migration {migration.name} was applied with other contents: restore the file, "
                "and put the change into a new migration"
            )


async def _apply(connection: Any, migration: Migration) -> str:
    await connection.execute(migration.sql, timeout=_PATIENCE_S)
    await connection.execute(
        "INSERT INTO schema_migrations (name, checksum) VALUES ($1, $2)", migration.name, migration.checksum
    )
    return migration.name


async def check_applied(postgres: Postgres) -> None:
    """Refuses a database that lacks a migration, or holds one that was edited since."""
    async with postgres.transaction() as connection:
        known = await connection.fetchval("SELECT to_regclass('schema_migrations') IS NOT NULL")
        done = dict(await connection.fetch("SELECT name, checksum FROM schema_migrations")) if known else {}
    refuse_edited(packaged(), done)
    missing = [migration.name for migration in packaged() if migration.name not in done]
    if missing:
        raise SetupError(
            f"the database lacks {', '.join(missing)}: run `braid migrate` with BRAID_POSTGRES_ADMIN_URL set"
        )
