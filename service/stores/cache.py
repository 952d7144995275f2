"""Answers kept in memory: bounded in bytes, the least recently used go first, each only for one tenant and epoch.

A tenant's answers stand on a shelf of their own, which is emptied as soon as it is seen that the tenant's epoch has
moved on. There is no way from one tenant's shelf to another's: every call names the tenant.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_OVERHEAD = 1024
"""Bytes that an entry costs beyond what can be counted."""
_COMPARED = 256
"""Answers of one scope that a vector is compared with at most, the newest first."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer. `scope` is all of the question but its words, `firm` the words that meaning must not blur: digests, as
    nobody needs to know what was asked."""

    body: bytes
    ids: tuple[str, ...]
    scope: bytes
    firm: bytes = b""
    vector: NDArray[np.float32] | None = None

    @property
    def size(self) -> int:
        vector = 0 if self.vector is None else self.vector.nbytes
        return _OVERHEAD + len(self.body) + sum(map(len, self.ids)) + vector


@dataclass(slots=True)
class Shelf:
    """One tenant's answers, all of one epoch, each with the moment at which it is too old."""

    epoch: int
    answers: dict[bytes, tuple[float, Kept]] = field(default_factory=dict)


class AnswerCache:
    """All shelves together hold `max_bytes` at most, and an answer for `ttl_s` seconds at most."""

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._ttl = ttl_s
        self._clock = clock
        self._shelves: dict[str, Shelf] = {}
        self._sizes: OrderedDict[tuple[str, bytes], int] = OrderedDict()  # least recently used first
        self._bytes = 0

    @property
    def bytes_held(self) -> int:
        return self._bytes

    def exact(self, tenant: str, epoch: int, key: bytes) -> Kept | None:
        """The answer to exactly this question."""
        shelf = self._current(tenant, epoch)
        if shelf is None or key not in shelf.answers:
            return None
        expires, kept = shelf.answers[key]
        if expires <= self._clock():
            self._drop(tenant, key)
            return None
        self._sizes.move_to_end((tenant, key))
        return kept

    def near(  # noqa: PLR0913, PLR0917 - whose, when, and three sides of a question
        self, tenant: str, epoch: int, scope: bytes, firm: bytes, vector: Sequence[float], bound: float
    ) -> Kept | None:
        """The answer to the question of this scope whose meaning is nearest, where the cosine reaches `bound`."""
        shelf = self._current(tenant, epoch)
        wanted = unit(vector)
        if shelf is None or wanted is None:
            return None
        now = self._clock()
        alike = [
            (key, kept.vector)
            for key, (expires, kept) in reversed(shelf.answers.items())
            if kept.scope == scope and kept.firm == firm and kept.vector is not None and expires > now
        ][:_COMPARED]
        if not alike:
            return None
        cosines = np.stack([each for _, each in alike]) @ wanted
        best = int(np.argmax(cosines))
        return self.exact(tenant, epoch, alike[best][0]) if cosines[best] >= bound else None

    def keep(self, tenant: str, epoch: int, key: bytes, kept: Kept) -> None:
        """Remembers an answer whose search began at `epoch`, unless that is history or it would fill half of it all."""
        newest = self._shelves.get(tenant)
        if kept.size > self._max_bytes // 2 or (newest is not None and newest.epoch > epoch):
            return
        self._current(tenant, epoch)  # clears what is older
        self._drop(tenant, key)
        self._shelves.setdefault(tenant, Shelf(epoch)).answers[key] = (self._clock() + self._ttl, kept)
        self._sizes[tenant, key] = kept.size
        self._bytes += kept.size
        while self._bytes > self._max_bytes:
            self._drop(*next(iter(self._sizes)))

    def _current(self, tenant: str, epoch: int) -> Shelf | None:
        """The tenant's shelf, if it is of this epoch. An older one is cleared; a newer one is not for this caller."""
        shelf = self._shelves.get(tenant)
        if shelf is not None and shelf.epoch < epoch:
            for key in list(shelf.answers):
                self._drop(tenant, key)
            return None
        return shelf if shelf is not None and shelf.epoch == epoch else None

    def _drop(self, tenant: str, key: bytes) -> None:
        size = self._sizes.pop((tenant, key), None)
        if size is None:
            return
        self._bytes -= size
        shelf = self._shelves[tenant]
        del shelf.answers[key]
        if not shelf.answers:
            del self._shelves[tenant]


def unit(vector: Sequence[float]) -> NDArray[np.float32] | None:
    """Of length 1; None for one without a direction."""
    array = np.asarray(vector, np.float32)
    length = float(np.linalg.norm(array))
    return None if not np.isfinite(length) or length == 0 else array / np.float32(length)
