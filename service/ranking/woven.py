"""A ranking: candidates in order, and for each of them every number that its score is made of.

It keeps columns, not an object a candidate: hundreds are ranked, and only those that are looked at are explained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import add, mul
from typing import TypeAlias, overload

from service.model import Adjustment, Contribution, Hit, Ranked
from service.ranking.normalise import Normalised


@dataclass(frozen=True, slots=True)
class Strand:
    """One tier's hits in order, what their scores come to, and what each is worth: `weight` times its share."""

    tier: str
    weight: float
    hits: Sequence[Hit]
    worth: Normalised
    shares: Sequence[float]

    def explain(self, at: int) -> Contribution:
        hit, share = self.hits[at], self.shares[at]
        value, rule = self.worth.values[at], self.worth.rules[at]
        return Contribution(at + 1, hit.score, value, self.weight, share, self.weight * share, rule, hit.path)

    def place(self, at: int) -> int:
        """How many hits are strictly better: like a rank, but equal scores share a place."""
        score = self.hits[at].score
        while at and self.hits[at - 1].score == score:
            at -= 1
        return at


@dataclass(frozen=True, slots=True)
class Column:
    """One adjustment of every candidate, in the order of `Ranking.base`: `score * multiply + add`.

    What is None changes nothing. `inputs` are shown with it; a None among them is not.
    """

    name: str
    multiply: Sequence[float] | None = None
    add: Sequence[float] | None = None
    inputs: Mapping[str, Sequence[float | str | None]] = field(default_factory=dict)

    def after(self, scores: Sequence[float]) -> list[float]:
        scaled = list(scores) if self.multiply is None else list(map(mul, scores, self.multiply))
        return scaled if self.add is None else list(map(add, scaled, self.add))

    def explain(self, at: int) -> Adjustment:
        inputs = {name: value for name, values in self.inputs.items() if (value := values[at]) is not None}
        multiply = 1.0 if self.multiply is None else self.multiply[at]
        return Adjustment(self.name, multiply, 0.0 if self.add is None else self.add[at], inputs)


Places: TypeAlias = Sequence[tuple[Strand, Mapping[str, int]]]
"""Every strand, and where in it each id stands."""


class Ranking(Sequence[Ranked]):
    """Candidates, best first. Each is explained when it is looked at, as few of them ever are.

    `base` is every candidate's id in the order in which they were fused. Scores and columns keep to that order,
    whatever becomes of the ranking, whose own order is a list of places in it.
    """

    def __init__(
        self,
        places: Places,
        base: Sequence[str],
        scores: Sequence[float],
        order: Sequence[int],
        columns: tuple[Column, ...] = (),
    ) -> None:
        self.base = base
        self.scores = scores
        self._places = places
        self._order = order
        self._columns = columns

    def adjusted(self, *columns: Column) -> Ranking:
        """The same candidates with these adjustments applied, in their new order; what ties keeps the order it had."""
        scores = self.scores
        for column in columns:
            scores = column.after(scores)
        order = sorted(self._order, key=scores.__getitem__, reverse=True) if columns else self._order
        return Ranking(self._places, self.base, scores, order, (*self._columns, *columns))

    def only(self, ids: Iterable[str]) -> Ranking:
        """These of the candidates, in this order."""
        at = {id_: number for number, id_ in enumerate(self.base)}
        return Ranking(self._places, self.base, self.scores, [at[id_] for id_ in ids], self._columns)

    @property
    def ids(self) -> list[str]:
        return [self.base[number] for number in self._order]

    @property
    def strands(self) -> tuple[Strand, ...]:
        return tuple(strand for strand, _ in self._places)

    def tier_counts(self) -> list[int]:
        """How many tiers found each candidate, in the order of `base`."""
        return [sum(id_ in index for _, index in self._places) for id_ in self.base]

    def raw(self, tier: str) -> Mapping[str, float]:
        """One tier's own scores, by id."""
        return {hit.id: hit.score for strand in self.strands if strand.tier == tier for hit in strand.hits}

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> Ranked: ...
    @overload
    def __getitem__(self, at: slice) -> list[Ranked]: ...
    def __getitem__(self, at: int | slice) -> Ranked | list[Ranked]:
        some = self._order[at]
        return self._explain(some) if isinstance(some, int) else [self._explain(number) for number in some]

    def _explain(self, number: int) -> Ranked:
        id_ = self.base[number]
        tiers = {strand.tier: strand.explain(index[id_]) for strand, index in self._places if id_ in index}
        return Ranked(id_, self.scores[number], tiers, tuple(column.explain(number) for column in self._columns))


def weave(strands: Sequence[Strand]) -> Ranking:
    """The candidates of all strands by falling score; ties by the best single tier, then id.

    Where the floor or near-equal scores hide a difference, the place within a tier still shows it: one tier alone keeps
    its own order.
    """
    places = [(strand, {hit.id: at for at, hit in enumerate(strand.hits)}) for strand in strands]
    sums = _sums(strands)
    base = sorted(sums, key=sums.__getitem__, reverse=True)
    if len(set(sums.values())) < len(base):
        runs = (sorted(run, key=partial(_standing, places)) for _, run in groupby(base, sums.__getitem__))
        base = [id_ for run in runs for id_ in run]
    return Ranking(places, base, [sums[id_] for id_ in base], range(len(base)))


def _standing(places: Places, id_: str) -> tuple[float, int, str]:
    """Its best place in any one tier: sorts best first."""
    found = ((strand, at) for strand, index in places if (at := index.get(id_)) is not None)
    return min((-strand.shares[at], strand.place(at), id_) for strand, at in found)


def _sums(strands: Sequence[Strand]) -> dict[str, float]:
    """Each candidate's contributions, added up exactly. Most have one or two, whose sum needs no care."""
    sums: dict[str, float] = {}
    parts: dict[str, list[float]] = {}
    for strand in strands:
        for hit, share in zip(strand.hits, strand.shares, strict=True):
            id_, contribution = hit.id, strand.weight * share
            if id_ in sums:
                parts.setdefault(id_, [sums[id_]]).append(contribution)
            else:
                sums[id_] = contribution
    return sums | {id_: math.fsum(some) for id_, some in parts.items()}
