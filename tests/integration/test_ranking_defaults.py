"""Defaults for searches: the service's, a tenant's, a namespace's, and the call's own over them all."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.errors import SetupError
from service.settings import Settings
from service.stores.keys import ADMIN, NewKey
from tests.conftest import Running
from tests.integration.test_search_api import search, write

_numbers = itertools.count()
TENANT = "/v1/admin/tenants/{}"


@pytest.fixture
async def admin(braid: Running) -> httpx.AsyncClient:
    wanted = NewKey(f"defaults-{next(_numbers)}", (ADMIN,))
    key, _ = await braid.app.state.braid.key_desk.create("test", None, wanted)
    return braid.client(key)


async def change(admin: httpx.AsyncClient, path: str, **body: Any) -> None:
    answer = await admin.patch(path, json=body)
    assert answer.status_code == 200, answer.text


async def test_the_nearest_default_wins_option_by_option(braid: Running, admin: httpx.AsyncClient) -> None:
    client = braid.client(await braid.key("defaulting"))
    await write(client, {"id": "a", "title": "Walrus", "namespace": "notes"}, {"id": "b", "title": "Walrus"})
    assert set((await search(client, "walrus"))["weights"]) >= {"keyword", "vector"}
    own = {"weights": {"vector": 0}, "profiles": {"wordy": {"weights": {"keyword": 7, "graph": 0}}}}
    await change(admin, TENANT.format("defaulting"), ranking=own)
    assert "vector" not in (await search(client, "walrus"))["weights"]
    assert (await search(client, "walrus", profile="wordy"))["weights"] == {"keyword": 7.0}
    of_notes = {"weights": {"vector": 0.5}, "fusion": {"method": "rrf"}}
    await change(admin, TENANT.format("defaulting") + "/namespaces/notes", ranking=of_notes)
    in_notes = await search(client, "walrus", namespace="notes", explain=True)
    assert in_notes["tiers"]["vector"]["weight"] == 0.5
    assert in_notes["results"][0]["tiers"]["keyword"]["share"] == 1 / 61
    everywhere = await search(client, "walrus", explain=True)
    assert everywhere["results"][0]["tiers"]["keyword"]["share"] != 1 / 61
    call = await search(client, "walrus", namespace="notes", weights={"vector": 0.25}, fusion={"method": "weighted"})
    assert call["tiers"]["vector"]["weight"] == 0.25
    told = (await admin.get(TENANT.format("defaulting"))).json()
    assert told["ranking"] == own
    await change(admin, TENANT.format("defaulting"), ranking=None)
    assert "vector" in (await search(client, "walrus"))["weights"]


async def test_another_tenants_defaults_and_profiles_are_not_ours(braid: Running, admin: httpx.AsyncClient) -> None:
    await braid.key("other-defaults")
    ranking = {"profiles": {"secret": {}}, "fusion": {"method": "l2"}}
    await change(admin, TENANT.format("other-defaults"), ranking=ranking)
    client = await braid.tenant()
    refused = await client.post("/v1/search", json={"query": "walrus", "profile": "secret"})
    assert refused.status_code == 422
    assert "there are balanced, exact, roaming, semantic" in refused.json()["detail"]


async def test_defaults_that_no_search_could_use_are_refused(braid: Running, admin: httpx.AsyncClient) -> None:
    await braid.key("refusing")
    for ranking in (
        {"weights": {"keyword": 0, "vector": 0, "graph": 0}},
        {"profile": "nobody"},
        {"fusion": {"method": "magic"}},
        {"limit": 5},
    ):
        answer = await admin.patch(TENANT.format("refusing"), json={"ranking": ranking})
        assert answer.status_code == 422, ranking


@pytest.mark.parametrize("bad", ["{", "[]", '{"fusion": {"method": "magic"}}'])
async def test_a_service_whose_defaults_make_no_sense_does_not_start(bad: str, tmp_path: Path) -> None:
    app = create_app(Settings(data_dir=tmp_path, ranking=bad))
    with pytest.raises(SetupError, match="BRAID_RANKING"):
        async with app.router.lifespan_context(app):
            pass
