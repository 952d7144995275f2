"""Every lookup has an index behind it. Plans are read from a table large enough for the planner to care."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from service.app import EMBEDDED_ROLE, prepare, with_user
from service.model import Filter, Reach
from service.stores import dirty, documents
from service.stores.filters import Condition
from service.stores.postgres import Postgres
from tests.conftest import Running

TENANT = "11111111-1111-4111-8111-111111111111"
FILL = f"""
INSERT INTO tenants (id, name) VALUES ('{TENANT}', 'one'), (gen_random_uuid(), 'two');
INSERT INTO projects SELECT id, 'default' FROM tenants;
INSERT INTO namespaces SELECT id, 'ns' || n FROM tenants, generate_series(0, 6) n;
INSERT INTO documents (tenant_id, id, namespace, title, content, metadata, tags, entities, created_at, version, bytes,
    digest, traits, tsv)
SELECT t.id, 'd' || n, 'ns' || n % 7, 'title', 'content', '{{}}', '{{}}', '{{}}', now(), n, 1, '',
    jsonb_build_object('facets', ARRAY['t:' || n % 10]), to_tsvector('english', 'word' || n % 500 || ' common')
FROM tenants t, generate_series(1, 10000) n;
INSERT INTO edges SELECT t.id, 'd' || n, 'd' || n + 1, 'x', 1, false FROM tenants t, generate_series(1, 10000) n;
INSERT INTO dirty (tenant_id, document_id, sink, wanted_version, applied_version)
SELECT t.id, 'd' || n, sink, n, CASE WHEN n > 9900 THEN 0 ELSE n END
FROM tenants t, generate_series(1, 10000) n, unnest(ARRAY['vector', 'graph']) AS sink;
"""


@pytest.fixture(scope="module")
async def postgres(braid: Running) -> AsyncIterator[Postgres]:
    await braid.sql("CREATE DATABASE plans")
    owner = braid.database("plans")
    url = with_user(owner, EMBEDDED_ROLE)
    await prepare(owner, url, embedded=True)
    connection = await asyncpg.connect(owner)
    await connection.execute(FILL)
    await connection.execute("ANALYZE")
    await connection.close()
    opened = Postgres(url, pool_size=2, acquire_timeout_s=5)
    await opened.open()
    yield opened
    await opened.close()


IDS = ["d1", "d2", "d9950"]
OF_A_TENANT: dict[str, tuple[str, tuple[object, ...]]] = {
    "get": (documents._GET, (TENANT, "d1")),
    "links": (documents._LINKS, (TENANT, "d1", 10)),
    "fetch": (documents._FETCH, (TENANT, IDS, ["ns1"])),
    "page": (documents._PAGE, (TENANT, "d1", ["ns1"], None, {}, 10)),
    "namespaces": (documents._NAMESPACES, (TENANT, None)),
    "neighbors": (documents._NEIGHBORS, (TENANT, "d1", 10)),
    "pending": (documents._PENDING, (TENANT, IDS)),
    "delete": (documents._DELETE, (TENANT, IDS)),
    "lock some": (documents._LOCK_SOME, (TENANT, "ns1", 10)),
    "weights": (documents._WEIGHTS, (TENANT, "ns1")),
    "lock": (documents._LOCK, (TENANT, IDS)),
    "current": (dirty._CURRENT, (TENANT, IDS)),
    "touching": (dirty._TOUCHING, (TENANT, IDS)),
    "applied": (dirty._APPLIED, (TENANT, "vector", TENANT, IDS, [1, 2, 3])),
    "bury": (dirty._BURY, (TENANT, IDS)),
    "refused": (dirty._REFUSED, (TENANT, "vector", TENANT, "d1", "why")),
}
OF_A_WORKER: dict[str, tuple[str, tuple[object, ...]]] = {
    "claim": (dirty._CLAIM, ("vector", TENANT, 60, 100)),
    "release": (dirty._RELEASE, ("vector", TENANT, [TENANT], ["d1"])),
    "backlog": (dirty._BACKLOG, ()),
}
# Small tables here, of which a tenant has a handful of rows; reading one whole is as good as any index.
SMALL = {"namespaces", "tenants"}


async def plan(connection: Any, statement: str, arguments: tuple[object, ...]) -> str:
    return "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *arguments))


@pytest.mark.parametrize("name", OF_A_TENANT)
@pytest.mark.parametrize("reach", [Reach(TENANT), Reach(TENANT, "default"), Reach(TENANT, None, ("ns1",))], ids=str)
async def test_no_lookup_of_a_tenant_reads_a_whole_table(postgres: Postgres, name: str, reach: Reach) -> None:
    async with postgres.tenant(reach) as connection:
        found = await plan(connection, *OF_A_TENANT[name])
    whole = set(re.findall(r"Seq Scan on (\w+)", found))
    assert whole <= SMALL, found


@pytest.mark.parametrize("name", OF_A_WORKER)
async def test_no_lookup_of_a_worker_reads_a_whole_table(postgres: Postgres, name: str) -> None:
    async with postgres.service("worker") as connection:
        found = await plan(connection, *OF_A_WORKER[name])
    assert set(re.findall(r"Seq Scan on (\w+)", found)) <= SMALL, found


@pytest.mark.parametrize("filter", [Filter(), Filter(any_of=(("t:7",),))], ids=["plain", "filtered"])
async def test_a_keyword_search_uses_its_index_under_row_security(postgres: Postgres, filter: Filter) -> None:
    """A function's own plan is not shown, so its scans are counted."""
    scans = "SELECT pg_stat_get_xact_numscans($1::text::regclass)"
    condition = Condition(filter)
    words = ("word7", [], "", "word7", ["ns1", "ns2"])
    async with postgres.tenant(Reach(TENANT)) as connection:
        before = await connection.fetchval(scans, "documents_by_word")
        found = await connection.fetch(documents._MATCH, *words, condition.path, condition.operands, 100)
        after = await connection.fetchval(scans, "documents_by_word")
        whole_table = await connection.fetchval(scans, "documents")
    assert found
    assert (after - before, whole_table) == (1, 0)
