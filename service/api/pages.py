"""The pages: search at `/`, `/dashboard` and `/docs`. All they load comes from here; they ask no other host."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse

from service.api.surface import page_policy
from service.errors import NotFound

router = APIRouter(include_in_schema=False)

_UI = files("service.ui")
_SWAGGER = files("fastapi_swagger.resources")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".png": "image/png", ".svg": "image/svg+xml"}
SwaggerFile = Literal["swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"]
# The pages' own files, and Chart.js, which Chartkick's wheel carries.
_FILES = {file.name: file for file in _UI.joinpath("static").iterdir()} | {
    "chart.js": files("chartkick").joinpath("django/static/chartkick/Chart.bundle.js")
}


@dataclass(frozen=True, slots=True)
class Packed:
    """A file as it travels: compressed once, under a tag that changes with it."""

    body: bytes
    tag: str


@cache
def _packed(name: str) -> Packed:
    plain = _FILES[name].read_bytes()
    return Packed(gzip.compress(plain, mtime=0), f'"{hashlib.sha256(plain).hexdigest()[:20]}"')


@router.get("/", response_class=HTMLResponse)
async def search_page() -> HTMLResponse:
    return _page("index.html")


@router.get("/dashboard", response_class=HTMLResponse)
async def dashboard_page() -> HTMLResponse:
    return _page("dashboard.html")


def _page(name: str) -> HTMLResponse:
    html = _UI.joinpath(name).read_text("utf-8")
    policy = page_policy(html, script="'self'", style="'self'", img="'self'")
    return HTMLResponse(html, headers={"Content-Security-Policy": policy, "Cache-Control": "no-cache"})


@router.get("/ui/{name}")
async def page_file(name: str, request: Request) -> Response:
    """One file of the pages. A browser keeps it, and asks each time whether it is still the same."""
    if name not in _FILES:
        raise NotFound(f"the pages have no file {name!r}")
    file = _packed(name)
    headers = {"ETag": file.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    body, kind = file.body, _TYPES[PurePath(name).suffix]
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(body), media_type=kind, headers=headers)
    return Response(body, media_type=kind, headers=headers | {"Content-Encoding": "gzip"})


@router.get("/docs", response_class=HTMLResponse)
async def docs() -> HTMLResponse:
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Braid's API",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon-32x32.png",
        oauth2_redirect_url=None,
    )
    # Swagger UI writes style attributes; it runs no script but its own.
    policy = page_policy(bytes(page.body).decode(), script="'self'", style="'self' 'unsafe-inline'", img="'self' data:")
    page.headers["Content-Security-Policy"] = policy
    return page


@router.get("/docs/{name}")
async def docs_asset(name: SwaggerFile) -> Response:
    content = _SWAGGER.joinpath(name).read_bytes()
    lasting = {"Cache-Control": "public, max-age=86400"}
    return Response(content, media_type=_TYPES[PurePath(name).suffix], headers=lasting)
