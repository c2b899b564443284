"""Pictures of tags and colors as Markdown, names of tables as assets, and prices that need approval."""

from __future__ import annotations

import base64
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from prefect.assets import Asset

from lightmeter.api.run_result import RunSummary
from lightmeter.prefect_integration.approval import most_credits
from lightmeter.prefect_integration.artifacts import palette_as_markdown, tags_as_markdown
from lightmeter.prefect_integration.tables import asset_key
from lightmeter.pricing.estimate import CreditRange


def picture(markdown: str) -> ET.Element:
    """Return the SVG picture in a Markdown text."""
    data = markdown.partition("base64,")[2].partition(")")[0]
    return ET.fromstring(base64.b64decode(data))  # noqa: S314 (our own)


def test_tags_from_data_cannot_break_the_page():
    """A tag's name is a text in the picture and a cell of the table, whatever characters it has."""
    markdown = tags_as_markdown([("<script>|x\n", 1200), ("cat", 3)])
    texts = [element.text for element in picture(markdown).iter() if element.tag.endswith("text")]
    assert "cat" in texts
    assert "1,200" in texts
    assert "<script>" not in markdown
    assert markdown.splitlines()[-2:] == ["| &lt;script&gt;\\|x | 1,200 |", "| cat | 3 |"]


def test_stripes_of_colors_fill_the_picture():
    """The widths of the colors add up to the width of the picture; what is no color is left out."""
    markdown = palette_as_markdown([("#ff0000", 0.2), ("#00ff00", 0.1), ('"/><script>', 0.5)])
    widths = [float(element.get("width")) for element in picture(markdown).iter() if element.tag.endswith("rect")]
    assert len(widths) == 2
    assert sum(widths) == pytest.approx(640, abs=0.2)
    assert "script" not in markdown


def test_any_folder_has_asset_keys():
    """A table of a folder with spaces, quotes or a very long path has a key that Prefect allows."""
    for folder in (Path("out/nightly"), Path("/data/my photos & 'more'/50%"), Path("/" + "x" * 900)):
        assert Asset(key=asset_key(folder, "tags")).key.endswith("/tables/tags")


@pytest.mark.parametrize(
    ("high", "budget", "most"), [(10, None, 10), (10, 7, 4), (None, 7, 4), (None, None, None), (2, 7, 2)]
)
def test_the_most_that_a_run_can_spend(high, budget, most):
    """A run can spend its price or what the budget leaves beside credits paid and held, whichever is less."""
    counts = dict.fromkeys(("ok", "failed", "skipped", "duplicate", "in_doubt", "over_budget", "pending"), 0)
    summary = RunSummary(0, counts, 0, 2, 1, budget, None, None, 0.0, Path())
    assert most_credits(CreditRange(0, high), summary) == most
