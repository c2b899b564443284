"""`report.html`: true to the run, whole by itself, and safe whatever names and answers hold."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import duckdb
import pandas as pd
import pytest

import lightmeter as lm
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.errors import JournalError, UsageError
from lightmeter.tables.queries import QuerySession
from lightmeter.testing import tiny_jpeg

VOID = {"meta", "img", "br", "hr", "input", "link"}


class Reader(HTMLParser):
    """What a browser would make of a page: its elements, each with its attributes, and its text by section."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.sections: dict[str, str] = {"": ""}
        self.section = ""
        self.feed(html)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self.section = dict(attrs)["id"]
            self.sections[self.section] = ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.section = "" if tag == "section" else self.section

    def handle_data(self, data):
        self.sections[self.section] += f" {data}"


@pytest.fixture(scope="module")
def page(html):
    return Reader(html)


def test_nothing_in_it_asks_anything_of_any_other_place(page, html):
    """No script, no frame, no font or style from elsewhere; pictures are inside; links are the only addresses."""
    tags = {tag for tag, _ in page.elements}
    assert tags.isdisjoint({"script", "iframe", "object", "embed", "link", "base", "form", "foreignobject", "image"})
    for tag, attributes in page.elements:
        assert [name for name in attributes if name.startswith("on")] == []
        assert "srcset" not in attributes
        assert attributes.get("src", "data:image/jpeg;base64,").startswith("data:image/jpeg;base64,")
        for name in ("href", "xlink:href"):
            address = attributes.get(name) or "#"
            assert address.startswith("#") or (tag == "a" and re.match("https?://", address)), address
        assert "url(" not in (attributes.get("style") or "")
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    assert not re.search(r"url\(|@import|//", style)
    assert "default-src 'none'" in html


def test_hostile_texts_are_text(page, html):
    """Tags, file names, addresses, labels, back ends and groups with markup in them are shown as they are."""
    assert "<script" not in html
    assert "\x00" not in html
    assert "\u202e" not in html
    assert "<script>alert('x')</script>" in page.sections["tags"]
    assert '"><img src=x onerror=alert(1)>' in page.sections["moderation"]
    assert 'far"><img src=x onerror=alert(1)>' in page.sections["backends"]
    assert "<img src=x onerror=alert(2)>.jpg" in page.sections["pictures"] + page.sections["moderation"]
    assert "javascript:alert(3)" in page.sections["rows"]
    assert "$\\frac{1}{2}$" in page.sections["tags"]
    assert "evil.example" not in html


def test_it_accounts_for_rows_and_credits(page, told):
    """The page's figures are the run's own."""
    summary = told.summary()
    counts = summary.counts
    assert (counts["ok"], counts["duplicate"], counts["failed"], counts["skipped"]) == (33, 3, 1, 2)
    assert "36 of 39 rows are answered; 1 failed, 2 cannot work and cost nothing." in page.sections[""]
    for status in ("ok", "duplicate", "failed", "skipped"):
        assert re.search(rf"{status} +{counts[status]}\b", page.sections["rows"]), status
    credits_ = page.sections["credits"]
    assert f"paid {summary.paid} credits" in re.sub(" +", " ", credits_)
    assert "500 before, 467 after" in credits_
    assert "nothing is unexplained" in credits_
    assert "saved by duplicates 3 credits" in re.sub(" +", " ", credits_)


def test_every_section_has_something_to_say(page):
    """A run with findings of all kinds fills every section, in the order of the contents."""
    expected = ["rows", "credits", "pictures", "tags", "colours", "moderation", "backends", "errors", "time", "origin"]
    assert [section for section in page.sections if section] == expected
    contents = [attributes["href"] for tag, attributes in page.elements if tag == "a" and "href" in attributes][:10]
    assert contents == [f"#{section}" for section in expected]


def test_charts_say_what_they_show(page):
    """Each drawing is named and described for who does not see it, its text is text, and no name stands twice."""
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    drawings = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(drawings) == 8
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert set(drawing["aria-labelledby"].split()) <= set(names)
    assert sum(tag == "text" for tag, _ in page.elements) > 50
    assert {"title", "desc"} <= {tag for tag, _ in page.elements}


def test_unsafe_pictures_are_veiled(page, html, told):
    """Of what is rated likely unsafe, only a handful of pixels is shown until it is opened, here and in the review."""
    opened = [at for at, (tag, attributes) in enumerate(page.elements) if "veil" in (attributes.get("class") or "")]
    assert len(opened) >= 2
    for at in opened:
        assert page.elements[at][0] == "details"
        assert "open" not in page.elements[at][1]
        (first, shown) = [attributes for tag, attributes in page.elements[at : at + 6] if tag == "img"][:2]
        assert first["alt"].endswith(", blurred")
        assert len(first["src"]) < len(shown["src"])
    worst = told.sql("SELECT count(DISTINCT item_id) AS n FROM nsfw WHERE severity >= 0.5")["n"][0]
    assert f"To review: {worst}<" in html


def test_the_same_run_makes_the_same_page(told, html):
    """Nothing in it is left to chance: only the moment it was made differs."""
    again = lm.sync(lm.report(told, thumbnails=60)).read_text(encoding="utf-8")
    moment = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
    assert moment.sub("", again) == moment.sub("", html)


def test_groups_are_those_of_the_manifest_s_own_column(told, tmp_path):
    """`by` groups palettes and costs by any column, whatever stands in it."""
    text = Reader(lm.sync(lm.report(told, by="team")).read_text(encoding="utf-8")).sections
    assert "<b>west</b>" in text["colours"]
    assert re.search(r"Cost by team.*north.*south", text["credits"], re.DOTALL)


@pytest.mark.parametrize(("column", "said"), [("crew", "no column 'crew'"), ("item_id", "39 different values")])
def test_a_column_that_cannot_group_is_refused(told, column, said):
    """A slip in the name, or more groups than a page can show, is a usage error that says so."""
    with pytest.raises(UsageError, match=said):
        lm.sync(lm.report(told, by=column))


def test_pictures_elsewhere_are_fetched_only_when_asked_for(tmp_path, monkeypatch):
    """Without the wish nobody is asked for anything; with it the picture is there."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / "none.toml"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.jpg").write_bytes(tiny_jpeg(width=320, height=200))
    with serve_folder(tmp_path / "files") as base:
        plan = lm.sync(lm.plan([f"{base}/a.jpg"], features=["colors"]))
        run = lm.sync(lm.run(plan, tmp_path / "out"))
        without = lm.sync(lm.report(run)).read_text(encoding="utf-8")
        fetched = lm.sync(lm.report(run, fetch_thumbnails=True)).read_text(encoding="utf-8")
    gone = lm.sync(lm.report(run, fetch_thumbnails=True)).read_text(encoding="utf-8")
    assert "not on this machine" in without
    assert "data:image/jpeg" not in without
    assert "data:image/jpeg" in fetched
    assert "data:image/jpeg" not in gone


def test_what_was_paid_is_told_by_back_end_where_it_can_be(told, tmp_path, monkeypatch):
    """The embedded service's prices are known to the last digit; a clip of unknown length keeps others from being."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / "none.toml"))
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg())
    plan = lm.sync(lm.plan(pd.DataFrame({"path": [str(tmp_path / "a.jpg")]}), features=["colors"]))
    text = Reader(lm.sync(lm.report(lm.sync(lm.run(plan, tmp_path / "out")))).read_text(encoding="utf-8")).sections
    assert re.search(r"What was paid for .*palette +colors +1 +0\.2 +rounded up .*0\.8", text["credits"])
    assert "The one row is answered." in text[""]
    assert "What was paid for" not in lm.sync(lm.report(told)).read_text(encoding="utf-8")


def test_a_run_without_tables_is_told_as_far_as_the_journal_goes(told, tmp_path):
    """Rows and credits are the journal's; the page says how to get the rest."""
    for part in ("journal.sqlite", "plan.json"):
        (tmp_path / part).write_bytes((told.folder / part).read_bytes())
    text = Reader(lm.sync(lm.report(tmp_path)).read_text(encoding="utf-8")).sections
    assert "lightmeter rebuild DIR" in text[""]
    assert set(text) == {"", "rows", "credits", "origin"}


def test_all_questions_are_asked_through_one_connection_with_bounded_memory(told, monkeypatch):
    """A page opens DuckDB once, with a limit on its memory, however much it asks."""
    limits = []

    class Seen(QuerySession):
        def __exit__(self, *how):
            limits.append(self.ask("SELECT current_setting('memory_limit') AS said").to_pylist()[0]["said"])
            super().__exit__(*how)

    connections, connect = [0], duckdb.connect

    def counted(*args, **more):
        connections[0] += 1
        return connect(*args, **more)

    monkeypatch.setattr("lightmeter.report.load.QuerySession", Seen)
    monkeypatch.setattr(duckdb, "connect", counted)
    lm.sync(lm.report(told))
    assert (connections, limits) == ([1], ["256.0 MiB"])


def test_no_run_no_report(tmp_path):
    """A folder without a journal is named, and nothing is written."""
    with pytest.raises(JournalError, match="holds no run"):
        lm.sync(lm.report(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_verb_says_where_the_page_is(command, told):
    """One line: the path, ready for a browser."""
    ended = command("report", told.folder, "--thumbnails", 3)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.strip() == str(told.folder / "report.html")
    assert command("report", told.folder / "nowhere").code == 2
