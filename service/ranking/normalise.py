"""One tier's hits made comparable: finite, one a document, in the tier's own order, with scores from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from service.model import Hit

EQUAL_WITHIN = 1e-9
FLOOR = 0.001


class Normalised(NamedTuple):
    """The scores of one list from 0 to 1, and the rule that made each: `minmax`, `all_equal` or `floor`.

    Two columns, not one object a score: most candidates are ranked and never shown.
    """

    values: list[float]
    rules: list[str]


def finite(hits: Iterable[Hit]) -> tuple[tuple[Hit, ...], int]:
    """The hits whose score is a number, and how many were not."""
    given = tuple(hits)
    kept = tuple([hit for hit in given if math.isfinite(hit.score)])
    return kept, len(given) - len(kept)


def in_order(hits: Iterable[Hit]) -> list[Hit]:
    """The best hit of each document, by falling score and then by id, whatever order they came in."""
    given = list(hits)
    best = {hit.id: hit for hit in given}
    if len(best) < len(given):
        best = {hit.id: hit for hit in sorted(given, key=_preference, reverse=True)}
    return sorted(best.values(), key=lambda hit: (-hit.score, hit.id))


def minmax(scores: Sequence[float]) -> Normalised:
    """`(s - min) / (max - min)`; 1 for all where all are equal; never below a floor, as last is not absent.

    The scores must be finite.
    """
    if not scores:
        return Normalised([], [])
    low, high = min(scores), max(scores)
    if high - low < EQUAL_WITHIN:
        return Normalised([1.0] * len(scores), ["all_equal"] * len(scores))
    # Halves, where the spread itself would overflow.
    scale = 1.0 if math.isfinite(high - low) else 0.5
    base, spread = low * scale, high * scale - low * scale
    placed = [(score * scale - base) / spread for score in scores]
    return Normalised(
        [value if value >= FLOOR else FLOOR for value in placed],  # noqa: FURB136 - `max` takes three times as long
        ["minmax" if value >= FLOOR else "floor" for value in placed],
    )


def _preference(hit: Hit) -> tuple[float, int, list[tuple[str, str, float]]]:
    """Which of a document's hits stands for it: the best score, then the shortest walk, then the first by name."""
    return -hit.score, len(hit.path), [(step.via, step.to, step.strength) for step in hit.path]
