"""One evaluation: load a collection into an empty tenant, ask every query in every way, and measure the rankings.

A way is a set of weights: each tier alone, all of them fused, and the fused ranking with one tier knocked out, which is
what a degradation costs. Quality is asked for by a few clients at once; times are taken by one, over a sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import quantiles
from typing import Any

from service.errors import SetupError
from service.evaluation.client import CLIENTS, Answer, Bar, Client
from service.evaluation.collection import Collection, Question, spread
from service.evaluation.measures import DEPTH, Quality, library, quality
from service.evaluation.throwaway import throw_away, tuning

TIMED = 100
PATIENT_MS = 10_000
FUSED = "fused"
Weights = Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Latency:
    """From the request to the last byte of the answer, one client, a page of ten."""

    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Figures:
    """How good one way of searching is, and how fast."""

    quality: Quality
    latency: Latency


@dataclass(frozen=True, slots=True)
class Report:
    """What one evaluation found. `degraded` answers lacked a tier that was asked: with some, the figures mislead."""

    collection: str
    documents: int
    links: int
    queries: int
    limit: int
    weights: Mapping[str, float]
    ways: Mapping[str, Figures]
    searches: int
    degraded: int
    shortened: int

    def body(self) -> dict[str, Any]:
        """As JSON, with the measures under the names they are known by."""
        told = {name: getattr(self, name) for name in self.__slots__ if name != "ways"}
        return told | {"ways": {name: self._figures(figures) for name, figures in self.ways.items()}}

    def _figures(self, figures: Figures) -> dict[str, float]:
        quality, latency = figures.quality, figures.latency
        return {
            f"ndcg@{DEPTH}": quality.ndcg,
            f"recall@{self.limit}": quality.recall,
            f"mrr@{DEPTH}": quality.mrr,
            "p50_ms": latency.p50_ms,
            "p95_ms": latency.p95_ms,
        }


def make_ways(tiers: Sequence[str], *, knock_out: bool = True) -> dict[str, Weights]:
    """Every way to search, by name. Without a weight of its own a tier keeps its default."""
    alone: dict[str, Weights] = {f"{tier} alone": {other: float(other == tier) for other in tiers} for tier in tiers}
    without: dict[str, Weights] = {f"{FUSED} without {tier}": {tier: 0.0} for tier in tiers}
    return alone | {FUSED: None} | (without if knock_out else {})


def measured(collection: Collection, bar: Bar, *, limit: int, url: str | None, key: str | None) -> Report:
    """Evaluates the Braid at `url`, which is left as it was, or one that is started for this and thrown away."""
    library()  # missing, it should be missed before all the work
    if url is None:
        with throw_away(tuning()) as braid, Client(braid.url, braid.key("eval")) as client:
            return evaluate(client, collection, bar, limit=limit)
    if key is None:
        raise SetupError("no API key: pass --key, of a tenant without documents (braid key create makes one)")
    with Client(url, key) as client:
        client.refuse_used()
        try:
            return evaluate(client, collection, bar, limit=limit)
        finally:
            client.remove(collection, bar)


def evaluate(client: Client, collection: Collection, bar: Bar, *, limit: int = 100, knock_out: bool = True) -> Report:
    """Loads, asks and measures. The tenant must be empty, as its other documents would be found too."""
    client.load(collection, bar)
    weights = client.weights()
    ways = make_ways(list(weights), knock_out=knock_out)
    answers = _rankings(client, collection.questions, ways, limit, bar)
    latencies = _latencies(client, spread(collection.questions, TIMED), ways, bar)
    measured = {
        name: Figures(
            quality(collection.judgements, {query: answer.ids for query, answer in asked.items()}, limit),
            latencies[name],
        )
        for name, asked in answers.items()
    }
    every = [answer for asked in answers.values() for answer in asked.values()]
    return Report(
        collection=collection.name,
        documents=len(collection.documents),
        links=len(collection.links),
        queries=len(collection.questions),
        limit=limit,
        weights=weights,
        ways=measured,
        searches=len(every),
        degraded=sum(answer.degraded for answer in every),
        shortened=sum(answer.shortened for answer in answers[FUSED].values()),
    )


def _rankings(
    client: Client, questions: Sequence[Question], ways: Mapping[str, Weights], limit: int, bar: Bar
) -> dict[str, dict[str, Answer]]:
    """Every answer, by way and query. Each tier gets the time it wants: lateness is not a matter of quality."""
    step = bar("Asking", len(ways) * len(questions))

    def ask(weights: Weights, question: Question) -> tuple[str, Answer]:
        answer = client.ask(question, limit=limit, weights=weights, timeout_ms=PATIENT_MS)
        step(1)
        return question.id, answer

    with ThreadPoolExecutor(CLIENTS) as threads:
        return {name: dict(threads.map(partial(ask, weights), questions)) for name, weights in ways.items()}


def _latencies(
    client: Client, questions: Sequence[Question], ways: Mapping[str, Weights], bar: Bar
) -> dict[str, Latency]:
    """The ways take turns, query by query: a noisy moment hits them all alike."""
    step = bar("Timing", len(ways) * len(questions))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for question in questions:
        for name, weights in ways.items():
            taken[name].append(client.ask(question, limit=DEPTH, weights=weights).took_ms)
            step(1)
    return {name: latency(times) for name, times in taken.items()}


def latency(times: Sequence[float]) -> Latency:
    """The 50th and the 95th percentile."""
    if len(times) == 1:
        return Latency(times[0], times[0])
    cuts = quantiles(times, n=100, method="inclusive")
    return Latency(cuts[49], cuts[94])
