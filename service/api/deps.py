"""What endpoints need, taken from the application's state, and who is calling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service import logs
from service.api.rates import Rates
from service.errors import Forbidden, Unauthorized
from service.indexing import Writer
from service.removal import Removal
from service.search import Searcher
from service.stores.backlog import Backlog
from service.stores.completions import Completions
from service.stores.dirty import Owed
from service.stores.keys import ADMIN, Caller, KeyDesk, Keys
from service.stores.samples import Samples
from service.stores.spaces import Spaces
from service.stores.tenants import Tenants
from service.verification import Verification

if TYPE_CHECKING:  # importing it takes 60 ms, which only those pay who have an issuer
    from service.stores.oidc import Tokens


@dataclass(frozen=True, slots=True)
class State:
    """Everything that `app` built and endpoints use."""

    searcher: Searcher
    writer: Writer
    completions: Completions
    keys: Keys
    tokens: Tokens | None
    tenants: Tenants
    spaces: Spaces
    key_desk: KeyDesk
    removal: Removal
    embedder: str
    ranker: str
    circuits: Callable[[], Mapping[str, str]]
    probes: Mapping[str, Callable[[], Awaitable[None]]]
    backlog: Callable[[str | None], Awaitable[Mapping[str, Owed]]]
    samples: Samples
    queue: Backlog
    verification: Verification
    rates: Rates
    search_timeout_max_ms: int
    wait_timeout_ms: int

    def forget_callers(self) -> None:
        """Looks every caller up again, after a tenant or a key was taken away."""
        self.keys.forget()
        if self.tokens is not None:
            self.tokens.forget()


def get_state(request: Request) -> State:
    state: State = request.app.state.braid
    return state


StateDep = Annotated[State, Depends(get_state)]

_bearer = HTTPBearer(auto_error=False, description="An API key, `braid_<prefix>.<secret>`, or a JWT")
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


async def get_caller(request: Request, state: StateDep, credentials: _Credentials) -> Caller:
    if credentials is None:
        raise Unauthorized("send your API key as `Authorization: Bearer braid_...`")
    with state.rates.guessing(request):
        caller = await _identified(state, credentials.credentials)
    if caller.tenant_reach is not None:
        logs.tenant.set(caller.tenant_reach.tenant)
        request.scope.get("braid.caller", {})["tenant"] = caller.tenant_reach.tenant
    state.rates.admit(request, caller)
    return caller


async def _identified(state: State, bearer: str) -> Caller:
    now = datetime.now(UTC)
    if state.tokens is not None and state.tokens.takes(bearer):
        return await state.tokens.check(bearer, now)
    return await state.keys.check(bearer, now)


def _with_scope(scope: str) -> Callable[[Caller], Caller]:
    def check(caller: Annotated[Caller, Depends(get_caller)]) -> Caller:
        if scope not in caller.scopes:
            raise Forbidden(f"this API key or token does not carry the scope `{scope}`")
        return caller

    return check


def get_admin(caller: Annotated[Caller, Depends(get_caller)]) -> Caller:
    """Only a key that belongs to no tenant: a tenant's own admin would see the others."""
    if ADMIN not in caller.scopes or caller.tenant_reach is not None:
        raise Forbidden("this needs an admin key: `braid key create --admin` makes one")
    return caller


Admin = Annotated[Caller, Depends(get_admin)]
Reader = Annotated[Caller, Depends(_with_scope("search"))]
Author = Annotated[Caller, Depends(_with_scope("write"))]
Wait = Annotated[bool, Query(description="answer when the write shows in every tier")]
