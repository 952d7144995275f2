"""Row security, asked in plain SQL as the service's own role: it holds whatever a statement forgets to say."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import asyncpg
import pytest

from service.app import EMBEDDED_ROLE, with_user
from service.errors import Forbidden, SetupError
from service.model import Document, Edge, Reach
from service.stores import roles
from service.stores.accesses import Accesses
from service.stores.documents import TenantDocuments
from service.stores.postgres import Postgres
from service.stores.samples import Samples
from service.stores.tenants import Tenants
from service.stores.words import Corpora, Weighing
from service.tally import Tally
from tests.conftest import Running

# Each table that holds what belongs to a tenant, and the column that says whose.
TABLES = {
    "tenants": "id",
    **dict.fromkeys(
        (
            "projects",
            "namespaces",
            "api_keys",
            "audit",
            "documents",
            "edges",
            "dirty",
            "usage",
            "words",
            "corpus",
            "terms",
            "completions",
            "completion_changes",
            "accesses",
            "epochs",
            "samples",
        ),
        "tenant_id",
    ),
}


@pytest.fixture(scope="module")
async def postgres(braid: Running) -> AsyncIterator[Postgres]:
    opened = Postgres(with_user(braid.database("postgres"), EMBEDDED_ROLE), pool_size=2)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture(scope="module")
async def pair(braid: Running, postgres: Postgres) -> AsyncIterator[tuple[str, str]]:
    """Two tenants that have something in every table. Nobody folds the changes of their completions meanwhile."""
    tenants = []
    holder = await asyncpg.connect(braid.database("postgres"))
    for name in ("wall-ada", "wall-bob"):
        await braid.key(name)
        tenant = await Tenants(postgres).ensure(name)
        await holder.execute("SELECT pg_advisory_lock(hashtext('completions'), hashtext($1))", tenant)
        documents = [(Document(id, title="x"), [Edge(id, "b")]) for id in ("a", "c")]
        await TenantDocuments(postgres, Reach(tenant)).put(documents)
        await Corpora(postgres, Weighing()).refresh(tenant)
        await braid.sql("INSERT INTO completions VALUES ($1, 'title', 'x', 'default', 'X', 1)", tenant)
        accesses = Accesses(postgres)
        accesses.found(tenant, ["a"])
        await accesses.flush()
        tally = Tally()
        tally.failed(tenant, 1.0)
        await Samples(postgres, tally, 1).flush()
        tenants.append(tenant)
    yield tenants[0], tenants[1]
    await holder.close()


async def test_every_table_of_tenants_is_walled(braid: Running) -> None:
    owned = await braid.sql(
        "SELECT relname, relrowsecurity AND relforcerowsecurity AS walled FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'schema_migrations'"
    )
    assert {row["relname"]: row["walled"] for row in owned} == dict.fromkeys(TABLES, True)


@pytest.mark.parametrize("table", TABLES)
async def test_a_tenant_sees_its_own_rows_only(postgres: Postgres, pair: tuple[str, str], table: str) -> None:
    for tenant in pair:
        async with postgres.tenant(Reach(tenant)) as connection:
            owners = await connection.fetch(f"SELECT DISTINCT {TABLES[table]}::text FROM {table}")
        assert [row[0] for row in owners] == [tenant]


@pytest.mark.parametrize("table", TABLES)
async def test_nobody_sees_nothing(postgres: Postgres, pair: tuple[str, str], table: str) -> None:
    """Also on a connection that served a tenant a moment ago."""
    async with postgres.tenant(Reach(pair[0])):
        pass
    for _ in range(3):
        assert await postgres.fetch(f"SELECT FROM {table}") == []


@pytest.mark.parametrize("table", sorted(set(TABLES) - {"audit", "tenants", "api_keys"}))
async def test_a_tenant_changes_its_own_rows_only(postgres: Postgres, pair: tuple[str, str], table: str) -> None:
    ada, bob = pair
    async with postgres.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT set_config('app.tenant', $1, true)", ada)
        assert (
            await connection.execute(f"UPDATE {table} SET tenant_id = tenant_id WHERE tenant_id = $1", bob)
            == "UPDATE 0"
        )
        assert await connection.execute(f"DELETE FROM {table} WHERE tenant_id = $1", bob) == "DELETE 0"
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute(f"UPDATE {table} SET tenant_id = $1", bob)
        await transaction.rollback()


@pytest.mark.parametrize(
    ("role", "table"), [("worker", "dirty"), *(("admin", t) for t in ("tenants", "api_keys", "audit"))]
)
async def test_the_service_sees_across_tenants_only_where_it_must(
    postgres: Postgres, pair: tuple[str, str], role: str, table: str
) -> None:
    allowed = {"worker": {"dirty", "usage", "corpus", "samples"}, "admin": {"tenants", "api_keys", "audit", "samples"}}[
        role
    ]
    for name, column in TABLES.items():
        async with postgres.service(role) as connection:  # type: ignore[arg-type]
            seen = {str(row[0]) for row in await connection.fetch(f"SELECT DISTINCT {column} FROM {name}")}
        assert set(pair) <= seen if name in allowed else seen == set(), (role, name)


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"])
async def test_the_audit_is_append_only(postgres: Postgres, statement: str) -> None:
    with pytest.raises(Forbidden):
        async with postgres.service("admin") as connection:
            await connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE documents DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON documents",
        "CREATE TABLE mine (n int)",
        "SET ROLE braid_search",
        "DROP TABLE documents",
    ],
)
async def test_the_service_cannot_open_the_wall(postgres: Postgres, statement: str) -> None:
    with pytest.raises((Forbidden, asyncpg.PostgresError)):
        await postgres.fetch(statement)


async def test_a_keyword_match_reads_past_row_security_for_its_own_tenant_only(
    postgres: Postgres, pair: tuple[str, str]
) -> None:
    match = "SELECT id FROM keyword_match('{}', true, 'x', '{default}', NULL, '{}', 10, 1000, 'bm25')"
    assert await postgres.fetch(match) == []
    async with postgres.tenant(Reach(str(uuid.uuid4()))) as connection:
        assert await connection.fetch(match) == []
    async with postgres.tenant(Reach(pair[0])) as connection:
        assert len(await connection.fetch(match)) == 2


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [("SUPERUSER", "a superuser"), ("BYPASSRLS", "BYPASSRLS"), ("IN ROLE braid", "the owner of the tables")],
)
async def test_a_service_with_a_powerful_role_refuses_to_start(braid: Running, attributes: str, reason: str) -> None:
    name = f"powerful_{attributes.rsplit(maxsplit=1)[-1].lower()}"
    await braid.sql(f"CREATE ROLE {name} LOGIN {attributes}")
    await braid.sql(f"GRANT braid_service TO {name}")
    postgres = Postgres(with_user(braid.database("postgres"), name))
    await postgres.open()
    with pytest.raises(SetupError, match=reason):
        await roles.refuse_powerful(postgres)
    await postgres.close()


async def test_a_role_that_was_not_admitted_is_told_so(braid: Running) -> None:
    await braid.sql("CREATE ROLE stranger LOGIN")
    postgres = Postgres(with_user(braid.database("postgres"), "stranger"))
    await postgres.open()
    with pytest.raises(SetupError, match="not a member of braid_service"):
        await roles.refuse_powerful(postgres)
    await postgres.close()


class TestReach:
    """A key that is narrowed to a project or to namespaces sees no more, in any endpoint."""

    async def test_a_key_of_some_namespaces(self, braid: Running) -> None:
        whole = braid.client(await braid.key("reach-names"))
        narrow = braid.client(await braid.key("reach-names", namespaces=("a", "b")))
        documents = [
            {"id": f"in-{n}", "namespace": n, "title": "walrus", "entities": ["Walrus"], "links": [{"to": "in-c"}]}
            for n in "abc"
        ]
        assert not (await whole.post("/v1/documents?wait=true", json=documents)).json()["errors"]
        answer = (await narrow.post("/v1/search", json={"query": "walrus", "explain": True})).json()
        assert answer["namespaces"] == ["a", "b"]
        assert {r["id"] for r in answer["results"]} == {"in-a", "in-b"}
        assert {tier["hits"] for tier in answer["tiers"].values()} == {2}
        for body in ({"namespace": "c"}, {"include_namespaces": ["c", "d"]}):
            answer = (await narrow.post("/v1/search", json={"query": "walrus", **body})).json()
            assert (answer["results"], answer["namespaces"], answer["degraded"]) == ([], [], False)
            assert {tier["hits"] for tier in answer["tiers"].values()} == {0}
        assert (await narrow.get("/v1/documents/in-c")).status_code == 404
        assert (await narrow.get("/v1/documents/in-c/neighbors")).status_code == 404
        assert (await narrow.delete("/v1/documents/in-c")).status_code == 404
        assert "in-c" not in (await narrow.get("/v1/documents/in-a/neighbors")).text
        listed = (await narrow.get("/v1/documents")).json()["documents"]
        assert [d["id"] for d in listed] == ["in-a", "in-b"]
        names = (await narrow.get("/v1/namespaces")).json()["namespaces"]
        assert [n["name"] for n in names] == ["a", "b"]
        for id, namespace in (("new", "c"), ("in-c", "a"), ("in-a", "c")):
            response = await narrow.put(f"/v1/documents/{id}", json={"title": "mine", "namespace": namespace})
            assert response.status_code == 403, (id, namespace)
        refused = await narrow.post("/v1/edges", json=[{"source": "in-c", "target": "in-a"}])
        assert refused.status_code == 403
        gone = await narrow.request("DELETE", "/v1/edges", json=[{"source": "in-c", "target": "in-c"}])
        assert gone.json()["deleted"] == 0
        assert (await whole.get("/v1/documents/in-c")).json()["title"] == "walrus"
        assert (await narrow.put("/v1/documents/new", json={"title": "mine", "namespace": "b"})).status_code == 201

    async def test_a_key_of_one_project(self, braid: Running) -> None:
        default = braid.client(await braid.key("reach-project"))
        state = braid.app.state.braid
        async with state.tenants.opened("reach-project") as (connection, id):
            await connection.execute("INSERT INTO projects (tenant_id, name) VALUES ($1, 'side')", id)
        side = braid.client(await braid.key("reach-project", project="side"))
        await default.put("/v1/documents/main?wait=true", json={"title": "walrus", "namespace": "one"})
        written = await side.put("/v1/documents/aside?wait=true", json={"title": "walrus", "namespace": "two"})
        assert written.status_code == 201
        assert (await side.put("/v1/documents/x", json={"title": "y", "namespace": "one"})).status_code == 403
        answer = (await side.post("/v1/search", json={"query": "walrus"})).json()
        assert ([r["id"] for r in answer["results"]], answer["namespaces"]) == (["aside"], ["two"])
        answer = (await side.post("/v1/search", json={"query": "walrus", "namespace": "one"})).json()
        assert (answer["results"], answer["namespaces"]) == ([], [])
        answer = (await default.post("/v1/search", json={"query": "walrus"})).json()
        assert sorted(r["id"] for r in answer["results"]) == ["aside", "main"]

    async def test_a_walk_does_not_pass_through_what_a_key_cannot_see(self, braid: Running) -> None:
        whole = braid.client(await braid.key("reach-walk"))
        narrow = braid.client(await braid.key("reach-walk", namespaces=("open",)))
        documents = [
            {"id": "start", "namespace": "open", "title": "A", "entities": ["Hvaldimir"], "links": [{"to": "secret"}]},
            {"id": "secret", "namespace": "closed", "title": "B", "links": [{"to": "end"}]},
            {"id": "end", "namespace": "open", "title": "C"},
        ]
        assert not (await whole.post("/v1/documents?wait=true", json=documents)).json()["errors"]
        body = {"query": "Hvaldimir", "weights": {"keyword": 0, "vector": 0}, "explain": True}
        assert "secret" in (await whole.post("/v1/search", json=body)).text
        response = await narrow.post("/v1/search", json=body)
        assert "secret" not in response.text
        assert [r["id"] for r in response.json()["results"]] == ["start"]
