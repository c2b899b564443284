"""`report.html` states the run's own figures, is self-contained, and is safe against hostile texts."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files

import duckdb
import pandas as pd
import pytest

import lightmeter as lm
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.errors import JournalError, UsageError
from lightmeter.tables.query.duckdb_query import QuerySession
from lightmeter.testing import tiny_jpeg

VOID = {"meta", "img", "br", "hr", "input", "link"}


class ParsedPage(HTMLParser):
    """The elements of a page with their attributes, and its text by section."""

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
        self.sections[self.section] += f" {' '.join(data.split())}"


@pytest.fixture(scope="module")
def page(html):
    return ParsedPage(html)


def test_the_page_is_self_contained(page, html):
    """The page has no script, frame, form, external font or style; images are embedded; only links have addresses."""
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


def test_hostile_texts_are_escaped(page, html):
    """Markup in tags, file names, URLs, labels, back ends and groups is shown as text."""
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


def test_row_and_credit_figures_are_those_of_the_run(page, finished_run):
    """Counts, credits and balances on the page equal those of the run's summary."""
    summary = finished_run.summary()
    counts = summary.counts
    assert (counts["ok"], counts["duplicate"], counts["failed"], counts["skipped"]) == (33, 3, 1, 2)
    assert "36 of 39 rows are answered; 1 failed, 2 cannot be analysed and cost nothing." in page.sections[""]
    for status in ("ok", "duplicate", "failed", "skipped"):
        assert re.search(rf"{status} +{counts[status]}\b", page.sections["rows"]), status
    credits_ = page.sections["credits"]
    assert f"paid {summary.paid} credits" in re.sub(" +", " ", credits_)
    assert "500 before, 467 after" in credits_
    assert "nothing is unexplained" in credits_
    assert "saved by duplicates 3 credits" in re.sub(" +", " ", credits_)


def test_every_section_is_shown_in_order(page):
    """A run with findings of all kinds has all sections, in the order of the table of contents."""
    expected = ["rows", "credits", "pictures", "tags", "colours", "moderation", "backends", "errors", "time", "origin"]
    assert [section for section in page.sections if section] == expected
    contents = [attributes["href"] for tag, attributes in page.elements if tag == "a" and "href" in attributes][:10]
    assert contents == [f"#{section}" for section in expected]


def test_charts_have_titles_descriptions_and_real_text(page):
    """Each chart has an accessible title and description, its text is real text, and no id occurs twice."""
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    drawings = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(drawings) == 8
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert set(drawing["aria-labelledby"].split()) <= set(names)
    assert sum(tag == "text" for tag, _ in page.elements) > 50
    assert {"title", "desc"} <= {tag for tag, _ in page.elements}


def test_unsafe_pictures_are_blurred(page, html, finished_run):
    """A likely unsafe picture is shown in few pixels until it is opened, in the gallery and in the review list."""
    positions = [
        position
        for position, (tag, attributes) in enumerate(page.elements)
        if "blurred" in (attributes.get("class") or "")
    ]
    assert len(positions) >= 2
    for position in positions:
        assert page.elements[position][0] == "details"
        assert "open" not in page.elements[position][1]
        (first, second) = [attributes for tag, attributes in page.elements[position : position + 6] if tag == "img"][:2]
        assert first["alt"].endswith(", blurred")
        assert len(first["src"]) < len(second["src"])
    worst = finished_run.sql("SELECT count(DISTINCT item_id) AS n FROM nsfw WHERE severity >= 0.5")["n"][0]
    assert f"To review: {worst}<" in html


def test_the_same_run_gives_the_same_page(finished_run, html):
    """Two reports of a run differ only in the time of the report."""
    again = lm.report(finished_run, thumbnails=60).read_text(encoding="utf-8")
    timestamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
    assert timestamp.sub("", again) == timestamp.sub("", html)


def test_by_groups_palettes_and_costs(finished_run, tmp_path):
    """`by` groups palettes and costs by any column of the manifest, whatever its values."""
    text = ParsedPage(lm.report(finished_run, by="team").read_text(encoding="utf-8")).sections
    assert "<b>west</b>" in text["colours"]
    assert re.search(r"Cost by team.*north.*south", text["credits"], re.DOTALL)


@pytest.mark.parametrize(("column", "message"), [("crew", "no column 'crew'"), ("item_id", "39 different values")])
def test_an_unsuitable_group_column_is_refused(finished_run, column, message):
    """An unknown column, or one with more values than a page can show, is a usage error that says so."""
    with pytest.raises(UsageError, match=message):
        lm.report(finished_run, by=column)


def test_remote_pictures_are_fetched_only_with_fetch_thumbnails(tmp_path, monkeypatch):
    """Without the option a remote picture that no check kept is not downloaded; with it the page shows the picture."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.jpg").write_bytes(tiny_jpeg(width=320, height=200))
    with serve_folder(tmp_path / "files") as base:
        plan = lm.plan([f"{base}/a.jpg"], features=["colors"], precheck=False)
        run = lm.run(plan, tmp_path / "out")
        without = lm.report(run).read_text(encoding="utf-8")
        fetched = lm.report(run, fetch_thumbnails=True).read_text(encoding="utf-8")
    after_server_stop = lm.report(run, fetch_thumbnails=True).read_text(encoding="utf-8")
    assert "not on this machine" in without
    assert "data:image/jpeg" not in without
    assert "data:image/jpeg" in fetched
    assert "data:image/jpeg" not in after_server_stop


def test_credits_are_split_by_back_end_if_prices_are_known(finished_run, tmp_path, monkeypatch):
    """The split is shown for requests whose price is exact; what was paid for others is one row."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg())
    plan = lm.plan(pd.DataFrame({"path": [str(tmp_path / "a.jpg")]}), features=["colors"])
    text = ParsedPage(lm.report(lm.run(plan, tmp_path / "out")).read_text(encoding="utf-8")).sections
    assert re.search(r"What was paid for .*palette +colors +1 +0\.2 +rounded up .*0\.8", text["credits"])
    assert "The one row is answered." in text[""]
    text = ParsedPage(lm.report(finished_run).read_text(encoding="utf-8")).sections
    assert re.search(r"What was paid for .*not split: .* \d+", text["credits"])


def test_a_run_without_tables_shows_rows_and_credits(finished_run, tmp_path):
    """Without tables, the page shows what the journal holds and names the command that writes the tables."""
    for part in ("journal.sqlite", "plan.json"):
        (tmp_path / part).write_bytes((finished_run.folder / part).read_bytes())
    text = ParsedPage(lm.report(tmp_path).read_text(encoding="utf-8")).sections
    assert "lightmeter rebuild DIR" in text[""]
    assert set(text) == {"", "rows", "credits", "origin"}


def test_one_duckdb_connection_with_a_memory_limit(finished_run, monkeypatch):
    """All queries of a page use one DuckDB connection, which has a memory limit."""
    limits = []

    class RecordingSession(QuerySession):
        def __exit__(self, *how):
            limits.append(self.ask("SELECT current_setting('memory_limit') AS value").to_pylist()[0]["value"])
            super().__exit__(*how)

    connections, connect = [0], duckdb.connect

    def counting_connect(*args, **options):
        connections[0] += 1
        return connect(*args, **options)

    monkeypatch.setattr("lightmeter.html_report.load.QuerySession", RecordingSession)
    monkeypatch.setattr(duckdb, "connect", counting_connect)
    lm.report(finished_run)
    assert (connections, limits) == ([1], ["256.0 MiB"])


def test_a_folder_without_a_run_is_an_error(tmp_path):
    """The error names the missing run, and nothing is written into the folder."""
    with pytest.raises(JournalError, match="holds no run"):
        lm.report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_the_path_of_the_page(command, finished_run):
    """`lightmeter report` prints one line: the path of the page."""
    result = command("report", finished_run.folder, "--thumbnails", 3)
    assert (result.code, result.err) == (0, "")
    assert result.out.strip() == str(finished_run.folder / "report.html")
    assert command("report", finished_run.folder / "nowhere").code == 2


def test_report_is_a_function_whatever_is_imported_first():
    """`lm.report` is the function, not a package of the same name, also after a module of the package is imported."""
    code = "import lightmeter.html_report.thumbnails, lightmeter as lm; print(callable(lm.report))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_templates_and_style_sheet_are_in_the_package():
    """The templates and the style sheet are package files, so that a wheel holds them."""
    package = files("lightmeter.html_report")
    sections = {entry.name for entry in (package / "templates" / "sections").iterdir()}
    assert {"rows.html.j2", "credits.html.j2", "origin.html.j2"} <= sections
    assert (package / "report.css").is_file()
