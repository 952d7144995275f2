"""Exceptions as RFC 9457 problem+json: one table."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from service.errors import (
    BacklogFull,
    BraidError,
    Conflict,
    Degraded,
    Forbidden,
    InvalidInput,
    IssuerUnavailable,
    NotFound,
    Overloaded,
    QuotaExceeded,
    StoreUnavailable,
    TierInvalid,
    TierUnavailable,
    TooManyRequests,
    Unauthorized,
)

PROBLEM_JSON = "application/problem+json"

# exception -> (status, code, further headers)
_TABLE: dict[type[BraidError], tuple[int, str, dict[str, str]]] = {
    InvalidInput: (422, "invalid_input", {}),
    Unauthorized: (401, "unauthorized", {"WWW-Authenticate": "Bearer"}),
    Forbidden: (403, "forbidden", {}),
    QuotaExceeded: (403, "quota_exceeded", {}),
    TooManyRequests: (429, "too_many_requests", {}),
    BacklogFull: (429, "backlog_full", {"Retry-After": "2"}),
    Overloaded: (503, "overloaded", {"Retry-After": "1"}),
    NotFound: (404, "not_found", {}),
    Conflict: (409, "conflict", {}),
    IssuerUnavailable: (503, "issuer_unavailable", {"Retry-After": "10"}),
    Degraded: (503, "degraded", {"Retry-After": "1"}),
    StoreUnavailable: (503, "store_unavailable", {"Retry-After": "1"}),
    TierUnavailable: (503, "engine_unavailable", {"Retry-After": "1"}),
    TierInvalid: (503, "engine_unavailable", {"Retry-After": "1"}),
}


# Spelt out, as Python's own phrases changed between versions.
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "content_too_large"}
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_TITLES = {413: "Content Too Large", 422: "Unprocessable Content"}


class FieldError(BaseModel):
    """One refused field."""

    field: str
    message: str


class Problem(BaseModel):
    """What every error looks like."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str
    errors: list[FieldError]


def _described(status: int) -> dict[str, Any]:
    content = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": _title(status), "content": content}


def _title(status: int) -> str:
    return _TITLES.get(status, HTTPStatus(status).phrase)


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: _described(status) for status in (400, 401, 403, 413, 422, 429, 503)
}
MISSING: dict[int | str, dict[str, Any]] = {404: _described(404)}
CONFLICT: dict[int | str, dict[str, Any]] = {409: _described(409)}


def install(app: FastAPI) -> None:
    app.add_exception_handler(BraidError, _ours)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(HTTPException, _http)


def problem(
    request: Request,
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[dict[str, str]] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    request.scope["braid.problem"] = code  # for whoever counts
    body = {
        "type": f"urn:braid:problem:{code}",
        "title": _title(status),
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        "code": code,
        "request_id": request.scope.get("braid.request_id", ""),
        "errors": list(errors),
    }
    return Response(orjson.dumps(body), status, headers, PROBLEM_JSON)


async def _ours(request: Request, error: Exception) -> Response:
    status, code, headers = next(
        (row for kind, row in _TABLE.items() if isinstance(error, kind)), (500, "internal_error", {})
    )
    errors = [{"field": error.field, "message": error.message}] if isinstance(error, InvalidInput) else []
    if isinstance(error, Degraded):
        errors = [{"field": f"tiers.{tier}", "message": "did not answer"} for tier in error.missing]
    return problem(request, status, code, str(error), errors=errors, headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - what the handler is registered for
    if any(item["type"] == "json_invalid" for item in error.errors()):
        return problem(request, 422, "invalid_json", "the body is not valid JSON")
    errors = field_errors([{**item, "loc": item["loc"][1:]} for item in error.errors()])  # without "body" or "query"
    named = "; ".join(f"{e['field']}: {e['message']}" for e in errors[:3])
    return problem(request, 422, "invalid_input", named, errors=errors)


def field_errors(errors: Sequence[Any]) -> list[dict[str, str]]:
    """Pydantic's errors by field. The input itself is left out: it may be anything, a secret too."""
    return [
        {"field": _path(item["loc"]) or "body", "message": item["msg"].removeprefix("Value error, ")} for item in errors
    ]


def _path(location: Sequence[str | int]) -> str:
    """A dotted path. Parts are a caller's own keys too, so they are cut short; names of union members are left out."""
    return ".".join(str(part)[:64] for part in location if not str(part).startswith("‹"))


class Refused(HTTPException):
    """A body refused while it is read. FastAPI lets HTTP exceptions through from there, and makes others a 400."""

    def __init__(self, status: int, code: str, field: str, message: str) -> None:
        super().__init__(status, f"{field}: {message}")
        self.code = code
        self.errors = [{"field": field, "message": message}]


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - what the handler is registered for
    if isinstance(error, Refused):
        return problem(request, error.status_code, error.code, error.detail, errors=error.errors)
    code = _CODES.get(error.status_code, "http_error")
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed(request))
    return problem(request, error.status_code, code, str(error.detail), headers=headers)


def _allowed(request: Request) -> list[str]:
    """All methods of this path: every one has a route of its own, and Starlette names that of the first only."""
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    routes = request.app.router.routes
    return [method for method, scope in scopes.items() if any(r.matches(scope)[0] is Match.FULL for r in routes)]
