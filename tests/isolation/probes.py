"""What the API never shows: each tier before its hits are hydrated, and each table without a WHERE.

Behind each wall stands another, so an answer stays right when one falls. These probes look at each wall alone.
"""

from __future__ import annotations

from service.app import EMBEDDED_ROLE, with_user
from service.model import Hit, Query
from service.stores.postgres import Postgres
from tests.isolation.canaries import Canary, canaries
from tests.isolation.world import ASIDE, PLACES, World, namespace_name

# Each table that holds what belongs to a tenant, and the column that says whose.
TABLES = {
    "tenants": "id",
    **dict.fromkeys(
        ("projects", "namespaces", "api_keys", "audit", "documents", "edges", "dirty", "usage", "epochs"), "tenant_id"
    ),
}
# Those that also hold back what a key cannot reach within its tenant.
NARROWED = ("namespaces", "documents", "edges")
QUERY = "walrus on ice with Hvaldimir"


async def probe(world: World) -> list[str]:
    """Every leak behind the API."""
    postgres = Postgres(with_user(world.braid.database("postgres"), EMBEDDED_ROLE), pool_size=2)
    await postgres.open()
    try:
        leaks = await _nobody(postgres)
        for tenant in range(world.size):
            leaks += await _tiers(world, tenant)
            leaks += await _rows(world, postgres, tenant, None)
            for places in (frozenset({1}), frozenset({ASIDE})):
                leaks += await _rows(world, postgres, tenant, places)
        return leaks
    finally:
        await postgres.close()


async def _tiers(world: World, tenant: int) -> list[str]:
    """Asks for the namespaces of all tenants, so that only the tenant is in the way."""
    everywhere = tuple({namespace_name(owner, place) for owner in range(world.size) for place in PLACES})
    leaks = []
    for name, tier in world.braid.app.state.braid.searcher._tiers.items():
        hits = await tier.tier.search(Query(world.reach(tenant), QUERY, everywhere), 1000, 5000)
        told = {c for hit in hits for c in canaries(repr(hit))}
        foreign = {c for c in told if c.owner != tenant} - world.known[tenant]
        if foreign or _repeats(hits):
            leaks.append(f"the {name} tier told {tenant} of {sorted(map(str, foreign)) or 'one id twice'}")
    return leaks


def _repeats(hits: list[Hit]) -> bool:
    """Half of the ids are the same for all tenants: two of one id are of two tenants."""
    return len({hit.id for hit in hits}) < len(hits)


async def _rows(world: World, postgres: Postgres, tenant: int, places: frozenset[int] | None) -> list[str]:
    leaks = []
    async with postgres.tenant(world.reach(tenant, places)) as connection:
        for table in TABLES if places is None else NARROWED:
            rows = await connection.fetch(f"SELECT {TABLES[table]}::text AS owner, t::text AS row FROM {table} AS t")
            owners = {row["owner"] for row in rows} - {world.ids[tenant]}
            told = {c for row in rows for c in canaries(row["row"])} - world.known[tenant]
            hidden = {c for c in told if not _shown(c, tenant, places)}
            if owners or hidden:
                leaks.append(f"the table {table} shows {tenant} rows of {owners} with {sorted(map(str, hidden))}")
    return leaks


def _shown(canary: Canary, tenant: int, places: frozenset[int] | None) -> bool:
    # A namespace's row names its project, which the service needs and no answer tells.
    return canary.owner == tenant and (places is None or canary.place in places or canary.kind == "p")


async def _nobody(postgres: Postgres) -> list[str]:
    return [f"the table {t} shows rows to nobody" for t in TABLES if await postgres.fetch(f"SELECT FROM {t} LIMIT 1")]
