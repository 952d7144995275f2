"""`braid tune`: which method, normaliser and weights suit a collection, learnt on one half of its judgements.

The other half is never looked at while learning: it only says how much of the gain is real.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from service.errors import SetupError
from service.evaluation.candidates import DEEP, Found, Way, gather, mean_ndcg
from service.evaluation.client import Bar, Client
from service.evaluation.collection import Collection, Judgements, dimension_of, read_collection
from service.evaluation.throwaway import throw_away, tuning
from service.model import TIERS, FusionOptions
from service.ranking.fusion import FUSIONS
from service.ranking.normalise import NORMALISERS

LEARN_ON = 200
"""Queries that are learnt from at most, evenly spread: more cost time and change little."""
FINALISTS = 4
_COARSE = ((0.3, 0.6, 0.1), (0.5, 0.5, 0.0), (0.5, 0.4, 0.1), (0.65, 0.25, 0.1), (0.4, 0.4, 0.2), (0.35, 0.35, 0.3))


@dataclass(frozen=True, slots=True)
class Score:
    """nDCG@10 on the judgements that were learnt from, and on those that were not."""

    train: float
    test: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was learnt, beside what the service does without it."""

    collection: str
    queries: Mapping[str, int]
    tried: int
    before: tuple[Way, Score]
    after: tuple[Way, Score]

    def settings(self) -> dict[str, Any]:
        """As a search, a namespace, a tenant or `BRAID_RANKING` takes them."""
        way = self.after[0]
        fusion = {"method": way.options.method, "normaliser": way.options.normaliser}
        return {
            "weights": dict(way.weights),
            "fusion": {name: value for name, value in fusion.items() if value is not None},
        }

    def body(self) -> dict[str, Any]:
        told = {name: {"way": way.name, **asdict(score)} for name, (way, score) in self._ways.items()}
        return {"collection": self.collection, "queries": self.queries, "tried": self.tried, **told} | {
            "settings": self.settings()
        }

    @property
    def _ways(self) -> dict[str, tuple[Way, Score]]:
        return {"before": self.before, "after": self.after}


def tuned(folder: Path, bar: Bar, *, train: str | None, within: str | None, vectors: Path | None) -> Tuned:
    """Starts a Braid, loads the collection, asks every tier once, and compares."""
    test = read_collection(folder, within=within, vectors=vectors)
    split = train or next((name for name in ("dev", "train") if (folder / "qrels" / f"{name}.tsv").exists()), None)
    learnt = None if split is None else read_collection(folder, split=split, within=within, vectors=vectors)
    known, unseen = halves(test.judgements) if learnt is None else (learnt.judgements, test.judgements)
    known = _some(known, LEARN_ON)
    questions = {question.id: question for side in (test, learnt or test) for question in side.questions}
    wanted = [questions[id_] for id_ in {**known, **unseen}]
    found, weights = asked(replace(test, questions=wanted), bar, vectors)
    return learn(folder.resolve().name, found, weights, (known, unseen), bar)


def learn(
    name: str, found: Found, weights: Mapping[str, float], sides: tuple[Judgements, Judgements], bar: Bar
) -> Tuned:
    """The best of all ways on the first side of the judgements; the second is only reported."""
    known, unseen = sides
    default = Way(FusionOptions(), weights)
    rough = list(every_way(weights))
    step = bar("Comparing", len(rough) + FINALISTS * len(list(_grid())))
    tried: list[tuple[float, Way]] = []

    def measure(way: Way) -> None:
        tried.append((mean_ndcg(way, found, known), way))
        step(1)

    for way in rough:
        measure(way)
    for options in _finalists(tried):
        for chosen in _grid():
            measure(Way(options, chosen))
    # A tie goes to the first tried, and the default is tried first.
    best = max(tried, key=lambda pair: pair[0])[1]
    scored = [(way, Score(mean_ndcg(way, found, known), mean_ndcg(way, found, unseen))) for way in (default, best)]
    return Tuned(name, {"train": len(known), "test": len(unseen)}, len(tried), scored[0], scored[1])


def every_way(weights: Mapping[str, float]) -> Iterator[Way]:
    """The default, then every method with every normaliser it takes, each with a few weights where weights count."""
    yield Way(FusionOptions(), weights)
    for options in every_option():
        few = [dict(zip(TIERS, some, strict=True)) for some in _COARSE] if FUSIONS[options.method].weighs else []
        yield from (Way(options, chosen) for chosen in few or [dict.fromkeys(TIERS, 1.0)])


def every_option() -> Iterator[FusionOptions]:
    for name, method in FUSIONS.items():
        for normaliser in NORMALISERS if method.takes_normaliser else (None,):
            yield FusionOptions(name, normaliser)


def halves(judgements: Judgements) -> tuple[Judgements, Judgements]:
    """Two halves by a digest of the query's id: the same whenever and wherever it is done."""
    sides: tuple[dict[str, Mapping[str, int]], dict[str, Mapping[str, int]]] = ({}, {})
    for query, right in judgements.items():
        sides[hashlib.sha256(query.encode()).digest()[0] % 2][query] = right
    if not all(sides):
        raise SetupError("there are too few judged queries to learn from some and test on others")
    return sides


def _grid() -> Iterator[dict[str, float]]:
    """Weights in tenths that add up to 1, the graph's at most 0.3."""
    for graph in range(4):
        for keyword in range(11 - graph):
            yield {"keyword": keyword / 10, "vector": (10 - graph - keyword) / 10, "graph": graph / 10}


def _finalists(tried: Sequence[tuple[float, Way]]) -> list[FusionOptions]:
    ranked = sorted(tried, key=lambda pair: -pair[0])
    weighed = [way.options for _, way in ranked if FUSIONS[way.options.method].weighs]
    return list({(options.method, options.normaliser): options for options in weighed[::-1]}.values())[::-1][:FINALISTS]


def _some(judgements: Judgements, most: int) -> Judgements:
    ids = list(judgements)
    chosen = ids if len(ids) <= most else [ids[number * len(ids) // most] for number in range(most)]
    return {id_: judgements[id_] for id_ in chosen}


def asked(collection: Collection, bar: Bar, vectors: Path | None) -> tuple[Found, Mapping[str, float]]:
    """What every tier of a Braid started for this finds, and that Braid's default weights."""
    own = {} if vectors is None else {"BRAID_EMBEDDER": "none", "BRAID_EMBEDDER_DIMENSION": str(dimension_of(vectors))}
    with throw_away(tuning() | DEEP | own) as braid, Client(braid.url, braid.key("tune")) as client:
        client.load(collection, bar)
        return gather(client, collection.questions, bar), client.weights()
