"""Decoding of untrusted pictures."""

import zlib
from contextlib import suppress
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms
from pillow_heif import register_heif_opener

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media import image as image_module
from lightmeter.media.image import (
    encode_jpeg,
    is_blank,
    load_rgb,
    load_rgb_and_levels,
    read_image_info,
    thumbnail,
)
from lightmeter.media.image_frames import MAX_COUNTED_FRAMES, count_gif_frames
from lightmeter.media.media_info import IMAGE_FORMATS
from lightmeter.testing import blank_picture, tiny_jpeg, tiny_picture, tiny_png, tiny_video


def encoded(picture, name, **options):
    register_heif_opener()
    stream = BytesIO()
    picture.save(stream, "HEIF" if name == "heic" else name.upper(), **options)
    return stream.getvalue()


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_every_format_is_measured_and_read(name):
    """Each supported format gives the right measures and pixels."""
    content = encoded(Image.fromarray(tiny_picture()), name)
    facts = read_image_info(content)
    assert (facts.format, facts.width, facts.height, facts.frames) == (name, 64, 48, 1)
    assert facts.size_bytes == len(content)
    rgb = load_rgb(content)
    assert rgb.shape == (48, 64, 3)
    assert rgb.dtype == np.uint8
    assert np.abs(rgb[8:10, 4:8].astype(int) - tiny_picture()[8:10, 4:8]).mean() < 40


@pytest.mark.parametrize("name", IMAGE_FORMATS)
def test_a_picture_that_ends_too_early_is_broken(name):
    """A truncated file raises BrokenMedia, not an exception of Pillow."""
    content = encoded(Image.fromarray(tiny_picture()), name)
    with pytest.raises(BrokenMedia):
        load_rgb(content[: len(content) * 2 // 3])


def test_a_png_of_ours_is_exact():
    """A PNG decodes to its exact pixels."""
    assert np.array_equal(load_rgb(tiny_png(3)), tiny_picture(3))


def test_sixteen_bit_greys_are_scaled():
    """16-bit greys are scaled to 8 bits, not clipped."""
    deep = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    rgb = load_rgb(encoded(Image.fromarray(deep), "png"))
    assert rgb[0].tolist() == [[level] * 3 for level in (0, 1, 128, 255)]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA"])
def test_what_is_transparent_becomes_white(mode):
    """A transparent pixel becomes white, whatever its color."""
    picture = Image.new("RGBA", (8, 8), (0, 0, 0, 0)).convert(mode.replace("PA", "RGBA"))
    if mode == "PA":
        picture = picture.quantize(4)
    assert (load_rgb(encoded(picture, "png")) == 255).all()


def test_a_palette_keeps_its_colours():
    """Palette pictures decode to their visible colors."""
    content = encoded(Image.new("RGB", (8, 8), (200, 10, 30)).quantize(4), "gif")
    assert load_rgb(content)[0, 0].tolist() == [200, 10, 30]


def test_cmyk_is_read_as_colours():
    """CMYK pictures decode to their visible colors, not inverted."""
    content = encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "jpeg", quality=95)
    red, green, blue = load_rgb(content)[8, 8].tolist()
    assert red > 240
    assert green < 15
    assert blue < 15


def test_a_broken_colour_profile_does_not_matter():
    """A CMYK picture with an invalid profile still decodes."""
    content = encoded(Image.new("CMYK", (16, 16), (0, 0, 0, 255)), "jpeg", icc_profile=b"no profile")
    assert load_rgb(content)[8, 8].max() < 15


def test_a_profile_for_other_colours_does_not_matter():
    """A CMYK picture that carries an RGB profile is read by the plain formula."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    content = encoded(Image.new("CMYK", (16, 16), (0, 0, 0, 255)), "jpeg", icc_profile=profile)
    assert load_rgb(content)[8, 8].max() < 15


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_come_upright(orientation):
    """All eight EXIF orientations give the same upright picture and the same measures."""
    upright = Image.fromarray(tiny_picture(2))
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # orientation → the transpose that stores it so
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[274] = orientation
    content = encoded(stored, "png", exif=exif)
    facts = read_image_info(content)
    assert (facts.width, facts.height) == (64, 48)
    assert np.array_equal(load_rgb(content), tiny_picture(2))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_does_not_matter():
    """A picture with a damaged EXIF block is read as if it had none."""
    content = encoded(Image.fromarray(tiny_picture()), "jpeg", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\x7f\x01")
    assert load_rgb(content).shape == (48, 64, 3)


@pytest.mark.parametrize("name", ["gif", "webp", "png"])
def test_an_animation_gives_its_first_frame(name):
    """Frames of an animation are counted, and the first is decoded."""
    first, *rest = [Image.fromarray(tiny_picture(seed)) for seed in (4, 5, 6)]
    content = encoded(first, name, save_all=True, append_images=rest, **({"lossless": True} if name == "webp" else {}))
    assert read_image_info(content).frames == 3
    assert np.abs(load_rgb(content).astype(int) - tiny_picture(4)).mean() < 10


def test_frames_of_a_hostile_gif_are_not_counted_for_ever():
    """Counting frames stops at the limit."""
    header = b"GIF89a\x01\x00\x01\x00\x00\x00\x00"
    frame = b",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00"
    assert count_gif_frames(header + frame * 12_000) == MAX_COUNTED_FRAMES
    assert count_gif_frames(header + frame * 7 + b";") == 7


@given(st.binary(max_size=300))
def test_counting_frames_ends(tail):
    """Any bytes after a GIF header give a count of at least one."""
    assert count_gif_frames(b"GIF89a" + tail) >= 1


def test_too_many_pixels_are_refused_before_decoding():
    """The pixel limit is checked in the header, and the measures are still returned."""
    content = encoded(Image.new("1", (10_000, 6_000)), "png")
    assert read_image_info(content).width == 10_000
    with pytest.raises(MediaTooLarge, match="10000 x 6000"):
        load_rgb(content)


def test_a_decompression_bomb_is_refused():
    """Sizes that Pillow itself refuses are too large, not broken."""
    content = bytearray(tiny_png())
    content[16:24] = (60_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    with pytest.raises(MediaTooLarge):
        read_image_info(bytes(content))


def test_a_picture_can_be_shrunk_on_the_way_in():
    """`max_side` bounds both sides and keeps the shape; small pictures are not enlarged."""
    large = encode_jpeg(tiny_picture(width=1200, height=900))
    assert load_rgb(large, max_side=300).shape == (225, 300, 3)
    assert load_rgb(tiny_jpeg(), max_side=300).shape == (48, 64, 3)


def test_formats_that_are_not_read_are_named(tmp_path):
    """An error names the content: a video, or unknown."""
    with pytest.raises(UnsupportedMedia, match="video"):
        load_rgb(tiny_video(tmp_path / "a.avi", frames=2).read_bytes())
    with pytest.raises(UnsupportedMedia, match="known format"):
        load_rgb(b"<!doctype html>")
    with pytest.raises(BrokenMedia, match="empty"):
        load_rgb(b"")


def chunk(kind, data=b""):
    """Return a PNG chunk."""
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


PNG, JPEG = tiny_png(), tiny_jpeg()
PIXELS, END = PNG.index(b"IDAT") - 4, PNG.index(b"IEND") - 4
GIF = encoded(Image.new("P", (8, 8)), "gif")
FRAME = GIF.index(b"\x2c")


@pytest.mark.parametrize(
    "content",
    [
        PNG[:PIXELS] + chunk(b"vpAg") * 1_700_000 + PNG[PIXELS:],
        PNG[:PIXELS] + chunk(b"IDAT") * 1_700_000 + PNG[PIXELS:],
        PNG[:END] + chunk(b"vpAg") * 1_700_000 + PNG[END:],
        JPEG[:2] + b"\xff\xfe\0\2" * 4_900_000 + JPEG[2:],
        JPEG[:2] + b"\xff" * 19_900_000 + JPEG[2:],
        GIF[:FRAME] + b"\x21\xfe\x01a\0" * 3_900_000 + GIF[FRAME:],
    ],
    ids=["chunks", "pixel chunks", "chunks at the end", "comments", "fill bytes", "GIF comments"],
)
def test_a_picture_of_millions_of_empty_parts_is_refused(content):
    """Decoding stops after a limited number of reads, in each format that consists of parts."""
    with pytest.raises(MediaTooLarge, match="too many parts"):
        load_rgb(content)


def test_a_picture_of_many_small_parts_decodes():
    """A PNG whose pixels are in 20,000 chunks decodes."""
    length = int.from_bytes(PNG[PIXELS : PIXELS + 4], "big")
    data = PNG[PIXELS + 8 : PIXELS + 8 + length]
    content = PNG[:PIXELS] + chunk(b"IDAT", data[:1]) + chunk(b"IDAT") * 20_000 + chunk(b"IDAT", data[1:]) + PNG[END:]
    assert (load_rgb(content) == load_rgb(PNG)).all()


def test_counting_frames_stops_in_a_gif_of_millions_of_blocks():
    """Pixels in 9.9 million blocks of one byte are not read to their end: the second frame is not counted."""
    frame = GIF[FRAME : FRAME + 11]
    assert count_gif_frames(GIF[:FRAME] + frame + b"\1\0" * 9_900_000 + b"\0" + GIF[FRAME:]) == 1


@given(st.integers(0, 400), st.binary(min_size=1, max_size=40))
def test_damage_never_leaks_a_foreign_exception(position, noise):
    """Any damaged picture decodes or raises MediaError."""
    for content in (tiny_png(), tiny_jpeg()):
        damaged = content[:position] + noise + content[position + len(noise) :]
        with suppress(MediaError):
            assert load_rgb(damaged).shape[2] == 3


def test_thumbnails_are_small_jpegs():
    """A thumbnail has at most the requested side, and a small picture is not enlarged."""
    assert load_rgb(thumbnail(tiny_picture(width=640, height=480))).shape == (120, 160, 3)
    assert load_rgb(thumbnail(tiny_picture(), side=160)).shape == (48, 64, 3)


def test_blank_is_what_shows_nothing():
    """Codec noise on black is blank, a few lines of print on white are not."""
    noise = np.random.default_rng(0).integers(0, 8, (480, 640, 3), dtype=np.uint8)
    page = blank_picture(255, width=640, height=480)
    page[100:104, 50:400] = 0
    assert is_blank(blank_picture())
    assert is_blank(blank_picture(255) - noise[:48, :64])
    assert is_blank(noise)
    assert not is_blank(page)
    assert not is_blank(tiny_picture())


@pytest.mark.parametrize(
    ("mode", "form", "channels"),
    [
        *(("1", "PNG", 1), ("L", "PNG", 1), ("LA", "PNG", 1), ("I;16", "PNG", 1), ("L", "JPEG", 1)),
        *(("P", "GIF", 3), ("RGB", "PNG", 3), ("RGBA", "PNG", 3), ("CMYK", "JPEG", 3), ("RGB", "JPEG", 3)),
    ],
)
def test_levels_are_those_of_the_stored_picture(mode, form, channels):
    """The histogram has a row for each stored channel and counts points that are picked, not averaged."""
    picture = Image.new("L", (300, 200), 0)
    picture.paste(255, (0, 0, 301, 100))
    for place in range(0, 200, 3):
        picture.paste(255 * (place % 2), (0, place, 300, place + 1))
    picture = picture.convert("I").convert(mode) if mode == "I;16" else picture.convert(mode)
    content = encoded(picture, form)
    rgb, levels = load_rgb_and_levels(content, 64)
    expected = load_rgb(content, max_side=64)
    assert rgb.shape == expected.shape
    assert np.abs(rgb.astype(int) - expected).mean() < 32  # another filter shrinks it
    assert levels.shape == (channels, 256)
    assert set(levels.sum(axis=1)) == {64 * 42}
    if form != "JPEG" and mode != "I;16":
        assert np.count_nonzero(levels) == 2 * channels


def test_measured_jpeg_is_decoded_as_small_as_it_may_be(monkeypatch):
    """A long JPEG is decoded at the least scale that keeps the asked side, although its shorter side gets smaller."""
    decoded = []
    flatten = image_module.to_srgb
    monkeypatch.setattr(image_module, "to_srgb", lambda picture: decoded.append(picture.size) or flatten(picture))
    monkeypatch.setattr(image_module, "_can_shrink", lambda picture: False)
    rgb, _ = load_rgb_and_levels(encoded(Image.new("RGB", (1200, 500)), "JPEG"), 256)
    assert decoded[-1] == (300, 125)
    assert rgb.shape == (107, 256, 3)
