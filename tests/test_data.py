"""The sample data: what is there is named, licensed, readable, small, and there once."""

from __future__ import annotations

import csv
import re
from collections import Counter
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightmeter.manifest.readers import ManifestReader
from lightmeter.media.image import load_rgb, read_image_info
from lightmeter.media.video.sample_video import read_video_info

DATA = Path(__file__).parents[1] / "data"
MAX_TOTAL_BYTES = 6_000_000
MAX_VIDEO_BYTES = 1_500_000
MAX_IMAGE_SIDE = 1024
TABLE_ROW = re.compile(r"^\| `([\w.]+\.(?:jpg|mp4))` \|(.+)\|$", re.MULTILINE)


def _manifest() -> list[dict[str, str]]:
    with (DATA / "manifest.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


ROWS = _manifest()
PAGE = (DATA / "README.md").read_text(encoding="utf-8")
IMAGES = [row["path"] for row in ROWS if row["kind"] == "image"]
VIDEOS = [row["path"] for row in ROWS if row["kind"] == "video"]


def test_manifest_names_exactly_the_files_that_are_there():
    """Every file of data/media has one row in the manifest, and every row has its file."""
    there = sorted(path.relative_to(DATA).as_posix() for path in (DATA / "media").iterdir())
    assert sorted(row["path"] for row in ROWS) == there


def test_page_gives_the_licence_the_manifest_gives():
    """README.md lists exactly the files of the manifest, each under the licence that stands in its row."""
    described = dict(TABLE_ROW.findall(PAGE))
    assert set(described) == {Path(row["path"]).name for row in ROWS}
    for row in ROWS:
        assert f"[{row['licence']}]" in described[Path(row["path"]).name]


def test_every_licence_has_its_text_linked():
    """Each licence of the manifest is a link of the page to the licence's text."""
    for licence in {row["licence"] for row in ROWS}:
        assert re.search(rf"^\[{re.escape(licence)}\]: https://(creativecommons|www\.apache)\.org/", PAGE, re.MULTILINE)


def test_rows_are_whole_and_ids_unique():
    """No cell of the manifest is empty, and no id stands there twice."""
    assert all(cell and cell == cell.strip() for row in ROWS for cell in row.values())
    assert len({row["id"] for row in ROWS}) == len(ROWS)


def test_enough_to_show():
    """The demo has at least twelve photographs and two clips to work on."""
    assert len(IMAGES) >= 12
    assert len(VIDEOS) >= 2


def test_data_stays_small():
    """All of data/ fits into six megabytes, and no clip is larger than one and a half."""
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) <= MAX_TOTAL_BYTES
    assert all((DATA / path).stat().st_size <= MAX_VIDEO_BYTES for path in VIDEOS)


@pytest.mark.parametrize("path", IMAGES)
def test_photograph_opens_and_is_bounded(path):
    """Each photograph is a JPEG that decodes whole, at most 1024 pixels wide and high."""
    content = (DATA / path).read_bytes()
    facts = read_image_info(content)
    assert facts.format == "jpeg"
    assert max(facts.width, facts.height) <= MAX_IMAGE_SIDE
    assert load_rgb(content).shape == (facts.height, facts.width, 3)


@pytest.mark.parametrize("path", VIDEOS)
async def test_clip_opens(path):
    """Each clip opens in the decoder, has several frames, and lasts one to ten seconds."""
    facts = await read_video_info(DATA / path)
    assert facts.frame_count > 1
    assert 1 <= facts.duration_s <= 10


def difference_hash(rgb):
    """Return the 64 bits that say which of 9 x 8 greys are brighter than their left neighbors (dHash, N. Krawetz)."""
    grey = Image.fromarray(rgb).convert("L").resize((9, 8), Image.Resampling.BOX)
    levels = np.asarray(grey, dtype=np.int16)
    return int.from_bytes(np.packbits(levels[:, 1:] > levels[:, :-1]).tobytes(), "big")


def test_nothing_is_there_twice():
    """No two files are the same bytes, and no two photographs look the same."""
    digests = Counter(sha256((DATA / row["path"]).read_bytes()).hexdigest() for row in ROWS)
    assert max(digests.values()) == 1
    hashes = [difference_hash(load_rgb((DATA / path).read_bytes())) for path in IMAGES]
    assert min((a ^ b).bit_count() for i, a in enumerate(hashes) for b in hashes[:i]) > 8


def test_manifest_has_no_problem_row():
    """Our own reader finds nothing wrong with the good manifest, and takes its kinds."""
    items = list(ManifestReader(DATA / "manifest.csv"))
    assert [item.problem for item in items] == [None] * len(ROWS)
    assert [item.kind for item in items] == [row["kind"] for row in ROWS]


def test_hard_manifest_is_read_whole():
    """Our own reader makes an item of every row of the hard manifest, and names what it can know of the trouble."""
    items = list(ManifestReader(DATA / "hard.csv"))
    problems = {item.item_id: item.problem for item in items if item.problem is not None}
    assert len(items) == 10
    assert {"no_url", "empty", "wrong_kind"} <= set(problems)
    assert not {"good", "again", "missing", "misnamed"} & set(problems)
