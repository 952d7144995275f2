"""What is written and what is asked: real text where a copy of it lies beside the checkout, else generated.

Entities and links are always drawn here, from a seed, so that the graph has the same shape over any text: an entity
has 5 to 50 documents, a document 3 links. A query is a question of the collection, or words of a document, followed by
the name of one entity: every tier has work to do in every search.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATASETS = Path(__file__).parents[2] / "shared" / "datasets"
LINKS = 3
ENTITY_SIZES = (5, 50)
LINK_TYPES = ("supports", "related_to", "part_of")
VOCABULARY = 20_000
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "il", "on", "us")]


@dataclass(frozen=True, slots=True)
class Text:
    """The words of one document."""

    title: str
    content: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents as the API takes them, and distinct queries about them without end."""

    source: str
    documents: Sequence[dict[str, Any]]
    questions: Sequence[str]
    entities: Sequence[str]
    seed: int

    def queries(self) -> Iterator[str]:
        """Each question in turn with some entity's name behind it."""
        dice = random.Random(self.seed)
        return (f"{question} {dice.choice(self.entities)}" for question in itertools.cycle(self.questions))


def make_corpus(count: int, *, seed: int, generated: bool = False) -> Corpus:
    """`count` documents, real ones where there are as many."""
    dice = random.Random(seed)
    real = None if generated else _real(count)
    source, texts, questions = real or _generated(count, dice)
    dice.shuffle(questions)
    about, names = _entities(count, dice)
    documents = [
        {
            "id": f"doc-{number:06d}",
            "title": text.title,
            "content": text.content,
            "entities": about[number],
            "links": _links(number, count, dice),
        }
        for number, text in enumerate(texts)
    ]
    return Corpus(source, documents, questions, names, seed)


def _links(number: int, count: int, dice: random.Random) -> list[dict[str, Any]]:
    others = {dice.randrange(count) for _ in range(LINKS)} - {number}
    return [
        {"to": f"doc-{other:06d}", "type": dice.choice(LINK_TYPES), "strength": round(dice.uniform(0.3, 1), 2)}
        for other in sorted(others)
    ]


def _entities(count: int, dice: random.Random) -> tuple[list[list[str]], list[str]]:
    """The names each document is about, and all names: about as many pairs of the two as there are documents."""
    about: list[list[str]] = [[] for _ in range(count)]
    names: list[str] = []
    given = 0
    while given < count:
        size = min(dice.randint(*ENTITY_SIZES), count)
        name = f"{_word(dice, 3).title()} {_word(dice, 3).title()}"
        names.append(name)
        for number in dice.sample(range(count), size):
            about[number].append(name)
        given += size
    return about, names


def _real(count: int) -> tuple[str, list[Text], list[str]] | None:
    """The smallest collection that is large enough, or None."""
    sizes = {folder: _size(folder) for folder in DATASETS.glob("*") if (folder / "corpus.jsonl").exists()}
    enough = [folder for folder, size in sizes.items() if size >= count]
    if not enough:
        return None
    folder = min(enough, key=lambda each: (sizes[each], each.name))
    with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, count)]
    texts = [Text(row["title"][:1000] or row["text"][:60] or "untitled", row["text"]) for row in rows]
    with (folder / "queries.jsonl").open(encoding="utf-8") as lines:
        questions = [" ".join(json.loads(line)["text"].split()[:50]) for line in lines]
    return f"real text: {folder.name}", texts, questions


def _size(folder: Path) -> int:
    with (folder / "corpus.jsonl").open("rb") as lines:
        return sum(1 for _ in lines)


def _generated(count: int, dice: random.Random) -> tuple[str, list[Text], list[str]]:
    """Words drawn by Zipf's law, so that some are in nearly every document and most in few."""
    words = [_word(dice, dice.randint(2, 4)) for _ in range(VOCABULARY)]
    falling = list(itertools.accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))

    def draw(least: int, most: int) -> list[str]:
        return dice.choices(words, cum_weights=falling, k=dice.randint(least, most))

    drawn = [draw(40, 120) for _ in range(count)]
    texts = [Text(" ".join(each[:4]).capitalize(), " ".join(each)) for each in drawn]
    questions = [" ".join(dice.sample(dice.choice(drawn), 6)) for _ in range(1000)]
    return "generated text with a Zipf vocabulary", texts, questions


def _word(dice: random.Random, syllables: int) -> str:
    return "".join(dice.choices(SYLLABLES, k=syllables))
