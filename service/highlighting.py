"""Highlights for one page of results: which words match is PostgreSQL's to say, where they stand is looked up here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from service.model import Document, Found, Highlight, Query
from service.ranking.highlight import Alike, Pattern, fragments, looked_at, marked, patterns_of, words_in
from service.ranking.typed import parse
from service.stores.postgres import Postgres
from service.stores.words import words_alike


async def highlighted(postgres: Postgres, results: Sequence[Found], query: Query) -> list[Found]:
    """The same results, each with its title and the best of its content marked. In a thread, as texts may be long."""
    patterns = patterns_of(parse(query.text))
    wanted = sorted({word for pattern in patterns for word in pattern.words})
    words = await asyncio.to_thread(_words_by_namespace, [found.document for found in results], wanted)
    alike = await words_alike(postgres, query.reach, words, wanted)
    return await asyncio.to_thread(_marked, results, patterns, alike)


def _words_by_namespace(documents: Sequence[Document], wanted: Sequence[str]) -> dict[str, set[str]]:
    """What is to be compared. The query's own words too: so it shows which of them mean anything."""
    words: dict[str, set[str]] = {document.namespace: set(wanted) for document in documents}
    for document in documents:
        for text in (document.title, document.content):
            words[document.namespace].update(words_in(looked_at(text)))
    return words


def _marked(results: Sequence[Found], patterns: Sequence[Pattern], alike: Mapping[str, Alike]) -> list[Found]:
    return [replace(found, highlight=_highlight(found.document, patterns, alike)) for found in results]


def _highlight(document: Document, patterns: Sequence[Pattern], alike: Mapping[str, Alike]) -> Highlight:
    same = alike.get(document.namespace, {})
    return Highlight(marked(document.title, patterns, same), tuple(fragments(document.content, patterns, same)))
