"""The guard: asks one tier under a deadline. The only place that knows about lateness and degradation."""

from __future__ import annotations

import asyncio
import logging
import time

from service import metrics
from service.errors import StoreUnavailable, TierInvalid, TierUnavailable, outline
from service.model import Query, Status, TierAnswer
from service.ranking.normalise import finite
from service.tiers import Tier

log = logging.getLogger(__name__)


async def ask(tier: Tier, query: Query, limit: int, timeout_ms: int) -> TierAnswer:
    """The tier's answer, or why there is none. Raises only when PostgreSQL itself is gone."""
    started = time.perf_counter()
    answer = await _attempt(tier, query, limit, timeout_ms)
    seconds = time.perf_counter() - started
    metrics.TIER_REQUESTS.labels(tier.name, answer.status.value).inc()
    metrics.TIER_SECONDS.labels(tier.name).observe(seconds)
    return TierAnswer(tier.name, answer.status, answer.hits, seconds * 1000, answer.reason, answer.dropped)


async def _attempt(tier: Tier, query: Query, limit: int, timeout_ms: int) -> TierAnswer:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            found = await tier.search(query, limit, timeout_ms)
    except TimeoutError:
        return TierAnswer(tier.name, Status.TIMEOUT, reason=f"no answer in {timeout_ms} ms")
    except StoreUnavailable:
        raise
    except TierUnavailable as error:
        return TierAnswer(tier.name, Status.UNAVAILABLE, reason=str(error))
    except TierInvalid as error:
        return TierAnswer(tier.name, Status.INVALID, reason=str(error))
    except Exception as error:  # noqa: BLE001 - one tier never fails the others
        log.error("the %s tier failed in a way nobody foresaw: %s", tier.name, outline(error))  # noqa: TRY400
        return TierAnswer(tier.name, Status.INVALID, reason="the tier failed unexpectedly")
    hits, dropped = finite(found)
    metrics.TIER_DROPPED.labels(tier.name).inc(dropped)
    return TierAnswer(tier.name, Status.OK if hits else Status.EMPTY, tuple(hits), dropped=dropped)
