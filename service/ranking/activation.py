"""What links say about a ranking: activation spreads from the best hits, and neighbours lift each other.

Spreading activation: the best hits are seeds, and each passes on to its best neighbours

    amount = weight x seed's score x strength of the link x factor of its type x decay

(Collins and Loftus, "A Spreading-Activation Theory of Semantic Processing", 1975, cut off after one step; the factors
are Ormah's). A document that several seeds reach takes the largest amount. It is added to the score the document has;
one that no tier found comes in with it. An amount is proportional to the seed's score, so scaling all weights of a
search scales everything alike.

Neighbour boost: a candidate gains from candidates it is linked with, each by

    weight x strength of the link x max(keyword, vector) of the neighbour x decay

It re-ranks what is there and brings nothing new.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from service.model import ActivationOptions, BoostOptions
from service.ranking.woven import Column, Ranking

FACTORS: Mapping[str, float] = MappingProxyType(
    {
        "supports": 1.0,
        "part_of": 1.0,
        "depends_on": 1.0,
        "defines": 1.0,
        "derived_from": 1.0,
        "evolved_from": 0.8,
        "related_to": 0.7,
        "contradicts": 0.4,
    }
)
OTHER = 0.5
CONFLICT = "contradicts"


@dataclass(frozen=True, slots=True)
class Link:
    """A link as seen from a seed; in which direction it points does not matter."""

    seed: str
    to: str
    type: str
    strength: float


@dataclass(frozen=True, slots=True)
class Activation:
    """How a document was activated: `amount` is the product of the other numbers."""

    seed: str
    type: str
    seed_score: float
    strength: float
    factor: float
    decay: float
    weight: float
    amount: float

    @property
    def conflict(self) -> bool:
        return self.type == CONFLICT


@dataclass(frozen=True, slots=True)
class Lift:
    """What one neighbour adds to a candidate."""

    neighbour: str
    strength: float
    score: float
    amount: float


def factor_of(type: str) -> float:
    return FACTORS.get(type, OTHER)


def spread(seeds: Sequence[tuple[str, float]], links: Iterable[Link], by: ActivationOptions) -> dict[str, Activation]:
    """Who is activated, and how. `seeds` are ids with their scores; links that begin elsewhere say nothing."""
    scores = dict(seeds[: by.seeds])
    best: dict[str, Activation] = {}
    for link in _strongest([link for link in links if link.seed in scores], by.neighbours):
        activation = _activation(link, scores[link.seed], by)
        if activation.amount > 0 and _key(activation) < _key(best.get(link.to)):
            best[link.to] = activation
    return best


def lifts(scores: Mapping[str, float], links: Iterable[Link], by: BoostOptions) -> dict[str, tuple[Lift, ...]]:
    """What each candidate gains from its neighbours. `scores` hold max(keyword, vector) of every candidate."""
    gained: defaultdict[str, list[Lift]] = defaultdict(list)
    usable = [link for link in links if link.seed in scores and link.to in scores and link.seed != link.to]
    for link in _strongest(usable, by.neighbours, alike=True):
        score = scores[link.to]
        lift = Lift(link.to, link.strength, score, by.weight * link.strength * score * by.decay)
        if lift.amount > 0:
            gained[link.seed].append(lift)
    return {id: tuple(some) for id, some in gained.items()}


def total(some: Iterable[Lift]) -> float:
    return math.fsum(lift.amount for lift in some)


def activate(ranking: Ranking, links: Iterable[Link], by: ActivationOptions) -> Ranking:
    """The ranking with what spreads from its best hits; what no tier found comes in."""
    best = spread([(hit.id, hit.score) for hit in ranking[: by.seeds]], links, by)
    if not best:
        return ranking
    wider = ranking.widened(id for id in best if id not in set(ranking.base))
    ways = [best.get(id) for id in wider.base]
    shown = ("seed", "type", "seed_score", "strength", "factor", "decay", "weight")
    inputs = {name: [None if way is None else getattr(way, name) for way in ways] for name in shown}
    return wider.adjusted(Column("activation", add=[0.0 if way is None else way.amount for way in ways], inputs=inputs))


def lift(ranking: Ranking, links: Iterable[Link], by: BoostOptions) -> Ranking:
    """The ranking with what its candidates gain from each other."""
    gained = lifts(better_scores(ranking), links, by)
    if not gained:
        return ranking
    some = [gained.get(id, ()) for id in ranking.base]
    inputs = {
        "neighbours": [float(len(each)) or None for each in some],
        "weight": [by.weight if e else None for e in some],
    }
    return ranking.adjusted(Column("neighbours", add=[total(each) for each in some], inputs=inputs))


def better_scores(ranking: Ranking) -> dict[str, float]:
    """max(keyword, vector) of every candidate, normalised; 0 for one that neither found."""
    scores = dict.fromkeys(ranking.base, 0.0)
    for strand in ranking.strands:
        if strand.tier in ("keyword", "vector"):
            for hit, value in zip(strand.hits, strand.worth.values, strict=True):
                scores[hit.id] = max(scores[hit.id], min(1.0, value))
    return scores


def _strongest(links: Sequence[Link], count: int, *, alike: bool = False) -> list[Link]:
    """For each seed the `count` neighbours that it is best linked with, each once. Alike: whatever the types."""

    def worth(link: Link) -> float:
        return link.strength * (1.0 if alike else factor_of(link.type))

    kept: defaultdict[str, dict[str, Link]] = defaultdict(dict)
    for link in sorted(links, key=lambda link: (-worth(link), link.to, link.type)):
        neighbours = kept[link.seed]
        if link.to not in neighbours and len(neighbours) < count and link.to != link.seed:
            neighbours[link.to] = link
    return [link for neighbours in kept.values() for link in neighbours.values()]


def _activation(link: Link, score: float, by: ActivationOptions) -> Activation:
    factor = factor_of(link.type)
    amount = by.weight * score * link.strength * factor * by.decay
    return Activation(link.seed, link.type, score, link.strength, factor, by.decay, by.weight, amount)


def _key(activation: Activation | None) -> tuple[float, str, str]:
    """The least is the best; ties by seed and type, so that the order of links does not matter."""
    return (math.inf, "", "") if activation is None else (-activation.amount, activation.seed, activation.type)
