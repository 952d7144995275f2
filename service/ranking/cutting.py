"""Cutting: what is left out of a ranking on purpose, and why.

Every rule goes through the candidates in order and decides by those before: it never looks at the limit, so page 1 is
the same for every limit. What is left out keeps its reason, for `/v1/explain`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from service.facets import type_facet
from service.model import Facts, Filter, RankingOptions

METADATA = "metadata."


class Cut(NamedTuple):
    """The ids that stay, in order, and why the others don't."""

    kept: list[str]
    dropped: dict[str, str]


def of_types(filter: Filter, options: RankingOptions) -> Filter:
    """The filter with the types that are wanted and unwanted: the tiers apply it before they cut their lists."""
    wanted = (tuple(map(type_facet, options.include_types)),) if options.include_types else ()
    unwanted = (Filter(any_of=(tuple(map(type_facet, options.exclude_types)),)),) if options.exclude_types else ()
    if not wanted and not unwanted:
        return filter
    return Filter(
        (*filter.any_of, *wanted),
        filter.ranges,
        filter.created_after,
        filter.created_before,
        filter.one_of,
        (*filter.none_of, *unwanted),
    )


def confident(ids: Sequence[str], confidence: Mapping[str, float], least: float) -> Cut:
    """Leaves out what is below an absolute confidence."""
    dropped = {id_: f"confidence {confidence[id_]:.3f} is below {least:g}" for id_ in ids if confidence[id_] < least}
    return Cut([id_ for id_ in ids if id_ not in dropped], dropped)


def grouped(ids: Sequence[str], groups: Mapping[str, str | None], limit: int) -> Cut:
    """At most `limit` of each group; what belongs to none stays."""
    seen: Counter[str] = Counter()
    dropped: dict[str, str] = {}
    for id_ in ids:
        group = groups.get(id_)
        if group is None:
            continue
        seen[group] += 1
        if seen[group] > limit:
            dropped[id_] = f"{limit} better of the group {group!r} are there"
    return Cut([id_ for id_ in ids if id_ not in dropped], dropped)


def limited(ids: Sequence[str], facts: Mapping[str, Facts], options: RankingOptions) -> Iterator[Cut]:
    """The caps on types, then the limit of each group, each on what the one before left."""
    if options.type_cap:
        cut = capped(ids, {id_: each.type for id_, each in facts.items()}, options.type_cap)
        ids = cut.kept
        yield cut
    if options.group_by is not None:
        field = "group" if options.group_by.field.startswith(METADATA) else options.group_by.field
        yield grouped(ids, {id_: getattr(each, field) for id_, each in facts.items()}, options.group_by.limit)


def capped(ids: Sequence[str], types: Mapping[str, str | None], caps: Mapping[str, float]) -> Cut:
    """Of the first n results, whatever n, at most `max(1, floor(share * n))` are of a type that has a cap.

    What comes too early waits until it may, and is left out where nothing else is left.
    """
    kept: list[str] = []
    counts: Counter[str] = Counter()
    waiting = list(ids)

    def may(id_: str) -> bool:
        type_ = types.get(id_)
        if type_ is None or type_ not in caps:
            return True
        return counts[type_] < max(1, math.floor(caps[type_] * (len(kept) + 1) + 1e-9))

    while (following := next(filter(may, waiting), None)) is not None:
        waiting.remove(following)
        counts[types.get(following) or ""] += 1
        kept.append(following)
    return Cut(
        kept, {id_: f"results of type {types[id_]!r} are capped at {caps[types[id_] or '']:g}" for id_ in waiting}
    )
