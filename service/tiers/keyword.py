"""The keyword tier: exact words, names, ids and phrases, through PostgreSQL's full-text index."""

from __future__ import annotations

import re

from service.model import Hit, Query
from service.stores.documents import TenantDocuments, Typed
from service.stores.postgres import Postgres

_PIECES = re.compile(r'(?P<minus>-)?"(?P<phrase>[^"]+)"|(?P<word>\S+)')


class KeywordTier:
    """Finds documents by the words that people typed."""

    name = "keyword"

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def search(self, query: Query, limit: int, timeout_ms: int) -> list[Hit]:
        typed = read(query.text)
        documents = TenantDocuments(self._postgres, query.reach)
        return await documents.match(typed, query.namespaces, query.filter, limit)


def read(text: str) -> Typed:
    """Takes a typed query apart. Unwanted words alone are plain words: there is nothing to take them from."""
    words: list[str] = []
    phrases: list[str] = []
    unwanted: list[str] = []
    for piece in _PIECES.finditer(text):
        phrase, word = piece["phrase"], piece["word"]
        if phrase is not None:
            (unwanted if piece["minus"] else phrases).append(phrase)
        elif re.match(r"-\w", word):
            unwanted.append(word[1:])
        else:
            words.append(word)
    if not words and not phrases:
        return Typed(text, (), "")
    return Typed(" ".join(words), tuple(phrases), " ".join(unwanted))
