"""The back end `rapidocr`: texts, polygons and brands."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from lightmeter.errors import BackendError
from lightmeter.service.backends.local import rapidocr
from lightmeter.service.backends.local.rapidocr import MIN_SCORE, RapidOcr, brand_key, read_brand_names
from tests.sweeps import sweep

FONTS = Path(mpl.get_data_path()) / "fonts" / "ttf"
TEXTS, BRANDS = frozenset({"texts"}), frozenset({"brands"})
ALL = TEXTS | BRANDS


@pytest.fixture(scope="module")
def backend():
    rapidocr = RapidOcr()
    rapidocr.warm()
    return rapidocr


@pytest.fixture
def read(backend, options):
    """What is found in a picture."""

    def look(picture, features=ALL):
        return backend.analyze([np.asarray(picture)], features, options)[0]

    return look


def sign(*lines, size=(600, 300), font="DejaVuSans.ttf", height=40):
    """A white picture with black lines of text, each 1.5 heights below the other."""
    picture = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(picture)
    for row, line in enumerate(lines):
        draw.text((40, 30 + row * height * 1.5), line, "black", ImageFont.truetype(FONTS / font, height))
    return picture


def box(entry):
    """Left, top, right and bottom of an entry's polygon."""
    corners = entry.bounding_poly["vertices"]
    across, down = [corner["x"] for corner in corners], [corner["y"] for corner in corners]
    return min(across), min(down), max(across), max(down)


@pytest.mark.parametrize("font", ["DejaVuSans.ttf", sweep("DejaVuSerif-Bold.ttf"), sweep("DejaVuSansMono-Oblique.ttf")])
def test_lines_are_read_from_top_to_bottom_after_the_whole(read, font):
    """The first entry is the whole text with its line breaks; an entry for each line follows."""
    texts = read(sign("Fresh bread", "every morning", "7.30 to 12.15", font=font)).texts
    assert [entry.text for entry in texts[1:]] == ["Fresh bread", "every morning", "7.30 to 12.15"]
    assert texts[0].text == "Fresh bread\nevery morning\n7.30 to 12.15"
    assert [entry.is_full_text for entry in texts] == [True, False, False, False]
    assert texts[0].score == min(entry.score for entry in texts) >= MIN_SCORE


def test_polygons_lie_on_the_ink(read):
    """Each polygon holds its line's black pixels, and not much more; the whole text's holds all of them."""
    picture = sign("Fresh bread", "every morning")
    whole, *lines = read(picture).texts
    dark = np.asarray(picture)[..., 0] < 128
    for line, (top, bottom) in zip(lines, [(0, 85), (85, 300)], strict=True):
        rows, columns = np.nonzero(dark[top:bottom])
        ink = (columns.min(), rows.min() + top, columns.max(), rows.max() + top)
        assert box(line) == pytest.approx(ink, abs=16)
    assert box(whole) == (*np.min([box(line)[:2] for line in lines], 0), *np.max([box(line)[2:] for line in lines], 0))


def test_large_pictures_are_read_in_their_own_pixels(read):
    """Coordinates of a large picture are in its own pixels."""
    picture = sign("Fresh bread", size=(4200, 2100), height=220)
    left, top, right, bottom = box(read(picture).texts[1])
    rows, columns = np.nonzero(np.asarray(picture)[..., 0] < 128)
    assert (left, top, right, bottom) == pytest.approx((columns.min(), rows.min(), columns.max(), rows.max()), abs=80)


@pytest.mark.parametrize("angle", [12, sweep(90), sweep(180)])
def test_turned_text_is_read(read, angle):
    """Text that is tilted, upright or upside down is read, and its polygon is turned with it."""
    picture = sign("Fresh bread", size=(500, 500), height=50).rotate(angle, fillcolor="white")
    (_, line) = read(picture).texts
    assert line.text == "Fresh bread"
    left, top, right, bottom = box(line)
    assert (bottom - top > right - left) == (angle == 90)


@pytest.mark.parametrize("turned", [sweep(0), 180])
def test_long_lines_stand_as_the_others_do(read, turned):
    """A long line is not read upside down."""
    lines = (
        "black quartz syrup. Opening hours are Monday to Friday from 9:00 to 18:30, and",
        "Saturday until noon; the museum is closed on public holidays. Please keep your",
        "ticket until the end of the journey, because an inspector may ask for it at any",
    )
    texts = read(sign(*lines, size=(900, 200), height=20).rotate(turned)).texts
    assert {entry.text for entry in texts[1:]} == set(lines)


@pytest.mark.parametrize("size", [(1800, 80), sweep((2000, 60)), (90, 60)], ids=str)
def test_long_and_small_pictures_are_read(read, size):
    """Long strips and tight crops are read."""
    picture = Image.new("RGB", size, "white")
    ImageDraw.Draw(picture).text((12, 12), "Bread", "black", ImageFont.truetype(FONTS / "DejaVuSans.ttf", 24))
    (_, line) = read(picture).texts
    assert line.text == "Bread"
    assert box(line)[2] <= size[0]
    assert box(line)[3] <= size[1]


# China and coffee hold shapes that look like a single character.
@pytest.mark.parametrize(
    "name", [sweep("chelsea.jpg"), sweep("flower.jpg"), sweep("koala.jpg"), "china.jpg", sweep("coffee.jpg")]
)
def test_no_text_is_an_empty_list(read, photo, name):
    """A photograph without text has no entry, not an empty one."""
    entries = read(photo(name))
    assert (entries.texts, entries.brands) == ([], [])


def test_a_plain_character_by_itself_is_read(read):
    """A house number of one digit is text."""
    (whole, line) = read(sign("7", size=(160, 160), height=80)).texts
    assert (whole.text, line.text) == ("7", "7")


def test_a_brand_is_a_line_that_is_a_name(read):
    """A brand is found in any spelling; a name inside a sentence, or a word that only starts like one, is no brand."""
    picture = sign("STARBUCKS", "I like Starbucks best", "McDonald's", "Heinekens", "Fresh bread", size=(700, 360))
    found = read(picture)
    assert [entry.name for entry in found.brands] == ["Starbucks", "McDonald's"]
    lines = {entry.text: entry for entry in found.texts}
    assert found.brands[0].bounding_poly == lines["STARBUCKS"].bounding_poly
    assert found.brands[0].score == lines["STARBUCKS"].score


def test_each_feature_alone_is_as_both_together(read):
    """One analysis serves both features, and features that were not requested are absent."""
    picture = sign("STARBUCKS", "every morning", size=(360, 140))
    both, texts, brands = (read(picture, features) for features in (ALL, TEXTS, BRANDS))
    assert (texts.texts, texts.brands) == (both.texts, None)
    assert (brands.texts, brands.brands) == (None, both.brands)


def test_threads_do_not_disturb_each_other(backend, options):
    """Concurrent calls return the same results as single ones."""
    pictures = [np.asarray(sign(word, size=(400, 120))) for word in ("Bread", "Butter", "Coffee", "Honey")]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda picture: backend.analyze([picture], TEXTS, options)[0], pictures))
    assert [entries.texts[1].text for entries in found] == ["Bread", "Butter", "Coffee", "Honey"]


def test_a_page_of_words_is_read_in_steps(backend, options, monkeypatch):
    """Each line may be a step of its own; the entries are those of a reading without steps."""
    monkeypatch.setattr(rapidocr, "_STEP_S", 0.0)
    picture = Image.new("RGB", (400, 200), "white")
    words = ["Bread", "Butter", "Coffee", "Honey", "Milk", "Tea"]
    for number, word in enumerate(words):
        place = (20 + number % 2 * 200, 10 + number // 2 * 60)
        ImageDraw.Draw(picture).text(place, word, "black", ImageFont.truetype(FONTS / "DejaVuSans.ttf", 24))
    steps = backend.analyze_in_steps(np.asarray(picture), ALL, options)
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            entries = end.value
            break
    assert count == len(words)
    assert entries == backend.analyze([np.asarray(picture)], ALL, options)[0]
    assert [entry.text for entry in entries.texts[1:]] == words


ALONE = """
import resource, socket, sys
opened = []
def hook(event, arguments):
    if event.startswith(("socket.connect", "socket.getaddrinfo", "socket.bind", "urllib.Request")):
        raise OSError(f"{event} {arguments}")
    if event == "open" and isinstance(arguments[0], str) and set(str(arguments[1])) & set("wax+"):
        opened.append(arguments[0])
    if event in {"os.mkdir", "os.rename", "os.remove", "tempfile.mkstemp", "tempfile.mkdtemp"}:
        opened.append(f"{event} {arguments[0]}")
sys.addaudithook(hook)
import numpy as np
from PIL import Image
from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.catalog import read_catalog
backend = read_catalog().create_backend("rapidocr")
backend.warm()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
noise = np.random.default_rng(3).integers(0, 256, (2, 2000, 3), dtype=np.uint8)
wide = np.zeros((4, 60000, 3), np.uint8)
sign = np.asarray(Image.open(sys.argv[1]).convert("RGB"))
found = backend.analyze([noise, wide, wide.transpose(1, 0, 2), sign], backend.features, AnalysisOptions())
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
print([entry.text for entry in found[-1].texts], [path for path in opened if not path.endswith(".pyc")], grown, sep="|")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in kilobytes")
def test_nothing_is_downloaded_written_logged_or_blown_up(tmp_path):
    """It works without a network, writes no file or log line, and bounds memory for strips."""
    sign("Fresh bread").save(tmp_path / "sign.png")
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "sign.png")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    texts, written, grown = process.stdout.strip().split("|")
    assert (texts, written) == ("['Fresh bread', 'Fresh bread']", "[]")
    assert int(grown) < 400
    assert [path.name for path in tmp_path.iterdir()] == ["sign.png"]


def test_a_model_that_is_not_the_known_one_is_refused(monkeypatch):
    """A model file with another digest is refused, and the hint says what to install."""
    monkeypatch.setitem(rapidocr._MODELS, "Det", (rapidocr._MODELS["Cls"][0], rapidocr._MODELS["Det"][1]))
    with pytest.raises(BackendError, match="damaged") as refused:
        RapidOcr().warm()
    assert "Reinstall the package rapidocr" in refused.value.hint


def test_a_missing_model_is_reported(monkeypatch):
    """A missing model file raises an error; it is not downloaded."""
    monkeypatch.setitem(rapidocr._MODELS, "Det", ("nowhere.onnx", "0"))
    with pytest.raises(BackendError, match="missing"):
        RapidOcr().warm()


def test_names_of_brands_are_safe_to_look_for():
    """The list has one name for each key, none of them short, none of them a plain word that signs bear."""
    path = Path(rapidocr.__file__).with_name("brand_names.txt")
    names = path.read_text(encoding="utf-8").splitlines()
    found = read_brand_names()
    assert len(found) == len(names) == len({brand_key(name) for name in names}) > 15_000
    assert all(len(brand_key(name)) >= 3 for name in names)
    assert sum(len(brand_key(name)) < 5 for name in names) < 20
    for word in ("Exit", "PULL", "Post Office", "Apple", "Target", "London", "Mary", "Parking", "OPEN", "Sale", ""):
        assert found.get(brand_key(word)) is None


@pytest.mark.parametrize("written", ["COCA-COLA", "coca cola", "Coca-Cola®"])
def test_spelling_does_not_hide_a_brand(written):
    """Case, spaces, accents and signs make no difference, and the brand is called as it calls itself."""
    assert read_brand_names().get(brand_key(written)) == "Coca-Cola"
