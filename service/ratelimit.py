"""How often somebody may call: a token bucket each, kept as one number (GCRA), in bounded memory.

A bucket holds `quota` tokens and fills up within `window_s`: so many calls at once, then as fast as it fills. The
number is the moment at which the bucket is full again (the "theoretical arrival time" of ITU-T I.371).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

_SECOND = 1_000_000_000
# Of those who called least recently the bucket is forgotten, that is, full again. 100,000 take some 21 MB.
MOST_BUCKETS = 100_000


@dataclass(frozen=True, slots=True)
class Policy:
    """`quota` calls in `window_s` seconds, to whom `name` says: a key, a tenant, an address."""

    name: str
    quota: int
    window_s: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one call: whether it may go on, what is left, and the seconds until all is there, or one is."""

    policy: Policy
    allowed: bool
    left: int
    full_in_s: int
    retry_in_s: int


class Buckets:
    """One bucket a name, all of one policy. The clock gives nanoseconds: whole numbers, so nothing is lost in sums."""

    def __init__(self, policy: Policy, clock: Callable[[], int], most: int = MOST_BUCKETS) -> None:
        self.policy = policy
        self._clock = clock
        self._most = most
        self._window = policy.window_s * _SECOND
        self._token = self._window // policy.quota
        self._full_at: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def look(self, name: str) -> Verdict:
        """Whether a call would go through now; takes nothing."""
        return self._verdict(max(0, self._full_at.get(name, 0) - self._clock()))

    def take(self, name: str) -> Verdict:
        """Takes a token if there is one; a call that is refused costs nothing."""
        now = self._clock()
        missing = max(0, self._full_at.get(name, 0) - now)
        verdict = self._verdict(missing)
        if not verdict.allowed:
            return verdict
        self._full_at[name] = now + missing + self._token
        self._full_at.move_to_end(name)
        if len(self._full_at) > self._most:
            self._full_at.popitem(last=False)
        return Verdict(self.policy, True, verdict.left - 1, _seconds(missing + self._token), 0)

    def _verdict(self, missing: int) -> Verdict:
        left = (self._window - missing) // self._token
        wait = 0 if left else self._token - (self._window - missing)
        return Verdict(self.policy, left > 0, left, _seconds(missing), _seconds(wait))


def _seconds(nanoseconds: int) -> int:
    """Whole seconds, rounded up: who waits that long does not come too early."""
    return -(-nanoseconds // _SECOND)
