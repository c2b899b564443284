"""Photographs for the near-duplicate benchmark, changed copies of them, and different pictures that look alike."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

from lightmeter.errors import MediaError
from lightmeter.media.image import load_rgb
from tests.bench.quality.quality_data import LABELS, Picture, folder

MAX_SIDE = 384
LEAST_SIDE = 64
LEAST_BYTES = 15_000
FEWEST = 100
LEAST_DIFFERENCE = 6
"""Levels of 256, on average, in which two different pictures differ at 64 x 64 pixels."""

PICTURE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
HOLDOUT_PACKAGES = (
    *("gcompris-qt-data", "tuxpaint-stamps-default", "plasma-workspace-wallpapers", "mate-backgrounds"),
    *("palapeli-data", "lomiri-wallpapers-16.04", "lomiri-wallpapers-20.04"),
)
"""Without opencv-doc, which has many shots of the same scene."""


def _tuned_on() -> set[Path]:
    """Return the files of the photographs that the limits of `media.fingerprint` were tuned on."""
    rows = []
    for name in ("scenes_fit", "scenes_test"):
        with (LABELS / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            rows += [Picture(row.pop("package"), row.pop("file"), row).path for row in csv.DictReader(file)]
    return {path for path in rows if path.is_file()}


def photographs(count: int) -> list[Image.Image]:
    """Draw photographs out of the packages of the quality benchmarks, no two of them the same; skip without them."""
    return _different(sorted(_tuned_on()), count, [])


def holdout(count: int) -> list[Image.Image]:
    """Draw other pictures out of these packages, which are the same as none of those that limits were tuned on."""
    tuned = _tuned_on()
    known = [_small(picture) for path in sorted(tuned) if (picture := _opened(path)) is not None]
    found = [folder() / package for package in HOLDOUT_PACKAGES]
    others = {path for place in found for path in place.rglob("*") if path.suffix.lower() in PICTURE_SUFFIXES}
    return _different(sorted(path for path in others - tuned if path.stat().st_size > LEAST_BYTES), count, known)


def _opened(path: Path) -> Image.Image | None:
    try:
        return Image.fromarray(load_rgb(path.read_bytes(), max_side=MAX_SIDE))
    except MediaError:
        return None


def _small(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.resize((64, 64))).astype(np.int16)


def _different(paths: list[Path], count: int, known: list[np.ndarray]) -> list[Image.Image]:
    """Return up to `count` pictures that differ from each other and from the small copies in `known`."""
    random.Random(7).shuffle(paths)  # noqa: S311 (the same pictures each time)
    found: list[Image.Image] = []
    for path in paths:
        if (picture := _opened(path)) is None or min(picture.size) < LEAST_SIDE:
            continue
        pixels = _small(picture)
        if not any(np.abs(pixels - one).mean() < LEAST_DIFFERENCE for one in known):
            found.append(picture)
            known.append(pixels)
        if len(found) == count:
            break
    if len(found) < FEWEST:
        pytest.skip(f"Only {len(found)} pictures are there. Get them with: python -m tests.bench.quality.fetch")
    return found


def encode(picture: Image.Image, kind: str = "JPEG", quality: int = 88) -> bytes:
    """Encode a picture."""
    stream = io.BytesIO()
    picture.save(stream, kind, quality=quality)
    return stream.getvalue()


def copies(picture: Image.Image, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield (kind of change, content) of copies that show the same."""
    width, height = picture.size
    for quality in (30, 60, 90):
        yield f"JPEG q{quality}", encode(picture, quality=quality)
    yield "WebP q50", encode(picture, "WEBP", 50)
    for percent in (50, 200):
        size = width * percent // 100, height * percent // 100
        yield f"resize {percent} %", encode(picture.resize(size, Image.Resampling.LANCZOS))
    for percent in (2, 5, 10):
        size = round(width * (1 - percent / 100)), round(height * (1 - percent / 100))
        left, top = rng.randint(0, width - size[0]), rng.randint(0, height - size[1])
        yield f"crop {percent} %", encode(picture.crop((left, top, left + size[0], top + size[1])))
    for factor in (0.8, 1.2):
        yield f"brightness {factor}", encode(ImageEnhance.Brightness(picture).enhance(factor))
    for factor in (0.8, 1.25):
        yield f"contrast {factor}", encode(ImageEnhance.Contrast(picture).enhance(factor))
    for factor in (0.7, 1.4):
        yield f"saturation {factor}", encode(ImageEnhance.Color(picture).enhance(factor))
    warm = np.asarray(picture) * np.array([1.06, 1, 0.94])
    yield "warmer", encode(Image.fromarray(warm.clip(0, 255).astype(np.uint8)))
    marked = picture.copy()
    size = max(10, height // 20)
    place = width * 0.03, height - 1.6 * size
    ImageDraw.Draw(marked).text(place, "© example.com", fill=(255, 255, 255), font=ImageFont.load_default(size))
    yield "small text", encode(marked)


def recolored(picture: Image.Image) -> Iterator[tuple[str, bytes]]:
    """Yield (kind of change, content) of pictures whose tags or colors differ from those of `picture`."""
    hsv = np.asarray(picture.convert("HSV")).copy()
    hsv[..., 0] += 85
    yield "other hue", encode(Image.fromarray(hsv, "HSV").convert("RGB"))
    yield "gray", encode(picture.convert("L").convert("RGB"))
    yield "mirrored", encode(picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT))


def _letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("ABCDEFGHIKLMNOPRSTU", k=count))


def text_page(rng: random.Random) -> Image.Image:
    """Draw a page of text, with the same margins each time."""
    page = Image.new("RGB", (600, 800), "white")
    lines = "\n".join(" ".join(_letters(rng, rng.randint(2, 9)) for _ in range(7)) for _ in range(30))
    ImageDraw.Draw(page).multiline_text((60, 60), lines, fill="black", font=ImageFont.load_default(14))
    return page


def form(rng: random.Random) -> Image.Image:
    """Draw a form, filled in differently each time."""
    page = Image.new("RGB", (600, 800), (250, 250, 245))
    draw = ImageDraw.Draw(page)
    for line in range(60, 760, 44):
        draw.rectangle((200, line, 560, line + 32), outline=(90, 90, 90))
        entry = _letters(rng, rng.randint(4, 20))
        draw.text((210, line + 6), entry, fill=(20, 20, 120), font=ImageFont.load_default(18))
    return page


def logo(rng: random.Random) -> Image.Image:
    """Draw the same badge with another word each time."""
    badge = Image.new("RGB", (400, 400), "white")
    draw = ImageDraw.Draw(badge)
    draw.ellipse((60, 60, 340, 340), fill=(30, 60, 150))
    draw.text((95, 160), _letters(rng, 5), fill="white", font=ImageFont.load_default(70))
    return badge


def chart(rng: random.Random) -> Image.Image:
    """Draw a bar chart with other values each time."""
    page = Image.new("RGB", (600, 400), "white")
    draw = ImageDraw.Draw(page)
    for place in range(60, 560, 50):
        draw.rectangle((place, 360 - rng.randint(20, 320), place + 35, 360), fill=(60, 110, 190))
    return page


DRAWINGS = {"text pages": text_page, "filled forms": form, "logos": logo, "charts": chart}
