"""Epochs: a number for each tenant that grows with everything that can change one of its answers.

An answer that is remembered carries the epoch read before its search began. It is as good as a new one for as long as
the tenant's epoch is still that: no write, by any process, has been committed since. A write advances the epoch in its
own transaction, so there is no moment at which the one can be seen without the other. A worker does so in the
transaction that records what an engine has applied: whoever waited for that finds it.
"""

from __future__ import annotations

from service.stores.postgres import Connection, Postgres

# The last statement of its transaction: whoever waits for this row holds all its other locks already.
_ADVANCE = """
INSERT INTO epochs AS e (tenant_id, slot, epoch)
SELECT id, pg_backend_pid() % 8, 1 FROM tenants WHERE id = $1
ON CONFLICT (tenant_id, slot) DO UPDATE SET epoch = e.epoch + 1
"""
_EPOCH = "SELECT tenant_epoch($1) AS epoch"


async def advance(connection: Connection, tenant: str) -> None:
    """In the transaction of a write, as its last statement."""
    await connection.execute(_ADVANCE, tenant)


async def epoch_of(postgres: Postgres, tenant: str) -> int:
    return int((await postgres.fetchrow(_EPOCH, tenant))["epoch"])
