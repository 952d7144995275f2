"""The pages: the search page at `/`, and `/docs`. All they load comes from here; they ask no other host."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

from fastapi import APIRouter, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse

from service.api.surface import page_policy

router = APIRouter(include_in_schema=False)

_SWAGGER = files("fastapi_swagger.resources")
_TYPES = {"js": "text/javascript", "css": "text/css", "png": "image/png"}
Asset = Literal["swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"]


@router.get("/", response_class=HTMLResponse)
async def front_page() -> HTMLResponse:
    html = files("service.ui").joinpath("index.html").read_text("utf-8")
    return HTMLResponse(html, headers={"Content-Security-Policy": page_policy(html)})


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
async def docs_asset(name: Asset) -> Response:
    content = _SWAGGER.joinpath(name).read_bytes()
    lasting = {"Cache-Control": "public, max-age=86400"}
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=lasting)
