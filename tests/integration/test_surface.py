"""What the outside sees: headers on every answer, no other origins, and logs that hold no secret and no text."""

from __future__ import annotations

import dataclasses
import logging
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.errors import outline
from tests.conftest import Running, running
from tests.integration.test_refusals import check_problem

PAGES = ("/", "/dashboard", "/docs")
ORIGIN = {"Origin": "https://app.example"}


@pytest.fixture(scope="module")
async def open_braid() -> AsyncIterator[tuple[Running, Path]]:
    """A Braid whose log folder is known, with one origin allowed."""
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        data = Path(folder) / "d"
        async with running(data, index_poll_ms=20, cors_origins="https://app.example", log_level="debug") as started:
            yield started, data


class Broken:
    """A searcher that fails as nobody foresaw, with what it was asked in its message."""

    async def search(self, query: Any) -> Any:
        try:
            {}[query.text]
        except KeyError as error:
            raise RuntimeError(f"cannot search for {query.text}") from error


async def every_kind_of_answer(braid: Running) -> list[httpx.Response]:
    client = await braid.tenant()
    return [
        *[await client.get(path) for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", *PAGES)],
        await client.put("/v1/documents/a", json={"title": "x"}),
        await client.post("/v1/search", json={"query": "x"}),
        await client.post("/v1/search", json={"limit": 0}),
        await client.post("/v1/search", content=b"{"),
        await client.delete("/v1/documents/none"),
        await client.get("/nowhere"),
        await client.patch("/v1/search"),
        await braid.client().get("/v1/namespaces"),
    ]


async def test_every_answer_carries_the_security_headers(braid: Running) -> None:
    answers = await every_kind_of_answer(braid)
    assert {answer.status_code for answer in answers} >= {200, 201, 401, 404, 405, 422}
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers
        if answer.url.path.startswith("/v1/"):
            assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_asks_no_other_host_and_runs_nothing_but_its_own(braid: Running, path: str) -> None:
    page = await braid.client().get(path)
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert "unsafe" not in policy["script-src"]
    assert set(policy["script-src"].split()) <= {"'self'", *re.findall(r"'sha256-[^']+'", policy["script-src"])}
    assert policy["connect-src"] == "'self'"
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page.text)
    assets = re.findall(r"(?:src|href)=\"((?:docs|ui)/[^\"]+)\"", page.text)
    assert assets
    for asset in assets:
        assert (await braid.client().get(f"/{asset}")).status_code == 200


@pytest.mark.parametrize("path", ["/", "/dashboard"])
async def test_our_own_pages_hold_no_script_and_no_style(braid: Running, path: str) -> None:
    page = await braid.client().get(path)
    assert "unsafe" not in page.headers["content-security-policy"]
    assert not re.search(r"<style|style=|<script(?! (type=\"module\" )?src=)|\son\w+=", page.text)


async def test_a_file_of_the_pages_travels_small_and_once(braid: Running) -> None:
    client = braid.client()
    packed = await client.get("/ui/braid.css")
    plain = await client.get("/ui/braid.css", headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.text == plain.text
    assert packed.headers["content-type"].startswith("text/css")
    again = await client.get("/ui/braid.css", headers={"If-None-Match": packed.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_only_the_files_of_the_pages_are_served(braid: Running) -> None:
    for name in ("__init__.py", "..%2f..%2fpyproject.toml", "main.py", "..%2findex.html"):
        assert (await braid.client().get(f"/docs/{name}")).status_code in (404, 422)
        assert (await braid.client().get(f"/ui/{name}")).status_code == 404


async def test_other_origins_are_not_allowed_unless_named(braid: Running, open_braid: tuple[Running, Path]) -> None:
    asked = {**ORIGIN, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    closed, opened = await braid.tenant(), await open_braid[0].tenant()
    assert "access-control-allow-origin" not in (await closed.options("/v1/search", headers=asked)).headers
    assert "access-control-allow-origin" not in (await closed.get("/v1/namespaces", headers=ORIGIN)).headers
    allowed = await opened.options("/v1/search", headers=asked)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    answer = await opened.get("/v1/namespaces", headers=ORIGIN)
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "RateLimit" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers
    stranger = {**asked, "Origin": "https://app.example.evil"}
    refused = await opened.options("/v1/search", headers=stranger)
    assert "access-control-allow-origin" not in refused.headers


async def test_logs_hold_no_key_and_no_text_whatever_happens(
    open_braid: tuple[Running, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Reads every logger at debug level, and the engines' own log files."""
    braid, data = open_braid
    caplog.set_level(logging.DEBUG)
    for quiet in ("httpx", "httpcore", "asyncpg.pool"):  # as `braid serve` has them; here they are the test's client
        caplog.set_level(logging.ERROR, quiet)
    key = await braid.key()
    secret = key.partition(".")[2]
    client = braid.client(key)
    canary = "kanarienvogel"
    state = braid.app.state.braid
    await client.put("/v1/documents/a?wait=true", json={"title": canary, "content": canary, "entities": [canary]})
    await client.put("/v1/documents/b", json={"title": canary, "vector": [1.0]})
    await client.post("/v1/documents", json=[{"title": canary, "metadata": {canary: "\x00"}}])
    await client.post("/v1/search", json={"query": canary})
    await client.post("/v1/search", content=f'{{"query": "{canary}"')
    await client.get("/v1/search", params={"q": f"{canary}\x00"})
    await braid.client(f"{key}x").get("/v1/namespaces")
    try:
        braid.app.state.braid = dataclasses.replace(state, searcher=Broken())
        failed = await client.post("/v1/search", json={"query": canary}, headers={"X-Request-ID": "look-me-up"})
    finally:
        braid.app.state.braid = state
    problem = check_problem(failed, 500, "internal_error")
    assert failed.headers["x-content-type-options"] == "nosniff"
    assert canary not in problem["detail"]
    written = caplog.text + "".join(file.read_text(errors="replace") for file in (data / "log").iterdir())
    assert "request look-me-up failed: RuntimeError" in written
    assert "after KeyError" in written
    assert re.search(r"test_surface\.py\", line \d+, in search", written), "where it happened"
    for told in (canary, secret, "Bearer", "Authorization"):
        assert told not in written


def test_an_outline_tells_of_groups_and_causes_without_their_words() -> None:
    words = "-".join(["se", "cret"])
    error = ExceptionGroup(words, [ValueError(words), TypeError(words)])
    error.__cause__ = OSError(words)
    told = outline(error)
    assert re.findall(r"^(?:with |after )?\w+(?=\n|$)", told, re.MULTILINE) == [
        "ExceptionGroup", "with ValueError", "with TypeError", "after OSError",
    ]  # fmt: skip
    assert words not in told
