"""The exceptions Braid raises on purpose. Vendor errors never leave `stores/`: they become one of these.

BraidError
├── InvalidInput            the caller sent something we refuse; names the field (422)
├── Unauthorized            no key, or not one we know (401)
├── Forbidden               the key is known and may not do this (403)
├── NotFound                no such document (404)
├── IssuerUnavailable       the keys that tokens are checked with cannot be had (503); API keys go on working
├── Degraded                a tier is missing and the caller asked for no degradation (503)
├── TierUnavailable         an engine behind a tier cannot be reached (degrades the search)
│   └── StoreUnavailable    PostgreSQL cannot be reached: the one engine we can't do without (503)
├── TierInvalid             an engine answered, but with something we cannot trust
└── SetupError              the service cannot start; the message says what to do
"""

from __future__ import annotations

from collections.abc import Sequence


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


class NotFound(BraidError):
    """There is nothing under this id that the caller can see."""


class IssuerUnavailable(BraidError):
    """The issuer of tokens does not give us its keys, so we can neither accept nor refuse one."""


class Degraded(BraidError):
    """The caller said `allow_degraded: false` and these tiers did not answer."""

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
