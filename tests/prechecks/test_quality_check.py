"""Quality findings on real photographs, and on copies of them with a known fault."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

from lightmeter.manifest.item import Item
from lightmeter.prechecks.check import Checker, CheckLimits
from lightmeter.prechecks.decode_check import check_image
from lightmeter.settings import QualityThresholds
from lightmeter.testing import tiny_png

MEDIA = Path(__file__).parents[2] / "data" / "media"
PHOTOGRAPHS = sorted(MEDIA.glob("*.jpg"))
GRAY = {"camera"}
OFF = QualityThresholds(**dict.fromkeys(QualityThresholds.model_fields, 0))


def encoded(picture, form="PNG", **more):
    """Return a Pillow image as a file."""
    out = BytesIO()
    picture.save(out, form, **more)
    return out.getvalue()


def oriented(value):
    """Return EXIF data with an orientation."""
    exif = Image.Exif()
    exif[274] = value
    return exif


def found_in(content, thresholds=None):
    """Return the findings by name; without `thresholds`, with the default ones."""
    decoded = check_image(content) if thresholds is None else check_image(content, thresholds)
    return {found.check: found for found in decoded.findings if found.check != "decode"}


@pytest.fixture(scope="module")
def koala():
    with Image.open(MEDIA / "koala.jpg") as picture:
        picture.thumbnail((450, 450))
        return picture.convert("RGB")


@pytest.mark.parametrize("path", PHOTOGRAPHS, ids=lambda path: path.stem)
def test_sound_photographs_have_no_finding(path):
    """The sample photographs have no quality finding, except that one has no color."""
    assert set(found_in(path.read_bytes())) == ({"grayscale"} if path.stem in GRAY else set())


FAULTS = {
    "blank": lambda picture: Image.new("RGB", picture.size, (90, 120, 200)),
    "dark": lambda picture: picture.point(lambda level: level // 4),
    "light": lambda picture: picture.point(lambda level: 245 + level // 26),
    "low_information": lambda picture: picture.convert("L").point(lambda level: 255 * (level > 128)),
    "blurry": lambda picture: picture.filter(ImageFilter.GaussianBlur(15)),
    "odd_aspect_ratio": lambda picture: picture.crop((0, 0, picture.width, picture.width // 4)),
    "tiny": lambda picture: picture.resize((15, 15)),
    "grayscale": lambda picture: picture.convert("L").convert("RGB"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_each_fault_is_found(koala, name, form):
    """A copy of a photograph with a fault has its finding in every format, and not where the threshold is 0."""
    content = encoded(FAULTS[name](koala), form, lossless=True)
    found = found_in(content)[name]
    assert found.severity == ("info" if name == "grayscale" else "warning")
    assert found.value is not None
    assert found.message.endswith(".")
    assert found.value < getattr(QualityThresholds(), name)
    assert found_in(content, OFF) == {}


def test_animations_are_found(koala):
    """An animation is a fact with its number of frames."""
    content = encoded(koala, "GIF", save_all=True, append_images=[koala.rotate(90), koala.rotate(180)])
    found = found_in(content)["animated"]
    assert (found.severity, found.value) == ("info", 3)


@pytest.mark.parametrize("orientation", range(1, 10))
def test_pictures_that_are_not_stored_upright_are_found(koala, orientation):
    """The EXIF orientations 2 to 8 are a fact; 1 and unknown ones are not."""
    found = found_in(encoded(koala, "JPEG", exif=oriented(orientation)))
    assert set(found) == ({"rotated"} if 2 <= orientation <= 8 else set())
    if found:
        assert (found["rotated"].severity, found["rotated"].value) == ("info", orientation)


def test_any_picture_has_valid_findings():
    """Pictures of noise in every shape have findings with sentences and finite values."""
    noise = np.random.default_rng(5)
    for width, height in [(1, 1), (1, 500), (700, 2), (16, 16), (300, 200)]:
        picture = noise.integers(0, 256, (height, width, 3), dtype=np.uint8)
        for found in found_in(encoded(Image.fromarray(picture))).values():
            assert found.message
            assert np.isfinite(found.value)


async def test_size_findings_need_only_the_first_bytes(site):
    """A picture at a URL of which only the first bytes are read has the findings that need its size alone."""
    async with Checker(
        capture_interval_s=1,
        max_frames=3,
        limits=CheckLimits(max_image_bytes=0),
        thresholds=QualityThresholds(tiny=2000),
    ) as checker:
        checked = await checker.check(Item(0, "a", f"{site.base_url}/huge.png", None, None, {}, None, has_own_id=True))
    assert [found.check for found in checked.findings] == ["reach", "size", "tiny", "odd_aspect_ratio"]


async def test_the_checker_uses_its_thresholds(tmp_path):
    """The thresholds of a checker apply to local files."""
    (tmp_path / "a.png").write_bytes(tiny_png())
    row = Item(0, "a", "a.png", str(tmp_path / "a.png"), None, {}, None, has_own_id=True)
    async with Checker(capture_interval_s=1, max_frames=3, thresholds=QualityThresholds(tiny=49)) as checker:
        checked = await checker.check(row)
    assert "tiny" in [found.check for found in checked.findings]
