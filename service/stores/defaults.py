"""Defaults for searches: the service's own, a tenant's and a namespace's, looked up once in a few seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.model import Reach
from service.stores.postgres import Postgres

Layer = Mapping[str, Any]
FRESH_S = 5.0
_MOST = 10_000
_FIND = """
SELECT t.ranking AS tenant, n.ranking AS namespace, n.weights FROM tenants t
LEFT JOIN namespaces n ON n.tenant_id = t.id AND n.name = $2 WHERE t.id = $1
"""


class Defaults:
    """The layers beneath a search's own options. A change counts at once where it is made, elsewhere in 5 seconds."""

    def __init__(self, postgres: Postgres, service: Layer, clock: Callable[[], float]) -> None:
        self._postgres = postgres
        self._service = service
        self._clock = clock
        self._known: dict[tuple[str, str | None], tuple[float, list[Layer]]] = {}

    async def layers(self, reach: Reach, namespace: str | None) -> list[Layer]:
        """Those of the service, the tenant, and the namespace where a search goes over exactly one."""
        key, now = (reach.tenant, namespace), self._clock()
        found = self._known.get(key)
        if found is None or found[0] <= now:
            found = now + FRESH_S, await self._find(reach, namespace)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = found
        return found[1]

    @property
    def service(self) -> Layer:
        return self._service

    def forget(self) -> None:
        """Looks everything up again, after a tenant or a namespace was changed."""
        self._known.clear()

    async def _find(self, reach: Reach, namespace: str | None) -> list[Layer]:
        async with self._postgres.tenant(reach) as connection:
            row = await connection.fetchrow(_FIND, reach.tenant, namespace)
        if row is None:
            return [self._service]
        own = {"weights": row["weights"]} if row["weights"] else {}
        return [self._service, row["tenant"] or {}, row["namespace"] or {}, own]
