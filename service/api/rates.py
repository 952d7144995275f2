"""Rate limits, as HTTP says them: who may call how often, in the headers of the IETF's draft and in refusals."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fastapi import Request

from service import metrics
from service.errors import TooManyRequests, Unauthorized
from service.ratelimit import Buckets, Policy, Verdict
from service.stores.keys import Caller


class Rates:
    """Counts calls by key and by tenant, and failed authentications by address. A rate of 0 switches a limit off."""

    def __init__(self, *, key: float, tenant: float, failures: float, window_s: int, clock: Callable[[], int]) -> None:
        def buckets(name: str, rate: float) -> Buckets | None:
            return Buckets(Policy(name, max(1, round(rate * window_s)), window_s), clock) if rate else None

        self._by_key = buckets("key", key)
        self._by_tenant = buckets("tenant", tenant)
        self._by_address = buckets("address", failures)

    def admit(self, request: Request, caller: Caller) -> None:
        """Counts a call; refuses one that comes too soon. Either way the answer says how much is left."""
        verdicts: list[Verdict] = []
        tenant = None if caller.tenant_reach is None else caller.tenant_reach.tenant
        for buckets, name in ((self._by_key, caller.name), (self._by_tenant, tenant)):
            if buckets is not None and name is not None:
                verdicts.append(buckets.take(name))
                if not verdicts[-1].allowed:
                    break
        _tell(request, verdicts)

    @contextmanager
    def guessing(self, request: Request) -> Iterator[None]:
        """Within, somebody shows a key. Who showed too many wrong ones is not told whether this one is right."""
        if self._by_address is None:
            yield
            return
        address = _network(request)
        verdict = self._by_address.look(address)
        if not verdict.allowed:
            _tell(request, [verdict])
        try:
            yield
        except Unauthorized:
            self._by_address.take(address)
            raise


def _tell(request: Request, verdicts: Sequence[Verdict]) -> None:
    """draft-ietf-httpapi-ratelimit-headers: quota and window, what remains and when it is full again."""
    if not verdicts:
        return
    headers: dict[str, str] = request.scope["braid.headers"]
    policies = [v.policy for v in verdicts]
    headers["RateLimit-Policy"] = ", ".join(f'"{p.name}";q={p.quota};w={p.window_s}' for p in policies)
    headers["RateLimit"] = ", ".join(f'"{v.policy.name}";r={v.left};t={v.full_in_s}' for v in verdicts)
    last = verdicts[-1]
    if not last.allowed:
        headers["Retry-After"] = str(last.retry_in_s)
        metrics.RATE_LIMITED.labels(last.policy.name).inc()
        raise TooManyRequests(last.policy.name, last.policy.quota, last.policy.window_s, last.retry_in_s)


def _network(request: Request) -> str:
    """The client's address; of IPv6 the /64, as one machine has all of it."""
    host = "" if request.client is None else request.client.host
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
