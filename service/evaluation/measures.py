"""How good rankings are, by the measures of the field: nDCG, recall and reciprocal rank.

ir-measures computes them, with trec_eval inside: nobody has to trust our arithmetic. It breaks ties in its own way, so
it is given places instead of scores: what is measured is the order that the caller saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.errors import SetupError
from service.evaluation.collection import Judgements

DEPTH = 10


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over all queries that have judgements; one that found nothing counts as 0."""

    ndcg: float
    recall: float
    mrr: float


def library() -> Any:
    """ir-measures, or what to install: it brings SciPy, which nothing else here needs."""
    try:
        import ir_measures  # noqa: PLC0415 - an extra
    except ImportError:
        raise SetupError("the measures are an extra: pip install 'braid-search[eval]'") from None
    return ir_measures


def quality(judgements: Judgements, rankings: Mapping[str, Sequence[str]], limit: int) -> Quality:
    """nDCG@10, recall at `limit` and MRR@10 of rankings, each a list of document ids, best first."""
    measures = library()
    ndcg, recall, mrr = measures.nDCG @ DEPTH, measures.R @ limit, measures.RR @ DEPTH
    run = {query: {id: float(-place) for place, id in enumerate(ids)} for query, ids in rankings.items()}
    found = measures.calc_aggregate([ndcg, recall, mrr], judgements, run)
    return Quality(found[ndcg], found[recall], found[mrr])
