"""The pages under their own security policy, in a real browser: nothing is blocked, no other host is asked."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.conftest import Running
from tests.e2e.conftest import Open, Watched

INJECTED = """() => { const s = document.createElement("script"); s.textContent = "window.owned = 1";
    document.body.append(s); return window.owned ?? 0; }"""


@pytest.mark.parametrize(("path", "shown"), [("/docs", ".opblock-summary"), ("/", "#form"), ("/dashboard", "#door")])
async def test_a_page_is_whole_under_its_policy(visit: Open, path: str, shown: str) -> None:
    """What is blocked, or asked of another host, fails the test at its end: see `watched`."""
    page = await visit(path)
    await expect(page.locator(shown).first).to_be_visible()


@pytest.mark.parametrize("path", ["/docs", "/", "/dashboard"])
async def test_a_page_may_call_the_service_and_runs_nothing_that_was_put_in(
    braid: Running, visit: Open, watched: Watched, path: str
) -> None:
    page = await visit(path)
    assert await page.evaluate("fetch('healthz').then((answer) => answer.status)") == 200
    assert await page.evaluate(INJECTED) == 0
    assert any("Content Security Policy" in complaint for complaint in watched.complaints)
    watched.complaints.clear()
