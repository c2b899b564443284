"""HEIC, AVIF under other brands, and TIFF; the safety limits hold for them too."""

from __future__ import annotations

import struct
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.image import load_rgb, read_image_info
from lightmeter.media.image_frames import MAX_COUNTED_FRAMES
from lightmeter.media.media_info import SNIFF_BYTES, sniff
from lightmeter.prechecks.decode_check import check_image
from tests.media.picture_files import COLORFUL, saved

AVIF, HEIC, TIFF = saved(COLORFUL, "AVIF"), saved(COLORFUL, "HEIF"), saved(COLORFUL, "TIFF")
AVIF_BRANDS = [b"avif", b"avis", b"mif1", b"msf1", b"miaf", b"MA1B", b"isom"]
HEIC_BRANDS = [b"heic", b"heix", b"hevc", b"hevx", b"heim", b"mif1", b"msf1", b"miaf", b"isom"]


def branded(content: bytes, major: bytes, compatible: bytes | None = None) -> bytes:
    """Return an ISO file with another major brand, and with one compatible brand instead of its own ones."""
    size = int.from_bytes(content[:4], "big")
    others = content[16:size] if compatible is None else compatible * ((size - 16) // 4)
    return content[:8] + major + content[12:16] + others + content[size:]


@pytest.mark.parametrize("brand", AVIF_BRANDS)
def test_avif_under_any_brand(brand):
    """An AVIF file is known by its compatible brands, or by its codec, whatever its major brand says."""
    files = [branded(AVIF, brand)] + ([branded(AVIF, brand, b"miaf")] if brand != b"isom" else [])
    for content in files:
        assert sniff(content[:SNIFF_BYTES])[0] == "image"
        assert np.array_equal(load_rgb(content), load_rgb(AVIF))
        assert read_image_info(content).width == 128
    assert sniff(files[0][:SNIFF_BYTES]) == ("image", "avif")


@pytest.mark.parametrize("brand", HEIC_BRANDS)
def test_heic_under_any_brand(brand):
    """A HEIC file is known by its compatible brands, whatever its major brand says."""
    files = [branded(HEIC, brand)] + ([branded(HEIC, brand, b"miaf")] if brand != b"isom" else [])
    for content in files:
        assert sniff(content[:SNIFF_BYTES]) == ("image", "heic")
        assert np.array_equal(load_rgb(content), load_rgb(HEIC))


def test_videos_are_not_taken_for_pictures():
    """Brands of videos stay videos."""
    for brands in (
        b"isom\0\0\2\0isomiso2avc1mp41",
        b"mp42\0\0\0\0mp42isom",
        b"qt  \0\0\0\0qt  ",
        b"iso6\0\0\0\0iso6dash",
    ):
        head = struct.pack(">I", 8 + len(brands)) + b"ftyp" + brands + bytes(40)
        assert sniff(head)[0] == "video"


def test_hostile_brands_take_no_memory():
    """A box of brands that claims 4 GB is no reason to allocate them."""
    with pytest.raises(MediaError):
        load_rgb(b"\xff\xff\xff\xffftypheic" + bytes(50))


def test_heic_of_a_phone():
    """A HEIC file in tiles that is stored sideways is upright; its EXIF orientation must not turn it again."""
    exif = Image.Exif()
    exif[0x0112] = 6
    content = saved(np.tile(COLORFUL, (8, 8, 1)), "HEIF", exif=exif.tobytes(), tile_size=512, quality=95)
    assert exif.tobytes()[6:10] in content
    info = read_image_info(content)
    assert (info.format, info.width, info.height) == ("heic", 768, 1024)
    upright = np.rot90(np.tile(COLORFUL, (8, 8, 1)), -1)
    assert np.abs(load_rgb(content).astype(int) - upright).mean() < 4


@pytest.mark.parametrize("form", ["HEIF", "AVIF", "TIFF"])
def test_a_sequence_gives_its_first_picture(form):
    """Of several pictures or pages, the first is decoded, and their number is a finding."""
    red, blue = Image.new("RGB", (48, 32), (220, 20, 20)), Image.new("RGB", (48, 32), (20, 20, 220))
    content = saved(red, form, save_all=True, append_images=[blue, blue])
    assert read_image_info(content).frames == 3
    assert np.abs(load_rgb(content)[16, 16].astype(int) - [220, 20, 20]).max() < 8
    assert "animated" in {found.check for found in check_image(content).findings}


def test_a_heic_whose_pixels_are_many_more_than_it_says():
    """The decoder refuses a stream of two million pixels in a file that announces 64 x 64."""
    content = bytearray(saved(Image.new("RGB", (1500, 1500)), "HEIF"))
    at = content.find(b"ispe")
    while at > 0:
        content[at + 8 : at + 16] = struct.pack(">II", 64, 64)
        at = content.find(b"ispe", at + 1)
    with pytest.raises(BrokenMedia, match="limit"):
        load_rgb(bytes(content))


def test_a_track_of_heic_pictures_is_unsupported():
    """A HEIC file with a track only, as a video has, is a warning: another service may read it."""
    content = b"\0\0\0\x18ftyphevc\0\0\0\0hevcmsf1" + b"\0\0\0\x10moov" + bytes(8)
    with pytest.raises(UnsupportedMedia):
        load_rgb(content)
    assert check_image(content).findings[0].severity == "warning"


@pytest.mark.parametrize(
    "options",
    [
        {},
        *({"compression": name} for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd", "lzma")),
        {"big_tiff": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
def test_lossless_tiff(options, mode):
    """Each lossless compression gives the exact pixels, for each usual mode; so does BigTIFF."""
    picture = Image.fromarray(COLORFUL).convert(mode)
    content = saved(picture, "TIFF", **options)
    assert sniff(content) == ("image", "tiff")
    assert np.array_equal(load_rgb(content), np.asarray(picture.convert("RGB")))


@pytest.mark.parametrize(
    ("mode", "options"),
    [("RGB", {"compression": "jpeg"}), ("CMYK", {}), ("LAB", {}), ("1", {"compression": "group4"})],
    ids=str,
)
def test_other_kinds_of_tiff(mode, options):
    """JPEG in TIFF, CMYK, Lab and fax have their visible colors."""
    plain = Image.new("RGB", (64, 48), (255, 255, 255))
    content = saved(
        plain.convert(mode) if mode != "LAB" else Image.new("LAB", (64, 48), (255, 128, 128)), "TIFF", **options
    )
    assert load_rgb(content).min() >= 253


def gray_tiff(levels: np.ndarray, *, white_is_zero: bool = False) -> bytes:
    """Return a TIFF of numbers as they are."""
    tags = ImageFileDirectory_v2()
    if white_is_zero:
        tags[262] = 0
    return saved(Image.fromarray(levels), "TIFF", tiffinfo=tags)


@pytest.mark.parametrize(
    ("levels", "shown"),
    [
        (np.array([[0, 257 * 100, 65535]], np.uint16), [0, 100, 255]),
        (np.array([[0, 257 * 100, 65535]], np.int32), [0, 100, 255]),
        (np.array([[-100, 0, 155]], np.int32), [0, 100, 255]),
        (np.array([[0, 2**30, 2**31 - 1]], np.int32), [0, 128, 255]),
        (np.array([[0, 0.5, 1]], np.float32), [0, 128, 255]),
        (np.array([[0, 100, 200]], np.float32), [0, 100, 200]),
        (np.array([[0, 2**20, 2**21]], np.float32), [0, 128, 255]),
        (np.array([[0, np.nan, 1]], np.float32), [0, 0, 255]),
        (np.array([[0, -np.inf, np.inf]], np.float32), [0, 0, 255]),
    ],
)
def test_deep_tiff_is_scaled_not_clipped(levels, shown):
    """Numbers of 16 and 32 bits, also with a decimal point, keep their order as levels of gray."""
    assert load_rgb(gray_tiff(levels))[0, :, 0].tolist() == shown


def test_sixteen_bits_in_separate_planes_are_refused():
    """A TIFF that Pillow decodes to wrong pixels is unsupported, not wrong."""
    tags = {256: 2, 257: 2, 258: (16, 16, 16), 259: 1, 262: 2, 273: (0, 0, 0), 277: 3, 278: 2, 279: (8, 8, 8), 284: 2}
    body, data, offset = b"", b"", 8 + 2 + 12 * len(tags) + 4
    for tag, value in tags.items():
        values = value if isinstance(value, tuple) else (value,)
        packed = struct.pack(f"<{len(values)}I", *((500, 508, 516) if tag == 273 else values))
        body += struct.pack("<HHI", tag, 4, len(values)) + (
            packed if len(values) == 1 else struct.pack("<I", offset + len(data))
        )
        data += packed if len(values) > 1 else b""
    content = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + body + bytes(4) + data
    with pytest.raises(UnsupportedMedia, match="planes"):
        load_rgb(content.ljust(500, b"\0") + bytes(24))


def test_tiff_pages_that_form_a_loop_are_counted_once():
    """Counting pages ends in a file whose pages name each other, or of millions of pages."""
    page = struct.unpack("<I", TIFF[4:8])[0]
    entries = struct.unpack("<H", TIFF[page : page + 2])[0]
    following = page + 2 + 12 * entries
    assert read_image_info(TIFF[:following] + struct.pack("<I", page) + TIFF[following + 4 :]).frames == 1
    first = len(TIFF)
    many = b"".join(struct.pack("<HI", 0, first + 6 * (number + 1)) for number in range(20_000))
    content = TIFF[:following] + struct.pack("<I", first) + TIFF[following + 4 :] + many
    assert read_image_info(content).frames == MAX_COUNTED_FRAMES


@pytest.mark.parametrize("form", ["TIFF", "HEIF"])
def test_too_many_pixels_are_refused_before_decoding(form, monkeypatch):
    """The pixel limit is checked in the header of the newer formats, too."""
    content = saved(Image.new("L", (640, 480)), form)
    monkeypatch.setattr("lightmeter.media.image.MAX_PIXELS", 640 * 480 - 1)
    monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("decoded"))
    with pytest.raises(MediaTooLarge, match="640 x 480"):
        load_rgb(content)


def test_a_tiff_bomb_is_refused():
    """A TIFF of a few bytes that announces billions of pixels is too large, not decoded."""
    tags = {256: 60_000, 257: 60_000, 258: 1, 259: 1, 262: 1, 273: 8, 277: 1, 278: 60_000, 279: 10}
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    with pytest.raises(MediaTooLarge):
        load_rgb(b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + body + bytes(4))


def test_heic_decoder_is_loaded_when_needed():
    """Importing the decoder of pictures does not import libheif."""
    code = "import sys, lightmeter.media.image; print('pillow_heif' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"
