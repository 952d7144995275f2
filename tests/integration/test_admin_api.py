"""The admin API over HTTP: tenants, projects, namespaces, keys and the audit, on real engines."""

from __future__ import annotations

import asyncio
import itertools
import re
import tempfile
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.errors import BraidError, Forbidden
from service.model import Document, Reach
from service.stores.dirty import DirtyRows
from service.stores.keys import ADMIN, Keys, NewKey
from tests.conftest import Running, running
from tests.faults.conftest import Engine
from tests.integration.test_refusals import check_problem

_names = itertools.count()


async def admin_key(braid: Running) -> str:
    key, _ = await braid.app.state.braid.key_desk.create("test", None, NewKey(f"admin-{next(_names)}", (ADMIN,)))
    return str(key)


@pytest.fixture
async def admin(braid: Running) -> httpx.AsyncClient:
    return braid.client(await admin_key(braid))


@pytest.fixture
async def tenant(admin: httpx.AsyncClient) -> str:
    name = f"admin-tenant-{next(_names)}"
    assert (await admin.post("/v1/admin/tenants", json={"name": name})).status_code == 201
    return name


async def key_of(admin: httpx.AsyncClient, tenant: str, **body: Any) -> dict[str, Any]:
    made = await admin.post(f"/v1/admin/tenants/{tenant}/keys", json={"name": f"key-{next(_names)}", **body})
    assert made.status_code == 201, made.text
    return dict(made.json())


async def client_of(braid: Running, admin: httpx.AsyncClient, tenant: str, **body: Any) -> httpx.AsyncClient:
    return braid.client((await key_of(admin, tenant, **body))["key"])


async def write(client: httpx.AsyncClient, *documents: dict[str, Any]) -> None:
    answer = (await client.post("/v1/documents?wait=true", json=list(documents))).json()
    assert not answer["errors"], answer
    assert answer["visible"]


async def actions(admin: httpx.AsyncClient, tenant: str) -> list[str]:
    lines = (await admin.get("/v1/admin/audit", params={"tenant": tenant})).json()["lines"]
    return [line["action"] for line in lines]


WALRUS = {"title": "walrus", "entities": ["Walrus"]}


class TestDoor:
    """Only admin keys come in here, and they go nowhere else."""

    @staticmethod
    def operations(braid: Running) -> list[tuple[str, str]]:
        fill = {"tenant": "acme", "project": "p", "namespace": "n", "prefix": "0" * 12}
        return [
            (method.upper(), re.sub(r"\{(\w+)\}", lambda m: fill[m[1]], path))
            for path, methods in braid.app.openapi()["paths"].items()
            for method in methods
            if path.startswith("/v1/admin/")
        ]

    async def test_nothing_answers_without_a_key_or_to_a_tenants_key(self, braid: Running) -> None:
        tenants_own = await braid.tenant()
        operations = self.operations(braid)
        assert len(operations) == 24
        for method, path in operations:
            check_problem(await braid.client().request(method, path), 401, "unauthorized")
            check_problem(await tenants_own.request(method, path), 403, "forbidden")

    async def test_a_tenants_key_is_no_admin_key_whatever_scopes_it_carries(self, braid: Running) -> None:
        forged = braid.client(await braid.key(scopes=["search", "write", "admin"]))
        check_problem(await forged.get("/v1/admin/tenants"), 403, "forbidden")

    async def test_an_admin_key_reaches_no_documents(self, admin: httpx.AsyncClient) -> None:
        for method, path in (
            ("POST", "/v1/search"),
            ("GET", "/v1/search?q=x"),
            ("GET", "/v1/documents"),
            ("POST", "/v1/documents"),
            ("PUT", "/v1/documents/a"),
            ("DELETE", "/v1/documents/a"),
            ("POST", "/v1/edges"),
            ("GET", "/v1/namespaces"),
        ):
            check_problem(await admin.request(method, path), 403, "forbidden")

    async def test_every_operation_is_described(self, braid: Running) -> None:
        for path, methods in braid.app.openapi()["paths"].items():
            for operation in methods.values() if path.startswith("/v1/admin") else ():
                assert operation["description"]
                assert operation["tags"] in (["admin"], ["stats"])
                assert {"401", "403", "422", "503"} <= set(operation["responses"])


class TestTenants:
    async def test_made_shown_changed(self, braid: Running, admin: httpx.AsyncClient) -> None:
        made = await admin.post("/v1/admin/tenants", json={"name": "shown", "max_documents": 7})
        assert made.status_code == 201
        tenant = made.json()
        assert (tenant["state"], tenant["max_documents"], tenant["max_bytes"]) == ("active", 7, None)
        client = await client_of(braid, admin, "shown")
        await write(client, {"id": "a", "title": "four", "metadata": {}}, {"id": "b", "title": "fives"})
        shown = (await admin.get("/v1/admin/tenants/shown")).json()
        assert shown == tenant | {"usage": {"documents": 2, "bytes": 4 + 2 + 5 + 2}}
        await client.delete("/v1/documents/a")
        changed = await admin.patch("/v1/admin/tenants/shown", json={"max_documents": None, "max_bytes": 1000})
        assert changed.json() == shown | {
            "max_documents": None, "max_bytes": 1000, "usage": {"documents": 1, "bytes": 7}
        }  # fmt: skip
        assert await actions(admin, "shown") == ["tenant.create", "key.create", "tenant.change"]

    async def test_a_name_is_given_once(self, admin: httpx.AsyncClient, tenant: str) -> None:
        check_problem(await admin.post("/v1/admin/tenants", json={"name": tenant}), 409, "conflict")

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "name"),
            ({"name": ""}, "name"),
            ({"name": ".."}, "name"),
            ({"name": "a b"}, "name"),
            ({"name": "a/b"}, "name"),
            ({"name": "x\n"}, "name"),
            ({"name": "x" * 129}, "name"),
            ({"name": "x", "max_documents": -1}, "max_documents"),
            ({"name": "x", "max_bytes": 2**60}, "max_bytes"),
            ({"name": "x", "state": "active"}, "state"),
        ],
    )
    async def test_a_refused_tenant_names_the_field(
        self, admin: httpx.AsyncClient, body: dict[str, Any], field: str
    ) -> None:
        problem = check_problem(await admin.post("/v1/admin/tenants", json=body), 422, "invalid_input")
        assert [error["field"] for error in problem["errors"]] == [field]

    @pytest.mark.parametrize("body", [{}, {"state": "deleting"}, {"name": "other"}, {"max_bytes": -1}])
    async def test_a_refused_change(self, admin: httpx.AsyncClient, tenant: str, body: dict[str, Any]) -> None:
        check_problem(await admin.patch(f"/v1/admin/tenants/{tenant}", json=body), 422, "invalid_input")

    async def test_what_is_not_there_is_not_found(self, admin: httpx.AsyncClient, tenant: str) -> None:
        for method, path, body in (
            ("GET", "nobody", None),
            ("PATCH", "nobody", {"state": "suspended"}),
            ("DELETE", "nobody", None),
            ("GET", "nobody/projects", None),
            ("POST", "nobody/projects", {"name": "p"}),
            ("GET", "nobody/namespaces", None),
            ("POST", "nobody/namespaces", {"name": "n"}),
            ("GET", "nobody/keys", None),
            ("POST", "nobody/keys", {}),
            ("DELETE", f"nobody/keys/{'0' * 12}", None),
            ("DELETE", f"{tenant}/projects/nothing", None),
            ("DELETE", f"{tenant}/projects/nothing?force=true", None),
            ("PATCH", f"{tenant}/namespaces/nothing", {"language": "german"}),
            ("DELETE", f"{tenant}/namespaces/nothing", None),
            ("DELETE", f"{tenant}/keys/{'0' * 12}", None),
        ):
            check_problem(await admin.request(method, f"/v1/admin/tenants/{path}", json=body), 404, "not_found")
        check_problem(await admin.delete(f"/v1/admin/keys/{'0' * 12}"), 404, "not_found")

    async def test_lists_come_in_pages(self, admin: httpx.AsyncClient) -> None:
        for name in ("page-a", "page-b", "page-c"):
            await admin.post("/v1/admin/tenants", json={"name": name})
        first = (await admin.get("/v1/admin/tenants", params={"after": "page-", "limit": 2})).json()
        assert ([t["name"] for t in first["tenants"]], first["next"]) == (["page-a", "page-b"], "page-b")
        rest = (await admin.get("/v1/admin/tenants", params={"after": first["next"], "limit": 1000})).json()
        assert rest["tenants"][0]["name"] == "page-c"
        assert rest["next"] is None
        for bad in ({"limit": 0}, {"limit": 1001}, {"after": "x" * 129}, {"after": "\x00"}):
            check_problem(await admin.get("/v1/admin/tenants", params=bad), 422, "invalid_input")

    async def test_a_suspended_tenants_keys_are_refused_until_it_is_resumed(
        self, braid: Running, admin: httpx.AsyncClient, tenant: str
    ) -> None:
        client = await client_of(braid, admin, tenant)
        await write(client, {"id": "a", **WALRUS})
        await admin.patch(f"/v1/admin/tenants/{tenant}", json={"state": "suspended"})
        for response in (await client.get("/v1/documents/a"), await client.put("/v1/documents/a", json=WALRUS)):
            assert "suspended" in check_problem(response, 403, "forbidden")["detail"]
        await admin.patch(f"/v1/admin/tenants/{tenant}", json={"state": "active"})
        assert (await client.get("/v1/documents/a")).status_code == 200
        assert (await actions(admin, tenant))[2:] == ["tenant.change"] * 2

    async def test_another_instance_refuses_within_five_seconds(
        self, braid: Running, admin: httpx.AsyncClient, tenant: str
    ) -> None:
        """Told by what it looks up when its memory of the key has run out."""
        moment = 0.0
        pepper = braid.app.state.braid.keys._pepper
        other = Keys(braid.engines.postgres, pepper, lambda: moment)
        key = (await key_of(admin, tenant))["key"]
        await other.check(key, datetime.now(UTC))
        await admin.patch(f"/v1/admin/tenants/{tenant}", json={"state": "suspended"})
        await other.check(key, datetime.now(UTC))  # still remembered
        moment = 5.0
        with pytest.raises(Forbidden):
            await other.check(key, datetime.now(UTC))


class TestDeletion:
    async def test_it_removes_everything_from_all_engines_and_proves_it(
        self, braid: Running, admin: httpx.AsyncClient
    ) -> None:
        neighbour = await braid.tenant()
        await write(neighbour, {"id": "a", **WALRUS})
        await admin.post("/v1/admin/tenants", json={"name": "goner"})
        await admin.post("/v1/admin/tenants/goner/projects", json={"name": "side"})
        key = (await key_of(admin, "goner"))["key"]
        client, id = braid.client(key), await braid.tenant_of(key)
        documents = [{"id": str(n), "namespace": f"n{n}", **WALRUS, "links": [{"to": "0"}]} for n in range(5)]
        await write(client, *documents)
        vectors, graph = braid.engines.vectors, braid.engines.graph
        assert (await vectors.count(id), await graph.count(id)) == (5, 5)

        answer = (await admin.delete("/v1/admin/tenants/goner")).json()
        assert (answer["id"], answer["name"]) == (id, "goner")
        assert answer["engines"]["qdrant"] == {"removed": {"points": 5}, "remaining": {"points": 0}}
        assert answer["engines"]["falkordb"] == {
            "removed": {"graphs": 1, "documents": 5},
            "remaining": {"graphs": 0, "documents": 0},
        }
        removed = answer["engines"]["postgres"]["removed"]
        assert (removed["documents"], removed["edges"], removed["namespaces"]) == (5, 5, 5)
        assert (removed["projects"], removed["api_keys"], removed["tenants"]) == (2, 1, 1)
        assert set(answer["engines"]["postgres"]["remaining"].values()) == {0}

        assert (await vectors.count(id), await graph.count(id), await graph.exists(id)) == (0, 0, False)
        assert not (Path(vectors._folder) / uuid.UUID(id).hex).exists()  # type: ignore[attr-defined]
        tables = ("documents", "edges", "dirty", "usage", "namespaces", "projects", "api_keys")
        for table in tables:
            assert await braid.sql(f"SELECT FROM {table} WHERE tenant_id = $1", id) == [], table
        check_problem(await client.get("/v1/documents"), 401, "unauthorized")
        check_problem(await admin.get("/v1/admin/tenants/goner"), 404, "not_found")
        check_problem(await admin.delete("/v1/admin/tenants/goner"), 404, "not_found")

        kept = ["tenant.create", "project.create", "key.create", "tenant.delete", "tenant.deleted"]
        assert await actions(admin, id) == kept
        assert await actions(admin, "goner") == []
        found = (await neighbour.post("/v1/search", json={"query": "walrus"})).json()["results"]
        assert set(found[0]["tiers"]) == {"keyword", "vector", "graph"}

        assert (await admin.post("/v1/admin/tenants", json={"name": "goner"})).json()["id"] != id
        again = await client_of(braid, admin, "goner")
        answer = (await again.post("/v1/search", json={"query": "walrus"})).json()
        assert (answer["results"], answer["degraded"]) == ([], False)
        assert (await again.get("/v1/documents")).json()["documents"] == []
        assert (await admin.get("/v1/admin/tenants/goner")).json()["usage"] == {"documents": 0, "bytes": 0}

    async def test_a_tenant_without_documents_can_go(self, admin: httpx.AsyncClient, tenant: str) -> None:
        engines = (await admin.delete(f"/v1/admin/tenants/{tenant}")).json()["engines"]
        assert {n for proof in engines.values() for n in proof["remaining"].values()} == {0}

    async def test_many_rows_go_in_batches(
        self, braid: Running, admin: httpx.AsyncClient, tenant: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.stores.tenants._BATCH", 7)
        client = await client_of(braid, admin, tenant)
        await write(client, *({"id": str(n), "title": "x", "links": [{"to": "0"}]} for n in range(50)))
        engines = (await admin.delete(f"/v1/admin/tenants/{tenant}")).json()["engines"]
        assert engines["postgres"]["removed"]["documents"] == 50
        assert set(engines["postgres"]["remaining"].values()) == {0}

    async def test_no_worker_brings_back_what_was_removed(
        self, braid: Running, admin: httpx.AsyncClient, tenant: str
    ) -> None:
        """A worker that holds a document is waited for; nothing of a condemned tenant is claimed."""
        key = (await key_of(admin, tenant))["key"]
        client, id = braid.client(key), await braid.tenant_of(key)
        await write(client, {"id": "a", **WALRUS})
        worker = DirtyRows(braid.engines.postgres, "graph")
        await braid.sql("UPDATE dirty SET next_try = now() + interval '1 hour' WHERE tenant_id = $1", id)
        await braid.sql("UPDATE dirty SET wanted_version = wanted_version + 1 WHERE tenant_id = $1", id)
        await braid.sql(
            "UPDATE dirty SET claimed_by = $2, claimed_until = now() + interval '1 minute' "
            "WHERE tenant_id = $1 AND sink = 'graph'",
            id,
            worker._owner,
        )
        deleting = asyncio.create_task(admin.delete(f"/v1/admin/tenants/{tenant}"))
        await asyncio.sleep(0.5)
        assert not deleting.done()
        shown = (await admin.get(f"/v1/admin/tenants/{tenant}")).json()
        assert shown["state"] == "deleting"
        check_problem(await client.put("/v1/documents/b", json=WALRUS), 403, "forbidden")
        for method, path, body in (
            ("PATCH", "", {"state": "active"}),
            ("POST", "/keys", {}),
            ("POST", "/projects", {"name": "p"}),
            ("POST", "/namespaces", {"name": "n"}),
        ):
            refused = await admin.request(method, f"/v1/admin/tenants/{tenant}{path}", json=body)
            check_problem(refused, 409, "conflict")
        await braid.engines.graph.apply(id, [(Document("a", entities=("Walrus",)), ())])  # what it was about to do
        await braid.sql("UPDATE dirty SET claimed_until = NULL, next_try = now() WHERE tenant_id = $1", id)
        answer = (await deleting).json()
        assert answer["engines"]["falkordb"]["remaining"] == {"graphs": 0, "documents": 0}
        assert not await braid.engines.graph.exists(id)

    async def test_a_condemned_tenants_rows_are_not_claimed(self, braid: Running, tenant: str) -> None:
        postgres = braid.engines.postgres
        id = await braid.app.state.braid.tenants.ensure(tenant)
        worker = DirtyRows(postgres, "nothing-applies-this")
        mark = (
            "INSERT INTO dirty (tenant_id, document_id, sink, wanted_version) "
            "VALUES ($1, 'a', 'nothing-applies-this', 1), ($1, 'b', 'nothing-applies-this', 2)"
        )
        async with postgres.tenant(Reach(id)) as connection:
            await connection.execute(mark, id)
        assert [claim.document_id for claim in await worker.claim(1)] == ["a"]
        await braid.app.state.braid.tenants.condemn("test", tenant)
        assert await worker.claim(9) == []
        await braid.sql("DELETE FROM tenants WHERE id = $1", id)

    async def test_writers_at_work_do_not_outlive_the_tenant(
        self, braid: Running, admin: httpx.AsyncClient, tenant: str
    ) -> None:
        """They hold what a remembered key gave them: another instance would go on for seconds."""
        key = (await key_of(admin, tenant))["key"]
        id = await braid.tenant_of(key)
        documents = braid.app.state.braid.writer.documents(Reach(id))
        refusals: list[BraidError] = []

        async def keep_writing(writer: int) -> None:
            for n in itertools.count():
                try:
                    await documents.put([(Document(f"{writer}-{n}", f"n{writer}-{n % 9}", title="x"), None)])
                except BraidError as error:
                    refusals.append(error)
                    return

        writers = [asyncio.create_task(keep_writing(n)) for n in range(4)]
        await asyncio.sleep(0.5)
        response = await admin.delete(f"/v1/admin/tenants/{tenant}")
        assert response.status_code == 200, response.text
        await asyncio.wait_for(asyncio.gather(*writers), 10)
        assert {type(error).__name__ for error in refusals} == {"Forbidden"}
        engines = response.json()["engines"]
        assert engines["postgres"]["removed"]["documents"] > 0
        assert {n for proof in engines.values() for n in proof["remaining"].values()} == {0}
        await asyncio.sleep(0.5)
        assert (await braid.engines.vectors.count(id), await braid.engines.graph.exists(id)) == (0, False)
        assert await braid.sql("SELECT FROM documents WHERE tenant_id = $1", id) == []


async def test_a_deletion_that_an_outage_stopped_is_finished_by_repeating_it() -> None:
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        data = Path(folder) / "data"
        async with running(data, index_poll_ms=50) as braid:
            admin = braid.client(await admin_key(braid))
            await admin.post("/v1/admin/tenants", json={"name": "stuck"})
            key = (await key_of(admin, "stuck"))["key"]
            client, id = braid.client(key), await braid.tenant_of(key)
            await write(client, {"id": "a", **WALRUS})
            with Engine(data / "falkordb.lock").down():
                problem = check_problem(await admin.delete("/v1/admin/tenants/stuck"), 503, "engine_unavailable")
                assert "FalkorDB" in problem["detail"]
                assert (await admin.get("/v1/admin/tenants/stuck")).json()["state"] == "deleting"
                check_problem(await client.get("/v1/documents/a"), 403, "forbidden")
            for _ in range(100):
                if (await admin.get("/readyz")).json()["engines"]["falkordb"]["status"] == "ok":
                    break
                await asyncio.sleep(0.1)
            answer = (await admin.delete("/v1/admin/tenants/stuck")).json()
            assert {n for proof in answer["engines"].values() for n in proof["remaining"].values()} == {0}
            assert not await braid.engines.graph.exists(id)
            assert await actions(admin, id) == ["tenant.create", "key.create", "tenant.delete", "tenant.deleted"]


class TestProjects:
    async def test_made_listed_deleted(self, braid: Running, admin: httpx.AsyncClient, tenant: str) -> None:
        base = f"/v1/admin/tenants/{tenant}/projects"
        assert (await admin.post(base, json={"name": "side"})).json()["name"] == "side"
        check_problem(await admin.post(base, json={"name": "side"}), 409, "conflict")
        check_problem(await admin.post(base, json={"name": "no spaces"}), 422, "invalid_input")
        assert [p["name"] for p in (await admin.get(base)).json()["projects"]] == ["default", "side"]
        page = (await admin.get(base, params={"limit": 1})).json()
        assert ([p["name"] for p in page["projects"]], page["next"]) == (["default"], "default")
        bound = await key_of(admin, tenant, project="side")
        side, whole = braid.client(bound["key"]), await client_of(braid, admin, tenant)
        await write(side, {"id": "a", "namespace": "n", **WALRUS})
        await write(whole, {"id": "b", **WALRUS})

        problem = check_problem(await admin.delete(f"{base}/side"), 409, "conflict")
        assert "?force=true" in problem["detail"]
        assert (await side.get("/v1/documents/a")).status_code == 200
        gone = (await admin.delete(f"{base}/side", params={"force": True})).json()
        assert gone == {"name": "side", "revoked": [bound["prefix"]]}
        check_problem(await side.get("/v1/documents/a"), 401, "unauthorized")
        assert [d["id"] for d in (await whole.get("/v1/documents")).json()["documents"]] == ["b"]
        assert [p["name"] for p in (await admin.get(base)).json()["projects"]] == ["default"]
        told = ["namespace.delete", "namespace.deleted", "project.delete"]
        assert (await actions(admin, tenant))[-3:] == told

    async def test_the_default_project_stays(self, admin: httpx.AsyncClient, tenant: str) -> None:
        for force in (False, True):
            path = f"/v1/admin/tenants/{tenant}/projects/default"
            check_problem(await admin.delete(path, params={"force": force}), 409, "conflict")


class TestNamespaces:
    async def test_made_listed_changed(self, admin: httpx.AsyncClient, tenant: str) -> None:
        base = f"/v1/admin/tenants/{tenant}/namespaces"
        await admin.post(f"/v1/admin/tenants/{tenant}/projects", json={"name": "side"})
        made = await admin.post(base, json={"name": "a/b:c", "language": "german", "embedder": "wordllama"})
        assert made.status_code == 201
        namespace = made.json()
        expected = {
            "project": "default",
            "language": "german",
            "weights": None,
            "ranking": None,
            "embedder": "wordllama",
        }
        assert namespace == expected | {"name": "a/b:c", "created_at": namespace["created_at"]}
        check_problem(await admin.post(base, json={"name": "a/b:c"}), 409, "conflict")
        changed = await admin.patch(f"{base}/a/b:c", json={"project": "side", "weights": {"keyword": 1, "graph": 0}})
        namespace |= {"project": "side", "weights": {"keyword": 1, "graph": 0}}
        assert changed.json() == namespace
        await admin.post(base, json={"name": "b"})
        page = (await admin.get(base, params={"limit": 1})).json()
        assert (page["namespaces"], page["next"]) == ([namespace], "a/b:c")
        changed = await admin.patch(f"{base}/a/b:c", json={"weights": None, "language": "simple", "project": None})
        assert changed.json() == namespace | {"weights": None, "language": "simple"}
        lines = (await admin.get("/v1/admin/audit", params={"tenant": tenant})).json()["lines"]
        assert lines[-1]["detail"] == {"namespace": "a/b:c", "weights": None, "language": "simple"}

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"project": "nothing"}, "project"),
            ({"language": "klingon"}, "language"),
            ({"language": "english; DROP TABLE documents"}, "language"),
            ({"language": "\x00"}, "language"),
            ({"weights": {"keyword": 0, "vector": 0, "graph": 0}}, "weights"),
            ({"weights": {"keyword": 1e-9}}, "weights.keyword"),
            ({"weights": {"smell": 1}}, "weights.smell"),
            ({"embedder": "fastembed:other"}, "embedder"),
        ],
    )
    async def test_refused_settings_name_the_field(
        self, admin: httpx.AsyncClient, tenant: str, body: dict[str, Any], field: str
    ) -> None:
        base = f"/v1/admin/tenants/{tenant}/namespaces"
        await admin.post(base, json={"name": "there"})
        for response in (
            await admin.post(base, json={"name": "new", **body}),
            await admin.patch(f"{base}/there", json=body),
        ):
            problem = check_problem(response, 422, "invalid_input")
            assert [error["field"] for error in problem["errors"]] == [field]
        if field == "embedder":
            assert "'wordllama'" in problem["detail"]
            assert "'fastembed:other'" in problem["detail"]
        assert [n["name"] for n in (await admin.get(base)).json()["namespaces"]] == ["there"]

    async def test_weights_hold_for_searches_of_that_one_namespace(
        self, braid: Running, admin: httpx.AsyncClient, tenant: str
    ) -> None:
        base, client = f"/v1/admin/tenants/{tenant}/namespaces", await client_of(braid, admin, tenant)
        await write(client, {"id": "a", "namespace": "n", **WALRUS}, {"id": "b", "namespace": "m", **WALRUS})
        default = (await client.post("/v1/search", json={"query": "walrus"})).json()["weights"]

        async def weights(**body: Any) -> dict[str, float]:
            return dict((await client.post("/v1/search", json={"query": "walrus", **body})).json()["weights"])

        await admin.patch(f"{base}/n", json={"weights": {"keyword": 2, "graph": 0}})
        own = {"keyword": 2, "vector": default["vector"]}
        assert await weights(namespace="n") == own
        assert (await client.get("/v1/search?q=walrus&namespace=n")).json()["weights"] == own
        assert await weights(namespace="n", weights={"vector": 3}) == own | {"vector": 3}
        assert await weights(namespace="m") == await weights() == default
        assert await weights(include_namespaces=["n", "m"]) == default
        narrow = await client_of(braid, admin, tenant, namespaces=["n"])
        assert (await narrow.post("/v1/search", json={"query": "walrus"})).json()["weights"] == own
        await admin.patch(f"{base}/n", json={"weights": None})
        assert await weights(namespace="n") == default

    async def test_a_deleted_one_is_gone_from_every_engine(
        self, braid: Running, admin: httpx.AsyncClient, tenant: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("service.removal._BATCH", 7)
        key = (await key_of(admin, tenant))["key"]
        client, id = braid.client(key), await braid.tenant_of(key)
        goners = [{"id": f"g{n}", "namespace": "n", **WALRUS, "links": [{"to": "stays"}]} for n in range(20)]
        await write(client, {"id": "stays", **WALRUS, "links": [{"to": "g0"}]}, *goners)
        path = f"/v1/admin/tenants/{tenant}/namespaces/n"
        gone = (await admin.delete(path, params={"wait": True})).json()
        assert gone == {"name": "n", "documents": 20, "visible": True}
        assert await braid.engines.vectors.count(id) == await braid.engines.graph.count(id) == 1
        assert [row[0] for row in await braid.sql("SELECT source FROM edges WHERE tenant_id = $1", id)] == ["stays"]
        found = (await client.post("/v1/search", json={"query": "walrus"})).json()
        assert ([r["id"] for r in found["results"]], found["namespaces"]) == (["stays"], ["default"])
        check_problem(await admin.delete(path), 404, "not_found")
        assert (await admin.get(f"/v1/admin/tenants/{tenant}")).json()["usage"]["documents"] == 1
        await write(client, {"id": "g0", "namespace": "n", **WALRUS})
        assert (await client.get("/v1/namespaces")).json()["namespaces"][1] == {"name": "n", "documents": 1}
        assert "visible" not in (await admin.delete(path)).json()


class TestKeys:
    async def test_made_shown_once_and_listed(self, braid: Running, admin: httpx.AsyncClient, tenant: str) -> None:
        base = f"/v1/admin/tenants/{tenant}/keys"
        before = datetime.now(UTC)
        body = {"name": "site", "scopes": ["search"], "namespaces": ["a", "b"], "expires_at": "2099-01-01T00:00:00Z"}
        made = (await admin.post(base, json=body)).json()
        assert {name: made[name] for name in body} == body
        assert (made["project"], made["revoked_at"], made["last_used_at"]) == (None, None, None)
        assert made["key"].startswith(f"braid_{made['prefix']}.")
        client = braid.client(made["key"])
        assert (await client.get("/v1/documents")).status_code == 200
        check_problem(await client.put("/v1/documents/a", json={"title": "x"}), 403, "forbidden")
        listed = await admin.get(base)
        [shown] = listed.json()["keys"]
        assert before <= datetime.fromisoformat(shown["last_used_at"]) <= datetime.now(UTC)
        assert shown | {"last_used_at": None, "key": made["key"]} == made
        assert made["key"].partition(".")[2] not in listed.text

    async def test_rotation_and_revocation(self, braid: Running, admin: httpx.AsyncClient, tenant: str) -> None:
        base = f"/v1/admin/tenants/{tenant}/keys"
        old, new = [(await admin.post(base, json={"name": "app"})).json() for _ in range(2)]
        problem = check_problem(await admin.post(base, json={"name": "app"}), 409, "conflict")
        assert "revoke one first" in problem["detail"]
        clients = [braid.client(key["key"]) for key in (old, new)]
        assert [(await client.get("/v1/documents")).status_code for client in clients] == [200, 200]
        assert (await admin.delete(f"{base}/{old['prefix']}")).status_code == 204
        assert [(await client.get("/v1/documents")).status_code for client in clients] == [401, 200]
        check_problem(await admin.delete(f"{base}/{old['prefix']}"), 404, "not_found")
        assert (await admin.post(base, json={"name": "app"})).status_code == 201
        page = (await admin.get(base, params={"limit": 2})).json()
        rest = (await admin.get(base, params={"after": page["next"]})).json()
        keys = {key["prefix"]: key for key in page["keys"] + rest["keys"]}
        assert (len(page["keys"]), len(keys), rest["next"]) == (2, 3, None)
        assert keys[old["prefix"]]["revoked_at"] is not None
        told = ["tenant.create", "key.create", "key.create", "key.revoke", "key.create"]
        assert await actions(admin, tenant) == told

    async def test_two_at_once_do_not_pass_the_limit(self, admin: httpx.AsyncClient, tenant: str) -> None:
        path = f"/v1/admin/tenants/{tenant}/keys"
        made = await asyncio.gather(*(admin.post(path, json={"name": "rush"}) for _ in range(8)))
        assert sorted(response.status_code for response in made) == [201] * 2 + [409] * 6

    async def test_an_expired_key_stops_working_and_counts_no_more(
        self, braid: Running, admin: httpx.AsyncClient, tenant: str
    ) -> None:
        soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        made = [await key_of(admin, tenant, name="brief", expires_at=soon) for _ in range(2)]
        client = braid.client(made[0]["key"])
        assert (await client.get("/v1/documents")).status_code == 200
        await braid.sql("UPDATE api_keys SET expires_at = now() WHERE prefix = $1", made[0]["prefix"])
        braid.app.state.braid.keys.forget()  # instead of waiting for it
        check_problem(await client.get("/v1/documents"), 401, "unauthorized")
        await key_of(admin, tenant, name="brief")

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"name": ""}, "name"),
            ({"name": "x\x00"}, "name"),
            ({"scopes": []}, "scopes"),
            ({"scopes": ["admin"]}, "scopes.0"),
            ({"project": "nothing"}, "project"),
            ({"namespaces": []}, "namespaces"),
            ({"namespaces": ["a b"]}, "namespaces.0"),
            ({"namespaces": ["a"] * 257}, "namespaces"),
            ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
            ({"expires_at": "2099-01-01T00:00:00"}, "expires_at"),
        ],
    )
    async def test_a_refused_key_names_the_field(
        self, admin: httpx.AsyncClient, tenant: str, body: dict[str, Any], field: str
    ) -> None:
        refused = await admin.post(f"/v1/admin/tenants/{tenant}/keys", json=body)
        problem = check_problem(refused, 422, "invalid_input")
        assert [error["field"] for error in problem["errors"]] == [field]

    async def test_a_key_is_revoked_under_its_own_tenant_only(self, admin: httpx.AsyncClient, tenant: str) -> None:
        other = f"{tenant}-other"
        await admin.post("/v1/admin/tenants", json={"name": other})
        made = await key_of(admin, tenant)
        check_problem(await admin.delete(f"/v1/admin/tenants/{other}/keys/{made['prefix']}"), 404, "not_found")
        check_problem(await admin.delete(f"/v1/admin/keys/{made['prefix']}"), 404, "not_found")
        assert (await admin.get(f"/v1/admin/tenants/{other}/keys")).json() == {"keys": [], "next": None}
        assert (await admin.get(f"/v1/admin/tenants/{tenant}/keys")).json()["keys"][0]["revoked_at"] is None

    async def test_admin_keys(self, braid: Running, admin: httpx.AsyncClient) -> None:
        name = f"ops-{next(_names)}"
        made = [(await admin.post("/v1/admin/keys", json={"name": name})).json() for _ in range(2)]
        assert made[0]["scopes"] == ["admin"]
        check_problem(await admin.post("/v1/admin/keys", json={"name": name}), 409, "conflict")
        check_problem(await admin.post("/v1/admin/keys", json={"scopes": ["search"]}), 422, "invalid_input")
        clients = [braid.client(key["key"]) for key in made]
        assert [(await client.get("/v1/admin/tenants")).status_code for client in clients] == [200, 200]
        assert (await clients[0].delete(f"/v1/admin/keys/{made[0]['prefix']}")).status_code == 204
        assert [(await client.get("/v1/admin/tenants")).status_code for client in clients] == [401, 200]
        after = f"{int(made[1]['prefix'], 16) - 1:012x}"
        page = (await admin.get("/v1/admin/keys", params={"after": after, "limit": 1})).json()
        assert page["keys"][0]["prefix"] == made[1]["prefix"]


class TestAudit:
    async def test_every_event_is_one_line_with_its_actor_and_no_secret(
        self, braid: Running, admin: httpx.AsyncClient
    ) -> None:
        base = f"/v1/admin/tenants/audited-{next(_names)}"
        name = base.rpartition("/")[2]
        await admin.post("/v1/admin/tenants", json={"name": name})
        await admin.patch(base, json={"max_documents": 5})
        await admin.post(f"{base}/projects", json={"name": "p"})
        await admin.post(f"{base}/namespaces", json={"name": "n", "project": "p"})
        await admin.patch(f"{base}/namespaces/n", json={"language": "simple"})
        key = (await admin.post(f"{base}/keys", json={"name": "k"})).json()
        await admin.delete(f"{base}/keys/{key['prefix']}")
        await admin.delete(f"{base}/namespaces/n")
        await admin.delete(f"{base}/projects/p")
        answer = await admin.get("/v1/admin/audit", params={"tenant": name})
        lines = answer.json()["lines"]
        assert [line["action"] for line in lines] == [
            "tenant.create", "tenant.change", "project.create", "namespace.create", "namespace.change", "key.create",
            "key.revoke", "namespace.delete", "namespace.deleted", "project.delete",
        ]  # fmt: skip
        prefix = admin.headers["authorization"].removeprefix("Bearer braid_").partition(".")[0]
        assert {line["actor"] for line in lines} == {prefix}
        assert key["key"].partition(".")[2] not in answer.text
        assert [line["id"] for line in lines] == sorted(line["id"] for line in lines)

        paged, after = [], 0
        while after is not None:
            page = (await admin.get("/v1/admin/audit", params={"tenant": name, "after": after, "limit": 4})).json()
            paged += page["lines"]
            after = page["next"]
        assert paged == lines
        everything = (await admin.get("/v1/admin/audit", params={"after": lines[0]["id"] - 1, "limit": 1000})).json()
        assert lines[0] in everything["lines"]

    async def test_what_was_refused_left_no_line(self, admin: httpx.AsyncClient, tenant: str) -> None:
        await admin.post("/v1/admin/tenants", json={"name": tenant})
        await admin.post(f"/v1/admin/tenants/{tenant}/keys", json={"project": "nothing"})
        await admin.delete(f"/v1/admin/tenants/{tenant}/projects/default")
        assert await actions(admin, tenant) == ["tenant.create"]

    @pytest.mark.parametrize("bad", [{"after": -1}, {"limit": 0}, {"tenant": "a b"}, {"after": "x"}, {"after": 2**63}])
    async def test_a_refused_question(self, admin: httpx.AsyncClient, bad: dict[str, Any]) -> None:
        check_problem(await admin.get("/v1/admin/audit", params=bad), 422, "invalid_input")
