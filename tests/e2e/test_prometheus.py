"""A real Prometheus scrapes a Braid that is searched and broken: every panel and every rule has an answer, and counts
are what the clients saw.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from dashboards.__main__ import HERE
from dashboards.boards import BOARDS
from dashboards.slo import rules
from service import metrics
from service.stores.keys import NewKey
from tests.conftest import Running, running
from tests.faults.conftest import Engine

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus (Debian: apt install prometheus) is missing"
)

RULES = [rule for group in yaml.safe_load(rules())["groups"] for rule in group["rules"]]
PANELS = [(f"{b.title}: {p.title}", query) for b in BOARDS for p in b.panels for query in p.queries.values()]
DOCUMENTS = [
    {"id": "stow", "title": "Stowing the dish", "content": "In a storm it points straight up.", "entities": ["Dipper"]},
    {"id": "keeper", "title": "Bram de Wit", "content": "He greases the bearings.", "links": [{"to": "stow"}]},
    *({"id": f"log-{n}", "content": f"Shift log {n}: all quiet on the night watch."} for n in range(30)),
]
QUERIES = ("Dipper in a storm", "greasing", "night watch", "xyzzy")


class Prometheus:
    """A server of its own, which scrapes every half second."""

    def __init__(self, url: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, timeout=10)

    async def ask(self, query: str) -> list[dict[str, Any]]:
        reply = (await self._http.get("/api/v1/query", params={"query": query})).json()
        assert reply["status"] == "success", (query, reply)
        found: list[dict[str, Any]] = reply["data"]["result"]
        return found

    async def numbers(self, query: str) -> list[float]:
        """What it answers now, without what is not a number."""
        values = [float(each["value"][1]) for each in await self.ask(query)]
        return [value for value in values if value == value]  # noqa: PLR0124

    async def until(self, query: str, seconds: float = 20) -> list[float]:
        deadline = time.monotonic() + seconds
        while not (found := await self.numbers(query)):
            assert time.monotonic() < deadline, f"no data in {seconds} s: {query}"
            await asyncio.sleep(0.2)
        return found


@asynccontextmanager
async def scraping(url: str, folder: Path) -> AsyncIterator[Prometheus]:
    text = (HERE / "prometheus.yml").read_text().replace("braid:8080", url.removeprefix("http://"))
    config = yaml.safe_load(text)
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    (folder / "rules").mkdir()
    (folder / "rules/braid.yml").write_text((HERE / "rules/braid.yml").read_text().replace("interval: 30s", ""))
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    )  # fmt: skip
    started = Prometheus(f"http://127.0.0.1:{port}")
    try:
        await started_up(started)
        yield started
    finally:
        process.terminate()
        await process.wait()
        await started._http.aclose()


async def started_up(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            if await prometheus.ask('up{job="braid"} == 1'):
                return
        except (httpx.TransportError, KeyError, ValueError):
            pass
        assert time.monotonic() < deadline, "Prometheus did not scrape Braid"
        await asyncio.sleep(0.1)


class Clients:
    """Two tenants, and what they saw."""

    def __init__(self, braid: Running, keys: dict[str, str]) -> None:
        self.tenants = {tenant: braid.client(key) for tenant, key in keys.items()}
        self.seen: Counter[tuple[str, ...]] = Counter()
        # Other tests count in this process too.
        self.seen.update({("status", status): int(_answered(status)) for status in ("200", "503")})

    @property
    def label(self) -> str:
        """Chooses these tenants in a query."""
        return f'tenant=~"{"|".join(self.tenants)}"'

    async def search(self, rounds: int, **body: object) -> None:
        for number in range(rounds):
            for tenant, client in self.tenants.items():
                reply = await client.post("/v1/search", json={"query": QUERIES[number % 4], **body})
                self._count(tenant, reply)

    def _count(self, tenant: str, reply: httpx.Response) -> None:
        self.seen["status", str(reply.status_code)] += 1
        if reply.status_code != 200:
            self.seen["outcome", tenant, "failed"] += 1
            return
        answer = reply.json()
        self.seen["outcome", tenant, "degraded" if answer["degraded"] else "full"] += 1
        self.seen["empty", tenant] += not answer["results"]
        for result in answer["results"]:
            for tier in result["tiers"]:
                self.seen["hits", tenant, tier] += 1
                self.seen["unique", tenant, tier] += len(result["tiers"]) == 1


def _answered(status: str) -> float:
    labels = {"method": "POST", "route": "/v1/search", "status": status}
    return metrics.REGISTRY.get_sample_value("braid_http_requests_total", labels) or 0


METRICS = {
    "outcome": ("braid_searches_total", ("tenant", "outcome")),
    "empty": ("braid_zero_result_searches_total", ("tenant",)),
    "hits": ("braid_tier_hits_total", ("tenant", "tier")),
    "unique": ("braid_tier_unique_hits_total", ("tenant", "tier")),
}


@pytest.fixture(scope="module")
async def watched() -> AsyncIterator[tuple[Running, Prometheus, Clients, Path]]:
    metrics._labelled.clear()  # or tenants of other tests may have all the labels
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as name:
        folder = Path(name)
        async with running(folder / "data", index_poll_ms=50) as braid, scraping(braid.url, folder) as prometheus:
            keys = [await braid.key() for _ in range(2)]
            clients = Clients(braid, {await braid.tenant_of(key): key for key in keys})
            for client in clients.tenants.values():
                await client.post("/v1/documents?wait=true", json=DOCUMENTS)
            yield braid, prometheus, clients, folder / "data"


async def test_every_panel_and_every_rule_is_answered(watched: tuple[Running, Prometheus, Clients, Path]) -> None:
    """Searches, and FalkorDB gone for a while with documents waiting for it."""
    braid, prometheus, clients, data_dir = watched
    await clients.search(12)
    asked = asyncio.create_task(answers(prometheus))
    with Engine(data_dir / "falkordb.lock").down():
        await next(iter(clients.tenants.values())).put("/v1/documents/late", json={"title": "Late"})
        await braid.sql("UPDATE dirty SET wanted_since = now() - interval '10 minutes' WHERE sink = 'graph'")
        await braid.sql("UPDATE dirty SET attempts = 1 WHERE sink = 'vector' AND document_id = 'stow'")
        await braid.sql("UPDATE dirty SET applied_version = 0, next_try = now() + interval '1 hour' "
                        "WHERE sink = 'vector' AND document_id = 'stow'")  # fmt: skip
        for _ in range(12):
            await clients.search(2)
            await clients.search(1, allow_degraded=False)
            await asyncio.sleep(0.3)
    missing = await asked
    assert missing == {}


async def answers(prometheus: Prometheus, seconds: float = 25) -> dict[str, str]:
    """Asks until each query has had an answer that is a number; returns those that had none."""
    open_queries = dict([*_panel_queries(), *_rule_queries()])
    deadline = time.monotonic() + seconds
    while open_queries and time.monotonic() < deadline:
        for name, query in list(open_queries.items()):
            if await prometheus.numbers(query):
                del open_queries[name]
        await asyncio.sleep(0.5)
    return open_queries


def _panel_queries() -> list[tuple[str, str]]:
    filled = {"$__rate_interval": "10s", "$__range": "1m", "$tenant": ".*"}
    queries = []
    for number, (title, query) in enumerate(PANELS):
        for variable, value in filled.items():
            query = query.replace(variable, value)  # noqa: PLW2901
        queries.append((f"{number} {title}", query))
    return queries


# What the faults above do not bring about is asked without its threshold.
_UNSHAKEN = {
    "BraidDown": 'up{job="braid"}',
    "BraidPoolUsedUp": 'sum by (instance) (braid_postgres_connections{state="used"})',
    "BraidSamplesNotSaved": "sum(rate(braid_stats_flushes_total[10m]))",
}


def _rule_queries() -> list[tuple[str, str]]:
    """Recorded series by their name, as that shows that the rule was evaluated; alerts by what fires them."""
    recorded = {rule["record"] + str(rule.get("labels")): _selector(rule) for rule in RULES if "record" in rule}
    alerts = {rule["alert"]: rule["expr"] for rule in RULES if "alert" in rule}
    slow = {name: expr.split(" > ")[0] for name, expr in alerts.items() if name.startswith("BraidLatency")}
    return [*recorded.items(), *(alerts | slow | _UNSHAKEN).items()]


def _selector(rule: dict[str, Any]) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in rule.get("labels", {}).items())
    return f"{rule['record']}{{{labels}}}"


async def test_counts_are_what_the_clients_saw(watched: tuple[Running, Prometheus, Clients, Path]) -> None:
    _, prometheus, clients, _ = watched
    await asyncio.sleep(1.5)  # two scrapes
    for (kind, *values), expected in clients.seen.items():
        if kind in METRICS and expected:
            metric, labels = METRICS[kind]
            chosen = ",".join(f'{label}="{value}"' for label, value in zip(labels, values, strict=True))
            assert await prometheus.numbers(f"{metric}{{{chosen}}}") == [expected], (kind, values)
    for status in ("200", "503"):
        labels = f'method="POST",route="/v1/search",status="{status}"'
        counted = await prometheus.numbers(f"braid_http_requests_total{{{labels}}}")
        assert counted == [clients.seen["status", status]], status


async def test_the_admins_figures_agree_with_prometheus(watched: tuple[Running, Prometheus, Clients, Path]) -> None:
    braid, prometheus, clients, _ = watched
    key, _ = await braid.app.state.braid.key_desk.create("cli", None, NewKey("prometheus", ("admin",)))
    shown = (await braid.client(key).get("/v1/admin/stats?hours=1")).json()["tenants"]
    for outcome in ("full", "degraded", "failed"):
        counted = await prometheus.numbers(f'sum(braid_searches_total{{{clients.label},outcome="{outcome}"}})')
        assert [sum(tenant["searches"][outcome] for tenant in shown)] == counted
    for tier in ("keyword", "vector", "graph"):
        counted = await prometheus.numbers(f'sum(braid_tier_hits_total{{{clients.label},tier="{tier}"}})')
        assert [sum(tenant["tiers"][tier]["hits"] for tenant in shown)] == counted
