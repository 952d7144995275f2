"""How good the rankings are on the collections beside the checkout, next to the bm25s library's on the same texts.

bm25s gets title and text as one, English stop words and stemming, and the whole query. It is asked twice, with its own
parameters (k1 1.5, b 0.75) and with those most engines use (k1 1.2): keyword search is held to the better of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from Stemmer import Stemmer

from bench.report import grid
from bench.server import BenchError
from service.evaluation.client import Bar, Client
from service.evaluation.collection import Collection, read_collection
from service.evaluation.measures import DEPTH, quality
from service.evaluation.run import FUSED, Report, evaluate
from service.evaluation.throwaway import throw_away

# Each with the metadata field that its queries stay within, if they do: a memory is of one conversation.
WITHIN = {"scifact": None, "cranfield": None, "cacm": None, "hotpotqa": None, "locomo": "conversation", "cosqa": None}
COLLECTIONS = tuple(WITHIN)
LIMIT = 100
K1 = {"bm25s": 1.5, "bm25s, k1 1.2": 1.2}
GOAL_ABOVE = 5 / 6
GOAL_BELOW = 0.005
TIERS = ("keyword", "vector", "graph")


@dataclass(frozen=True, slots=True)
class Measured:
    """One collection's figures: nDCG@10 of bm25s by its parameters, and everything `braid eval` reports."""

    name: str
    bm25s: dict[str, float]
    report: Report

    def ndcg(self, way: str) -> float:
        return self.report.ways[way].quality.ndcg

    @property
    def alone(self) -> dict[str, float]:
        return {tier: self.ndcg(f"{tier} alone") for tier in TIERS}

    @property
    def to_best(self) -> float:
        """How far the fused ranking is above the best single tier's."""
        return self.ndcg(FUSED) - max(self.alone.values())

    @property
    def keyword_met(self) -> bool:
        return self.alone["keyword"] >= max(self.bm25s.values())

    def body(self) -> dict[str, Any]:
        return {"bm25s": self.bm25s, **self.report.body()}


def measure(names: Sequence[str], datasets: Path, queries: int | None, bar: Bar) -> list[Measured]:
    """Each collection that is there, in a tenant of its own of one Braid."""
    unknown = set(names) - set(COLLECTIONS)
    if unknown:
        raise BenchError(f"unknown collection {', '.join(sorted(unknown))}: there are {', '.join(COLLECTIONS)}")
    found = [name for name in names if (datasets / name / "corpus.jsonl").exists()]
    if not found:
        raise BenchError(f"none of {', '.join(names)} is in {datasets}")
    with throw_away() as braid:
        return [_measure(braid.url, braid.key(name), datasets / name, queries, bar) for name in found]


def _measure(url: str, key: str, folder: Path, queries: int | None, bar: Bar) -> Measured:
    def named(label: str, total: int) -> Any:
        return bar(f"{folder.name}: {label.lower()}", total)

    collection = read_collection(folder, within=WITHIN[folder.name], queries=queries)
    beside = {name: bm25s_ndcg(collection, k1) for name, k1 in K1.items()}
    with Client(url, key) as client:
        return Measured(folder.name, beside, evaluate(client, collection, named, limit=LIMIT, knock_out=False))


def bm25s_ndcg(collection: Collection, k1: float) -> float:
    """nDCG@10 of the library on the same documents and queries, each query within its namespace."""
    texts = [f"{document['title']} {document['content']}" for document in collection.documents]
    index = bm25s.BM25(k1=k1)
    index.index(_tokens(texts), show_progress=False)
    return quality(collection.judgements, dict(_bm25s_rankings(index, collection)), LIMIT).ndcg


def _bm25s_rankings(index: bm25s.BM25, collection: Collection) -> Iterator[tuple[str, list[str]]]:
    ids = [document["id"] for document in collection.documents]
    places = np.array([document["namespace"] for document in collection.documents])
    for question, words in zip(collection.questions, _tokens([q.text for q in collection.questions]), strict=True):
        scores = index.get_scores(words) * (places == question.namespace) if words else np.zeros(len(ids))
        best = np.argsort(-scores, kind="stable")[:LIMIT]
        yield question.id, [ids[number] for number in best if scores[number] > 0]


def _tokens(texts: Sequence[str]) -> list[list[str]]:
    tokens: list[list[str]] = bm25s.tokenize(
        list(texts), stopwords="en", stemmer=Stemmer("english"), return_ids=False, show_progress=False
    )
    return tokens


def table(measured: Sequence[Measured]) -> str:
    """nDCG@10 in points, a row a collection, and the goals in the last one."""
    heading = ["collection", "documents", "queries", *K1, "keyword", "", "vector", "graph", FUSED, "to best tier", ""]
    return grid([heading, *map(_row, measured), _goals(measured)])


def _row(one: Measured) -> list[str]:
    figures = [*one.bm25s.values(), one.alone["keyword"]]
    rest = [one.alone["vector"], one.alone["graph"], one.ndcg(FUSED)]
    return [
        one.name,
        f"{one.report.documents:,}",
        f"{one.report.queries:,}",
        *(f"{100 * figure:.1f}" for figure in figures),
        "met" if one.keyword_met else "not met",
        *(f"{100 * figure:.1f}" for figure in rest),
        f"{100 * one.to_best:+.1f}",
        "above" if one.to_best > 0 else "close" if one.to_best >= -GOAL_BELOW else "below",
    ]


def _goals(measured: Sequence[Measured]) -> list[str]:
    """Keyword at least bm25s everywhere; fused above the best tier on five of six, and nowhere clearly below it."""
    keyword = sum(one.keyword_met for one in measured)
    above = sum(one.to_best > 0 for one in measured)
    fused = above >= GOAL_ABOVE * len(measured) and all(one.to_best >= -GOAL_BELOW for one in measured)
    return [
        f"goals, nDCG@{DEPTH} x 100",
        *[""] * (len(K1) + 2),
        ">= bm25s on all",
        f"{keyword} of {len(measured)}",
        *[""] * 3,
        f"> 0 on 5 of 6, none < {-100 * GOAL_BELOW:g}",
        f"{'met' if fused else 'not met'}, {above} above",
    ]
