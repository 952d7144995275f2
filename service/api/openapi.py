"""What OpenAPI says beyond what FastAPI finds out: the shape of problems and bulk bodies, the limits, and links."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from service.api.handlers import Problem
from service.api.limits import Limits, applying
from service.api.schemas import Documents

_REFERENCE = "#/components/schemas/{model}"

# operation -> (what it answers with, which parameter that is, the operations which take it)
_LINKS = {
    "create_tenant": (
        "$response.body#/name",
        "tenant",
        "get_tenant change_tenant delete_tenant create_project list_projects create_namespace create_key list_keys",
    ),
    "create_project": ("$response.body#/name", "project", "delete_project"),
    "create_namespace": ("$response.body#/name", "namespace", "change_namespace delete_namespace"),
    "create_key": ("$response.body#/prefix", "prefix", "revoke_key"),
    "create_admin_key": ("$response.body#/prefix", "prefix", "revoke_admin_key"),
    "put_document": ("$response.body#/id", "id", "get_document neighbors put_document delete_document"),
    "list_documents": ("$response.body#/next", "after", "list_documents"),
}


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
        _link(schema)
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _link(schema: dict[str, Any]) -> None:
    """Says where an answer leads: what was made can be asked for, changed and deleted, under the same tenant."""
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            if operation["operationId"] not in _LINKS:
                continue
            value, parameter, takers = _LINKS[operation["operationId"]]
            within = {"tenant": "$request.path.tenant"} if "{tenant}" in path else {}
            parameters = {**within, parameter: value}
            links = {name: {"operationId": name, "parameters": parameters} for name in takers.split()}
            for status in {"200", "201"} & operation["responses"].keys():
                operation["responses"][status]["links"] = links
