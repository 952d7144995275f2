"""Diversity: near-duplicates left out, and results that say something new moved up.

Likeness is that of words: `|A and B| / |A or B|` over the distinct words of two texts (Jaccard). Only the best `POOL`
are compared, whatever the limit; the others follow as they were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from service.ranking.cutting import Cut

POOL = 50
_WORDS = 400
_RUN = re.compile(r"[^\W_]+")

Text = frozenset[str]


def text_of(title: str, content: str) -> Text:
    """The distinct words of a document's beginning."""
    return frozenset(_RUN.findall(f"{title} {content[:8000]}".casefold())[:_WORDS])


def likeness(one: Text, other: Text) -> float:
    """Nothing is like a text without words."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


def collapsed(ids: Sequence[str], texts: Mapping[str, Text], threshold: float) -> Cut:
    """Leaves out what is as like a better one as `threshold`, or more."""
    kept: list[str] = []
    dropped: dict[str, str] = {}
    for id_ in ids[:POOL]:
        twin = next((other for other in kept if _alike(texts, id_, other) >= threshold), None)
        if twin is None:
            kept.append(id_)
        else:
            dropped[id_] = f"nearly the same as {twin!r}"
    return Cut([*kept, *ids[POOL:]], dropped)


def diversified(ids: Sequence[str], scores: Mapping[str, float], texts: Mapping[str, Text], much: float) -> list[str]:
    """Next is always who has the most of `(1 - d) * relevance - d * likeness`, the latter to the likest one before it.

    Relevance is the score to the best one's. Maximal marginal relevance: Carbonell and Goldstein (SIGIR 1998).
    """
    pool, top = list(ids[:POOL]), max((scores[id_] for id_ in ids[:POOL]), default=0.0) or 1.0
    likest = dict.fromkeys(pool, 0.0)
    chosen: list[str] = []
    while pool:
        best = max(pool, key=lambda id_: (1 - much) * scores[id_] / top - much * likest[id_])
        pool.remove(best)
        chosen.append(best)
        for id_ in pool:
            likest[id_] = max(likest[id_], _alike(texts, id_, best))
    return [*chosen, *ids[POOL:]]


def _alike(texts: Mapping[str, Text], one: str, other: str) -> float:
    return likeness(texts.get(one, frozenset()), texts.get(other, frozenset()))
