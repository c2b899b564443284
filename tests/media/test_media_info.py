"""Kind of media by name and by first bytes."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lightmeter.media.media_info import SNIFF_BYTES, kind_from_name, sniff
from lightmeter.testing import tiny_picture, tiny_video


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("https://h.example/a/B.JPG", "image"),
        ("https://h.example/a.webp?size=large.mp4#x.mov", "image"),
        ("https://h.example/clip.mp4?token=1", "video"),
        ("folder/clip.WebM", "video"),
        ("https://h.example/watch?v=a.mp4", None),
        ("https://h.example/", None),
        ("archive.tar.gz", None),
        ("", None),
    ],
)
def test_a_name_tells_its_kind_by_the_suffix_of_its_path(name, kind):
    """Query string and fragment do not change the kind of a URL."""
    assert kind_from_name(name) == kind


@pytest.mark.parametrize("name", ["jpeg", "png", "gif", "webp", "bmp", "avif", "tiff"])
def test_pictures_are_recognised_by_their_first_bytes(name):
    """`sniff` recognizes files that Pillow writes."""
    stream = BytesIO()
    Image.fromarray(tiny_picture()).save(stream, name.upper())
    assert sniff(stream.getvalue()[:SNIFF_BYTES]) == ("image", name)


def test_an_avi_is_recognised_by_its_first_bytes(tmp_path):
    """RIFF holds videos as well as WebP pictures; the form tells."""
    content = tiny_video(tmp_path / "a.avi", frames=2).read_bytes()
    assert sniff(content[:SNIFF_BYTES]) == ("video", "avi")


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"\0\0\0\x18ftypmp42", ("video", "mp4")),
        (b"\0\0\0\x14ftypqt  ", ("video", "mov")),
        (b"\0\0\0\x18ftypheic", ("image", "heic")),
        (b"\0\0\x10\0moov", ("video", "mov")),
        (b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01B\x82\x84webm", ("video", "webm")),
        (b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01B\x82\x88matroska", ("video", "mkv")),
        (b"BM the rest is prose", None),
        (b"<!doctype html><title>Not found</title>", None),
        (b"RIFF\x24\x08\0\0WAVEfmt ", None),
        (b"", None),
    ],
)
def test_containers_are_recognised_by_what_they_hold(head, found):
    """The container's brand decides; web pages, sounds and texts give None."""
    assert sniff(head) == found


@given(st.binary(max_size=SNIFF_BYTES), st.text(max_size=40))
def test_no_input_breaks_the_guess(head, name):
    """Any bytes and any name give a result, not an exception."""
    assert sniff(head) is None or sniff(head)[0] in {"image", "video"}
    assert kind_from_name(name) in {None, "image", "video"}
