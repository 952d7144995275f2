"""Queries that say next to nothing: one or two words, each of them generic. No vector of such a query means anything.

Skipping the vector tier for these saves an embedding and a scan. Systems like ours found it costs recall, so it is off
unless the service is set to do it.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_MOST = 2
# fmt: off
GENERIC = frozenset({
    "a", "about", "all", "an", "and", "any", "are", "as", "at", "by", "data", "do", "doc", "docs", "document",
    "documents", "everything", "file", "files", "find", "for", "from", "get", "help", "how", "i", "in", "info",
    "information", "is", "it", "item", "items", "latest", "list", "me", "my", "new", "news", "no", "note", "notes",
    "of", "on", "one", "or", "other", "page", "problem", "question", "search", "show", "some", "something", "stuff",
    "test", "text", "that", "the", "thing", "things", "this", "to", "update", "updates", "us", "use", "we", "what",
    "when", "where", "which", "who", "why", "with", "you",
})
# fmt: on


def is_generic(text: str) -> bool:
    words = _WORD.findall(text.casefold())
    return 0 < len(words) <= _MOST and all(word in GENERIC or len(word) == 1 for word in words)
