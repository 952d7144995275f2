"""Recall: a search that was answered a moment ago, and whose answer cannot have changed, is not searched again.

What is remembered is the answer's body, under the caller's reach and the whole question, and with the tenant's epoch
from before the search began (`stores/epochs.py`). The epoch is read for every question, in one round trip: equal, and
nothing was written by any process since. A degraded answer is never remembered.

Besides the same question, one of the same meaning may do, where the service says so: same caller, same options, a
cosine above a bound, and the same firm words. Those are what meaning blurs: numbers, names with digits, negations.
Questions that use the query language are firm as a whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import orjson

from service import metrics
from service.cursors import fingerprint
from service.errors import BraidError
from service.model import Query
from service.ranking.typed import parse
from service.stores.cache import AnswerCache, Kept, unit
from service.stores.embedder import NONE, Embedder
from service.stores.epochs import epoch_of
from service.stores.postgres import Postgres

EXACT = "exact"
SEMANTIC = "semantic"
_WORD = re.compile(r"\w[\w'’.-]*", re.UNICODE)
_NEGATIONS = frozenset({"no", "not", "nor", "never", "without", "except", "neither", "none"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A body, whose documents it shows, whether it may be remembered, and from which memory it came, if any."""

    body: bytes
    ids: tuple[str, ...]
    whole: bool
    cached: str | None = None


Produce = Callable[[Query], Awaitable[Answer]]


class Recall:
    """Asks memory first. Without a cache every question is searched; without a bound only the same one is the same."""

    def __init__(
        self, postgres: Postgres, embedder: Embedder, cache: AnswerCache | None, bound: float | None = None
    ) -> None:
        self._postgres = postgres
        self._embedder = embedder
        self._cache = cache
        self._bound = bound

    async def answer(self, query: Query, produce: Produce) -> Answer:
        if self._cache is None or query.no_cache:
            return await produce(query)
        epoch = await epoch_of(self._postgres, query.tenant)
        key = exact_key(query)
        kept = self._cache.exact(query.tenant, epoch, key)
        if kept is not None:
            return _recalled(kept, EXACT)
        return await self._near(self._cache, query, epoch, key, produce)

    async def _near(self, cache: AnswerCache, query: Query, epoch: int, key: bytes, produce: Produce) -> Answer:
        scope, firm, vector = scope_key(query), firm_words(query.text), None
        if self._bound is not None and firm is not None:
            query = await self._embedded(query)
            vector = query.vector
        if vector is not None and firm is not None and self._bound is not None:
            kept = cache.near(query.tenant, epoch, scope, firm, vector, self._bound)
            if kept is not None:
                return _recalled(kept, SEMANTIC)
        metrics.CACHE.labels("miss").inc()
        answer = await produce(query)
        if answer.whole:
            direction = None if vector is None else unit(vector)
            cache.keep(query.tenant, epoch, key, Kept(answer.body, answer.ids, scope, firm or frozenset(), direction))
        return answer

    async def _embedded(self, query: Query) -> Query:
        """With the vector of its text, which the vector tier then need not make; without, where that fails or is late:
        the tier will find out for itself, and say so.
        """
        if query.vector is not None or self._embedder.name == NONE:
            return query
        try:
            async with asyncio.timeout((query.timeout_ms or 1000) / 1000):
                return replace(query, vector=tuple(await self._embedder.embed_query(query.text)))
        except (BraidError, TimeoutError):
            return query


def exact_key(query: Query) -> bytes:
    """Of the whole question: what its ranking depends on, and how much of it is shown."""
    shown = orjson.dumps([query.limit, query.explain, query.cursor])
    return hashlib.blake2b(fingerprint(query) + shown, digest_size=16).digest()


def scope_key(query: Query) -> bytes:
    """Of all but its words."""
    return exact_key(replace(query, text="", vector=None))


def firm_words(text: str) -> frozenset[str] | None:
    """The words that another question must have too, to mean the same; None where the text uses the query language."""
    if not parse(text).plain:
        return None
    words = _WORD.findall(text.casefold())
    return frozenset(w for w in words if w in _NEGATIONS or w.endswith(("n't", "n’t")) or any(map(str.isdigit, w)))


def _recalled(kept: Kept, how: str) -> Answer:
    metrics.CACHE.labels(how).inc()
    return Answer(kept.body, kept.ids, True, how)
