"""The second stage: a reranker reads the best hits together with the query. What it says moves them among themselves.

Its scores p, from 0 to 1, share out the range that the fused scores of these hits had, from `low` to `high`:

    score = (1 - weight) * fused + weight * (low + p * (high - low))

so nobody falls behind a hit that was not read. A reranker that fails or is late leaves the order as it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from service import metrics
from service.errors import TierInvalid, TierUnavailable, outline
from service.model import Document, Hit, Query, Status, TierAnswer
from service.ranking.woven import Column, Ranking
from service.stores.documents import TenantDocuments
from service.stores.reranker import Reranker

log = logging.getLogger(__name__)


async def reranked(
    reranker: Reranker, documents: TenantDocuments, ranking: Ranking, query: Query, timeout_ms: float
) -> tuple[Ranking, TierAnswer]:
    """The ranking as the reranker would have it, and what became of the reranker."""
    started = time.perf_counter()
    options = query.ranking.rerank
    top = ranking.ids[: options.top]
    known = await documents.fetch(top, query.namespaces)
    read = [known[id] for id in top if id in known]
    answer = await _asked(reranker, query, read, timeout_ms)
    took = time.perf_counter() - started
    metrics.RERANKS.labels(answer.status.value).inc()
    metrics.RERANK_SECONDS.observe(took)
    answer = TierAnswer(answer.tier, answer.status, answer.hits, took * 1000, answer.reason)
    if answer.status is not Status.OK:
        return ranking, answer
    scores = {hit.id: hit.score for hit in answer.hits}
    return moved(ranking, scores, reranker.weight if options.weight is None else options.weight), answer


def moved(ranking: Ranking, scores: dict[str, float], weight: float) -> Ranking:
    """The ranking with what was read in the order of the blend; what ties is told apart by the reranker alone."""
    fused = dict(zip(ranking.base, ranking.scores, strict=True))
    high, low = max(fused[id] for id in scores), min(fused[id] for id in scores)
    said = [scores.get(id) for id in ranking.base]
    column = Column(
        "rerank",
        [1.0 if p is None else 1 - weight for p in said],
        [0.0 if p is None else weight * (low + p * (high - low)) for p in said],
        {
            name: [None if p is None else value for p in said]
            for name, value in (("weight", weight), ("low", low), ("high", high))
        }
        | {"reranker": said},
    )
    after = ranking.adjusted(column)
    if high > low:
        return after
    first = sorted(scores, key=scores.__getitem__, reverse=True)
    return after.only([*first, *(id for id in after.ids if id not in scores)])


async def _asked(reranker: Reranker, query: Query, read: Sequence[Document], timeout_ms: float) -> TierAnswer:
    if not read or not query.text.strip():
        return TierAnswer(reranker.name, Status.SKIPPED, reason="there is nothing to read")
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            scores = await reranker.score(query.text, [f"{each.title}\n{each.content}" for each in read])
    except TimeoutError:
        return TierAnswer(reranker.name, Status.TIMEOUT, reason=f"no answer in {timeout_ms:.0f} ms")
    except TierUnavailable as error:
        return TierAnswer(reranker.name, Status.UNAVAILABLE, reason=str(error))
    except TierInvalid as error:
        return TierAnswer(reranker.name, Status.INVALID, reason=str(error))
    except Exception as error:  # noqa: BLE001 - a second stage never fails the first
        log.error("the reranker failed in a way nobody foresaw: %s", outline(error))  # noqa: TRY400
        return TierAnswer(reranker.name, Status.INVALID, reason="the reranker failed unexpectedly")
    hits = tuple(Hit(each.id, score) for each, score in zip(read, scores, strict=True))
    return TierAnswer(reranker.name, Status.OK, hits)
