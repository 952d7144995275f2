"""Checking an API key does the same work whether its prefix is known or not."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from service.errors import Unauthorized
from service.stores.keys import Keys
from service.stores.postgres import Postgres

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class OneKey:
    """Stands for PostgreSQL: it holds the key `known`, whose secret nobody has."""

    async def fetchrow(self, statement: str, prefix: str) -> dict[str, Any] | None:
        return {"digest": b"\x01" * 32} if prefix == "known" else None


@pytest.mark.parametrize("key", ["braid_known.wrong", "braid_unknown.wrong", "braid_-.wrong", "braid_.", "no key", ""])
async def test_a_digest_is_compared_in_constant_time_even_if_there_is_none_to_compare_with(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []

    def compare(given: bytes, expected: bytes) -> bool:
        compared.append((len(given), len(expected)))
        return real(given, expected)

    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    with pytest.raises(Unauthorized, match=r"^this API key is not known, or has expired or been revoked$"):
        await Keys(cast("Postgres", OneKey()), b"pepper", lambda: 0.0).check(key, NOW)
    assert compared == [(32, 32)]


async def test_a_digest_that_equals_the_stand_in_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hmac, "compare_digest", lambda *_: True)
    with pytest.raises(Unauthorized):
        await Keys(cast("Postgres", OneKey()), b"pepper", lambda: 0.0).check("braid_unknown.wrong", NOW)
