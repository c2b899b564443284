"""The report in a real browser: light and dark, phone, print, keyboard, and no network requests."""

from __future__ import annotations

import asyncio
import base64
import re
from contextlib import asynccontextmanager

import pytest

from lightmeter.media.image import is_blank, load_rgb
from tests.service import browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="needs Debian's chromium"),
]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """The browser of these tests."""
    chromium = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield chromium
    asyncio.run(chromium.close())


@pytest.fixture
def open_report(finished_run, html, chromium):
    """Opens the report in a new tab; checks at the end that it requested nothing but its own file."""

    @asynccontextmanager
    async def open_page(width=1200, *, dark=False):
        async with chromium.tab() as tab:
            for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
                await tab.tell(f"{domain}.enable")
            await tab.look(width=width, dark=dark)
            await tab.tell("Page.navigate", url=(finished_run.folder / "report.html").as_uri())
            await tab.until("document.readyState === 'complete' && document.querySelector('footer')")
            yield tab
            elsewhere = [url for url in tab.request_urls if not url.startswith(("data:", "file:"))]
            files = [url for url in tab.request_urls if url.startswith("file:")]
            assert (elsewhere, len(files), tab.complaints) == ([], 1, [])

    return open_page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_layout_fits_every_screen_width(open_report, dark):
    """Nothing overflows the screen, every section is visible, images load, and chart text is not scaled down."""
    async with open_report(dark=dark) as tab:
        for width in (360, 700, 1200):
            await tab.look(width=width, dark=dark)
            assert await tab.value("document.documentElement.scrollWidth <= innerWidth"), width
            heights = await tab.value(
                "[...document.querySelectorAll('section')].map((each) => each.getBoundingClientRect().height)"
            )
            assert len(heights) == 10
            assert min(heights) > 100
            charts = "[...document.querySelectorAll('.chart svg')].filter((each) => each.getClientRects().length)"
            assert await tab.value(f"{charts}.length") == 4
            letters = f"{charts}.map((each) => 12.5 * each.getBoundingClientRect().width / each.viewBox.baseVal.width)"
            assert min(await tab.value(letters)) >= 9.5, width
        broken = "[...document.images].filter((each) => each.getClientRects().length && !each.naturalWidth).length"
        assert await tab.value(broken) == 0
        assert not is_blank(load_rgb(await tab.shot()))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_text_contrast(open_report, dark):
    """Body text, notes, links and chart text have a contrast of at least 4.5:1 (WCAG 2.2, level AA)."""
    async with open_report(dark=dark) as tab:
        background = _luminance(await tab.value("getComputedStyle(document.documentElement).backgroundColor"))
        assert (background < 0.5) == dark
        for selector in ("body", ".note", "nav a", "h2", "th", ".value", ".product-name", "td a"):
            color = await tab.value(f"getComputedStyle(document.querySelector('{selector}')).color")
            assert _contrast(_luminance(color), background) >= 4.5, selector
        fills = await tab.value(
            "[...document.querySelectorAll('.chart text')].map((each) => getComputedStyle(each).fill)"
        )
        assert min(_contrast(_luminance(fill), background) for fill in set(fills)) >= 4.5


async def test_a_blurred_picture_opens_by_keyboard(open_report):
    """A likely unsafe picture is blurred; Enter shows it, and Enter again hides it."""
    async with open_report() as tab:
        for _ in range(40):
            await tab.press("Tab", 9)
            if await tab.value("document.activeElement === document.querySelector('.blurred summary')"):
                break
        assert await tab.value("getComputedStyle(document.querySelector('.blurred summary')).outlineStyle") == "solid"
        full = "document.querySelector('.blurred > img').checkVisibility()"
        assert await tab.value(full) is False
        await tab.press("Enter", 13)
        await tab.until(full)
        await tab.press("Enter", 13)
        await tab.until(f"!{full}")


async def test_print_style(open_report):
    """Print is dark on white in dark mode too, leaves out the navigation, and takes at most twelve pages."""
    async with open_report(dark=True) as tab:
        paper = {"transferMode": "ReturnAsBase64", "printBackground": True, "preferCSSPageSize": True}
        printed = base64.b64decode((await tab.tell("Page.printToPDF", **paper))["data"])
        assert printed.startswith(b"%PDF-")
        assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12
        dark = {"name": "prefers-color-scheme", "value": "dark"}
        await tab.tell("Emulation.setEmulatedMedia", media="print", features=[dark])
        background, text = await tab.value(
            "[document.documentElement, document.body].map((each) => getComputedStyle(each))"
            ".map((style, at) => at ? style.color : style.backgroundColor)"
        )
        assert _luminance(background) == 1.0
        assert _contrast(_luminance(text), 1.0) > 12
        assert await tab.value("document.querySelector('nav').checkVisibility()") is False


def _luminance(color: str) -> float:
    """Relative luminance of `rgb(…)`, as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: float, other: float) -> float:
    low, high = sorted((one, other))
    return (high + 0.05) / (low + 0.05)
