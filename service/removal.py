"""Taking away for good: a namespace, a project, or a whole tenant out of all three engines, with proof.

A tenant goes in steps, each of which may be repeated: it is condemned, so that its keys are refused and no worker
claims its documents; what workers hold is waited for; Qdrant and FalkorDB forget it; PostgreSQL forgets it last, so
that a call which failed on the way can be made again.
"""

from __future__ import annotations

import asyncio

from service.errors import TierUnavailable
from service.indexing import Writer
from service.model import Reach
from service.stores import dirty
from service.stores.falkordb import GraphStore
from service.stores.postgres import Postgres
from service.stores.qdrant import VectorStore
from service.stores.spaces import Spaces
from service.stores.tenants import Tenants

_BATCH = 500
_PAUSE_SECONDS = 0.1

Counts = dict[str, int]


class Removal:
    """Deletes what an admin wants deleted. `patience_s` is how long workers may take to let go of a tenant."""

    def __init__(
        self, postgres: Postgres, vectors: VectorStore, graph: GraphStore, writer: Writer, patience_s: float
    ) -> None:
        self._postgres = postgres
        self._vectors = vectors
        self._graph = graph
        self._writer = writer
        self._patience = patience_s
        self._tenants = Tenants(postgres)
        self._spaces = Spaces(self._tenants)

    async def namespace(self, actor: str, tenant: str, name: str) -> tuple[Reach, int, int]:
        """Deletes a namespace with its documents, which the derived engines follow. Returns whose it was, the version
        before, and how many documents it had."""
        reach = Reach(await self._spaces.doom_namespace(actor, tenant, name))
        documents = self._writer.documents(reach)
        before, total, dropped = await documents.last_version(), 0, False
        while not dropped:
            while gone := await documents.delete_some(name, _BATCH):
                total += gone
                self._writer.wake()
            dropped = await self._spaces.drop_namespace(actor, tenant, name, total)
        return reach, before, total

    async def project(self, actor: str, tenant: str, name: str, *, force: bool) -> list[str]:
        """Deletes a project, with its namespaces if forced. Returns the prefixes of the keys this revoked."""
        while force and (names := await self._spaces.namespaces_of(tenant, name, 100)):
            for namespace in names:
                await self.namespace(actor, tenant, namespace)
        return await self._spaces.drop_project(actor, tenant, name)

    async def condemn(self, actor: str, name: str) -> str:
        """The first step, after which keys must be looked up again. Returns the tenant's id."""
        return await self._tenants.condemn(actor, name)

    async def tenant(self, actor: str, id: str, name: str) -> dict[str, dict[str, Counts]]:
        """The further steps. What was removed and what remains, of each engine, asked after the deletion."""
        taken = await self._drain(id)
        proof = {"qdrant": await self._from_qdrant(id), "falkordb": await self._from_falkordb(id)}
        left = [engine for engine, counts in proof.items() if any(counts["remaining"].values())]
        if left:
            raise TierUnavailable(f"{' and '.join(left)} still held some of the tenant: repeat the call")
        removed = await self._tenants.erase(actor, id, name)
        removed["dirty"] += taken
        return proof | {"postgres": {"removed": removed, "remaining": await self._tenants.remaining(id)}}

    async def _drain(self, tenant: str) -> int:
        """Until no worker holds anything of the tenant, and none can take anything any more."""
        total, held = 0, 1
        try:
            async with asyncio.timeout(self._patience):
                while held:
                    taken, held = await dirty.take(self._postgres, tenant)
                    total += taken
                    await asyncio.sleep(_PAUSE_SECONDS if held else 0)
                return total
        except TimeoutError:
            raise TierUnavailable("documents of this tenant are still being indexed: repeat the call") from None

    async def _from_qdrant(self, tenant: str) -> dict[str, Counts]:
        held = await self._vectors.count(tenant)
        await self._vectors.drop(tenant)
        return {"removed": {"points": held}, "remaining": {"points": await self._vectors.count(tenant)}}

    async def _from_falkordb(self, tenant: str) -> dict[str, Counts]:
        held = await self._in_falkordb(tenant)
        await self._graph.drop(tenant)
        return {"removed": held, "remaining": await self._in_falkordb(tenant)}

    async def _in_falkordb(self, tenant: str) -> Counts:
        return {"graphs": int(await self._graph.exists(tenant)), "documents": await self._graph.count(tenant)}
