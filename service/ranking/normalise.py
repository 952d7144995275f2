"""One tier's hits made comparable: finite, one a document, in the tier's own order, with scores on one scale.

A normaliser is a pure function from one tier's finite scores, best first, and that tier's bounds to a `Normalised`;
`NORMALISERS` names them all. A last place must differ from absent, which counts 0: nothing gets less than a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import gt
from typing import NamedTuple, TypeAlias

from service.model import Hit

EQUAL_WITHIN = 1e-9
FLOOR = 0.001
CEILING = 1e12
"""As far as raw scores count: beyond it a weight of a million could overflow."""

Bounds: TypeAlias = tuple[float, float]

BOUNDS: Mapping[str, Bounds] = {"keyword": (0.0, 20.0), "vector": (0.0, 1.0), "graph": (0.0, 1.0)}
"""The lowest and highest score of each tier, where the caller names none. BM25 has no highest: 20 is a good match."""


class Normalised(NamedTuple):
    """The scores of one list on the common scale, and the rule that made each.

    Two columns, not one object a score: most candidates are ranked and never shown.
    """

    values: list[float]
    rules: list[str]


def finite(hits: Iterable[Hit]) -> tuple[tuple[Hit, ...], int]:
    """The hits whose score is a number, and how many were not."""
    given = tuple(hits)
    if math.isfinite(sum([hit.score for hit in given])):  # almost always, and quicker than to look at each
        return given, 0
    kept = tuple([hit for hit in given if math.isfinite(hit.score)])
    return kept, len(given) - len(kept)


def in_order(hits: Iterable[Hit]) -> list[Hit]:
    """The best hit of each document, by falling score and then by id, whatever order they came in."""
    given = list(hits)
    best = {hit.id: hit for hit in given}
    scores = [hit.score for hit in given]
    if len(best) == len(given) and all(map(gt, scores, scores[1:])):  # as engines answer
        return given
    if len(best) < len(given):
        best = {hit.id: hit for hit in sorted(given, key=_preference, reverse=True)}
    return sorted(best.values(), key=lambda hit: (-hit.score, hit.id))


def minmax(scores: Sequence[float], bounds: Bounds = (0.0, 1.0)) -> Normalised:
    """`(s - min) / (max - min)` within the list; 1 for all where all are equal. The bounds play no part.

    Source: Lee, "Analyses of Multiple Evidence Combination" (SIGIR 1997).
    """
    return _between(scores, min(scores, default=0.0), max(scores, default=0.0), "minmax")


def theoretical(scores: Sequence[float], bounds: Bounds = (0.0, 1.0)) -> Normalised:
    """`(s - lowest) / (max - lowest)`, where `lowest` is the least that the tier's scores can be, not the least found.

    The theoretical min-max of TM2C2: Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval"
    (ACM TOIS 2023). BM25 and the walk cannot be below 0; cosine, which we clamp to 0, neither.
    """
    return _between(scores, bounds[0], max(scores, default=0.0), "theoretical")


def fixed(scores: Sequence[float], bounds: Bounds = (0.0, 1.0)) -> Normalised:
    """`(s - lowest) / (highest - lowest)` with the tier's own bounds, whatever was found; at most 1."""
    return _between(scores, *bounds, "fixed")


def zscore(scores: Sequence[float], bounds: Bounds = (0.0, 1.0)) -> Normalised:
    """`(s - mean) / deviation + 2`: absent stands two standard deviations below the mean. The bounds play no part.

    The 2MUV of Montague and Aslam, "Relevance Score Normalization for Metasearch" (CIKM 2001).
    """
    mean, deviation, unit = _spread(scores)
    if deviation == 0:
        return Normalised([2.0] * len(scores), ["all_equal"] * len(scores))
    return _floored([(score / unit - mean) / deviation + 2 for score in scores], "zscore")


def dbsf(scores: Sequence[float], bounds: Bounds = (0.0, 1.0)) -> Normalised:
    """`(s - low) / (high - low)` with `low, high = mean -+ 3 deviations`, at most 1; 1/2 for all where all are equal.

    Distribution-based score fusion: Mazzeschi (2023), as in Qdrant. The bounds play no part.
    """
    mean, deviation, unit = _spread(scores)
    if deviation == 0:
        return Normalised([0.5] * len(scores), ["all_equal"] * len(scores))
    low, width = mean - 3 * deviation, 6 * deviation
    return _floored([(score / unit - low) / width for score in scores], "dbsf", 1.0)


def l2(scores: Sequence[float], bounds: Bounds = (0.0, 1.0)) -> Normalised:
    """`s / sqrt(sum of squares)`: the list as a vector of length 1. The bounds play no part."""
    length = math.hypot(*scores)
    if length == 0:
        return Normalised([1 / math.sqrt(len(scores))] * len(scores) if scores else [], ["all_equal"] * len(scores))
    scale = 1.0 if math.isfinite(length) else 2.0**-30  # the squares of many enormous scores
    length = math.hypot(*[score * scale for score in scores])
    return _floored([score * scale / length for score in scores], "l2")


def none(scores: Sequence[float], bounds: Bounds = (0.0, 1.0)) -> Normalised:
    """The engine's own score. What is not positive still differs from absent. The bounds play no part."""
    return _floored(scores, "none", CEILING, floor=1e-9)


Normaliser: TypeAlias = Callable[[Sequence[float], Bounds], Normalised]

NORMALISERS: Mapping[str, Normaliser] = {
    "minmax": minmax,
    "theoretical": theoretical,
    "fixed": fixed,
    "zscore": zscore,
    "dbsf": dbsf,
    "l2": l2,
    "none": none,
}


def _between(scores: Sequence[float], low: float, high: float, rule: str) -> Normalised:
    if high - low < EQUAL_WITHIN:
        return Normalised([1.0] * len(scores), ["all_equal"] * len(scores))
    # Halves, where the spread itself would overflow.
    scale = 1.0 if math.isfinite(high - low) else 0.5
    base, spread = low * scale, high * scale - low * scale
    return _floored([(score * scale - base) / spread for score in scores], rule, 1.0)


def _spread(scores: Sequence[float]) -> tuple[float, float, float]:
    """The mean and the standard deviation in units of the largest score, so that no square overflows; and that unit.

    A deviation of 0 where there is no spread to speak of.
    """
    unit = max(map(abs, scores), default=0.0)
    if not unit or max(scores) - min(scores) < EQUAL_WITHIN:
        return 0.0, 0.0, 1.0
    parts = [score / unit for score in scores]
    mean = math.fsum(parts) / len(parts)
    return mean, math.sqrt(math.fsum((part - mean) ** 2 for part in parts) / len(parts)), unit


def _floored(placed: Sequence[float], rule: str, ceiling: float = math.inf, floor: float = FLOOR) -> Normalised:
    if placed and max(placed) > ceiling:
        return Normalised(
            [min(max(value, floor), ceiling) for value in placed],
            ["floor" if value < floor else rule if value <= ceiling else "ceiling" for value in placed],
        )
    return Normalised(
        [value if value >= floor else floor for value in placed],  # noqa: FURB136 - `max` takes three times as long
        [rule if value >= floor else "floor" for value in placed],
    )


def _preference(hit: Hit) -> tuple[float, int, list[tuple[str, str, float]]]:
    """Which of a document's hits stands for it: the best score, then the shortest walk, then the first by name."""
    return -hit.score, len(hit.path), [(step.via, step.to, step.strength) for step in hit.path]
