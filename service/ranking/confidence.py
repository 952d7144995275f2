"""Confidence: how good a result is in itself, not only beside the others of its page.

The fused score compares: somebody is always first, however bad. Confidence is the best absolute evidence there is for a
document: its raw cosine, its BM25 relative to the most that any document could reach for this query, or a reranker's
probability. Being a maximum it can only fall when a tier is missing: a degraded answer is never badged higher.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.ranking.woven import Ranking

HIGH, MED, LOW = "HIGH", "MED", "LOW"
AT_LEAST = {HIGH: 0.7, MED: 0.45}


def confidences(ranking: Ranking, most: float | None, judged: Mapping[str, float] | None = None) -> dict[str, float]:
    """Each candidate's confidence, by id. `most` is the highest BM25 the query allows, None where it is not known;
    `judged` are a reranker's probabilities.
    """
    cosines, words, judged = ranking.raw("vector"), ranking.raw("keyword") if most else {}, judged or {}
    return {
        id_: max(cosines.get(id_, 0.0), min(1.0, words.get(id_, 0.0) / (most or 1.0)), judged.get(id_, 0.0))
        for id_ in ranking.ids
    }


def badge(confidence: float) -> str:
    return next((name for name, least in AT_LEAST.items() if confidence >= least), LOW)


def least_confidence(*, strict: bool, min_confidence: float) -> float:
    """What a result needs: a strict search leaves out whatever would be LOW."""
    return max(min_confidence, AT_LEAST[MED] if strict else 0.0)
