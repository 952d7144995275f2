"""Shaping: what may move a candidate after fusion, by what is known of its document.

Each signal is a small pure function to a `Column`: what every score is multiplied by and what is added. A signal that
has nothing to work on changes nothing, be it for one candidate or for all, and is then not among the adjustments. A
weight `w` from 0 to 1 says how much a factor `f` counts: `1 + w * (f - 1)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

from service.model import Facts, Query, RankingOptions, ShapingOptions
from service.ranking.names import words
from service.ranking.question import is_question
from service.ranking.woven import Column, Ranking

Known: TypeAlias = Sequence[Facts | None]
"""The facts of each candidate in the order of `Ranking.base`; None for one that PostgreSQL no longer has."""
Factor: TypeAlias = Callable[[Facts], float | None]

PRIORITIES = {1: 1.3, 2: 1.15, 3: 1.0, 4: 0.85}
"""What a priority multiplies a score by; P3 is a document like any other."""
GLOBAL = "global"
"""The namespace that belongs to everybody: it is nobody's other."""
FREQUENT = math.log1p(20)
LONG = 300
SHORTEST = 0.1
_DAY = 86_400.0


def needs_facts(options: RankingOptions) -> bool:
    """Whether anything has to be known of the candidates' documents: a round trip that most searches do without."""
    shaping = options.shaping
    of_documents = (shaping.title_boost, shaping.confidence, shaping.priority, shaping.recency, shaping.access)
    blends = shaping.long_document_penalty and (shaping.blend or shaping.question_blend)
    cuts = options.type_cap or options.group_by
    return bool(any(of_documents) or blends or shaping.type_boost or shaping.affinity or cuts)


def shape(ranking: Ranking, facts: Mapping[str, Facts] | None, query: Query, now: datetime) -> Ranking:
    """The ranking with every signal applied that is on and has something to say."""
    known: Known = [None] * len(ranking.base) if facts is None else [facts.get(id_) for id_ in ranking.base]
    options, question = query.ranking.shaping, is_question(query.text)
    columns = [
        *blended(ranking, known, options, question=question),
        *keyword_only(ranking, options),
        *_by_title(known, query, question=question),
        *_by_facts(known, options, now),
    ]
    return ranking.adjusted(*columns)


def blended(ranking: Ranking, known: Known, options: ShapingOptions, *, question: bool) -> Iterator[Column]:
    """`(1 - b) * fused + b * similarity`, where the similarity is the raw cosine, 0 where there is none.

    In a long text some sentence is always near: its cosine counts `max(0.1, 300 / length)`, if it is longer than 300.
    A question, which rarely shares the words of its answer, raises `b` by `question_blend`.
    """
    blend = min(1.0, options.blend + (options.question_blend if question else 0.0))
    cosines = ranking.raw("vector") if blend else {}
    if not cosines:
        return
    raw = [cosines.get(id_, 0.0) for id_ in ranking.base]
    penalties = [length_penalty(facts) if options.long_document_penalty else 1.0 for facts in known]
    similar = [cosine * penalty for cosine, penalty in zip(raw, penalties, strict=True)]
    inputs = {"blend": [blend] * len(raw), "cosine": raw, "length_penalty": penalties}
    yield Column("blend", [1 - blend] * len(raw), [blend * each for each in similar], inputs)


def length_penalty(facts: Facts | None) -> float:
    return 1.0 if facts is None or facts.length <= LONG else max(SHORTEST, LONG / facts.length)


def keyword_only(ranking: Ranking, options: ShapingOptions) -> Iterator[Column]:
    """`score * keyword_only_damping` for what the vector tier did not find, where it found something at all."""
    meant, spelled = ranking.raw("vector"), ranking.raw("keyword")
    if options.keyword_only_damping == 1 or not meant:
        return
    damped = [id_ in spelled and id_ not in meant for id_ in ranking.base]
    yield Column("keyword_only", [options.keyword_only_damping if each else 1.0 for each in damped])


def title_overlap(asked: frozenset[str], facts: Facts) -> float | None:
    """The share of the query's words that stand in the title."""
    shared = len(asked.intersection(words(facts.title))) if asked and facts.title else 0
    return shared / len(asked) if shared else None


def confidence(facts: Facts) -> float | None:
    """`0.4 + 0.6 * confidence`: even a document that nobody trusts keeps two fifths of its score."""
    return None if facts.confidence is None else 0.4 + 0.6 * facts.confidence


def priority(facts: Facts) -> float | None:
    return None if facts.priority is None else PRIORITIES[facts.priority]


def recency(facts: Facts, now: datetime, half_life_days: float) -> float | None:
    """`0.5 ** (age / half-life)`; what comes from the future is new."""
    if facts.created_at is None:
        return None
    return _decay((now - facts.created_at).total_seconds() / _DAY, half_life_days)


def recency_in_cycles(facts: Facts, current: int, half_life: float) -> float | None:
    """The same with a caller's own clock: `metadata.cycle` says in which of its cycles a document came to be."""
    return None if facts.cycle is None else _decay(current - facts.cycle, half_life)


def access(facts: Facts) -> float | None:
    """`1 + log1p(count) / log1p(20)`: twice the score for what was found 20 times, and at most."""
    return 1 + min(1.0, math.log1p(facts.accesses) / FREQUENT) if facts.accesses else None


def type_factor(boosts: Mapping[str, float], facts: Facts) -> float | None:
    return None if facts.type is None else boosts.get(facts.type)


def affinity(home: str, other: float, facts: Facts) -> float | None:
    """1.0 in the caller's own namespace and in `global`; elsewhere 0.6 unless another is given."""
    return None if facts.namespace in {home, GLOBAL} else other


def _by_title(known: Known, query: Query, *, question: bool) -> Iterator[Column]:
    """`score * (1 + title_boost * overlap)`; off for questions, whose words are not a title's."""
    boost = query.ranking.shaping.title_boost
    if not boost or question:
        return
    asked = frozenset(words(query.text))
    overlaps = [None if facts is None else title_overlap(asked, facts) for facts in known]
    if any(overlaps):
        yield Column("title", [1 + boost * (each or 0.0) for each in overlaps], inputs={"overlap": overlaps})


def _by_facts(known: Known, options: ShapingOptions, now: datetime) -> Iterator[Column]:
    aged = partial(recency, now=now, half_life_days=options.half_life_days)
    if options.current_cycle is not None:
        aged = partial(recency_in_cycles, current=options.current_cycle, half_life=options.half_life_cycles)
    signals: tuple[tuple[str, float, Factor], ...] = (
        ("confidence", options.confidence, confidence),
        ("priority", options.priority, priority),
        ("recency", options.recency, aged),
        ("access", options.access, access),
        ("type", float(bool(options.type_boost)), partial(type_factor, options.type_boost)),
        ("affinity", float(bool(options.affinity)), partial(affinity, options.affinity or "", options.affinity_other)),
    )
    for name, weight, factor in signals:
        if weight:
            yield from _factors(name, known, weight, factor)


def _factors(name: str, known: Known, weight: float, factor: Factor) -> Iterator[Column]:
    """A column of weighted factors; none where no candidate has one."""
    factors = [None if facts is None else factor(facts) for facts in known]
    if any(each is not None for each in factors):
        multiply = [1.0 if each is None else 1 + weight * (each - 1) for each in factors]
        yield Column(name, multiply, inputs={"factor": factors, "weight": [weight] * len(known)})


def _decay(age: float, half_life: float) -> float:
    return 1.0 if age <= 0 else 0.5 ** min(age / half_life, 1000.0)
