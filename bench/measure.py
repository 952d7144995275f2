"""The measurements, each a function from a running Braid to numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from bench.client import Client, Timed
from bench.corpus import Corpus
from bench.server import BenchError, Server

TIERS = ("keyword", "vector", "graph")
FUSED = "fused"
CHUNK = 100
Step = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Written:
    """How long it took until all documents were acknowledged, and until they could be found in every tier."""

    documents: int
    acknowledged_s: float
    visible_s: float


def write(server: Server, documents: Sequence[dict[str, Any]], step: Step) -> Written:
    """One stream of all documents. The last ones are then sent again, unchanged, and waited for: sinks apply in
    the order of writing, so that what was written last is visible last.
    """
    chunks = [
        [orjson.dumps(document) + b"\n" for document in documents[start : start + CHUNK]]
        for start in range(0, len(documents), CHUNK)
    ]

    def stream() -> Iterator[bytes]:
        for chunk in chunks:
            yield b"".join(chunk)
            step(len(chunk))

    with Client(server) as client:
        started = time.perf_counter()
        client.write(stream())
        acknowledged = time.perf_counter() - started
        while not client.write(chunks[-1], wait=True)["visible"]:
            if time.perf_counter() - started > 600:
                raise BenchError("the documents were not visible in all tiers after ten minutes")
        return Written(len(documents), acknowledged, time.perf_counter() - started)


def warm_up(server: Server, corpus: Corpus, count: int) -> None:
    """Fills the caches of engines and connections; with other queries than those measured."""
    with Client(server) as client:
        for query in islice(corpus.queries(), count):
            client.search(f"warm {query}")


def latencies(server: Server, corpus: Corpus, count: int, step: Step) -> dict[str, list[Timed]]:
    """Each query by every tier alone and by all of them, in turn: a noisy moment hits them all alike."""
    weights: dict[str, dict[str, float] | None] = {
        tier: {other: float(other == tier) for other in TIERS} for tier in TIERS
    }
    weights[FUSED] = None
    taken: dict[str, list[Timed]] = {kind: [] for kind in weights}
    with Client(server) as client:
        for query in islice(corpus.queries(), count):
            for kind, chosen in weights.items():
                taken[kind].append(client.search(query, chosen))
            step(1)
    return taken


@dataclass(frozen=True, slots=True)
class Throughput:
    """What several clients got out of it together."""

    clients: int
    searches_per_s: float
    searches: list[Timed]


def throughput(server: Server, corpus: Corpus, count: int, clients: int, step: Step) -> Throughput:
    """`count` fused searches by clients that each ask as soon as they are answered."""
    queries = [f"more {query}" for query in islice(corpus.queries(), count)]

    def ask(some: Sequence[str]) -> list[Timed]:
        taken = []
        with Client(server) as client:
            for query in some:
                taken.append(client.search(query))
                step(1)
        return taken

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        parts = list(threads.map(ask, [queries[first::clients] for first in range(clients)]))
    seconds = time.perf_counter() - started
    return Throughput(clients, count / seconds, [each for part in parts for each in part])
