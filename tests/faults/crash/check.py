"""Every engine read directly, and compared: with what the clients were told, and with PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from falkordb.asyncio.graph import AsyncGraph
from redis.asyncio import Redis

from service.stores.qdrant_edge import EdgeVectorStore
from tests.faults.crash.clients import GONE, Client, title
from tests.faults.crash.cluster import DIMENSION, Cluster


@dataclass
class Findings:
    """How many documents each engine lost, brought back, made up, or has in an older version."""

    documents: int = 0
    converged_s: float = float("inf")
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def note(self, engine: str, kind: str, what: object) -> None:
        self.counts[f"{kind} in {engine}"] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{engine}: {kind}: {what}")

    def total(self, kind: str) -> int:
        return sum(count for name, count in self.counts.items() if name.startswith(kind))


async def converged(owner_url: str, seconds: float) -> float:
    """How long it takes until no document waits for an engine; infinite where that is too long."""
    began = time.monotonic()
    connection = await asyncpg.connect(owner_url)
    try:
        while time.monotonic() - began < seconds:
            if not await connection.fetchval("SELECT count(*) FROM dirty WHERE applied_version < wanted_version"):
                return time.monotonic() - began
            await asyncio.sleep(0.05)
    finally:
        await connection.close()
    return float("inf")


async def check(cluster: Cluster, clients: list[Client], findings: Findings) -> None:
    """With the API stopped: only one process may open Qdrant's shard."""
    connection = await asyncpg.connect(cluster.addresses.postgres_url)
    try:
        tenant = str(await connection.fetchval("SELECT id FROM tenants WHERE name = 'crash'"))
        rows = await connection.fetch(
            "SELECT d.id, d.title, d.version, w.tsv::text AS words "
            "FROM documents d LEFT JOIN words w USING (tenant_id, id)"
        )
        links = {(r[0], r[1]) for r in await connection.fetch("SELECT source, target FROM edges")}
        words = {r[0] for r in await connection.fetch("SELECT id FROM words")}
    finally:
        await connection.close()
    stored = {row["id"]: row for row in rows}
    findings.documents = len(stored)
    _against_clients(findings, stored, clients)
    for id, row in stored.items():
        if row["words"] is None:
            findings.note("the keyword tier", "lost", id)
        elif row["title"].split()[1] not in row["words"]:
            findings.note("the keyword tier", "stale", id)
    for id in words - stored.keys():
        findings.note("the keyword tier", "phantom", id)
    versions = {id: int(row["version"]) for id, row in stored.items()}
    _against_postgres(findings, "Qdrant", versions, await _in_qdrant(cluster, tenant))
    nodes, drawn = await _in_falkordb(cluster, tenant)
    _against_postgres(findings, "FalkorDB", versions, nodes)
    wanted = {(a, b) for a, b in links if a in stored and b in stored}
    for pair in wanted - drawn:
        findings.note("FalkorDB", "lost", f"link {pair}")
    for pair in drawn - wanted:
        findings.note("FalkorDB", "phantom", f"link {pair}")


def _against_clients(findings: Findings, stored: Mapping[str, Any], clients: list[Client]) -> None:
    known = {id: may for client in clients for id, may in client.known.items()}
    for id in stored.keys() - known.keys():
        findings.note("PostgreSQL", "phantom", id)
    for id, may in known.items():
        row = stored.get(id)
        if row is None and GONE not in may:
            findings.note("PostgreSQL", "lost", f"{id}, which is one of {sorted(may)}")
        elif row is not None and row["title"] not in {title(revision) for revision in may if revision != GONE}:
            kind = "resurrected" if may == {GONE} else "stale"
            findings.note("PostgreSQL", kind, f"{id} is {row['title']!r}, not one of {sorted(may)}")


def _against_postgres(findings: Findings, engine: str, stored: Mapping[str, int], held: list[tuple[str, int]]) -> None:
    versions = dict(held)
    for id in stored.keys() - versions.keys():
        findings.note(engine, "lost", id)
    for id in versions.keys() - stored.keys():
        findings.note(engine, "resurrected", id)
    for id, count in Counter(id for id, _ in held).items():
        if count > 1:
            findings.note(engine, "phantom", f"{id}, {count} times")
    for id in stored.keys() & versions.keys():
        if versions[id] != stored[id]:
            findings.note(engine, "stale", f"{id} is {versions[id]}, not {stored[id]}")


async def _in_qdrant(cluster: Cluster, tenant: str) -> list[tuple[str, int]]:
    store = EdgeVectorStore(cluster.vectors, DIMENSION, "none")
    await store.open()
    try:
        return [(held.id, held.version) async for held in store.everything(tenant)]
    finally:
        await store.close()


async def _in_falkordb(cluster: Cluster, tenant: str) -> tuple[list[tuple[str, int]], set[tuple[str, str]]]:
    redis = Redis.from_url(cluster.addresses.falkordb_url or "", decode_responses=True)
    graph = AsyncGraph(redis, f"braid:{tenant}")
    nodes = (await graph.ro_query("MATCH (d:Document) RETURN d.id, d.version")).result_set
    links = (await graph.ro_query("MATCH (a:Document)-[:LINK]->(b:Document) RETURN a.id, b.id")).result_set
    await redis.aclose()
    return [(id, version) for id, version in nodes], {(a, b) for a, b in links}
