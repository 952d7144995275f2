"""The dashboard in a real browser: figures that move while one looks, on a screen, on a phone and in the dark."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import expect

from tests.conftest import Running
from tests.e2e.conftest import FAINT, OVERHANG, PHONE, Open, Watched, shot

DOCUMENTS = [
    {"id": "stow", "title": "Stowing the dish", "content": "In a storm it points straight up.", "entities": ["Dipper"]},
    {"id": "keeper", "title": "Bram de Wit", "content": "He greases the bearings.", "entities": ["Dipper"]},
]
# Which charts have something drawn in them: a canvas with one colour is empty.
DRAWN = """() => [...document.querySelectorAll("canvas")].filter((canvas) => {
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.some((value) => value !== data[0]);
}).map(({id}) => id)"""


@pytest.fixture
async def tenant(braid: Running) -> tuple[str, httpx.AsyncClient]:
    key = await braid.key()
    client = braid.client(key)
    await client.post("/v1/documents", params={"wait": True}, json=DOCUMENTS)
    return key, client


async def search(client: httpx.AsyncClient, query: str = "Dipper in a storm", **body: object) -> None:
    assert (await client.post("/v1/search", json={"query": query, **body})).status_code == 200


def figure(tile: str) -> str:
    return f"#tile-{tile} dd:nth-of-type(1)"


async def test_counts_move_while_one_looks(visit: Open, tenant: tuple[str, httpx.AsyncClient]) -> None:
    key, client = tenant
    page = await visit("/dashboard", key)
    await expect(page.locator("#quiet")).to_be_visible()
    await expect(page.locator(figure("searches"))).to_have_text("0")
    await search(client)
    await expect(page.locator(figure("searches"))).to_have_text("1")
    await expect(page.locator("#quiet")).to_be_hidden()
    await search(client)
    await search(client, "zyzzyva", weights={"vector": 0, "graph": 0})
    await expect(page.locator(figure("searches"))).to_have_text("3")
    await expect(page.locator(figure("zero-results"))).to_have_text("33 %")
    keyword = page.locator("#worth tbody tr", has_text="keyword")
    await expect(keyword.locator("td").nth(0)).to_have_text("3")
    await expect(keyword.locator("td").nth(3)).to_have_text("2")
    await expect(page.locator("#indexing tbody tr")).to_have_count(2)
    await expect(page.locator("#hits")).to_have_attribute("aria-label", "keyword: 2, vector: 4, graph: 4")
    assert await page.evaluate(DRAWN) == ["hits", "searches", "latency", "pace", "unique"]
    await shot(page, "dashboard")


async def test_the_range_can_be_chosen(visit: Open, tenant: tuple[str, httpx.AsyncClient]) -> None:
    page = await visit("/dashboard", tenant[0])
    async with page.expect_request("**/v1/stats/history?hours=24"):
        await page.get_by_role("button", name="24 h").click()
    await expect(page.get_by_role("button", name="24 h")).to_have_attribute("aria-pressed", "true")


async def test_who_may_not_see_the_figures_is_told_so(visit: Open, braid: Running, watched: Watched) -> None:
    page = await visit("/dashboard", await braid.key(namespaces=["notes"]))
    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.locator("#figures")).to_be_hidden()
    await page.close()
    assert all("403" in complaint for complaint in watched.complaints)
    watched.complaints.clear()


async def test_it_fits_a_phone_and_is_readable_in_the_light_and_in_the_dark(
    visit: Open, tenant: tuple[str, httpx.AsyncClient]
) -> None:
    key, client = tenant
    await search(client)
    for scheme in ("light", "dark"):
        page = await visit("/dashboard", key, color_scheme=scheme, **PHONE)
        await expect(page.locator(figure("searches"))).to_have_text("1")
        assert await page.evaluate(FAINT) == [], "WCAG AA asks for 4.5 to 1"
        assert await page.evaluate(OVERHANG) == 0
        await shot(page, f"dashboard-phone-{scheme}")
