"""The page in a real browser: Chromium without a window, driven over its DevTools pipe."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.conftest import Running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt install chromium)")

SECONDS = 30
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
RESULTS = """[...document.querySelectorAll("#results li")].map((item) => ({
  title: item.querySelector("strong").textContent,
  text: item.textContent,
  parts: [...item.querySelectorAll(".bar i")].map((part) => [part.className, part.getBoundingClientRect().width]),
}))"""


class Tab:
    """One tab. The protocol is JSON with a NUL behind each message, on the browser's descriptors 3 and 4."""

    def __init__(self, reader: asyncio.StreamReader, to_browser: int) -> None:
        self._reader = reader
        self._to_browser = to_browser
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.requests: list[str] = []

    async def attach(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        await self.call("Network.enable")
        await self.call("Page.enable")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while (answer := await self._next()).get("id") != number:
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
        assert "error" not in answer, answer
        return dict(answer["result"])

    async def _next(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            return dict(json.loads((await self._reader.readuntil(b"\0"))[:-1]))

    async def evaluate(self, script: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        async with asyncio.timeout(SECONDS):
            while not await self.evaluate(script):  # noqa: ASYNC110 - the event is in another process
                await asyncio.sleep(0.02)

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def type(self, field: str, text: str) -> None:
        """As a person does: click into the field, replace what is there."""
        await self.evaluate(f"document.getElementById('{field}').select()")
        await self.call("Input.insertText", text=text)

    async def press_enter(self) -> None:
        await self.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", windowsVirtualKeyCode=13, text="\r")
        await self.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", windowsVirtualKeyCode=13)


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    commands, to_browser = above_the_standard_ones(os.pipe())
    from_browser, answers = above_the_standard_ones(os.pipe())

    def wire() -> None:
        os.dup2(commands, 3)
        os.dup2(answers, 4)

    with tempfile.TemporaryDirectory(prefix="bt-", ignore_cleanup_errors=True) as profile:
        quiet = ["--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        process = await asyncio.create_subprocess_exec(
            str(CHROMIUM),
            "--headless",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            *quiet,
            *sandbox,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=wire,
        )
        os.close(commands)
        os.close(answers)
        reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_browser, "rb", buffering=0)
        )
        try:
            tab = Tab(reader, to_browser)
            await tab.attach()
            yield tab
        finally:
            process.kill()
            await process.wait()
            transport.close()
            os.close(to_browser)


def above_the_standard_ones(ends: tuple[int, int]) -> tuple[int, int]:
    """The same pipe under numbers that 3 and 4 cannot collide with."""
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


async def searched(tab: Tab, query: str) -> list[dict[str, Any]]:
    await tab.evaluate("document.getElementById('said').textContent = ''")
    await tab.type("query", query)
    await tab.press_enter()
    await tab.until("document.getElementById('said').textContent || !document.getElementById('problem').hidden")
    found: list[dict[str, Any]] = await tab.evaluate(RESULTS)
    return found


async def write(client: httpx.AsyncClient, *documents: dict[str, Any]) -> None:
    answer = await client.post("/v1/documents", params={"wait": True}, json=list(documents))
    assert answer.json()["visible"] is True


async def test_a_search_shows_what_each_tier_gave_and_asks_nobody_else(braid: Running, tab: Tab) -> None:
    key = await braid.key()
    await write(
        braid.client(key),
        {"id": "stow", "title": "Stowing Dipper", "content": "In a storm it points up.", "entities": ["Dipper"]},
        {"id": "keeper", "title": "Bram", "content": "He greases the bearings.", "entities": ["Dipper"]},
        {"id": "soup", "title": "Soup", "content": "Leeks."},
    )
    await tab.open(f"{braid.url}/")
    await tab.type("key", key)
    first, *others = await searched(tab, "Dipper storm")
    assert first["title"] == "Stowing Dipper"
    assert [name for name, _ in first["parts"]] == ["keyword", "vector", "graph"]
    assert all(width > 0 for _, width in first["parts"])
    assert "= keyword 0." in first["text"]
    assert "—names→ Dipper" in first["text"]
    assert "Bram" in [other["title"] for other in others]
    assert await tab.evaluate("document.getElementById('problem').hidden")

    await tab.open(f"{braid.url}/?again")
    again = await searched(tab, "soup")
    assert again[0]["title"] == "Soup", "the key is remembered in this tab"
    assert {url for url in tab.requests if not url.startswith((f"{braid.url}/", "data:"))} == set()
    assert [url for url in tab.requests if key in url] == []


async def test_what_documents_hold_is_shown_as_text(braid: Running, tab: Tab) -> None:
    key = await braid.key()
    await write(
        braid.client(key),
        {"id": HOSTILE, "title": HOSTILE, "content": f"wombat {HOSTILE}", "namespace": "n", "entities": [HOSTILE]},
    )
    await tab.open(f"{braid.url}/")
    await tab.type("key", key)
    [shown] = await searched(tab, "wombat")
    assert shown["title"] == HOSTILE
    assert shown["text"].count(HOSTILE) >= 3
    await asyncio.sleep(0.2)  # an image that fails to load says so a moment later
    assert await tab.evaluate("document.title") == "Braid"
    assert await tab.evaluate("document.querySelectorAll('#results img, #results script').length") == 0


async def test_a_wrong_key_is_said_on_the_page(braid: Running, tab: Tab) -> None:
    await tab.open(f"{braid.url}/")
    await tab.type("key", "braid_wrong.key")
    assert await searched(tab, "anything") == []
    assert "not known" in await tab.evaluate("document.getElementById('problem').textContent")
    await tab.type("key", "ключ")
    await tab.evaluate("document.getElementById('problem').hidden = true")
    assert await searched(tab, "anything") == []
    assert "does not answer, or the key" in await tab.evaluate("document.getElementById('problem').textContent")
