"""Fusion on its own: what weaving three answers costs, without any engine or network."""

from __future__ import annotations

import random
import time

from service.model import TIERS, Hit, Status, TierAnswer
from service.ranking.fusion import fuse
from service.ranking.plan import CANDIDATES

PAGE = 20
"""What a search for 10 results hydrates, and so explains."""
_WEIGHTS = {"keyword": 0.65, "vector": 0.25, "graph": 0.1}


def fusing_ms(hits: int = CANDIDATES, times: int = 500) -> list[float]:
    """The times of fusing as many hits a tier as a search asks for, a third of them shared, and reading a page."""
    answers = _answers(hits, random.Random(1))
    taken: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        fuse(answers, _WEIGHTS)[:PAGE]
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def _answers(hits: int, dice: random.Random) -> list[TierAnswer]:
    def found() -> tuple[Hit, ...]:
        return tuple(Hit(f"doc-{number:06d}", dice.random()) for number in dice.sample(range(hits * 3), hits))

    return [TierAnswer(tier, Status.OK, found()) for tier in TIERS]
