"""Migrations: forward only, once each, whoever starts at the same time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import asyncpg
import pytest

from service.errors import SetupError
from service.stores.migrations import Migration, migrate, packaged
from service.stores.postgres import Postgres
from tests.conftest import Running

_numbers = itertools.count()
ONE = Migration("0001_one.sql", "CREATE TABLE one (n int); INSERT INTO one VALUES (1);")
TWO = Migration("0002_two.sql", "ALTER TABLE one ADD COLUMN m int;")


@pytest.fixture
async def postgres(braid: Running) -> AsyncIterator[Postgres]:
    """An empty database."""
    name = f"migrations_{next(_numbers)}"
    await braid.sql(f"CREATE DATABASE {name}")
    opened = Postgres(braid.database(name), pool_size=10, acquire_timeout_s=5)
    await opened.open()
    yield opened
    await opened.close()


async def test_each_is_applied_once_in_order(postgres: Postgres) -> None:
    assert await migrate(postgres, [ONE]) == ["0001_one.sql"]
    assert await migrate(postgres, [ONE, TWO]) == ["0002_two.sql"]
    assert await migrate(postgres, [ONE, TWO]) == []
    assert len(await postgres.fetch("SELECT n, m FROM one")) == 1


async def test_instances_that_start_together_apply_each_once(postgres: Postgres) -> None:
    applied = await asyncio.gather(*(migrate(postgres, [ONE, TWO]) for _ in range(8)))
    assert sorted(itertools.chain(*applied)) == ["0001_one.sql", "0002_two.sql"]


async def test_an_edited_migration_is_refused(postgres: Postgres) -> None:
    await migrate(postgres, [ONE])
    with pytest.raises(SetupError, match=r"0001_one\.sql was applied with other contents: restore the file"):
        await migrate(postgres, [Migration(ONE.name, ONE.sql + "-- harmless?"), TWO])
    assert await migrate(postgres, [ONE, TWO]) == ["0002_two.sql"]


async def test_a_failing_migration_changes_nothing(postgres: Postgres) -> None:
    broken = Migration("0002_broken.sql", "CREATE TABLE two (n int); SELECT 1/0;")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(postgres, [ONE, broken])
    assert await migrate(postgres, [ONE, TWO]) == ["0001_one.sql", "0002_two.sql"]


async def test_the_packaged_ones_apply_to_an_empty_database(postgres: Postgres) -> None:
    names = [migration.name for migration in packaged()]
    assert names == sorted(names)
    assert await migrate(postgres) == names
