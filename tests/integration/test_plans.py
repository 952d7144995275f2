"""Every lookup has an index behind it. Plans are read from a table large enough for the planner to care."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from service.stores import dirty, documents
from service.stores.migrations import migrate
from service.stores.postgres import Postgres
from tests.conftest import Running

TENANT = "11111111-1111-4111-8111-111111111111"
FILL = f"""
INSERT INTO tenants (id, name) VALUES ('{TENANT}', 'one'), (gen_random_uuid(), 'two');
INSERT INTO documents (tenant_id, id, namespace, title, content, metadata, tags, entities, created_at, version, digest,
    facets, numbers, tsv)
SELECT t.id, 'd' || n, 'ns' || n % 7, 'title', 'content', '{{}}', '{{}}', '{{}}', now(), n, '',
    ARRAY['t:' || n % 1000], '{{}}', to_tsvector('english', 'word' || n % 500 || ' common')
FROM tenants t, generate_series(1, 10000) n;
INSERT INTO edges SELECT t.id, 'd' || n, 'd' || n + 1, 'x', 1, false FROM tenants t, generate_series(1, 10000) n;
INSERT INTO dirty (tenant_id, document_id, sink, wanted_version, applied_version)
SELECT t.id, 'd' || n, sink, n, CASE WHEN n > 9900 THEN 0 ELSE n END
FROM tenants t, generate_series(1, 10000) n, unnest(ARRAY['vector', 'graph']) AS sink;
"""


@pytest.fixture(scope="module")
async def postgres(braid: Running) -> AsyncIterator[Postgres]:
    await braid.engines.postgres.fetch("CREATE DATABASE plans")
    url = (braid.engines.addresses.postgres_url or "").replace("/postgres?", "/plans?")
    opened = Postgres(url, pool_size=2, acquire_timeout_s=5)
    await opened.open()
    await migrate(opened)
    async with opened.connection() as connection:
        await connection.execute(FILL)
        await connection.execute("ANALYZE")
    yield opened
    await opened.close()


IDS = ["d1", "d2", "d9950"]
STATEMENTS: dict[str, tuple[str, tuple[object, ...]]] = {
    "get": (documents._GET, (TENANT, "d1")),
    "links": (documents._LINKS, (TENANT, "d1", 10)),
    "fetch": (documents._FETCH, (TENANT, IDS, ["ns1"])),
    "namespaces": (documents._NAMESPACES, (TENANT,)),
    "neighbors": (documents._NEIGHBORS, (TENANT, "d1", 10)),
    "pending": (documents._PENDING, (TENANT, IDS)),
    "match": (
        documents._MATCH.format(where=""),
        (TENANT, "word7", [], "", "word7", ["ns1", "ns2"], 10),
    ),
    "match, filtered": (
        documents._MATCH.format(where=" AND d.facets && $8::text[]"),
        (TENANT, "word7", [], "", "word7", ["ns1", "ns2"], 10, ["t:7"]),
    ),
    "claim": (dirty._CLAIM, ("vector", TENANT, 60, 100)),
    "current": (dirty._CURRENT, (TENANT, IDS)),
    "touching": (dirty._TOUCHING, (TENANT, IDS)),
    "release": (dirty._RELEASE, ("vector", TENANT, [TENANT], ["d1"])),
    "applied": (dirty._APPLIED, (TENANT, "vector", TENANT, IDS, [1, 2, 3])),
    "bury": (dirty._BURY, (TENANT, IDS)),
    "refused": (dirty._REFUSED, (TENANT, "vector", TENANT, "d1", "why")),
    "backlog": (dirty._BACKLOG, ()),
}


@pytest.mark.parametrize("name", STATEMENTS)
async def test_no_lookup_reads_a_whole_table(postgres: Postgres, name: str) -> None:
    statement, arguments = STATEMENTS[name]
    async with postgres.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}", *arguments))
        await transaction.rollback()
    assert "Seq Scan" not in plan, plan
