"""All seven features on the sample pictures: the README's commands print the README's table."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.e2e.sample_folder import link_samples
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXACT = ("sample", "texts", "brands")
"""Columns that do not hang on the last digits of a network's output."""
FEW = ("camera", "cameras", "coffee")
"""Samples in which every feature finds something."""


def cells(table: str) -> list[dict[str, str]]:
    """The rows of a Markdown table, by column."""
    head, _, *rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.strip().splitlines() if line
    ]
    return [dict(zip(head, [*row, *[""] * len(head)], strict=False)) for row in rows]


@pytest.fixture(
    scope="module",
    params=[pytest.param(FEW, id="few samples"), sweep((), name="all samples")],
)
def printed(request, sample_rows, tmp_path_factory, command):
    """What the README's commands print, run where all sample data are, or few of them; and the samples' names."""
    folder = tmp_path_factory.mktemp("features")
    rows = [row for row in sample_rows if row["id"] in request.param or not request.param]
    link_samples(folder, rows)
    (block,) = re.findall(
        r"^```sh\n(lightmeter run data/manifest\.csv --out out/all.*?)^```", README, re.MULTILINE | re.DOTALL
    )
    output = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in re.split(r"\n(?=lightmeter )", block.strip()):
            ended = command(*shlex.split(line)[1:], timeout=300)
            assert ended.code == 0, ended.err
            output = ended.out
    return cells(output), {row["id"] for row in rows}


def test_the_table_is_what_the_commands_print(printed):
    """The README shows the same pictures, with the same texts and brands, and as many faces."""
    found, samples = printed
    table = README.split("<!-- all-features:start -->")[1].split("<!-- all-features:end -->")[0]
    documented = [row for row in cells(table) if row["sample"] in samples]
    assert [[row[name] for name in EXACT] for row in found] == [[row[name] for name in EXACT] for row in documented]
    assert [row["faces"].count("male") for row in found] == [row["faces"].count("male") for row in documented]


@pytest.mark.parametrize("feature", ["tags", "colors", "nsfw", "faces", "texts", "brands", "description"])
def test_every_feature_answers_something(printed, feature):
    """No feature is empty on all the sample pictures."""
    assert any(row[feature] for row in printed[0])
