"""Quality findings beside those of CleanVision on the same pictures, and the time that the measures take.

The pictures are the sample photographs, scikit-image's data and degraded copies of both. CleanVision judges each file
as it is stored; lightmeter judges the decoded picture, at most 256 pixels wide and high.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

import lightmeter as lm
from lightmeter.media.image import load_rgb
from lightmeter.media.image_quality import measure_quality
from lightmeter.testing import tiny_jpeg
from tests.bench.quality.quality_data import show

cleanvision = pytest.importorskip("cleanvision")

SAMPLES = Path(__file__).parents[3] / "data" / "media"
ISSUES = ("dark", "light", "low_information", "blurry", "odd_aspect_ratio", "odd_size", "grayscale")
DEFINED_OTHERWISE = "grayscale"
"""CleanVision reports pictures that are stored as gray; lightmeter, all that have no color."""
LEAST_AGREEMENT = 0.97
GOAL_US = 2000


def blurred(picture, share):
    """Return a copy that is blurred over a share of its longer side."""
    return picture.filter(ImageFilter.GaussianBlur(share * max(picture.size)))


DEGRADED = {
    "dark": lambda picture: picture.point(lambda level: level // 4),
    "dim": lambda picture: picture.point(lambda level: level // 2),
    "light": lambda picture: picture.point(lambda level: 240 + level // 16),
    "blurred": lambda picture: blurred(picture, 0.04),
    "soft": lambda picture: blurred(picture, 0.01),
    "noisy": lambda picture: picture.effect_spread(20),
    "two-levels": lambda picture: picture.convert("L").point(lambda level: 255 * (level > 128)),
    "four-levels": lambda picture: picture.point(lambda level: level // 64 * 64),
    "gray": lambda picture: picture.convert("L"),
    "strip": lambda picture: picture.crop((0, 0, picture.width, picture.height // 6 + 1)),
    "small": lambda picture: picture.resize((picture.width // 16 + 1, picture.height // 16 + 1)),
}


def originals():
    """Yield the names and pictures of the samples and of scikit-image's data."""
    folders = [SAMPLES]
    if (found := importlib.util.find_spec("skimage")) is not None:
        folders += [Path(place) / "data" for place in found.submodule_search_locations]
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        with contextlib.suppress(OSError), Image.open(path) as picture:
            picture.load()
            yield f"{path.parent.name}-{path.stem}", picture.copy()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the pictures: originals of any mode, and degraded copies in turn."""
    folder = tmp_path_factory.mktemp("pictures")
    names = list(DEGRADED)
    for number, (name, picture) in enumerate(originals()):
        original = picture if picture.mode in {"L", "RGB", "RGBA", "1", "P"} else picture.convert("RGB")
        original.save(folder / f"{name}.png")
        colored = picture.convert("RGB")
        colored.thumbnail((1200, 1200))
        for turn in range(5):
            fault = names[(number + 2 * turn) % len(names)]
            form = "jpg" if turn % 2 else "png"
            DEGRADED[fault](colored).save(folder / f"{name}-{fault}.{form}")
    return folder


def findings_of_cleanvision(folder):
    """Return the names of the pictures with each issue."""
    lab = cleanvision.Imagelab(data_path=str(folder), verbose=False)
    lab.find_issues({issue: {} for issue in ISSUES}, n_jobs=1, verbose=False)
    return {issue: {Path(path).name for path in lab.issues.index[lab.issues[f"is_{issue}_issue"]]} for issue in ISSUES}


def findings_of_lightmeter(folder, target):
    """Return the names of the pictures with each finding; the manifest may have any number of rows."""
    plan = lm.plan(folder, features=["colors"], table_format="parquet")
    saved = plan.save(target / "plan.json")
    lines = json.loads(saved.read_text()).get("listed")
    assert lines is not None, "more pictures than plan.json lists"
    found = {issue: set() for issue in ISSUES}
    for row in lines:
        for one in row["findings"]:
            found.get(one["check"], set()).add(Path(row["url"]).name)
    return found


def test_findings_agree_with_cleanvision(folder, tmp_path, monkeypatch):
    """For every issue the two agree on most pictures."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    pictures = {path.name for path in folder.iterdir()}
    theirs, ours = findings_of_cleanvision(folder), findings_of_lightmeter(folder, tmp_path)
    show(f"\n{len(pictures)} pictures\nissue             both  CleanVision only  lightmeter only  agreement")
    agreement = {}
    for issue in ISSUES:
        first, second = theirs[issue], ours[issue]
        agreement[issue] = 1 - len(first ^ second) / len(pictures)
        both, left, right = len(first & second), sorted(first - second), sorted(second - first)
        show(f"{issue:17} {both:4} {len(left):17} {len(right):16} {agreement[issue]:10.1%}")
        for who, names in (("CleanVision", left), ("lightmeter", right)):
            if names:
                show(f"    {who} only: {', '.join(names[:60])}{' …' if len(names) > 60 else ''}")
    assert len(pictures) >= 150
    assert [issue for issue in ISSUES if agreement[issue] < LEAST_AGREEMENT and issue != DEFINED_OTHERWISE] == []
    assert theirs[DEFINED_OTHERWISE] <= ours[DEFINED_OTHERWISE]


def test_unusual_sizes_agree_with_cleanvision(tmp_path, monkeypatch):
    """In a folder of similar sizes with some that are not, the two report the same pictures."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    folder, random = tmp_path / "pictures", np.random.default_rng(6)
    folder.mkdir()
    sides = np.clip(np.concatenate([random.normal(100, 12, (150, 2)), random.uniform(5, 260, (50, 2))]), 5, None)
    for number, (width, height) in enumerate(sides.astype(int).tolist()):
        (folder / f"{number}.jpg").write_bytes(tiny_jpeg(number, width=width, height=height))
    theirs, ours = findings_of_cleanvision(folder)["odd_size"], findings_of_lightmeter(folder, tmp_path)["odd_size"]
    show(f"\nodd_size of {len(sides)} pictures: CleanVision {len(theirs)}, lightmeter {len(ours)}")
    assert theirs == ours
    assert theirs


def test_time_of_the_measures():
    """All measures of a picture of 256 pixels together take less processor time than the goal."""
    pictures = [load_rgb(path.read_bytes(), max_side=256) for path in sorted(SAMPLES.glob("*.jpg"))]
    rounds = []
    for _ in range(10):
        start = time.process_time()
        for picture in pictures:
            measure_quality(picture)
        rounds.append(1e6 * (time.process_time() - start) / len(pictures))
    show(f"\nmeasures: {np.median(rounds):.0f} µs of processor time for each picture, goal {GOAL_US} µs")
