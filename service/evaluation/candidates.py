"""What every tier finds for every query, asked for once, so that any number of ways to fuse it can be compared.

Fusing is what the service itself does: the same pure functions, on the hits it would fuse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from service.errors import SetupError
from service.evaluation.client import CLIENTS, Bar, Client
from service.evaluation.collection import Judgements, Question
from service.evaluation.measures import DEPTH
from service.model import TIERS, FusionOptions, TierAnswer
from service.ranking.fusion import fuse
from service.ranking.plan import CANDIDATES

PATIENT_MS = 10_000
Found = Mapping[str, Sequence[TierAnswer]]
"""The answers of all tiers, by query."""

DEEP = {"BRAID_MAX_RESULTS": str(CANDIDATES)}
"""What a Braid needs so that a tier can be asked for as many hits as a search fuses."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to fuse."""

    options: FusionOptions
    weights: Mapping[str, float]

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.options.method, self.options.normaliser)))


def gather(client: Client, questions: Sequence[Question], bar: Bar, *, limit: int = CANDIDATES) -> Found:
    """Asks every tier every question."""
    step = bar("Asking", len(questions) * len(TIERS))

    def ask(question: Question) -> tuple[str, list[TierAnswer]]:
        answers = [client.hits(question, tier, limit=limit, timeout_ms=PATIENT_MS) for tier in TIERS]
        step(len(TIERS))
        return question.id, answers

    with ThreadPoolExecutor(CLIENTS) as threads:
        found = dict(threads.map(ask, questions))
    late = sum(not answer.status.answered for answers in found.values() for answer in answers)
    if late:
        raise SetupError(f"{late} questions were not answered by a tier: nothing can be compared")
    return found


def mean_ndcg(way: Way, found: Found, judgements: Judgements) -> float:
    """nDCG@10 of this way to fuse, over the queries that have judgements."""
    return math.fsum(ndcg(_top(way, found[query]), right) for query, right in judgements.items()) / len(judgements)


def ndcg(ids: Sequence[str], right: Mapping[str, int]) -> float:
    """As trec_eval computes it: the judgement over log2(place + 1), to the best that could be had."""
    gains = (max(right.get(id_, 0), 0) for id_ in ids[:DEPTH])
    best = sorted((score for score in right.values() if score > 0), reverse=True)[:DEPTH]
    return _discounted(gains) / _discounted(best)


def _discounted(gains: Iterable[int]) -> float:
    return math.fsum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1))


def _top(way: Way, answers: Sequence[TierAnswer]) -> list[str]:
    return fuse(answers, way.weights, way.options).ids[:DEPTH]
