"""The page at `/` is self-contained, and works in a real browser."""

from __future__ import annotations

import base64
import json
import re
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from lightmeter.service.app import create_api_key
from lightmeter.service.http.index_page import page
from lightmeter.testing import tiny_png
from tests.service import browser

MEDIA = Path(__file__).parents[2] / "data" / "media"

in_a_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="needs Debian's chromium"),
]
_number = count(1)


@pytest.fixture(scope="module")
def chromium(portal, tmp_path_factory):
    """The browser of these tests."""
    chromium = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield chromium
    portal.run(chromium.close())


@pytest.fixture
def visiting(full_service, chromium):
    """Open the page in a new tab, and return the tab and a key with a hundred credits."""

    @asynccontextmanager
    async def visit():
        async with chromium.tab() as tab:
            await tab.open(f"{full_service.base_url}/")
            yield tab, await create_api_key(full_service.database, f"visitor-{next(_number)}", 100)

    return visit


async def test_a_browser_gets_the_page_and_a_program_the_index(session, service):
    """The Accept header decides between the page and the JSON index."""
    async with session.get(service.base_url, headers={"Accept": "text/html,application/json;q=0.9"}) as answer:
        assert answer.content_type == "text/html"
        assert "<title>lightmeter" in await answer.text()
    async with session.get(service.base_url, headers={"Accept": "application/json"}) as answer:
        assert (await answer.json())["backends"] == {"palette": {"colors": 0.2}}


async def test_only_the_page_s_own_script_and_style_may_run(session, service):
    """The Content-Security-Policy allows only the script and style of the page, by hash."""
    async with session.get(service.base_url) as answer:
        policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert re.fullmatch(r"'sha256-[\w+/=]+'", policy["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/=]+'", policy["style-src"])
    text = page()[0].decode()
    assert not re.search(r"""<[^>]*\s(on\w+|style)=|(src|href)="(https?:)?//|innerHTML|@import""", text)


async def test_the_page_names_every_endpoint_parameter_and_error(session, service):
    """The page names every endpoint, parameter and error of the OpenAPI document."""
    async with session.get(f"{service.base_url}/openapi.json") as answer:
        document = await answer.json()
    text = page()[0].decode().replace("&lt;", "{").replace("&gt;", "}")
    assert [path for path in document["paths"] if path not in text] == []
    schemas = document["components"]["schemas"]
    assert [name for name in schemas["AnalyzeRequest"]["properties"] if f"<td><code>{name}</code>" not in text] == []
    answers = [*document["paths"]["/api/fetch"].values(), document["paths"]["/api/response/{request_id}"]["get"]]
    statuses = {status for answer in answers for status in answer["responses"]} - {"200", "405"}
    assert [status for status in sorted(statuses) if f"<th>{status}</th>" not in text] == []


class TestInABrowser:
    """Tests in Chromium."""

    pytestmark = in_a_browser

    async def test_a_picture_is_chosen_and_seen_through(self, visiting):
        """For a picture that the user chooses, the page shows tags, colors, moderation, credits and the raw answer."""
        async with visiting() as (tab, key):
            await tab.type("#key", key)
            await tab.choose("#file", MEDIA / "coffee.jpg")
            await tab.value("document.querySelector('#go').click()")
            await tab.until("document.querySelector('#raw')")
            tags = await tab.value("[...document.querySelectorAll('#tags li')].map((row) => row.innerText)")
            assert any("coffee" in tag for tag in tags)
            hexes = await tab.value("document.querySelector('#palette').innerText")
            assert len(re.findall(r"#[0-9a-f]{6} \d+ %", hexes)) >= 3
            assert await tab.value("document.querySelectorAll('.strip i')[0].getBoundingClientRect().width") > 10
            assert await tab.value("document.querySelectorAll('#nsfw [role=meter]').length") == 4
            assert await tab.value("document.querySelector('#credits_paid').innerText") == "2 credits paid"
            assert await tab.value("document.querySelector('#credits').innerText") == "98 credits left"
            assert json.loads(await tab.value("document.querySelector('#raw').textContent"))["credits_paid"] == 2
            await tab.until(
                "document.querySelector('.stage img').naturalWidth > 100"
            )  # it is decoded when it is decoded
            assert (tab.complaints, key in " ".join(tab.request_urls)) == ([], False)

    async def test_a_picture_is_dropped(self, visiting):
        """A dropped picture replaces an entered URL."""
        content = base64.b64encode(tiny_png(3)).decode()
        dropping = f"""
            const bytes = Uint8Array.from(atob("{content}"), (letter) => letter.charCodeAt(0));
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([bytes], "dropped.png", {{ type: "image/png" }}));
            document.querySelector("#drop").dispatchEvent(new DragEvent("drop", {{ dataTransfer, cancelable: true }}));
        """
        async with visiting() as (tab, key):
            await tab.type("#url", "http://127.0.0.1:1/nothing.png")
            await tab.value(f"(() => {{ {dropping} }})()")
            assert await tab.value("document.querySelector('#url').value") == ""
            assert "dropped.png" in await tab.value("document.querySelector('#chosen').innerText")
            await tab.type("#key", key)
            await tab.value("document.querySelector('#go').click()")
            await tab.until("document.querySelector('#palette')")
            assert '"name": "dropped.png"' in await tab.value("document.querySelector('#raw').textContent")

    async def test_a_wrong_key_is_reported(self, visiting):
        """The page shows the error texts of the service."""
        async with visiting() as (tab, _):
            for wrong, message in (
                ("nobody", "Access denied."),
                ("nödög", "Access denied."),
                ("", "Enter a key first."),
            ):
                await tab.value("document.querySelector('#key').value = ''")
                await tab.type("#key", wrong)
                await tab.choose("#file", MEDIA / "coffee.jpg")
                await tab.value("document.querySelector('#go').click()")
                await tab.until(f"document.querySelector('#message').innerText === '{message}'")

    async def test_a_video_is_polled_for_and_shown_by_its_frames(self, visiting):
        """The page polls a video until it is finished."""
        async with visiting() as (tab, key):
            await tab.type("#key", key)
            await tab.value("document.querySelector('#max_frames').value = 2")
            await tab.choose("#file", MEDIA / "samoyed.mp4")
            await tab.value("document.querySelector('#go').click()")
            await tab.until("document.querySelectorAll('.frame').length >= 2")
            assert any("/api/response/" in url for url in tab.request_urls)
            assert tab.complaints == []

    async def test_nothing_an_answer_says_becomes_markup(self, visiting):
        """Texts of an answer are never interpreted as HTML."""
        bad = "<img src=x onerror=alert(1)>"
        box = {"vertices": [{"x": 10, "y": 10}, {"x": 60, "y": 10}, {"x": 60, "y": 40}]}
        asset = {
            "name": bad,
            "kind": "image",
            "width": 600,
            "height": 400,
            "tags": {bad: [{"name": bad, "score": 0.9, "source": bad}]},
            "colors": {bad: [{"hex": bad}]},
            "nsfw": [{"label": bad, "likelihood": "UNLIKELY"}],
            "descriptions": [{"description": bad}],
            "faces": [{"gender": bad, "bounding_box": {"left": 0.1, "top": 0.1, "width": 0.2, "height": 0.2}}],
            "texts": [{"text": bad, "bounding_poly": box}],
            "brands": [{"name": bad}],
        }
        answer = {"credits_paid": bad, "credits": 1, "all": {"assets": [asset], "errors": [bad]}}
        async with visiting() as (tab, _):
            await tab.choose("#file", MEDIA / "coffee.jpg")
            await tab.until("document.querySelector('#chosen').innerText.startsWith('coffee.jpg')")
            await tab.value(f"show({json.dumps(answer)}, '')")
            assert await tab.value("document.querySelectorAll('#results img').length") == 1
            assert await tab.value("document.querySelectorAll('#results polygon').length") == 2
            assert await tab.value("document.querySelector('polygon.face').getAttribute('points')") == (
                "60,40 180,40 180,120 60,120"
            )
            assert await tab.value(f"document.querySelector('#tags').innerText.includes({json.dumps(bad)})")
            assert tab.complaints == []

    async def test_it_is_used_by_keyboard_alone(self, visiting):
        """The form can be used with the keyboard."""
        async with visiting() as (tab, key):
            await tab.type("#key", key)
            await tab.choose("#file", MEDIA / "coffee.jpg")
            await tab.value("document.querySelector('#key').focus()")
            await tab.press("Tab", 9)
            assert await tab.value("document.activeElement.id") == "file"
            assert await tab.value("getComputedStyle(document.querySelector('#drop')).outlineStyle") == "solid"
            await tab.value("document.querySelector('#key').focus()")
            await tab.press("Enter", 13)
            await tab.until("document.querySelector('#raw')")
            unnamed = (
                "[...document.querySelectorAll('input, button')]"
                ".filter((each) => !each.labels?.length && !each.innerText)"
            )
            assert await tab.value(f"{unnamed}.length") == 0

    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    async def test_it_fits_a_phone_and_any_light(self, visiting, dark):
        """The page fits a phone, and its text has a contrast of at least 4.5 to 1 (WCAG 2.2, AA)."""
        async with visiting() as (tab, _):
            for width in (360, 820, 1400):
                await tab.look(width=width, dark=dark)
                assert await tab.value("document.documentElement.scrollWidth <= innerWidth")
            colors = await tab.value(
                "['color', 'background-color'].map((name) => getComputedStyle(document.body).getPropertyValue(name))"
            )
            soft = await tab.value("getComputedStyle(document.querySelector('.soft')).color")
            link = await tab.value("getComputedStyle(document.querySelector('a')).color")
            ground = _luminance(colors[1])
            assert (ground < 0.5) == dark
            for text in (colors[0], soft, link):
                low, high = sorted((_luminance(text), ground))
                assert (high + 0.05) / (low + 0.05) >= 4.5


def _luminance(color: str) -> float:
    """Return the relative luminance of `rgb(…)` by WCAG."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


async def test_callers_from_pages_of_other_hosts_are_answered(session, service):
    """Pages of any host may send the key and read errors (CORS)."""
    preflight = {"Origin": "https://plugin.example", "Access-Control-Request-Method": "POST"}
    async with session.options(f"{service.base_url}/api/fetch", headers=preflight) as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, "*")
        assert "X-API-Key" in answer.headers["Access-Control-Allow-Headers"]
    async with session.get(f"{service.base_url}/api/credits") as answer:
        assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (401, "*")
