"""The guard: asks one tier under a deadline and behind a breaker. The only place that knows about degradation."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from service import metrics, tracing
from service.errors import StoreUnavailable, TierInvalid, TierUnavailable, outline
from service.model import Hit, Query, Status, TierAnswer
from service.tiers import Tier
from service.tiers.breaker import Breaker, BreakerPolicy, Circuit, Ticket
from service.tiers.deadline import in_time
from service.tiers.soundness import sound

log = logging.getLogger(__name__)

_LEVELS = {Circuit.CLOSED: 0, Circuit.HALF_OPEN: 1, Circuit.OPEN: 2}


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """What a tier may take: a share of a search's time, and so many questions at once.

    A tier that is late counts against it where it had `patience_ms` at least: a caller in a hurry proves nothing.
    """

    share: float = 0.8
    concurrency: int = 16
    patience_ms: float = 400
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


class Guard:
    """One tier, kept from harming a search. Holds the tier's breaker, and tries a tier that is down by itself."""

    def __init__(self, tier: Tier, policy: GuardPolicy = GuardPolicy()) -> None:
        self.name = tier.name
        self.tier = tier
        self._policy = policy
        self._breaker = Breaker(policy.breaker, time.monotonic)
        self._slots = asyncio.Semaphore(policy.concurrency)
        self._latest: tuple[Query, int] | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._show()

    @property
    def circuit(self) -> Circuit:
        return self._breaker.circuit

    async def ask(self, query: Query, limit: int, left_ms: float) -> TierAnswer:
        """The tier's answer, or why there is none. Raises only when PostgreSQL itself is gone."""
        started = time.perf_counter()
        with tracing.asking(self.name, query.text) as span:
            answer = await self._answer(query, limit, max(1, int(left_ms * self._policy.share)))
            span.set_attribute("braid.status", answer.status.value)
            span.set_attribute("db.response.returned_rows", len(answer.hits))
        seconds = time.perf_counter() - started
        metrics.TIER_REQUESTS.labels(self.name, answer.status.value).inc()
        metrics.TIER_SECONDS.labels(self.name).observe(seconds)
        return TierAnswer(self.name, answer.status, answer.hits, seconds * 1000, answer.reason, answer.dropped)

    async def close(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)

    async def _answer(self, query: Query, limit: int, timeout_ms: int) -> TierAnswer:
        self._latest = query, limit
        ticket = self._breaker.admit()
        if ticket is None:
            reason = f"it kept failing, and is tried again in {self._breaker.wait_s:.1f} s"
            return TierAnswer(self.name, Status.CIRCUIT_OPEN, reason=reason)
        answer = await self._attempt(query, limit, timeout_ms)
        if answer.status is not Status.TIMEOUT or timeout_ms >= self._policy.patience_ms:
            self._report(ticket, answer)
        return answer

    async def _attempt(self, query: Query, limit: int, timeout_ms: int) -> TierAnswer:
        try:
            found = await in_time(self._search(query, limit, timeout_ms), timeout_ms / 1000)
        except TimeoutError:
            return TierAnswer(self.name, Status.TIMEOUT, reason=f"no answer in {timeout_ms} ms")
        except StoreUnavailable:
            raise
        except TierUnavailable as error:
            return TierAnswer(self.name, Status.UNAVAILABLE, reason=str(error))
        except TierInvalid as error:
            return TierAnswer(self.name, Status.INVALID, reason=str(error))
        except Exception as error:  # noqa: BLE001 - one tier never fails the others
            log.error("the %s tier failed in a way nobody foresaw: %s", self.name, outline(error))  # noqa: TRY400
            return TierAnswer(self.name, Status.INVALID, reason="the tier failed unexpectedly")
        return self._checked(found, limit)

    async def _search(self, query: Query, limit: int, timeout_ms: int) -> list[Hit]:
        """Holds a slot until the work has really ended, even when nobody waits for it any more."""
        async with self._slots:
            return await self.tier.search(query, limit, timeout_ms)

    def _checked(self, found: list[Hit], limit: int) -> TierAnswer:
        """Hits without those that cannot be. A tier none of whose hits can be is not to be trusted."""
        hits, dropped = sound(found)
        metrics.TIER_DROPPED.labels(self.name).inc(dropped)
        if dropped and not hits:
            reason = f"none of its {dropped} hits has an id and a score that can be"
            return TierAnswer(self.name, Status.INVALID, reason=reason, dropped=dropped)
        return TierAnswer(self.name, Status.OK if hits else Status.EMPTY, hits[:limit], dropped=dropped)

    def _report(self, ticket: Ticket, answer: TierAnswer) -> None:
        self._breaker.report(ticket, answer.status.answered)
        if self._breaker.circuit is not Circuit.CLOSED and self._recovery is None:
            log.warning("the %s tier is not asked for now: %s", self.name, answer.reason)
            self._show()
            self._recovery = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        """Asks the latest question again, beside the searches, until the tier answers: nobody waits for a probe."""
        try:
            while self._breaker.circuit is not Circuit.CLOSED:
                await asyncio.sleep(self._breaker.wait_s)
                await self._probe()
            log.warning("the %s tier answers again", self.name)
        finally:
            self._recovery = None
            self._show()

    async def _probe(self) -> None:
        ticket = self._breaker.probe()
        if ticket is None or self._latest is None:
            return
        self._show()
        try:
            answer = await self._attempt(*self._latest, int(self._policy.breaker.probe_s * 900))
        except StoreUnavailable:
            self._breaker.report(ticket, ok=False)
        else:
            metrics.TIER_PROBES.labels(self.name, answer.status.value).inc()
            self._breaker.report(ticket, answer.status.answered)
        self._show()

    def _show(self) -> None:
        metrics.TIER_CIRCUIT.labels(self.name).set(_LEVELS[self._breaker.circuit])
