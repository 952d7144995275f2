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
from collections.abc import Awaitable, Callable, Sequence
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
        self,
        postgres: Postgres,
        embedder: Embedder,
        timeout_ms: int,
        cache: AnswerCache | None,
        bound: float | None = None,
    ) -> None:
        self._timeout_ms = timeout_ms
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
        _count(EXACT, kept)
        if kept is not None:
            return _recalled(kept, EXACT)
        return await self._near(self._cache, query, epoch, key, produce)

    async def _near(self, cache: AnswerCache, query: Query, epoch: int, key: bytes, produce: Produce) -> Answer:
        scope, firm, vector = scope_key(query), firm_key(query.text), None
        if self._bound is not None and firm is not None and query.vector is None:  # an own vector says nothing of words
            [query] = await self.embedded([query])
            vector = query.embedded
        if vector is not None and firm is not None and self._bound is not None:
            kept = cache.near(query.tenant, epoch, scope, firm, vector, self._bound)
            _count(SEMANTIC, kept)
            if kept is not None:
                return _recalled(kept, SEMANTIC)
        answer = await produce(query)
        if answer.whole:
            direction = None if vector is None else unit(vector)
            cache.keep(query.tenant, epoch, key, Kept(answer.body, answer.ids, scope, firm or b"", direction))
        return answer

    async def embedded(self, queries: Sequence[Query]) -> list[Query]:
        """Queries with the vectors of their texts, made in one call, which the vector tier then need not make. Without,
        where that fails or is late: the tier will find out for itself, and say so.
        """
        bare = [query for query in queries if query.vector is None and query.embedded is None]
        if not bare or self._embedder.name == NONE:
            return list(queries)
        patience_ms = min(query.timeout_ms or self._timeout_ms for query in bare)
        try:
            async with asyncio.timeout(patience_ms / 1000):
                vectors = await self._embedder.embed_queries([query.text for query in bare])
        except (BraidError, TimeoutError):
            return list(queries)
        made = {id(query): tuple(vector) for query, vector in zip(bare, vectors, strict=True)}
        return [replace(query, embedded=made.get(id(query), query.embedded)) for query in queries]


def exact_key(query: Query) -> bytes:
    """Of the whole question: what its ranking depends on, and how much of it is shown."""
    shown = orjson.dumps([query.limit, query.explain, query.highlight, query.cursor])
    return hashlib.blake2b(fingerprint(query) + shown, digest_size=16).digest()


def scope_key(query: Query) -> bytes:
    """Of all but its words."""
    return exact_key(replace(query, text="", vector=None))


def firm_key(text: str) -> bytes | None:
    words = firm_words(text)
    return None if words is None else hashlib.blake2b("\n".join(sorted(words)).encode(), digest_size=16).digest()


def firm_words(text: str) -> frozenset[str] | None:
    """The words that another question must have too, to mean the same; None where the text uses the query language."""
    if not parse(text).plain:
        return None
    words = _WORD.findall(text.casefold())
    return frozenset(w for w in words if w in _NEGATIONS or w.endswith(("n't", "n’t")) or any(map(str.isdigit, w)))


def _count(cache: str, kept: Kept | None) -> None:
    metrics.CACHE_REQUESTS.labels(cache, "miss" if kept is None else "hit").inc()


def _recalled(kept: Kept, how: str) -> Answer:
    return Answer(kept.body, kept.ids, True, how)
