"""The exceptions Braid raises on purpose. Vendor errors never leave `stores/`: they become one of these.

BraidError
├── InvalidInput            the caller sent something we refuse; names the field (422)
├── Unauthorized            no key, or not one we know (401)
├── Forbidden               the key is known and may not do this (403)
├── QuotaExceeded           the tenant would hold more than it may (403)
├── TooManyRequests         a key, a tenant or an address calls too often (429)
├── Overloaded              there is more to do than can be done in time (503)
├── BacklogFull             a tenant writes faster than the sinks can follow (429)
├── NotFound                no such document (404)
├── Conflict                it is there already, still in use, or being deleted (409)
├── IssuerUnavailable       the keys that tokens are checked with cannot be had (503); API keys go on working
├── Degraded                a tier is missing that the caller cannot do without (503)
├── TierUnavailable         an engine behind a tier cannot be reached (degrades the search)
│   └── StoreUnavailable    PostgreSQL cannot be reached: the one engine we can't do without (503)
├── ClaimLost               a worker held documents for too long; it leaves them to whoever has them now
├── TierInvalid             an engine answered, but with something we cannot trust
└── SetupError              the service cannot start; the message says what to do
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence


def outline(error: BaseException) -> str:
    """For the log: what kind of failure, and where. Not what it says, which may quote a document, a query or a key."""
    within = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    parts = [f"{type(error).__qualname__}\n{''.join(traceback.format_tb(error.__traceback__))}".rstrip()]
    parts += [f"with {outline(each)}" for each in within]
    parts += [] if earlier is None else [f"after {outline(earlier)}"]
    return "\n".join(parts)


class BraidError(Exception):
    """Base of everything Braid raises on purpose."""


class InvalidInput(BraidError):
    """Refused input. `field` is a path such as `filter.metadata.year`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class Unauthorized(BraidError):
    """The request carries no API key that we know."""


class Forbidden(BraidError):
    """The key is good, but does not carry the scope that this call needs."""


class QuotaExceeded(BraidError):
    """The write would take the tenant over its quota. The message names the quota and the use."""


class TooManyRequests(BraidError):
    """Somebody calls more often than a policy allows: `quota` times in `window_s` seconds."""

    def __init__(self, whose: str, quota: int, window_s: int, retry_s: int) -> None:
        what = "wrong keys from this address" if whose == "address" else f"calls for this {whose}"
        super().__init__(f"at most {quota} {what} in {window_s} s: try again in {retry_s} s")


class BacklogFull(BraidError):
    """The sinks are too far behind to take more from this tenant now."""

    def __init__(self, waiting: int, bound: int) -> None:
        super().__init__(f"{waiting} documents wait to be indexed, and {bound} may: send more when they are fewer")


class ClaimLost(BraidError):
    """A worker was slower than its claim lasts: what it holds may be another's by now, so it must not write."""


class Overloaded(BraidError):
    """An answer would come too late, so there is none."""


class NotFound(BraidError):
    """There is nothing under this id that the caller can see."""


class Conflict(BraidError):
    """What is there does not allow this now: the message says what to do first."""


class IssuerUnavailable(BraidError):
    """The issuer of tokens does not give us its keys, so we can neither accept nor refuse one."""


class Degraded(BraidError):
    """These tiers did not answer, and the caller said `allow_degraded: false` or `require`."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(f"these tiers did not answer: {', '.join(missing)}")
        self.missing = tuple(missing)


class TierUnavailable(BraidError):
    """The engine or the embedder behind a tier cannot be reached."""


class StoreUnavailable(TierUnavailable):
    """PostgreSQL cannot be reached, or had no free connection in time."""


class TierInvalid(BraidError):
    """The engine answered with something that cannot be read."""


class SetupError(BraidError):
    """The service cannot start. The message is one line: what is wrong and what to do."""
