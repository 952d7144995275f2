"""The links around a search's hits, asked of PostgreSQL as different callers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from service.app import EMBEDDED_ROLE, with_user
from service.facets import type_facet
from service.model import Document, Edge, Filter, Reach
from service.ranking.activation import Link
from service.stores.documents import TenantDocuments
from service.stores.links import TenantLinks
from service.stores.postgres import Postgres
from service.stores.tenants import Tenants
from tests.conftest import Running

EVERYTHING = Filter()


@pytest.fixture(scope="module")
async def postgres(braid: Running) -> AsyncIterator[Postgres]:
    opened = Postgres(with_user(braid.database("postgres"), EMBEDDED_ROLE), pool_size=2)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
async def tenant(postgres: Postgres) -> str:
    """a is linked with b to f, in both directions; b and c with each other; g only from another tenant's a."""
    tenant, other = [await Tenants(postgres).ensure(name) for name in ("links-ada", "links-bob")]
    links = {
        "a": [
            Edge("a", "b", "supports", 0.5),
            Edge("a", "b", "contradicts", 1.0),
            Edge("a", "c", "contradicts", 0.9),
            Edge("a", "gone", "supports", 1.0),
            Edge("a", "a", "supports", 1.0),
        ],
        "b": [Edge("b", "c", "other", 0.3)],
        "d": [Edge("d", "a", "related_to", 0.6)],
        "e": [Edge("e", "a", "supports", 0.0)],
        "f": [Edge("f", "a", "supports", 0.1)],
    }
    spaces = {"c": "secret", "f": "secret"}
    documents = [
        Document(id, spaces.get(id, "default"), title=id, type="note" if id in "bd" else "log") for id in "abcdefg"
    ]
    await TenantDocuments(postgres, Reach(tenant)).put([(d, links.get(d.id, [])) for d in documents])
    foreign = [(Document("a", title="a"), [Edge("a", "g", "supports", 1.0)]), (Document("g", title="g"), [])]
    await TenantDocuments(postgres, Reach(other)).put(foreign)
    return tenant


async def test_neighbours_come_best_first_each_once_in_either_direction(postgres: Postgres, tenant: str) -> None:
    """By strength times factor: b 0.5 x 1, d 0.6 x 0.7, c 0.9 x 0.4, f 0.1 x 1; nothing over a strength of 0."""
    found = await TenantLinks(postgres, Reach(tenant)).around(["a"], None, EVERYTHING, 10)
    assert found == [
        Link("a", "b", "supports", 0.5),
        Link("a", "d", "related_to", 0.6),
        Link("a", "c", "contradicts", 0.9),
        Link("a", "f", "supports", 0.1),
    ]


async def test_every_seed_has_neighbours_of_its_own(postgres: Postgres, tenant: str) -> None:
    found = await TenantLinks(postgres, Reach(tenant)).around(["a", "b"], None, EVERYTHING, 1)
    assert {(link.seed, link.to) for link in found} == {("a", "b"), ("b", "a")}


async def test_namespaces_and_filters_count_before_the_cut(postgres: Postgres, tenant: str) -> None:
    links = TenantLinks(postgres, Reach(tenant))
    assert [link.to for link in await links.around(["a"], ["secret"], EVERYTHING, 1)] == ["c"]
    logs = Filter(any_of=((type_facet("log"),),))
    assert [link.to for link in await links.around(["a"], None, logs, 1)] == ["c"]


async def test_a_narrow_key_sees_no_links_to_what_it_cannot_reach(postgres: Postgres, tenant: str) -> None:
    narrow = TenantLinks(postgres, Reach(tenant, None, ("default",)))
    assert [link.to for link in await narrow.around(["a"], None, EVERYTHING, 10)] == ["b", "d"]
    assert await TenantLinks(postgres, Reach(tenant, "no-such-project")).around(["a"], None, EVERYTHING, 10) == []


async def test_links_between_candidates_leave_out_all_others(postgres: Postgres, tenant: str) -> None:
    found = await TenantLinks(postgres, Reach(tenant)).between(["b", "c", "d"], 5)
    assert {(link.seed, link.to, link.strength) for link in found} == {("b", "c", 0.3), ("c", "b", 0.3)}


@pytest.mark.parametrize(("near", "far"), [("source", "target"), ("target", "source")])
async def test_the_strongest_links_of_a_hub_are_read_from_an_index(
    braid: Running, tenant: str, near: str, far: str
) -> None:
    asked = (
        f"SELECT FROM edges WHERE tenant_id = '{tenant}' AND {near} = 'a' ORDER BY strength DESC, {far}, type LIMIT 9"
    )
    connection = await asyncpg.connect(braid.database("postgres"))
    try:
        await connection.execute("SET enable_seqscan = off; SET enable_sort = off")  # the table is small
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {asked}"))
    finally:
        await connection.close()
    assert f"edges_{'from' if near == 'source' else 'to'}_by_strength" in plan
    assert "Sort" not in plan
