"""A real browser: Debian's Chromium, driven by Playwright. Every page it opens is watched."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from service.app import load_sample
from tests.conftest import Running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# What a browser would otherwise ask the outside for.
QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
SHOTS = Path(__file__).parents[2] / "screenshots"  # git-ignored: for people to look at
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
# How far the page sticks out to the right.
OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# The texts whose colour is too close to what lies behind them, by the formula of WCAG 2.
FAINT = """() => {
  const linear = (v) => (v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).map((v) => linear(v / 255));
    return .2126 * red + .7152 * green + .0722 * blue + .05;
  };
  const behind = (node) => {
    const colour = getComputedStyle(node).backgroundColor;
    return colour.endsWith(", 0)") ? behind(node.parentElement) : colour;
  };
  const ratio = (node) => {
    const [one, other] = [light(getComputedStyle(node).color), light(behind(node))];
    return Math.max(one, other) / Math.min(one, other);
  };
  const texts = document.querySelectorAll("p, .tier, h2, h3, .chip, .score, output, nav a, td");
  const faint = [...texts].filter((node) => node.offsetParent && ratio(node) < 4.5);
  return faint.map((node) => [node.className, node.textContent.slice(0, 30), ratio(node)]);
}"""

expect.set_options(timeout=20_000)


@dataclass
class Watched:
    """What the pages of one test did: whom they asked, and what they complained about."""

    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in {"error", "warning"} else None
        )


Open = Callable[..., Awaitable[Page]]


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian: apt install chromium)")
    async with async_playwright() as playwright:
        root = os.geteuid() == 0
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, chromium_sandbox=not root)
        yield browser
        await browser.close()


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    """Fails a test whose pages complain, or ask anyone but a Braid. A test that provokes complaints clears them."""
    watched = Watched()
    yield watched
    assert watched.complaints == []
    assert [url for url in watched.asked if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))] == []
    assert [url for url in watched.asked if "braid_" in url] == [], "a key stands in an address"


@pytest.fixture
async def visit(chromium: Browser, braid: Running, watched: Watched) -> AsyncIterator[Open]:
    """Opens a page in a browser profile of its own, with a key as `braid serve` prints it: behind #."""
    profiles = []

    async def opened(path: str = "/", key: str | None = None, url: str = braid.url, **profile: Any) -> Page:
        profiles.append(await chromium.new_context(reduced_motion="reduce", **profile))
        page = await profiles[-1].new_page()
        watched.watch(page)
        await page.goto(f"{url}{path}" + (f"#key={key}" if key else ""))
        return page

    yield opened
    for each in profiles:
        await each.close()


@pytest.fixture(scope="session")
async def sample_key(braid: Running) -> str:
    """The key of a tenant that holds the sample documents."""
    return await load_sample(braid.app.state.braid)


async def shot(page: Page, name: str) -> None:
    """A picture for people to look at."""
    SHOTS.mkdir(exist_ok=True)
    await page.screenshot(path=SHOTS / f"{name}.png")
