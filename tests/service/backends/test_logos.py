"""The back end `logos`: finds the given logos at their positions, and no others."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from lightmeter.errors import BackendError
from lightmeter.service.backends.base import Backend
from lightmeter.service.backends.local.logos import MIN_FEATURES, Logos, _is_plausible
from lightmeter.settings import read_settings
from tests.sweeps import sweep

MATPLOTLIB = Path(mpl.get_data_path())
BRANDS = frozenset({"brands"})
MEDIA = Path(__file__).parents[3] / "data" / "media"
PHOTOS = sorted(path.name for path in MEDIA.glob("*.jpg"))


def crest():
    """A logo with detail, on a transparent ground."""
    logo = Image.new("RGBA", (300, 300))
    draw = ImageDraw.Draw(logo)
    font = ImageFont.truetype(MATPLOTLIB / "fonts" / "ttf" / "DejaVuSerif-Bold.ttf", 44)
    draw.ellipse((5, 5, 295, 295), "darkgreen", "black", 6)
    draw.regular_polygon((150, 110, 60), 5, fill="gold", outline="black")
    draw.text((42, 165), "HALDEN", "white", font)
    draw.text((90, 215), "1874", "gold", font)
    draw.line((30, 160, 270, 160), "black", 4)
    return logo


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a crest, a brand with two pictures, and two unusable files."""
    path = tmp_path_factory.mktemp("logos")
    crest().save(path / "Halden & Söhne.png")
    (path / "Matplotlib").mkdir()
    Image.open(MATPLOTLIB / "sample_data" / "logo2.png").save(path / "Matplotlib" / "with name.png")
    crest().convert("L").point(lambda level: 255 - level).save(path / "Matplotlib" / "other.png")
    stripes = Image.new("RGB", (200, 100), "white")
    ImageDraw.Draw(stripes).rectangle((20, 20, 180, 40), "black")
    stripes.save(path / "Stripes.png")
    (path / "notes.txt").write_text("no picture")
    (path / ".DS_Store").write_bytes(b"\0")
    return path


@pytest.fixture(scope="module")
def backend(folder):
    logos = Logos(folder)
    logos.warm()
    return logos


def real_logo():
    """Return the logo of matplotlib on white."""
    logo = Image.open(MATPLOTLIB / "sample_data" / "logo2.png").convert("RGBA")
    card = Image.new("RGBA", logo.size, "white")
    card.alpha_composite(logo)
    return card


def pasted(photo, logo, *, width, angle, at=(150, 120), quality=75):
    """A photograph that a logo was pasted into, after JPEG."""
    scene = Image.fromarray(photo)
    logo = logo.resize((width, round(logo.height * width / logo.width)), Image.Resampling.LANCZOS)
    logo = logo.rotate(angle, expand=True, resample=Image.Resampling.BICUBIC)
    scene.paste(logo, at, logo)
    stream = BytesIO()
    scene.save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream))


def found_in(backend, options, picture):
    return backend.analyze([picture], BRANDS, options)[0].brands


@pytest.mark.parametrize("name", ["coffee.jpg", sweep("china.jpg"), sweep("rocket.jpg")])
@pytest.mark.parametrize("pasting", [(300, 0, 90), (150, 20, 75), (110, -75, 60), (200, 180, 30)], ids=str)
def test_a_pasted_logo_is_found_where_it_is(backend, options, photo, name, pasting):
    """A shrunk, rotated and compressed logo is found once, at its position."""
    width, angle, quality = pasting
    (brand,) = found_in(backend, options, pasted(photo(name), crest(), width=width, angle=angle, quality=quality))
    assert (brand.name, brand.source) == ("Halden & Söhne", "logos")
    assert 0 < brand.score <= 1
    corners = np.array([(corner["x"], corner["y"]) for corner in brand.bounding_poly["vertices"]])
    middle = np.array([150, 120]) + np.array(crest().rotate(angle, expand=True).size) / 2 * width / 300
    assert corners.mean(0) == pytest.approx(middle, abs=0.08 * width)
    assert np.hypot(*(corners[1] - corners[0])) == pytest.approx(width, rel=0.12)


def test_a_folder_holds_several_pictures_of_a_brand(backend, options, photo):
    """Each picture in a folder is found under the folder's name; two in one picture are one entry."""
    other = crest().convert("L").point(lambda level: 255 - level).convert("RGBA")
    one = pasted(photo("coffee.jpg"), real_logo(), width=330, angle=8, at=(20, 20))
    both = pasted(one, other, width=180, angle=0, at=(380, 200))
    for picture in (one, both):
        assert [brand.name for brand in found_in(backend, options, picture)] == ["Matplotlib"]


def test_two_brands_are_two_entries(backend, options, photo):
    """All logos of a picture are found, by falling score."""
    picture = pasted(
        pasted(photo("coffee.jpg"), real_logo(), width=330, angle=0, at=(10, 10)), crest(), width=170, angle=9
    )
    brands = found_in(backend, options, picture)
    assert {brand.name for brand in brands} == {"Halden & Söhne", "Matplotlib"}
    assert brands[0].score >= brands[1].score


@pytest.mark.parametrize("name", [*PHOTOS[:3], *map(sweep, PHOTOS[3:])])
def test_nothing_is_found_where_nothing_is(backend, options, photo, name):
    """No sample photograph holds one of these logos, and none is found."""
    assert found_in(backend, options, photo(name)) == []


SQUARE = [(10, 10), (90, 10), (90, 90), (10, 90)]


@pytest.mark.parametrize(
    ("outline", "plausible"),
    [
        (SQUARE, True),
        (SQUARE[1:] + SQUARE[:1], True),  # turned
        ([(10, 10), (90, 25), (90, 75), (10, 90)], True),  # seen from the side
        (SQUARE[::-1], False),  # mirrored
        ([SQUARE[0], SQUARE[2], SQUARE[1], SQUARE[3]], False),  # twisted
        ([(10, 10), (90, 10), (90, 14), (10, 14)], False),  # a line
        ([(10, 10), (900, 10), (900, 40), (10, 40)], False),  # squeezed
        ([(float("nan"), 10), (90, 10), (90, 90), (10, 90)], False),
    ],
)
def test_only_a_flat_logo_from_its_front_is_plausible(outline, plausible):
    """Corners that the front of a flat logo cannot have are rejected, however many matches agree on them."""
    assert _is_plausible(np.array(outline, float), 100, 100) == plausible


def test_large_pictures_are_answered_in_their_own_pixels(backend, options, photo):
    """Coordinates of a large picture are in its own pixels."""
    scene = np.asarray(Image.fromarray(photo("coffee.jpg")).resize((2400, 1600)))
    (brand,) = found_in(backend, options, pasted(scene, crest(), width=600, angle=0, at=(1500, 800)))
    across = [corner["x"] for corner in brand.bounding_poly["vertices"]]
    assert (min(across), max(across)) == pytest.approx((1500, 2100), abs=25)


def test_the_same_picture_gets_the_same_answer(backend, options, photo, folder):
    """Results are the same in every run, instance and thread."""
    picture = pasted(photo("china.jpg"), crest(), width=150, angle=33)
    first = found_in(backend, options, picture)
    other = Logos(folder)
    with ThreadPoolExecutor(4) as pool:
        again = list(pool.map(lambda one: found_in(one, options, picture), [backend, other] * 4))
    assert again == [first] * 8


def test_odd_pictures_are_answered(backend, options, odd_pictures):
    """Unusual pictures give an empty list."""
    answers = backend.analyze(list(odd_pictures.values()), BRANDS, options)
    assert [entries.brands for entries in answers] == [[]] * len(odd_pictures)
    assert backend.analyze([odd_pictures["grey"]], frozenset({"tags"}), options)[0].brands is None
    assert isinstance(backend, Backend)


def test_logos_that_cannot_be_found_are_named_at_load(folder, caplog, monkeypatch):
    """A simple mark and an invalid file each log a warning; the other logos are used."""
    # Prefect, which other tests import, disables all loggers that are there before it.
    monkeypatch.setattr(logging.getLogger("lightmeter.service"), "disabled", False)
    with caplog.at_level(logging.WARNING, logger="lightmeter.service"):
        Logos(folder).warm()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert any("Stripes.png" in line and "simple marks cannot be found" in line for line in messages)
    assert any(f"fewer than {MIN_FEATURES}" in line for line in messages)
    assert any("notes.txt" in line and "cannot be read" in line for line in messages)


@pytest.mark.parametrize("missing", [True, False], ids=["no folder", "an empty folder"])
def test_a_folder_without_logos_is_refused(tmp_path, missing):
    """The error names the folder and says what to do."""
    with pytest.raises(BackendError) as refused:
        Logos(tmp_path / "none" if missing else tmp_path).warm()
    assert str(tmp_path) in str(refused.value)
    assert refused.value.hint


def test_the_folder_is_a_setting(monkeypatch, tmp_path):
    """The back end is available if LIGHTMETER_LOGOS_DIR is set."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.delenv("LIGHTMETER_LOGOS_DIR", raising=False)
    assert read_settings().logos_dir is None
    monkeypatch.setenv("LIGHTMETER_LOGOS_DIR", str(tmp_path))
    assert read_settings().logos_dir == tmp_path
