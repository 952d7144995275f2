"""Every method with every normaliser it takes: what a property of fusion is tested over."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from service.model import FusionOptions, Ranked, TierAnswer
from service.ranking.fusion import FUSIONS, fuse
from service.ranking.normalise import NORMALISERS
from service.ranking.woven import Ranking

Fusion: TypeAlias = Callable[[Sequence[TierAnswer], Mapping[str, float]], Ranking]


def _choices(method: str) -> list[str | None]:
    return list(NORMALISERS) if FUSIONS[method].takes_normaliser else [None]


OPTIONS = {
    f"{method}-{normaliser or 'own'}": FusionOptions(method, normaliser)
    for method in FUSIONS
    for normaliser in _choices(method)
}
EVERY: Mapping[str, Fusion] = {name: partial(fuse, options=options) for name, options in OPTIONS.items()}


def recomputed(ranked: Ranked) -> float:
    """The score from its explanation alone."""
    score = math.fsum(share.weight * share.share for share in ranked.tiers.values())
    for step in ranked.adjustments:
        score = score * step.multiply + step.add
    return score
