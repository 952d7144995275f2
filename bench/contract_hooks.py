"""What Schemathesis must know about Braid: which key opens what, and which rules JSON Schema has no words for.

Loaded by Schemathesis in its own process; `bench.contract` starts it.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis.core.failures import Failure

KEY, ADMIN_KEY, TENANT = (os.environ[name] for name in ("CONTRACT_KEY", "CONTRACT_ADMIN_KEY", "CONTRACT_TENANT"))
_PREFIXES = {key.removeprefix("braid_").partition(".")[0] for key in (KEY, ADMIN_KEY)}
_NOBODY = "0" * 12
_DIMENSION = 256
_KNOWN = {"project": "default", "language": "simple", "embedder": "wordllama", "expires_at": "2099-01-01T00:00:00Z"}
_LONGEST_URL = 65_536  # for httptools
_answers: dict[str, Counter[int]] = {}

# A request may satisfy its schema and still be refused, but for these reasons only. All of them are 422.
_BEYOND_SCHEMA = re.compile(
    r"must not contain (control|NUL) characters"
    r"|must be valid (UTF-8|Unicode)"
    r"|must not be blank"
    r"|must not end with /neighbors"
    r"|must be in the future"
    r"|must have at most \d+ terms"
    r"|must (hold|nest) at most \d+|must hold (integers|strings|finite)|must have at most \d+ tests"
    r"|must lie between the years 1 and 9999"
    r"|has \d+ dimensions; this service uses \d+"
    r"|give a (query|title), "
    r"|give `namespace` or `include_namespaces`, not both"
    r"|give one of `in`, "
    r"|at least one tier needs a weight above 0|must be 0, or from 0.000001 to"
    r"|must be the lowest score, then the highest|no profile is called |takes no normaliser"
    r"|would not be asked here|is none that this service gave"
    r"|this service embeds with "
    r"|there is no project |has no text search configuration"
    r"|^filter\."  # JSON in a query parameter: its schema says it is text
)


@schemathesis.auth(cache_by_key=lambda case, _: str(_is_admins(case)))
class KeyByPath:
    """An admin key for the admin API, a tenant's for everything else."""

    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return ADMIN_KEY if _is_admins(case) else KEY

    def set(self, case: schemathesis.Case, data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = f"Bearer {data}"


def _is_admins(case: schemathesis.Case) -> bool:
    return case.operation.path.startswith("/v1/admin")


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Keeps a case from revoking the keys of this very run, or suspending its tenant: all after it would be a 401."""
    if case.path_parameters.get("prefix") in _PREFIXES:
        case.path_parameters["prefix"] = _NOBODY
    if case.path_parameters.get("tenant") == TENANT:
        case.path_parameters["tenant"] = _NOBODY
    for body in case.body if isinstance(case.body, list) else [case.body]:
        if isinstance(body, dict):
            _make_likely(body)


def _make_likely(body: dict[str, Any]) -> None:
    """Chance alone finds no vector of the right length, and no project that is there: it gets some help, mostly."""
    vector = body.get("vector")
    if isinstance(vector, list) and len(vector) in range(1, 8):
        body["vector"] = (vector * _DIMENSION)[:_DIMENSION]
    if isinstance(body.get("cursor"), str) and len(body["cursor"]) % 3 != 1:
        del body["cursor"]
    if body.get("namespace") and body.get("include_namespaces"):
        del body["namespace"]
    for field, value in _KNOWN.items():
        if isinstance(body.get(field), str) and len(body[field]) % 3 != 1:
            body[field] = value


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: schemathesis.Response) -> None:
    _answers.setdefault(case.operation.label, Counter())[response.status_code] += 1


@atexit.register
def tell() -> None:
    Path(os.environ["CONTRACT_ANSWERS"]).write_text(json.dumps(_answers), encoding="utf-8")


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext, failure: Failure, case: schemathesis.Case, response: schemathesis.Response
) -> bool:
    """Whether this is a failure. What is not, and why, stands here and nowhere else."""
    kind = type(failure).__name__
    if response.status_code == 400 and len(response.request.url) > _LONGEST_URL:
        return False  # no request to the HTTP server, so nothing that the API could answer
    if kind == "RejectedPositiveData":
        return not (response.status_code == 422 and _BEYOND_SCHEMA.search(_problem(response).get("detail", "")))
    if kind == "AcceptedNegativeData":
        # A bulk call answers item by item: one bad item never fails another.
        return not (case.operation.path in ("/v1/documents", "/v1/edges") and _problem(response).get("errors") is True)
    if kind == "ServerError":
        asked = case.body if isinstance(case.body, dict) else {}
        if "took longer than the" in _problem(response).get("detail", "") and asked.get("timeout_ms"):
            return False  # in a time that the caller chose
        # Who allows no degradation, or requires a tier, and gives the tiers a millisecond asked for this.
        strict = asked.get("allow_degraded") is False or asked.get("require")
        return _problem(response).get("code") != "degraded" or not strict
    return True


def _problem(response: schemathesis.Response) -> dict[str, Any]:
    try:
        body = json.loads(response.content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
