"""Ranking on its own: what weaving three answers costs, and shaping them, without any engine or network."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from statistics import median

from service.model import TIERS, Facts, Hit, Query, RankingOptions, Reach, ShapingOptions, Status, TierAnswer
from service.ranking.fusion import fuse
from service.ranking.plan import CANDIDATES
from service.ranking.shaping import shape

PAGE = 20
"""What a search for 10 results hydrates, and so explains."""
_WEIGHTS = {"keyword": 0.65, "vector": 0.25, "graph": 0.1}
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_SHAPED = ShapingOptions(blend=0.3, confidence=0.5, priority=0.5, recency=0.5, access=0.5, type_boost={"note": 1.2})


def fusing_ms(hits: int = CANDIDATES, times: int = 500) -> list[float]:
    """The times of fusing as many hits a tier as a search asks for, a third of them shared, and reading a page."""
    answers = _answers(hits, random.Random(1))
    taken: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        fuse(answers, _WEIGHTS)[:PAGE]
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def shaping_ms(hits: int = 300, times: int = 500) -> list[float]:
    """The times of fusing three lists of 300 and shaping them with six signals at once."""
    dice = random.Random(1)
    answers = _answers(hits, dice)
    facts = {hit.id: _facts(dice) for answer in answers for hit in answer.hits}
    query = Query(Reach("t"), "pump bearing", None, ranking=RankingOptions(shaping=_SHAPED))
    taken: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        shape(fuse(answers, _WEIGHTS), facts, query, _NOW)[:PAGE]
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def _facts(dice: random.Random) -> Facts:
    created = _NOW - timedelta(days=dice.uniform(0, 900))
    return Facts("n", "A pump", dice.randrange(5000), "note", dice.random(), dice.randint(1, 4), created, None, None, 3)


def _answers(hits: int, dice: random.Random) -> list[TierAnswer]:
    def found() -> tuple[Hit, ...]:
        ids = dice.sample(range(hits * 3), hits)
        scores = sorted((dice.random() for _ in ids), reverse=True)
        return tuple(Hit(f"doc-{number:06d}", score) for number, score in zip(ids, scores, strict=True))

    return [TierAnswer(tier, Status.OK, found()) for tier in TIERS]


if __name__ == "__main__":
    print(f"fusing 3 x {CANDIDATES}: {median(fusing_ms()):.2f} ms p50")
    print(f"fusing and shaping 3 x 300: {median(shaping_ms()):.2f} ms p50, goal 1 ms")
