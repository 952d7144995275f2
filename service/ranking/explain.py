"""Why one document stands where it does, or does not stand at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.facets import facets_of, numbers_of
from service.model import Document, Filter, NumberRange, Query, Ranked, TierAnswer


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a document stands in one tier: its place and score there, if it was within `looked` hits."""

    status: str
    rank: int | None
    raw: float | None
    candidate: bool
    looked: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One document's place in one search. `ranked` is None where no tier had it among its candidates."""

    document: Document
    tiers: Mapping[str, Standing]
    candidates: int
    rank: int | None
    on_page: bool
    ranked: Ranked | None
    confidence: float
    badge: str
    reason: str


def standing(answer: TierAnswer, id_: str, candidates: int, looked: int) -> Standing:
    rank = next((at for at, hit in enumerate(answer.hits, 1) if hit.id == id_), None)
    raw = None if rank is None else answer.hits[rank - 1].score
    return Standing(answer.status.value, rank, raw, rank is not None and rank <= candidates, looked, answer.reason)


def why_not_asked_for(document: Document, query: Query) -> str | None:
    """What keeps a document out of a search before any tier is asked."""
    if query.namespaces is not None and document.namespace not in query.namespaces:
        return f"it stands in the namespace {document.namespace!r}, which was not searched"
    return None if matches(query.filter, document) else "the filter, or the choice of types, leaves it out"


def why(id_: str, order: Sequence[str], dropped: Mapping[str, str], tiers: Mapping[str, Standing], limit: int) -> str:
    """In one sentence, for a document that the search could have found."""
    if id_ in dropped:
        return f"it was left out: {dropped[id_]}"
    if id_ in order:
        rank = order.index(id_) + 1
        return f"it is result {rank}" + ("" if rank <= limit else f", and the page ends with {limit}")
    near = {name: each for name, each in tiers.items() if each.rank is not None}
    if near:
        where = ", ".join(f"{each.rank} in {name}" for name, each in near.items())
        return f"it is too far down in every tier that finds it to be a candidate: {where}"
    silent = [name for name, each in tiers.items() if each.status not in {"ok", "empty"}]
    return "no tier finds it" + (f"; {', '.join(silent)} did not answer or was not asked" if silent else "")


def matches(filter: Filter, document: Document) -> bool:
    """Whether a document passes a filter: what each engine answers in its own language."""
    facets, created = set(facets_of(document)), document.created_at
    after, before = filter.created_after, filter.created_before
    return (
        all(facets.intersection(group) for group in filter.any_of)
        and all(_in_range(bounds, document) for bounds in filter.ranges)
        and (after is None or (created is not None and created >= after))
        and (before is None or (created is not None and created < before))
        and all(any(matches(part, document) for part in group) for group in filter.one_of)
        and not any(matches(part, document) for part in filter.none_of)
    )


def _in_range(bounds: NumberRange, document: Document) -> bool:
    return any(
        (bounds.gte is None or number >= bounds.gte)
        and (bounds.gt is None or number > bounds.gt)
        and (bounds.lte is None or number <= bounds.lte)
        and (bounds.lt is None or number < bounds.lt)
        for number in numbers_of(document.metadata).get(bounds.path, ())
    )
