"""What links say about a ranking: asked of PostgreSQL in one question each, worked out in `ranking/activation.py`.

Activation belongs to the graph: a search that does not ask the graph tier has none, and neither has one that asks
nothing else, as a tier alone keeps its own order.
"""

from __future__ import annotations

from collections.abc import Collection

from service.model import Query
from service.ranking.activation import activate, lift
from service.ranking.woven import Ranking
from service.stores.links import TenantLinks
from service.stores.postgres import Postgres


async def linked(postgres: Postgres, ranking: Ranking, query: Query, asked: Collection[str]) -> Ranking:
    """The ranking with what its links say; where they are not asked for, or nothing was found, no time is lost."""
    if "graph" not in asked or len(asked) < 2 or not ranking:
        return ranking
    links, by, boost = TenantLinks(postgres, query.reach), query.ranking.activation, query.ranking.boost
    if by.weight:
        seeds = ranking.ids[: by.seeds]
        ranking = activate(ranking, await links.around(seeds, query.namespaces, query.filter, by.neighbours), by)
    if boost.weight:
        ranking = lift(ranking, await links.between(ranking.base, boost.neighbours), boost)
    return ranking
