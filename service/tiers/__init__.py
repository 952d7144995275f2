"""The tiers: each asks one engine one question and answers with hits in the engine's own score.

A tier is anything with a name and a `search`. It raises `TierUnavailable` when its engine can't be reached and
`TierInvalid` when the answer can't be read; `guard` turns those, and lateness, into a `TierAnswer`.
"""

from __future__ import annotations

from typing import Protocol

from service.model import Hit, Query


class Tier(Protocol):
    """One way to find documents."""

    @property
    def name(self) -> str: ...

    async def search(self, query: Query, limit: int, timeout_ms: int) -> list[Hit]:
        """The best `limit` documents, best first, ties by id, filtered before the cut."""
        ...
