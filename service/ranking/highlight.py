"""Where a query's words stand in a text: the best fragments, with the matches marked and everything else escaped.

Which words mean the same as which words of the query is decided elsewhere, as that is a matter of language.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile

from service.ranking.typed import FIELDS, All, Any, Node, Not, Phrase, Typed, Word

LOOKED_AT = 20_000
"""So many characters of a text are looked at."""
LENGTH = 200
FRAGMENTS = 2
MARKS = ("<mark>", "</mark>")

_WORD = re.compile(r"[^\W_]+")

Alike = Mapping[str, AbstractSet[str]]
"""For a word of a text, those words of the query that mean the same. Words of no meaning, such as "the", are absent."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Words of the query that follow each other; of the last one, only the beginning where it is a `prefix`.

    They must all be there where they were `quoted`; else one of them is better than nothing.
    """

    words: tuple[str, ...]
    field: str | None = None
    prefix: bool = False
    quoted: bool = False


def patterns_of(typed: Typed) -> list[Pattern]:
    """What a query wants to see; not what it wants to be absent. Words that only rank are among it."""
    needed = list(dict.fromkeys(_patterns(typed.tree)))
    known = {word for pattern in needed for word in pattern.words}
    return needed + [Pattern((word,)) for word in dict.fromkeys(words_in(typed.words)) if word not in known]


def _patterns(node: Node) -> Iterator[Pattern]:
    if isinstance(node, All | Any):
        for part in node.parts:
            yield from _patterns(part)
    elif not isinstance(node, Not):
        words = tuple(words_in(node.text))
        if words:
            prefix = isinstance(node, Word) and node.prefix
            yield Pattern(words, node.field, prefix, isinstance(node, Phrase))


def words_in(text: str) -> list[str]:
    return [match[0].lower() for match in _WORD.finditer(text)]


def looked_at(text: str) -> str:
    """The part of a text that is looked at, on one line."""
    return " ".join(text[:LOOKED_AT].split())


@dataclass(frozen=True, slots=True)
class Span:
    """A match: from here to there, of which pattern."""

    start: int
    end: int
    pattern: Pattern


def marked(text: str, patterns: Sequence[Pattern], alike: Alike) -> str:
    """All of a title."""
    text = looked_at(text)
    return _shown(text, _spans(text, _for_field(patterns, "title"), alike))


def fragments(text: str, patterns: Sequence[Pattern], alike: Alike) -> list[str]:
    """The best parts of a content, in their order; its beginning where nothing matches."""
    text = looked_at(text)
    spans = _spans(text, _for_field(patterns, "content"), alike)
    windows: list[tuple[int, int]] = []
    seen: set[Pattern] = set()
    while len(windows) < FRAGMENTS and (best := _best(spans, seen)):
        window = _around(text, best[0].start, best[-1].end)
        if any(start < window[1] and window[0] < end for start, end in windows):
            break
        windows.append(window)
        seen |= {span.pattern for span in best}
    if not windows and text:
        windows = [_around(text, 0, 0)]
    return [_fragment(text, start, end, spans) for start, end in sorted(windows)]


def _for_field(patterns: Sequence[Pattern], field: str) -> list[Pattern]:
    return [pattern for pattern in patterns if pattern.field in (None, FIELDS[field])]


def _spans(text: str, patterns: Sequence[Pattern], alike: Alike) -> list[Span]:
    """Every match, in order; of those that overlap, the first and longest."""
    places = [(match[0].lower(), match.start(), match.end()) for match in _WORD.finditer(text)]
    spans: list[Span] = []
    for span in sorted(_matches(places, patterns, alike), key=lambda span: (span.start, -span.end)):
        if not spans or span.start >= spans[-1].end:
            spans.append(span)
    return spans


_Place = tuple[str, int, int]


def _matches(places: Sequence[_Place], patterns: Sequence[Pattern], alike: Alike) -> Iterator[Span]:
    """Runs of words that are like a pattern; single words where there is no run, and none was asked for."""
    telling = [pattern for pattern in patterns if _tells(pattern, alike)]
    meaning = _meaning(places, telling, alike)
    beginning = [(at, meaning[word]) for at, (word, _, _) in enumerate(places) if word in meaning]
    for pattern in telling:
        first = _key(pattern, 0)
        runs = [at for at, words in beginning if first in words and _is_run(places, at, pattern, meaning)]
        for at in runs:
            yield Span(places[at][1], places[at + len(pattern.words) - 1][2], pattern)
        if not runs and not pattern.quoted:
            words = {word for word in pattern.words if _is_telling(word, alike)}
            yield from (Span(*places[at][1:], pattern) for at, meant in beginning if words & meant)


def _tells(pattern: Pattern, alike: Alike) -> bool:
    return pattern.quoted or pattern.prefix or any(_is_telling(word, alike) for word in pattern.words)


def _is_telling(word: str, alike: Alike) -> bool:
    return word in alike.get(word, frozenset())


def _key(pattern: Pattern, at: int) -> str:
    """A word of a pattern, by which those like it are known: a star behind it where only the beginning must be."""
    return f"{pattern.words[at]}*" if pattern.prefix and at == len(pattern.words) - 1 else pattern.words[at]


def _meaning(places: Sequence[_Place], patterns: Sequence[Pattern], alike: Alike) -> dict[str, set[str]]:
    """What each word of a text stands for, of the words of the patterns. Few words stand for any."""
    meaning = {word: set(same) for word, same in alike.items()}
    for word in {word for pattern in patterns for word in pattern.words}:
        meaning.setdefault(word, set()).add(word)
    prefixes = {pattern.words[-1] for pattern in patterns if pattern.prefix}
    for word in {word for word, _, _ in places} if prefixes else ():
        for prefix in prefixes:
            if word.startswith(prefix):
                meaning.setdefault(word, set()).add(f"{prefix}*")
    return meaning


def _is_run(places: Sequence[_Place], at: int, pattern: Pattern, meaning: Mapping[str, AbstractSet[str]]) -> bool:
    words = [word for word, _, _ in places[at : at + len(pattern.words)]]
    return len(words) == len(pattern.words) and all(
        _key(pattern, offset) in meaning.get(word, frozenset()) for offset, word in enumerate(words)
    )


def _best(spans: Sequence[Span], seen: AbstractSet[Pattern]) -> list[Span]:
    """The matches close to each other that show most of the query which is not seen yet."""
    best: list[Span] = []
    most = (0, 0)
    for at, first in enumerate(spans):
        near = list(takewhile(partial(_within, first.start + LENGTH), islice(spans, at, None)))
        worth = (sum(len(p.words) for p in {span.pattern for span in near} - seen), len(near))
        if worth[0] and worth > most:
            best, most = near, worth
    return best


def _within(end: int, span: Span) -> bool:
    return span.end <= end


def _around(text: str, start: int, end: int) -> tuple[int, int]:
    """As much text around the matches as fits, cut between words."""
    spare = max(0, LENGTH - (end - start))
    left = max(0, min(start - spare // 2, len(text) - LENGTH))
    right = min(len(text), max(end, left + LENGTH))
    if left > 0:
        left = text.find(" ", left, start) + 1 or left
    if right < len(text):
        blank = text.rfind(" ", end, right)
        right = blank if blank > end else right
    return left, right


def _fragment(text: str, start: int, end: int, spans: Sequence[Span]) -> str:
    inside = [Span(s.start - start, s.end - start, s.pattern) for s in spans if start <= s.start and s.end <= end]
    before, after = "… " if start else "", " …" if end < len(text) else ""
    return before + _shown(text[start:end], inside) + after


def _shown(text: str, spans: Sequence[Span]) -> str:
    parts, at = [], 0
    for span in spans:
        parts += [html.escape(text[at : span.start]), MARKS[0], html.escape(text[span.start : span.end]), MARKS[1]]
        at = span.end
    return "".join(parts) + html.escape(text[at:])
