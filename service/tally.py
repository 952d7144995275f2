"""What a search counts as: once for Prometheus, and once in its tenant's sample of the minute.

Hits are counted after fusion, on what was returned, once a contributing tier. A sample is what this process counted
for one tenant in one minute, so far: saving it twice changes nothing, and it is kept until it has been saved.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from service import logs, metrics
from service.model import SearchResult, Status, TierAnswer

log = logging.getLogger(__name__)

# Upper bounds in ms of what a search may take; a sample counts the searches between one and the next.
BOUNDS_MS = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000, 3000, 5000, 10_000)
OUTCOMES = ("full", "degraded", "failed")

Counts = Mapping[str, float]
Sample = defaultdict[str, float]
Moment = tuple[str, int]  # a tenant, and a minute since 1970


class Tally:
    """Counts every search of one process."""

    def __init__(self, clock: Callable[[], float] = time.time, slow_ms: float = 0) -> None:
        self._clock = clock
        self._slow_ms = slow_ms
        self._minute = 0
        self._samples: dict[Moment, Sample] = {}
        self._unsaved: set[Moment] = set()

    def asked(self, tenant: str, answers: Iterable[TierAnswer]) -> None:
        """What became of the tiers of one search, be it answered in the end or not."""
        sample = self._sample(tenant)
        for answer in answers:
            metrics.TIER_CANDIDATES.labels(answer.tier).inc(len(answer.hits))
            sample[f"tiers.{answer.tier}.{answer.status}"] += 1
            sample[f"tiers.{answer.tier}.ms"] += answer.took_ms
            sample[f"tiers.{answer.tier}.candidates"] += len(answer.hits)

    def answered(self, tenant: str, result: SearchResult) -> None:
        if 0 < self._slow_ms < result.took_ms:
            log.warning("a search took %.0f ms", result.took_ms, extra={"braid": {"search": logs.explanation(result)}})
        sample = self._sample(tenant)
        label = metrics.tenant_label(tenant)
        self._outcome(sample, label, "degraded" if result.degraded else "full", result.took_ms)
        metrics.SEARCH_TIERS.observe(sum(a.status is not Status.SKIPPED for a in result.answers.values()))
        metrics.SEARCH_NAMESPACES.observe(len(result.namespaces))
        if not result.results:
            metrics.ZERO_RESULTS.labels(label).inc()
            sample["searches.empty"] += 1
        found_by = [tuple(found.ranked.tiers) for found in result.results]
        for tiers, count in Counter(found_by).items():
            metrics.RESULTS.labels("+".join(sorted(tiers))).inc(count)
        for tier, hits in Counter(tier for tiers in found_by for tier in tiers).items():
            metrics.TIER_HITS.labels(label, tier).inc(hits)
            sample[f"tiers.{tier}.hits"] += hits
        for tier, unique in Counter(tiers[0] for tiers in found_by if len(tiers) == 1).items():
            metrics.TIER_UNIQUE_HITS.labels(label, tier).inc(unique)
            sample[f"tiers.{tier}.unique"] += unique

    def failed(self, tenant: str, took_ms: float) -> None:
        self._outcome(self._sample(tenant), metrics.tenant_label(tenant), "failed", took_ms)

    def _outcome(self, sample: Sample, label: str, outcome: str, took_ms: float) -> None:
        metrics.SEARCHES.labels(label, outcome).inc()
        metrics.SEARCH_SECONDS.observe(took_ms / 1000)
        sample[f"searches.{outcome}"] += 1
        sample["ms"] += took_ms
        sample[f"took.{bisect_left(BOUNDS_MS, took_ms)}"] += 1

    def _sample(self, tenant: str) -> Sample:
        # Never back in time: a minute that was saved and forgotten must not begin anew.
        self._minute = max(self._minute, int(self._clock()) // 60)
        moment = tenant, self._minute
        self._unsaved.add(moment)
        return self._samples.setdefault(moment, defaultdict(float))

    def unsaved(self, tenant: str | None = None) -> dict[Moment, Counts]:
        """The samples that have grown since they were saved, as they are now."""
        wanted = [moment for moment in self._unsaved if tenant in (None, moment[0])]
        return {moment: dict(self._samples[moment]) for moment in wanted}

    def saved(self, samples: Mapping[Moment, Counts]) -> None:
        """What has grown in the meantime stays unsaved; a minute that is over and saved is forgotten."""
        for moment, counts in samples.items():
            if self._samples.get(moment) == counts:
                self._unsaved.discard(moment)
        over = int(self._clock()) // 60 - 1
        for moment in [m for m in self._samples if m[1] < over and m not in self._unsaved]:
            del self._samples[moment]
