"""What people type, read as a query. It never fails: whatever does not belong to the language is plain text.

    query   = either either ...       side by side, see `_beside`
    either  = both OR both ...
    both    = one AND one ...
    one     = NOT one | -atom | atom
    atom    = word | prefix* | "a phrase" | (query), the first three also as title:… content:… tag:…

Everything runs in time linear in the text: it is cut into tokens once, tokens that make no sense as syntax (an operator
without something to work on, a bracket without its partner) become plain text, and the rest always can be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

MAX_DEPTH = 8
MAX_LEAVES = 64
PROSE = 8
"""Beside more words than this a quoted phrase need not be there: people quote in sentences."""

FIELDS = {"title": "A", "tag": "B", "content": "D"}
"""The fields that can be named, and their weights in the tsvector."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as typed, punctuation and all; PostgreSQL decides what its lexemes are."""

    text: str
    field: str | None = None
    prefix: bool = False

    def as_json(self) -> dict[str, object]:
        return {"word": self.text} | _field(self.field) | ({"prefix": True} if self.prefix else {})


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that follow each other."""

    text: str
    field: str | None = None

    def as_json(self) -> dict[str, object]:
        return {"phrase": self.text} | _field(self.field)


@dataclass(frozen=True, slots=True)
class All:
    """Every part must match; one of them is not a `Not`."""

    parts: tuple[Node, ...]

    def as_json(self) -> dict[str, object]:
        return {"all": [part.as_json() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class Any:
    """One part must match; none of them is a `Not`."""

    parts: tuple[Node, ...]

    def as_json(self) -> dict[str, object]:
        return {"any": [part.as_json() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class Not:
    """The part must not match."""

    part: Node

    def as_json(self) -> dict[str, object]:
        return {"not": self.part.as_json()}


Node: TypeAlias = Word | Phrase | All | Any | Not


@dataclass(frozen=True, slots=True)
class Typed:
    """A query: what documents must match, and the words that rank those that do."""

    tree: Node
    words: str

    @property
    def plain(self) -> bool:
        """Nothing but words joined with OR: `words` says it all."""
        parts = self.tree.parts if isinstance(self.tree, Any) else (self.tree,)
        return all(map(_is_plain, parts))

    def as_json(self) -> dict[str, object]:
        return self.tree.as_json()


def parse(text: str) -> Typed:
    return _read(text) if _SYNTAX.search(text) else _as_plain(text)


def _read(text: str) -> Typed:
    """Where nothing is wanted, only unwanted, or where it is too much to be meant, the text is plain after all."""
    tokens = _settle_operators(_settle_brackets(list(_tokens(text.translate(_QUOTES)))))
    if sum(token.leaf is not None for token in tokens) > MAX_LEAVES or _is_prose(tokens):
        return _as_plain(text)
    reader = _Reader(tokens)
    reading = reader.query()
    if reading.wanted is None or depth(reading.whole) > MAX_DEPTH:
        return _as_plain(text)
    return Typed(reading.whole, " ".join(reader.words))


def _is_prose(tokens: Sequence[_Token]) -> bool:
    """Many words, and quotes and brackets the only syntax: a text that quotes, not a query with operators."""
    plain = sum(token.kind == "leaf" and _is_plain(token.leaf) for token in tokens)
    return plain > PROSE and not any(map(_is_operator, tokens))


def _is_operator(token: _Token) -> bool:
    """Whether it is meant as syntax, wherever it stands."""
    if token.excluded or token.kind in {"AND", "OR", "NOT"}:
        return True
    return token.kind == "leaf" and not isinstance(token.leaf, Phrase) and not _is_plain(token.leaf)


def leaves(node: Node) -> Iterator[Word | Phrase]:
    """Every word and phrase, unwanted ones too, in the order in which they were typed."""
    if isinstance(node, Word | Phrase):
        yield node
    for part in _parts(node):
        yield from leaves(part)


def depth(node: Node) -> int:
    return 1 + max((depth(part) for part in _parts(node)), default=0)


def _parts(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Not):
        return (node.part,)
    return node.parts if isinstance(node, All | Any) else ()


def _field(field: str | None) -> dict[str, object]:
    return {} if field is None else {"field": field}


def _is_plain(node: Node | None) -> bool:
    return isinstance(node, Word) and node.field is None and not node.prefix


def _as_plain(text: str) -> Typed:
    words = text.split()
    kept = words if len(words) <= MAX_LEAVES else [*words[: MAX_LEAVES - 1], " ".join(words[MAX_LEAVES - 1 :])]
    return Typed(_any([Word(word) for word in kept]), " ".join(words))


# --- Tokens

# Telephones and word processors write these in place of straight quotes.
_QUOTES = {ord(quote): '"' for quote in "“”„"}
# Without any of these a text is plain: most texts are.
_SYNTAX = re.compile(r'["“”„*()]|(?:^|\s)-|AND|OR|NOT|(?:title|content|tag):')
# A quote within a word is an inch, a minute or a slip; it opens a phrase only where a token begins.
_PIECE = re.compile(r'(?P<minus>-)?(?:(?P<field>title|content|tag):)?"(?P<phrase>[^"]*)"|(?P<open>-?\()|(?P<word>\S+)')
_EXCLUDED = re.compile(r"-(?=[^\W_])")
_IN_FIELD = re.compile(r'(title|content|tag):([^-:*("].*)')
# Two characters at least, and no punctuation before the star.
_PREFIX = re.compile(r'([^\W_][^*":()]*[^!-/:-@\[-`{-~])\*')
_TELLING = re.compile(r"[^\W_]")


class _Token(NamedTuple):
    """`leaf` for something to look for, `mark` for text without a letter or digit; the other kinds are syntax."""

    kind: str
    leaf: Word | Phrase | None = None
    excluded: bool = False


def _tokens(text: str) -> Iterator[_Token]:
    for piece in _PIECE.finditer(text):
        if piece["open"]:
            yield _Token("(", excluded=len(piece["open"]) > 1)
        elif piece["word"]:
            yield from _word_tokens(piece["word"])
        elif _TELLING.search(piece["phrase"]):
            phrase = Phrase(" ".join(piece["phrase"].split()), FIELDS.get(piece["field"]))
            yield _Token("leaf", phrase, excluded=piece["minus"] is not None)
        else:
            yield _text_token(Word(" ".join(piece[0].split())))


def _word_tokens(chunk: str) -> Iterator[_Token]:
    """A word, and the brackets that end with it. Brackets that open within the word are its own, as in `f(x)`."""
    closed = len(chunk) - len(chunk.rstrip(")"))
    closing = max(0, min(closed, chunk.count(")") - chunk.count("(")))
    word = chunk[: len(chunk) - closing]
    if word in {"AND", "OR", "NOT"}:
        yield _Token(word, Word(word))
    elif word:
        excluded = _EXCLUDED.match(word) is not None
        yield _text_token(_word(word.removeprefix("-") if excluded else word), excluded=excluded)
    for _ in range(closing):
        yield _Token(")")


def _text_token(word: Word, *, excluded: bool = False) -> _Token:
    return _Token("leaf" if _TELLING.search(word.text) else "mark", word, excluded)


def _word(text: str) -> Word:
    named = _IN_FIELD.fullmatch(text)
    if named and _TELLING.search(named[2]):
        prefix = _PREFIX.fullmatch(named[2])
        return Word(prefix[1] if prefix else named[2], FIELDS[named[1]], prefix is not None)
    prefix = _PREFIX.fullmatch(text)
    return Word(prefix[1], prefix=True) if prefix else Word(text)


def _settle_brackets(tokens: Sequence[_Token]) -> list[_Token]:
    """Drops brackets that have no partner, hold nothing to look for, or are nested too deep."""
    kept = {at for at, token in enumerate(tokens) if token.kind not in {"(", ")"}}
    opened: list[tuple[int, int]] = []
    telling = 0
    for at, token in enumerate(tokens):
        telling += token.kind == "leaf"
        if token.kind == "(":
            opened.append((at, telling))
        elif token.kind == ")" and opened:
            start, before = opened.pop()
            if telling > before and len(opened) < MAX_DEPTH:
                kept |= {start, at}
    return [token for at, token in enumerate(tokens) if at in kept]


def _settle_operators(tokens: Sequence[_Token]) -> list[_Token]:
    """Makes operators that have nothing to work on plain text."""
    settled: list[_Token] = []
    operand_follows = False
    for at in range(len(tokens) - 1, -1, -1):
        token = tokens[at]
        if token.kind in {"AND", "OR", "NOT"}:
            operand_precedes = at > 0 and tokens[at - 1].kind in {"leaf", ")"}
            if not operand_follows or not (token.kind == "NOT" or operand_precedes):
                token = _Token("mark", token.leaf)
        operand_follows = token.kind in {"leaf", "(", "NOT"}
        settled.append(token)
    return settled[::-1]


# --- Reading


class _Reading(NamedTuple):
    """What a part of the query wants, and what it does not want among that."""

    wanted: Node | None
    unwanted: tuple[Node, ...] = ()

    @property
    def whole(self) -> Node:
        """Only where something is wanted."""
        return _all([self.wanted or Any(()), *map(Not, self.unwanted)])


class _Reader:
    """Reads settled tokens by recursive descent, and collects the wanted text on the way."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.words: list[str] = []
        self._tokens = tokens
        self._at = 0
        self._opposite = False

    def query(self) -> _Reading:
        readings: list[_Reading] = []
        while self._at < len(self._tokens) and self._kind != ")":
            readings.append(self._either())
        return _or(readings) if self._opposite else _beside(readings)

    @property
    def _kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _either(self) -> _Reading:
        readings = [self._both()]
        while self._kind == "OR":
            self._at += 1
            readings.append(self._both())
        return _or(readings)

    def _both(self) -> _Reading:
        readings = [self._one()]
        while self._kind == "AND":
            self._at += 1
            readings.append(self._one())
        return _and(readings)

    def _one(self) -> _Reading:
        nots = 0
        while self._kind == "NOT":
            self._at += 1
            nots += 1
        turned = (nots + self._tokens[self._at].excluded) % 2 == 1
        self._opposite ^= turned
        reading = self._atom()
        self._opposite ^= turned
        return _not(reading) if turned else reading

    def _atom(self) -> _Reading:
        leaf = self._tokens[self._at].leaf
        self._at += 1
        if leaf is None:
            reading = self.query()
            self._at += 1  # the closing bracket
            return reading
        if not self._opposite and _ranks(leaf):
            self.words.append(leaf.text)
        return _Reading(leaf)


def _ranks(leaf: Word | Phrase) -> bool:
    """The beginning of a word may be a word itself, but only where it is one: `E-44*` is not `E` or `44`."""
    return isinstance(leaf, Phrase) or not leaf.prefix or leaf.text.isalnum()


def _beside(readings: Sequence[_Reading]) -> _Reading:
    """Words side by side are alternatives. Beside a phrase or a field, which must be there, they only rank.

    Among what is unwanted nothing is ranked, so everything side by side is an alternative.
    """
    wanted = [reading.whole for reading in readings if reading.wanted is not None]
    musts = [node for node in wanted if _is_must(node)]
    if musts:
        others = [node for node in wanted if not _is_must(node) and not _is_plain(node)]
        wanted = [_all([*musts, _any(others)] if others else musts)]
    return _combined(readings, _any(wanted))


def _is_must(node: Node) -> bool:
    """Whether it cannot match without a phrase or a field."""
    if isinstance(node, All):
        return any(map(_is_must, node.parts))
    if isinstance(node, Any):
        return all(map(_is_must, node.parts))
    return isinstance(node, Phrase) or (isinstance(node, Word) and node.field is not None)


def _or(readings: Sequence[_Reading]) -> _Reading:
    """`a OR NOT b` is `a` without `b`: what is only unwanted cannot be looked for."""
    return _combined(readings, _any([reading.whole for reading in readings if reading.wanted is not None]))


def _and(readings: Sequence[_Reading]) -> _Reading:
    wanted = [reading.wanted for reading in readings if reading.wanted is not None]
    unwanted = tuple(node for reading in readings for node in reading.unwanted)
    return _Reading(_all(wanted) if wanted else None, unwanted)


def _not(reading: _Reading) -> _Reading:
    return _Reading(_any(reading.unwanted)) if reading.wanted is None else _Reading(None, (reading.whole,))


def _combined(readings: Sequence[_Reading], wanted: Node) -> _Reading:
    """What some only do not want is taken from what the others want."""
    if len(readings) == 1:
        return readings[0]
    unwanted = tuple(node for reading in readings if reading.wanted is None for node in reading.unwanted)
    nothing = all(reading.wanted is None for reading in readings)
    return _Reading(None if nothing else wanted, unwanted)


def _all(parts: Sequence[Node]) -> Node:
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, All) else (part,))]
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def _any(parts: Sequence[Node]) -> Node:
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Any) else (part,))]
    return flat[0] if len(flat) == 1 else Any(tuple(flat))
