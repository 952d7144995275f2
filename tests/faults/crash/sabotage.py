"""`python -m tests.faults.crash.sabotage <which> <braid command>`: Braid with one promise broken on purpose, or none.

Each is a mistake that somebody could make. The harness must notice every one of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from service import cli
from service.indexing import Writer
from service.stores.documents import TenantDocuments, Written
from service.worker import Worker

LATE_S = 0.4
_late: set[Any] = set()


def acknowledge_before_commit() -> None:
    put = Writer.put

    async def early(self: Writer, reach: Any, documents: Any) -> list[Written]:
        async def later() -> None:
            await asyncio.sleep(LATE_S)
            await put(self, reach, documents)

        _late.add(asyncio.create_task(later()))
        return [Written(document.id, 1) for document, _ in documents]

    Writer.put = early  # type: ignore[method-assign]


def drop_tombstones() -> None:
    delete = TenantDocuments._delete

    async def forgetful(self: TenantDocuments, connection: Any, ids: Any, versions: Any = ()) -> None:
        await delete(self, connection, ids, versions)
        await connection.execute("DELETE FROM dirty WHERE document_id = ANY($1::text[])", list(ids))

    TenantDocuments._delete = forgetful  # type: ignore[method-assign]


def record_before_applying() -> None:
    async def boastful(self: Worker, tenant: str, claims: Any, lease: Any) -> None:
        await self._record(tenant, claims)
        change = await self._change(tenant, claims, lease)
        await asyncio.sleep(3 * LATE_S)
        await self._sink.apply(change)

    Worker._apply = boastful  # type: ignore[method-assign]


SABOTAGES: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "acknowledge before commit": acknowledge_before_commit,
    "drop tombstones": drop_tombstones,
    "record before applying": record_before_applying,
}


def main() -> None:
    SABOTAGES[sys.argv.pop(1)]()
    cli.main()


if __name__ == "__main__":
    main()
