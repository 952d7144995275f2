"""The pages under their own security policy, in a real browser: nothing is blocked, no other host is asked."""

from __future__ import annotations

import pytest

from tests.conftest import Running
from tests.e2e.test_page import CHROMIUM, Tab
from tests.e2e.test_page import tab as tab  # noqa: PLC0414 - the fixture

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt install chromium)")

WATCH = """window.blocked = [];
addEventListener("securitypolicyviolation", (e) => window.blocked.push([e.violatedDirective, e.blockedURI]));"""


@pytest.mark.parametrize(("path", "shown"), [("/docs", ".opblock-summary"), ("/", "#form")])
async def test_a_page_is_whole_under_its_policy(braid: Running, tab: Tab, path: str, shown: str) -> None:
    await tab.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    await tab.open(f"{braid.url}{path}")
    await tab.until(f"document.querySelector({shown!r}) !== null")
    assert await tab.evaluate("window.blocked") == []
    assert {url for url in tab.requests if not url.startswith((braid.url, "data:", "about:"))} == set()


async def test_the_docs_may_call_the_service_and_run_nothing_that_was_put_in(braid: Running, tab: Tab) -> None:
    await tab.open(f"{braid.url}/docs")
    await tab.until("document.querySelector('.opblock-summary') !== null")
    assert await tab.evaluate("fetch('healthz').then((answer) => answer.status)") == 200
    injected = """(() => { const s = document.createElement("script"); s.textContent = "window.owned = 1";
        document.body.append(s); return window.owned ?? 0; })()"""
    assert await tab.evaluate(injected) == 0
