"""What the outside gets to see: the security headers of every answer, and which port answers for what."""

from __future__ import annotations

import base64
import hashlib
import re

from starlette.datastructures import MutableHeaders

_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# For all that is no page: nothing in it is ever run or framed.
_NOTHING = "default-src 'none'; frame-ancestors 'none'"
_HEALTH = ("/healthz", "/readyz")


def protect(headers: MutableHeaders, path: str) -> None:
    """Adds the security headers. A page brings a Content-Security-Policy of its own."""
    for name, value in _ALWAYS.items():
        headers[name] = value
    headers.setdefault("Content-Security-Policy", _NOTHING)
    if path.startswith("/v1/"):
        headers.setdefault("Cache-Control", "no-store")


def page_policy(html: str, *, script: str = "", style: str = "", img: str = "data:") -> str:
    """A policy that runs exactly the scripts and styles which stand in this page, and asks no other host."""
    scripts = " ".join([script, *_hashes(html, "script")]).strip()
    styles = style or " ".join(_hashes(html, "style"))
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src {img}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hashes(html: str, tag: str) -> list[str]:
    inline = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in inline]


def for_operators(path: str) -> bool:
    return path in {"/metrics", "/v1/admin"} or path.startswith("/v1/admin/")


def answers(path: str, *, ops_port: bool) -> bool:
    """With a port for operators, metrics and the admin API answer there and nowhere else; health answers on both."""
    return path in _HEALTH or for_operators(path) == ops_port
