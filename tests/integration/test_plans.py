"""Every lookup has an index behind it. Plans are read from a table large enough for the planner to care."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from service.app import EMBEDDED_ROLE, prepare, with_user
from service.model import Filter, Reach
from service.ranking.typed import parse
from service.stores import backlog, completions, dirty, documents, samples
from service.stores.filters import Condition
from service.stores.postgres import Postgres
from tests.conftest import Running

TENANT = "11111111-1111-4111-8111-111111111111"
FILL = f"""
INSERT INTO tenants (id, name) VALUES ('{TENANT}', 'one'), (gen_random_uuid(), 'two');
INSERT INTO projects SELECT id, 'default' FROM tenants;
INSERT INTO namespaces SELECT id, 'ns' || n FROM tenants, generate_series(0, 6) n;
INSERT INTO documents (tenant_id, id, namespace, title, content, metadata, tags, entities, created_at, version, bytes,
    digest, traits)
SELECT t.id, 'd' || n, 'ns' || n % 7, 'title', 'word' || n % 500 || ' common', '{{}}', '{{}}', '{{}}', now(), n, 1, '',
    jsonb_build_object('facets', ARRAY['t:' || n % 10])
FROM tenants t, generate_series(1, 10000) n;
INSERT INTO words SELECT tenant_id, id, namespace, 2, tagged(to_tsvector('english', content), tag(tenant_id))
FROM documents;
INSERT INTO corpus SELECT id, 10000, 2, '', 2, NULL, 0, now() FROM tenants;
INSERT INTO terms SELECT id, n, n FROM tenants, generate_series(1, 10000) n;
INSERT INTO completions SELECT id, kind, 'w' || chr(97 + n % 26) || n, 'ns' || n % 7, 'W', n % 100 + 1
FROM tenants, generate_series(1, 10000) n, unnest(ARRAY['title', 'entity', 'term']) AS kind;
INSERT INTO completion_changes SELECT tenant_id, id, 1, 1 FROM documents;
INSERT INTO edges SELECT t.id, 'd' || n, 'd' || n + 1, 'x', 1, false FROM tenants t, generate_series(1, 10000) n;
INSERT INTO dirty (tenant_id, document_id, sink, wanted_version, applied_version)
SELECT t.id, 'd' || n, sink, n, CASE WHEN n > 9900 THEN 0 ELSE n END
FROM tenants t, generate_series(1, 10000) n, unnest(ARRAY['vector', 'graph']) AS sink;
INSERT INTO samples SELECT id, now() - n * interval '1 minute', gen_random_uuid(), '{{"searches.full": 1}}'
FROM tenants, generate_series(0, 9999) n;
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
    "page": (documents._PAGE, (TENANT, "d1", ["ns1"], None, {}, 10)),
    "status": (documents._STATUS, (TENANT, "d1", False)),
    "namespaces": (documents._NAMESPACES, (TENANT, None)),
    "neighbors": (documents._NEIGHBORS, (TENANT, "d1", 10)),
    "pending": (documents._PENDING, (TENANT, IDS, 5)),
    "delete": (documents._DELETE, (TENANT, IDS)),
    "lock some": (documents._LOCK_SOME, (TENANT, "ns1", 10)),
    "lock": (documents._LOCK, (TENANT, IDS)),
    "current": (dirty._CURRENT, (TENANT, IDS)),
    "touching": (dirty._TOUCHING, (TENANT, IDS)),
    "applied": (dirty._APPLIED, (TENANT, "vector", TENANT, IDS, [1, 2, 3], 4)),
    "bury": (dirty._BURY, (TENANT, IDS)),
    "refused": (dirty._REFUSED, (TENANT, "vector", TENANT, "d1", "why")),
    "totals": (samples._TOTALS, (TENANT, 1)),
    "steps": (samples._STEPS, (TENANT, 1, 60)),
    "backlog": (dirty._BACKLOG, ()),
}
OF_A_WORKER: dict[str, tuple[str, tuple[object, ...]]] = {
    **{f"claim {n}": (one, ("vector", TENANT, 15, 100, 60)) for n, one in enumerate(dirty.claim_statements(True))},
    "release": (dirty._RELEASE, ("vector", TENANT, [TENANT], ["d1"], 1, 60)),
    "refused": (backlog._REFUSED, (None, 100)),
    "retry": (backlog._RETRY, (None, "d1", "vector")),
    "behind": (backlog._BY_TENANT, ()),
    "backlog": (dirty._BACKLOG, ()),
    "prune": (samples._PRUNE, (160,)),
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


SEQ_SCANS = """
SELECT relname, pg_stat_get_xact_numscans(oid) AS seq_scan FROM pg_class
WHERE relname IN ('completions', 'completion_changes', 'documents') AND relkind = 'r'
"""


async def scans(postgres: Postgres, statement: str, *arguments: object) -> tuple[int, dict[str, int]]:
    """How many rows a function returned, and how often it scanned each index and, as a whole, each table."""
    count = (
        "SELECT relname, pg_stat_get_xact_numscans(oid) FROM pg_class "
        "WHERE relname ~ '^(documents|words|terms|corpus|completion)'"
    )
    async with postgres.transaction() as connection:
        before = dict(await connection.fetch(count))
        found = await connection.fetch(statement, *arguments)
        after = dict(await connection.fetch(count))
    return len(found), {name: number - before[name] for name, number in after.items() if number > before[name]}


@pytest.mark.parametrize("visible", [None, ["ns1", "ns2"]])
@pytest.mark.parametrize("filter", [Filter(), Filter(any_of=(("t:7",),))], ids=["plain", "filtered"])
async def test_a_keyword_search_uses_its_index_under_row_security(
    postgres: Postgres, filter: Filter, visible: list[str] | None
) -> None:
    """A function's own plan is not shown, so its scans are counted."""
    condition, typed = Condition(filter), parse("word7")
    words = (typed.as_json(), typed.plain, typed.words)
    asked = (TENANT, *words, visible, condition.path, condition.operands, 100, 1000, "bm25")
    found, used = await scans(postgres, documents._MATCH, *asked)
    assert found
    assert used.pop("words_by_lexeme") == 1
    used.pop("corpus", None)  # as many rows as there are tenants: two
    assert {name.rpartition("_")[2] for name in used} == {"pkey"}, used


@pytest.mark.parametrize("reach", [Reach(TENANT), Reach(TENANT, "default"), Reach(TENANT, None, ("ns1",))], ids=str)
@pytest.mark.parametrize(
    ("typed", "index"), [("w", "completions_by_first"), ("wa", "completions_by_two"), ("wa1", "completions_pkey")]
)
async def test_completing_uses_its_indexes_under_row_security(
    postgres: Postgres, reach: Reach, typed: str, index: str
) -> None:
    names = None if reach.namespaces is None else list(reach.namespaces)
    found, used = await scans(postgres, completions._BEGINNING, TENANT, reach.project, names, typed, None, 10)
    assert found
    assert used == {index: 3}, "one scan a kind, and no table read as a whole"


async def test_folding_completions_follows_indexes(postgres: Postgres) -> None:
    async with postgres.tenant(Reach(TENANT), writes=True) as connection:
        before = {row["relname"]: row["seq_scan"] for row in await connection.fetch(SEQ_SCANS)}
        assert await connection.fetchval(completions._FOLD, 100)
        after = {row["relname"]: row["seq_scan"] for row in await connection.fetch(SEQ_SCANS)}
    assert before == after
    assert set(before) == {"completions", "completion_changes", "documents"}


@pytest.mark.parametrize("project", [None, "default"])
async def test_hydrating_uses_the_primary_key(postgres: Postgres, project: str | None) -> None:
    found, used = await scans(postgres, documents._FETCH, TENANT, project, None, IDS, None)
    assert found == len(IDS)
    assert set(used) == {"documents_pkey"}
