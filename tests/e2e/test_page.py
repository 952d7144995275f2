"""The search page in a real browser, as a person uses it: typing, sliders, filters, keys, a phone, the dark."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
from playwright.async_api import Page, Route, expect

from tests.conftest import Running
from tests.e2e.conftest import FAINT, OVERHANG, PHONE, Open, Watched, shot
from tests.faults.conftest import Breakable
from tests.faults.conftest import own as own  # noqa: PLC0414 - the fixture

STICKY = "Marguerite Vance and the sticky hinge"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
RESULT = "#results > li"


async def search(page: Page, query: str) -> None:
    """Types; Enter is not needed."""
    await page.locator("#query").fill(query)
    await settled(page)


async def settled(page: Page) -> None:
    """The answer to what is asked now is shown."""
    await expect(page.locator("#results")).to_have_attribute("aria-busy", "false")


def asks(body: Any, query: str) -> bool:
    return isinstance(body, dict) and body.get("query") == query


async def titles(page: Page) -> list[str]:
    return await page.locator(f"{RESULT} .title").all_inner_texts()


async def write(client: httpx.AsyncClient, *documents: dict[str, Any]) -> None:
    answer = await client.post("/v1/documents", params={"wait": True}, json=list(documents))
    assert answer.json()["visible"] is True


async def slide(page: Page, tier: str, weight: float) -> None:
    await page.locator(f"#weight-{tier}").fill(str(weight))
    await settled(page)


async def test_typing_is_enough_and_each_result_shows_what_each_tier_gave(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key, viewport={"width": 1160, "height": 1070})
    await expect(page.locator("#welcome .example")).to_have_count(4)
    await shot(page, "welcome")
    await page.locator("#query").press_sequentially(STICKY)
    first = page.locator(RESULT).first
    await expect(first.locator(".title")).to_have_text("Marguerite Vance, mechanisms")
    await expect(first.locator(".bar i")).to_have_count(3)
    widths = await first.locator(".bar i").evaluate_all(
        "parts => parts.map((part) => part.getBoundingClientRect().width)"
    )
    assert widths[0] > widths[1] > widths[2] > 0, "keyword gave most, graph least"
    await expect(first.locator(".found")).to_have_text(re.compile(r"keyword #1.*vector #1.*graph #\d"))
    await expect(page.locator("#tiers tr")).to_have_count(3)
    await expect(page.locator("#missing")).to_be_hidden()
    await page.keyboard.press("Enter")
    await settled(page)
    await page.locator(f"{RESULT} .title").nth(1).click()
    await expect(page.locator("svg.graph-view")).to_be_visible()
    await shot(page, "search")  # the README's picture


async def test_every_example_shows_its_tier_at_work(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key)
    for card, found, only in (
        (".keyword", "Recorder checksum fault E-4471", "keyword #1"),
        (".vector", "Pay", "vector #1"),
        (".graph", "Sketch of a blind that closes in a blink", "graph #"),
    ):
        await page.locator("#query").fill("")
        await page.locator(f"#welcome {card} .example").click()
        result = page.locator(RESULT, has=page.get_by_role("button", name=found, exact=True))
        await expect(result.locator(".found")).to_contain_text(only)


async def test_a_slider_ranks_anew_at_once_and_can_be_put_back(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key)
    await search(page, STICKY)
    before = await titles(page)
    await expect(page.locator("#share-keyword")).not_to_have_text("0.50")
    for tier, weight in (("keyword", 0), ("vector", 0), ("graph", 1)):
        await slide(page, tier, weight)
    await expect(page.locator("#tiers .skipped")).to_have_count(2)
    await expect(page.locator(f"{RESULT} .bar .keyword")).to_have_count(0)
    assert await titles(page) != before
    await page.locator("#reset").click()
    await expect(page.locator("#tiers .skipped")).to_have_count(0)
    assert await titles(page) == before


async def test_an_older_answer_never_replaces_a_newer_one(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key)
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        if asks(route.request.post_data_json, "Siskin"):
            await held.wait()
        await route.continue_()

    await page.route("**/v1/search", hold)
    async with page.expect_request(lambda request: asks(request.post_data_json, "Siskin")) as late:
        await page.locator("#query").fill("Siskin")
    await search(page, "E-4471")
    await expect(page.locator(f"{RESULT} .title").first).to_have_text("Recorder checksum fault E-4471")
    held.set()
    await (await (await late.value).response()).finished()  # type: ignore[union-attr]
    await page.evaluate("new Promise((done) => setTimeout(done, 50))")
    await expect(page.locator(f"{RESULT} .title").first).to_have_text("Recorder checksum fault E-4471")


async def test_an_opened_result_adds_up_and_draws_the_walk_that_found_it(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key)
    await search(page, STICKY)
    result = page.locator(RESULT, has=page.get_by_role("button", name="Boom B stopped at 81 percent"))
    await result.locator(".title").click()
    cells = await result.locator(".sum tbody td:last-child").all_inner_texts()
    gives = [float(cell.replace(" ", "")) for cell in cells]
    score = float(await result.locator(".sum tfoot td").inner_text())
    assert abs(sum(gives) - score) <= 0.0015, "three figures behind the point"
    drawn = result.locator("svg")
    for name in ("your query", "Marguerite Vance", "Boom hinge settings"):
        await expect(drawn.locator(".node", has_text=name).first).to_be_visible()
    assert await drawn.locator(".link.walked").count() == 3
    await shot(page, "explained")
    neighbour = drawn.get_by_role("button").first
    name = (await neighbour.get_attribute("aria-label") or "").removeprefix("Search for ")
    await neighbour.click()
    await expect(page.locator("#query")).to_have_value(name)
    await expect(page.locator(f"{RESULT} .title").first).to_have_text(name)


async def test_what_matches_is_marked(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key)
    await search(page, "boom hinge")
    first = page.locator(RESULT).first
    await expect(first.locator(".title mark")).to_have_text(["Boom", "hinge"])
    await expect(first.locator(".text mark").first).to_have_text("hinge")


async def test_what_is_being_typed_is_completed(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key)
    await search(page, "margue")
    await page.locator("#suggestions").get_by_role("button", name="Marguerite Vance", exact=True).click()
    await expect(page.locator("#query")).to_have_value("Marguerite Vance")
    await settled(page)
    await expect(page.locator(f"{RESULT} .title").first).to_have_text("Marguerite Vance, mechanisms")


async def test_namespaces_and_filters_narrow_and_stay_in_the_address(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key)
    await search(page, "Dipper")
    await page.locator("#namespaces .chip", has_text="incidents").click()
    await expect(page.locator(f"{RESULT} [data-set=namespaces]:not([data-value=incidents])")).to_have_count(0)
    await page.locator("#filters summary").click()
    await page.locator("#tags .chip", has_text=re.compile("^antenna$")).click()
    await expect(page.locator("#filtering")).to_have_text("1")
    await expect(page.locator(RESULT).filter(has_not=page.locator("[data-value=antenna]"))).to_have_count(0)
    narrowed = await titles(page)
    assert narrowed
    await page.reload()
    await expect(page.locator(f"{RESULT} .title")).to_have_text(narrowed)
    await page.locator("#filters summary").click()
    await page.locator("#after").fill("2099-01-01")
    await expect(page.locator("#said")).to_contain_text("Nothing found")
    await page.locator("#unfilter").click()
    await expect(page.locator(RESULT).first).to_be_visible()


async def test_a_missing_tier_is_said_plainly_and_the_rest_is_there(visit: Open, own: Breakable) -> None:
    key = own.client.headers["Authorization"].removeprefix("Bearer ")
    page = await visit("/", key, url=own.braid.url)
    await search(page, "Dipper in a storm")
    await expect(page.locator("#missing")).to_be_hidden()
    with own.falkordb.down():
        await search(page, "Dipper in the storm")
        await expect(page.locator("#missing")).to_contain_text("graph is missing")
        await expect(page.locator("#missing")).to_contain_text("FalkorDB")
        await expect(page.locator("#tiers .broken th")).to_have_text("graph")
        await expect(page.locator(f"{RESULT} .title").first).to_have_text("Stowing the dish")
        await shot(page, "degraded")
        dashboard = await visit("/dashboard", key, url=own.braid.url)
        await expect(dashboard.locator("#missing")).to_contain_text("graph was missing in 1 of")
        await expect(dashboard.locator("#tile-degraded dd.warn")).to_be_visible()
        await shot(dashboard, "dashboard-degraded")
    await own.whole()
    await search(page, "Dipper in a storm")
    await expect(page.locator("#missing")).to_be_hidden()


async def test_what_documents_hold_is_shown_as_text(visit: Open, braid: Running) -> None:
    key = await braid.key()
    hostile = {
        "title": HOSTILE,
        "content": f"wombat {HOSTILE}",
        "type": HOSTILE,
        "tags": [HOSTILE],
        "entities": [HOSTILE],
    }
    near = {"id": "near", "title": f"near {HOSTILE}", "links": [{"to": HOSTILE, "type": HOSTILE}]}
    await write(braid.client(key), {"id": HOSTILE, "namespace": "n", **hostile}, near)
    page = await visit("/", key)
    await search(page, f"wombat {HOSTILE}")
    result = page.locator(RESULT, has=page.get_by_role("button", name=HOSTILE, exact=True)).first
    await result.locator(".title").click()
    await expect(result.locator("svg")).to_be_visible()
    await expect(result.locator(".text")).to_contain_text(HOSTILE)
    await expect(result.locator(".text mark").first).to_have_text("wombat")
    await page.evaluate("new Promise((done) => setTimeout(done, 200))")  # an image that fails says so a moment later
    assert await page.title() == "Braid"
    assert await page.locator("#answer img, #answer script, #pickers img").count() == 0


async def test_the_key_stays_in_this_tab_and_out_of_sight(visit: Open, braid: Running, sample_key: str) -> None:
    page = await visit("/")
    await page.get_by_label("API key").fill(sample_key)
    await page.keyboard.press("Enter")
    await expect(page.locator("#door")).to_be_hidden()
    await page.reload()
    await search(page, "Siskin")
    await expect(page.locator(RESULT).first).to_be_visible()
    assert await page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    other = await page.context.new_page()
    await other.goto(f"{braid.url}/#key={sample_key}")
    await expect(other.locator("#door")).to_be_hidden()
    assert other.url == f"{braid.url}/", "what braid serve printed is taken out of the address"
    await page.locator("#forget").click()
    await expect(page.locator("#door")).to_be_visible()
    assert await page.evaluate("sessionStorage.length") == 0


async def test_a_wrong_key_is_said_and_asked_for_again(visit: Open, watched: Watched) -> None:
    page = await visit("/")
    await page.get_by_label("API key").fill("braid_wrong.key")
    await page.get_by_role("button", name="Open").click()
    await expect(page.get_by_role("alert")).to_contain_text("not known")
    await expect(page.locator("#door")).to_be_visible()
    await page.get_by_label("API key").fill("ключ")
    await page.get_by_role("button", name="Open").click()
    await expect(page.get_by_role("alert")).to_contain_text("does not answer, or the key")
    assert all("401" in complaint for complaint in watched.complaints)
    watched.complaints.clear()


async def test_the_keyboard_is_enough(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key)
    await expect(page.locator("#query")).to_be_focused()
    await search(page, STICKY)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    second = page.locator(f"{RESULT} .title").nth(1)
    await expect(second).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator(RESULT).nth(1).locator(".sum")).to_be_visible()
    await page.keyboard.press("Tab")
    await page.keyboard.press("ArrowUp")
    await expect(page.locator(f"{RESULT} .title").first).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.locator("#query")).to_be_focused()
    await page.locator("#weight-graph").focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#reset")).to_be_enabled()
    await page.keyboard.press("/")
    await expect(page.locator("#query")).to_be_focused()


async def test_on_a_phone_nothing_sticks_out(visit: Open, sample_key: str) -> None:
    page = await visit("/", sample_key, **PHONE)
    assert await page.evaluate(OVERHANG) == 0
    await search(page, STICKY)
    await page.locator(f"{RESULT} .title").nth(1).click()
    await expect(page.locator("svg.graph-view")).to_be_visible()
    assert await page.evaluate(OVERHANG) == 0
    await shot(page, "phone")
    await page.get_by_text("Weights", exact=True).click()
    await expect(page.locator("#weight-graph")).to_be_visible()


async def test_text_is_readable_in_the_light_and_in_the_dark(visit: Open, sample_key: str) -> None:
    backgrounds = set()
    for scheme in ("light", "dark"):
        page = await visit("/", sample_key, color_scheme=scheme)
        await search(page, STICKY)
        await page.locator(f"{RESULT} .title").first.click()
        assert await page.evaluate(FAINT) == [], "WCAG AA asks for 4.5 to 1"
        backgrounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
        await shot(page, f"results-{scheme}")
    assert len(backgrounds) == 2
