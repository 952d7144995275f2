"""One search, end to end, in stages. It reads top to bottom, and each stage gives the next one what it needs:

settle -> plan -> ask -> weigh -> fuse -> facts -> shape -> cut -> page
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from service import metrics, tracing
from service.errors import Degraded, InvalidInput, NotFound
from service.highlighting import highlighted
from service.model import Document, Facts, Found, Query, Ranked, SearchResult, Status, TierAnswer
from service.ranking.confidence import badge, confidences, least_confidence
from service.ranking.cutting import METADATA, confident, limited, of_types
from service.ranking.diversity import POOL, collapsed, diversified, text_of
from service.ranking.explain import Explanation, standing, why, why_not_asked_for
from service.ranking.fusion import fuse
from service.ranking.options import Layer, settle
from service.ranking.plan import asked_weights, effective_weights, make_plan, speaking
from service.ranking.shaping import needs_facts, shape
from service.ranking.typed import parse
from service.ranking.woven import Ranking
from service.stores.defaults import Defaults
from service.stores.documents import TenantDocuments
from service.stores.postgres import Postgres
from service.stores.words import BM25
from service.tally import Tally
from service.tiers.deadline import Budget
from service.tiers.guard import Guard

EXPLAINED = 1000
"""How far down each tier is looked at where one document is to be explained."""


class Searcher:
    """Holds what every search needs; built once."""

    def __init__(  # noqa: PLR0913, PLR0917 - built once, from everything
        self,
        postgres: Postgres,
        tiers: Sequence[Guard],
        default_weights: Mapping[str, float],
        timeout_ms: int,
        tally: Tally,
        defaults: Defaults,
    ) -> None:
        self._postgres = postgres
        self._tiers = {tier.name: tier for tier in tiers}
        self._default_weights = default_weights
        self._timeout_ms = timeout_ms
        self._tally = tally
        self.defaults = defaults

    async def search(self, query: Query) -> SearchResult:
        """The whole answer. Raises `StoreUnavailable` or `Degraded`, and counts those too."""
        started = time.perf_counter()
        try:
            result = await self._search(query)
        except InvalidInput:  # refused, and so no search
            raise
        except Exception:
            self._tally.failed(query.tenant, (time.perf_counter() - started) * 1000)
            raise
        self._tally.answered(query.tenant, result)
        return result

    def check_options(self, options: Layer) -> None:
        """Refuses what no search could use."""
        asked_weights(settle([self.defaults.service, options]).weights, self._default_weights)

    async def _search(self, query: Query) -> SearchResult:
        budget = Budget(query.timeout_ms or self._timeout_ms)
        documents = TenantDocuments(self._postgres, query.reach)
        query = await budget.store(self._settled(documents, query))
        plan = make_plan(query, self._default_weights, timeout_ms=query.timeout_ms or self._timeout_ms)
        answers, namespaces, most = await asyncio.gather(
            self._ask(query, plan.weights, plan.candidates, budget.asking_ms),
            budget.store(names(documents, query)),
            budget.store(best_possible(documents, query, plan.weights)),
        )
        self._tally.asked(query.tenant, answers)
        missing = [a.tier for a in answers if not a.status.answered]
        refuse_degraded(query, missing)
        weights = effective_weights(plan.weights, speaking(answers))
        with tracing.span("fuse"):
            ranking = fuse(answers, weights, query.ranking.fusion)
        facts = await budget.store(known_facts(documents, ranking, query))
        ranking = shape(ranking, facts, query, datetime.now(UTC))
        confidence = confidences(ranking, most)
        ranking, _ = await budget.store(cut(documents, ranking, facts or {}, confidence, query))
        with tracing.hydrating():
            results = await budget.store(page(documents, ranking, confidence, query))
        if query.highlight:
            results = await budget.store(highlighted(self._postgres, results, query))
        return SearchResult(
            results=tuple(results),
            answers={a.tier: a for a in answers} | self._skipped(plan.weights),
            asked=plan.weights,
            weights=weights,
            namespaces=namespaces,
            degraded=bool(missing),
            took_ms=budget.spent_ms,
        )

    async def explain(self, query: Query, id_: str) -> Explanation:
        """Where a document stands in a search, found or not: each tier is looked at further down than a search does."""
        budget = Budget(query.timeout_ms or self._timeout_ms)
        documents = TenantDocuments(self._postgres, query.reach)
        document = await budget.store(documents.get(id_))
        if document is None:
            raise NotFound(f"there is no document {id_!r}")
        query = await budget.store(self._settled(documents, query))
        plan = make_plan(query, self._default_weights, timeout_ms=query.timeout_ms or self._timeout_ms)
        deep, most = await asyncio.gather(
            self._ask(query, plan.weights, EXPLAINED, budget.asking_ms),
            budget.store(best_possible(documents, query, plan.weights)),
        )
        answers = [replace(answer, hits=answer.hits[: plan.candidates]) for answer in deep]
        ranking = fuse(answers, effective_weights(plan.weights, speaking(answers)), query.ranking.fusion)
        facts = await budget.store(known_facts(documents, ranking, query))
        ranking = shape(ranking, facts, query, datetime.now(UTC))
        confidence = confidences(ranking, most)
        cut_ranking, dropped = await budget.store(cut(documents, ranking, facts or {}, confidence, query))
        every = [*deep, *self._skipped(plan.weights).values()]
        tiers = {answer.tier: standing(answer, id_, plan.candidates, EXPLAINED) for answer in every}
        order, before = cut_ranking.ids, ranking.ids
        rank, level = order.index(id_) + 1 if id_ in order else None, confidence.get(id_, 0.0)
        return Explanation(
            document=document,
            tiers=tiers,
            candidates=plan.candidates,
            rank=rank,
            on_page=rank is not None and rank <= query.limit,
            ranked=ranking[before.index(id_)] if id_ in before else None,
            confidence=level,
            badge=badge(level),
            reason=why_not_asked_for(document, query) or why(id_, order, dropped, tiers, query.limit),
        )

    async def _settled(self, documents: TenantDocuments, query: Query) -> Query:
        """Where to look, and how to rank: the caller's options over the defaults."""
        query = replace(query, namespaces=await place(documents, query))
        only = query.namespaces[0] if query.namespaces is not None and len(query.namespaces) == 1 else None
        ranking = settle([*await self.defaults.layers(query.reach, only), query.options])
        return replace(query, ranking=ranking, filter=of_types(query.filter, ranking))

    async def _ask(self, query: Query, asked: Mapping[str, float], limit: int, left_ms: float) -> list[TierAnswer]:
        if query.namespaces == ():
            return [TierAnswer(name, Status.EMPTY) for name in asked]
        return await asyncio.gather(*(self._tiers[name].ask(query, limit, left_ms) for name in asked))

    def _skipped(self, asked: Mapping[str, float]) -> dict[str, TierAnswer]:
        return {name: TierAnswer(name, Status.SKIPPED, reason="weight 0") for name in self._tiers if name not in asked}


def refuse_degraded(query: Query, missing: Sequence[str]) -> None:
    """Some callers would rather have no answer than one without a tier."""
    needed = missing if not query.allow_degraded else [tier for tier in missing if tier in query.require]
    if needed:
        raise Degraded(needed)


async def place(documents: TenantDocuments, query: Query) -> tuple[str, ...] | None:
    """The namespaces to look into, of those the caller can see. None, and no time lost, where that is all there are."""
    reach = query.reach
    if reach.project is not None:
        return tuple(await documents.namespaces(query.namespaces))
    if query.namespaces is None or reach.namespaces is None:
        return query.namespaces if reach.namespaces is None else reach.namespaces
    return tuple(name for name in query.namespaces if name in reach.namespaces)


async def names(documents: TenantDocuments, query: Query) -> tuple[str, ...]:
    """What the answer says was searched: asked for while the tiers are at work."""
    if query.namespaces is not None:
        return query.namespaces
    return tuple(await documents.namespaces()) or ("default",)


async def known_facts(documents: TenantDocuments, ranking: Ranking, query: Query) -> Mapping[str, Facts] | None:
    """What shaping looks at, of all candidates in one round trip; None, and no time lost, where it looks at nothing."""
    if not needs_facts(query.ranking) or not ranking:
        return None
    group = query.ranking.group_by
    path = group.field.split(".")[1:] if group and group.field.startswith(METADATA) else None
    return await documents.facts(ranking.base, query.namespaces, path)


async def best_possible(documents: TenantDocuments, query: Query, asked: Mapping[str, float]) -> float | None:
    """The highest BM25 there could be, which keyword scores are measured by; None where there are no such scores."""
    if "keyword" not in asked or query.ranker not in (None, BM25):
        return None
    return await documents.query_maximum(parse(query.text).words, query.namespaces)


async def cut(
    documents: TenantDocuments,
    ranking: Ranking,
    facts: Mapping[str, Facts],
    confidence: Mapping[str, float],
    query: Query,
) -> tuple[Ranking, dict[str, str]]:
    """What stays of a ranking, in which order, and why the rest does not."""
    options = query.ranking
    least = least_confidence(strict=options.strict, min_confidence=options.min_confidence)
    ids, dropped = confident(ranking.ids, confidence, least) if least else (ranking.ids, {})
    if options.collapse or options.diversity:
        pool = await documents.fetch(ids[:POOL], query.namespaces)
        texts = {id_: text_of(document.title, document.content) for id_, document in pool.items()}
        ids, twins = collapsed(ids, texts, options.collapse) if options.collapse else (ids, {})
        scores = dict(zip(ranking.base, ranking.scores, strict=True))
        ids = diversified(ids, scores, texts, options.diversity) if options.diversity else ids
        dropped |= twins
    for kept, left in limited(ids, facts, options):
        ids, dropped = kept, dropped | left
    return ranking.only(ids) if ids != ranking.ids else ranking, dropped


async def page(
    documents: TenantDocuments, ranked: Sequence[Ranked], confidence: Mapping[str, float], query: Query
) -> list[Found]:
    """The first `limit` candidates that PostgreSQL still knows. A stale or foreign hit vanishes here, and the next
    one moves up, so a page is never short for that reason.
    """
    results: list[Found] = []
    for start in range(0, len(ranked), query.limit):
        some = ranked[start : start + query.limit]
        known: Mapping[str, Document] = await documents.fetch([r.id for r in some], query.namespaces)
        sure = [(r, confidence[r.id]) for r in some if r.id in known]
        results += [Found(known[r.id], r, level, badge(level)) for r, level in sure]
        count_vanished([r for r in some if r.id not in known])
        if len(results) >= query.limit:
            break
    return results[: query.limit]


def count_vanished(gone: Sequence[Ranked]) -> None:
    """A tier may be a moment behind; one that stays behind shows here."""
    for tier in (name for each in gone for name in each.tiers):
        metrics.TIER_VANISHED.labels(tier).inc()
