"""The service reads every supported format, with upright size and colors as displayed."""

from __future__ import annotations

import base64
import shutil
import subprocess
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, features
from pillow_heif import register_heif_opener

from lightmeter.service.ingest.decode import DecodingLimits
from lightmeter.testing import tiny_picture, tiny_video
from tests.sweeps import sweep

RED, GREEN, BLUE, WHITE = (220, 30, 30), (30, 200, 40), (30, 40, 210), (255, 255, 255)
WIDTH, HEIGHT = 80, 48
NEAR = 40
CODECS = {
    "mp4": ["-c:v", "libx264", "-pix_fmt", "yuv420p"],
    "mov": ["-c:v", "libx264", "-pix_fmt", "yuv420p"],
    "mkv": ["-c:v", "libx264", "-pix_fmt", "yuv420p"],
    "webm": ["-c:v", "libvpx", "-b:v", "500k"],
    "avi": ["-c:v", "mpeg4", "-q:v", "2"],
}


def plain(color=RED, mode: str = "RGB") -> Image.Image:
    """Return a picture of one color, wider than high."""
    return Image.new("RGB", (WIDTH, HEIGHT), color).convert(mode)


def saved(picture: Image.Image, form: str, **options) -> bytes:
    """Return a picture as a file of this format."""
    register_heif_opener()
    stream = BytesIO()
    picture.save(stream, form, **options)
    return stream.getvalue()


def turned(orientation: int) -> bytes:
    """Return a JPEG with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(plain(), "JPEG", exif=exif)


def half_clear() -> Image.Image:
    """Return a fully transparent picture over an invisible color."""
    return Image.new("RGBA", (WIDTH, HEIGHT), (*RED, 0))


def deep() -> bytes:
    """Return a 16-bit gray picture at half brightness."""
    return saved(Image.fromarray(np.full((HEIGHT, WIDTH), 0x8000, np.uint16)), "PNG")


def moving(form: str) -> bytes:
    """Return a red, a green and a blue frame."""
    options = {"lossless": True} if form == "WEBP" else {}
    return saved(plain(), form, save_all=True, append_images=[plain(GREEN), plain(BLUE)], duration=100, **options)


PICTURES = {
    "jpeg": (lambda: saved(plain(), "JPEG"), RED),
    "progressive jpeg": (lambda: saved(plain(), "JPEG", progressive=True), RED),
    "grey jpeg": (lambda: saved(plain(WHITE, "L"), "JPEG"), WHITE),
    "cmyk jpeg": (lambda: saved(plain(mode="CMYK"), "JPEG"), RED),
    "png": (lambda: saved(plain(), "PNG"), RED),
    "16-bit png": (deep, (128, 128, 128)),
    "1-bit png": (lambda: saved(plain(WHITE, "1"), "PNG"), WHITE),
    "palette png": (lambda: saved(plain(mode="P"), "PNG"), RED),
    "transparent png": (lambda: saved(half_clear(), "PNG"), WHITE),
    "grey and alpha png": (lambda: saved(half_clear().convert("LA"), "PNG"), WHITE),
    "moving png": (lambda: moving("PNG"), RED),
    "gif": (lambda: saved(plain(), "GIF"), RED),
    "moving gif": (lambda: moving("GIF"), RED),
    "webp": (lambda: saved(plain(), "WEBP"), RED),
    "transparent webp": (lambda: saved(half_clear(), "WEBP", lossless=True), WHITE),
    "moving webp": (lambda: moving("WEBP"), RED),
    "bmp": (lambda: saved(plain(), "BMP"), RED),
    "palette bmp": (lambda: saved(plain(mode="P"), "BMP"), RED),
    "avif": (lambda: saved(plain(), "AVIF"), RED),
    "heic": (lambda: saved(plain(), "HEIF"), RED),
    "transparent heic": (lambda: saved(half_clear(), "HEIF"), WHITE),
    "tiff": (lambda: saved(plain(), "TIFF", compression="tiff_lzw"), RED),
    "cmyk tiff": (lambda: saved(plain(mode="CMYK"), "TIFF"), RED),
}


async def analysed(caller, content: bytes, name: str) -> dict:
    """Upload a file, and return its asset."""
    body = {"file": base64.b64encode(content).decode(), "file_name": name, "feature": "colors"}
    answered = await caller.ask(**body)
    done = answered.body if answered.body["status"] == "completed" else await caller.finished(answered)
    assert (done["status"], done["all"]["errors"]) == ("completed", [])
    (asset,) = done["all"]["assets"]
    assert asset["name"] == name
    return asset


def main_color(entries: dict) -> tuple[int, int, int]:
    """Return the most prominent color of an asset."""
    color = max((color for same in entries["colors"].values() for color in same), key=lambda color: color["score"])
    return color["red"], color["green"], color["blue"]


def is_near(one, other) -> bool:
    """Return whether two colors look the same after lossy coding."""
    return all(abs(a - b) <= NEAR for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", PICTURES)
async def test_pictures_of_every_format(caller, kind):
    """An upload of each picture format has its displayed size and color; an animation, those of its first frame."""
    if kind == "avif" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    make, color = PICTURES[kind]
    asset = await analysed(caller, make(), f"{kind}.bin")
    assert (asset["kind"], asset["width"], asset["height"]) == ("image", WIDTH, HEIGHT)
    assert is_near(main_color(asset), color), main_color(asset)


@pytest.mark.parametrize("orientation", range(1, 9))
async def test_pictures_are_measured_upright(caller, orientation):
    """Width and height are those of the picture as displayed."""
    asset = await analysed(caller, turned(orientation), "turned.jpg")
    upright = (WIDTH, HEIGHT) if orientation < 5 else (HEIGHT, WIDTH)
    assert (asset["width"], asset["height"]) == upright


@pytest.mark.parametrize("form", ["ICO", "PPM", "TGA", "JPEG2000"])
async def test_other_formats_are_a_sentence(caller, form):
    """A file of another format becomes a message, and is not charged."""
    body = {"file": base64.b64encode(saved(plain(), form)).decode(), "file_name": "x.jpg"}
    done = (await caller.ask(**body)).body
    assert (done["all"]["assets"], done["credits_paid"]) == ([], 0)
    assert len(done["all"]["errors"]) == 1


@pytest.mark.parametrize("name", [sweep("bunny.mp4"), sweep("city.mp4"), "samoyed.mp4"])
async def test_real_videos(caller, site, name):
    """Videos from cameras and encoders are analyzed."""
    done = await caller.finished(await caller.ask(url=site.url(f"media/{name}"), feature="colors"))
    (asset,) = done["all"]["assets"]
    assert (asset["kind"], len(asset["frames"])) == ("video", done["credits_paid"])
    assert min(asset["width"], asset["height"]) >= 144
    assert asset["duration"] > 1


async def test_an_avi_without_any_tool(caller, tmp_path):
    """A motion-JPEG AVI is analyzed."""
    pictures = [tiny_picture(0, width=WIDTH, height=HEIGHT)] * 12
    asset = await analysed(caller, tiny_video(tmp_path / "x.avi", frames=pictures).read_bytes(), "x.avi")
    assert (asset["kind"], asset["width"], asset["height"]) == ("video", WIDTH, HEIGHT)
    assert [frame["time"] for frame in asset["frames"]] == [0.0, 1.0]


async def test_a_video_without_a_limit_is_looked_at_whole(caller, tmp_path):
    """With `max_frames` 0 every capture is analyzed and charged, also beyond one slice."""
    assert DecodingLimits().slice_frames * 2 < 70
    path = tiny_video(tmp_path / "long.avi", frames=[tiny_picture(seed % 5) for seed in range(70)], fps=1)
    content = base64.b64encode(path.read_bytes()).decode()
    done = await caller.finished(await caller.ask(file=content, feature="colors", max_frames=0))
    (asset,) = done["all"]["assets"]
    assert [frame["time"] for frame in asset["frames"]] == [float(second) for second in range(70)]
    assert (done["credits_paid"], await caller.balance()) == (70, 930)


def encoded(folder, form: str, *more: str) -> bytes:
    """Write a video of three seconds: red, green, blue."""
    path = folder / f"clip.{form}"
    colors = [
        f"color=0x{r:02x}{g:02x}{b:02x}:s={WIDTH}x{HEIGHT}:r=10:d=1[{n}]"
        for n, (r, g, b) in enumerate((RED, GREEN, BLUE))
    ]
    graph = ";".join([*colors, "[0][1][2]concat=n=3"])
    command = ["ffmpeg", "-v", "error", "-filter_complex", graph, *CODECS[form], *more, str(path)]
    subprocess.run(command, check=True, timeout=60)
    return path.read_bytes()


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg, to make the videos")
@pytest.mark.parametrize("form", ["mp4", "webm", "avi", sweep("mov"), sweep("mkv")])  # these two have the codec of mp4
async def test_videos_of_every_container(caller, tmp_path, form):
    """Each captured frame is the one displayed at that second, in every container and codec."""
    asset = await analysed(caller, encoded(tmp_path, form), f"clip.{form}")
    assert (asset["kind"], asset["width"], asset["height"]) == ("video", WIDTH, HEIGHT)
    assert asset["duration"] == pytest.approx(3.0, abs=0.15)
    colors = [main_color(frame) for frame in asset["frames"][:3]]
    assert [is_near(*pair) for pair in zip(colors, (RED, GREEN, BLUE), strict=True)] == [True] * 3, colors
