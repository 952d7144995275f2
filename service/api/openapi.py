"""What OpenAPI says beyond what FastAPI finds out by itself: the shape of problems and bulk bodies, and the limits."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from service.api.handlers import Problem
from service.api.limits import Limits, applying
from service.api.schemas import Documents

_REFERENCE = "#/components/schemas/{model}"


def describe(app: FastAPI, limits: Limits) -> None:
    """Completes the description; the numbers in it are those of this application."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        with applying(limits):
            schema = generate()
            schemas = schema["components"]["schemas"]
            schemas["Problem"] = Problem.model_json_schema(ref_template=_REFERENCE)
            schemas["Documents"] = Documents.json_schema(ref_template=_REFERENCE)
        for name in ("Problem", "Documents"):
            schemas |= schemas[name].pop("$defs", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
