"""Nearest CSS names of colours, and parsing of colours."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import UsageError
from lightmeter.media.oklab import srgb_to_oklab
from lightmeter.tables.arrow.color_names import CSS_NAMES, color_to_hex, css_names


def nearest_css_names(colours) -> list[str]:
    """Return the CSS name nearest to each color (red, green, blue)."""
    return css_names(*(pa.array(channel, pa.uint8()) for channel in zip(*colours, strict=True))).to_pylist()


def test_every_css_colour_is_its_own_nearest():
    """A colour that has a name gets that name, and no two names are the same colour."""
    assert nearest_css_names([list(bytes.fromhex(code)) for code in CSS_NAMES.values()]) == list(CSS_NAMES)
    assert len(set(CSS_NAMES.values())) == len(CSS_NAMES) == 139


@pytest.mark.parametrize(
    ("channels", "name"), [((254, 1, 1), "red"), ((2, 3, 2), "black"), ((247, 248, 254), "ghostwhite")]
)
def test_a_colour_near_a_named_one_gets_its_name(channels, name):
    """A colour slightly off a named colour gets that name."""
    assert nearest_css_names([channels]) == [name]


def test_columns_of_channels_become_a_column_of_names():
    """Rows keep their order, a colour with a null channel has no name, and empty columns are allowed."""
    channels = ([255, None, 0], [0, 0, 0], [0, 0, 128])
    assert css_names(*(pa.array(values, pa.uint8()) for values in channels)).to_pylist() == ["red", None, "navy"]
    assert css_names(*[pa.array([], pa.uint8())] * 3).to_pylist() == []


@given(st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=30))
def test_no_other_name_is_nearer(colours):
    """The name found is at the least distance in Oklab, whatever the colour."""
    known = srgb_to_oklab(np.array([list(bytes.fromhex(code)) for code in CSS_NAMES.values()]) / 255.0)
    for colour, name in zip(colours, nearest_css_names(colours), strict=True):
        apart = np.linalg.norm(known - srgb_to_oklab(np.array([colour]) / 255.0), axis=1)
        assert apart[list(CSS_NAMES).index(name)] <= apart.min() + 1e-9


@given(st.sampled_from(sorted(CSS_NAMES)))
def test_every_name_is_a_colour(name):
    """A CSS name, in any case and with either spelling of gray, is the hex of its table."""
    assert color_to_hex(f" {name.upper()} ") == f"#{CSS_NAMES[name]}"
    assert color_to_hex(name.replace("gray", "grey")) == f"#{CSS_NAMES[name]}"


@pytest.mark.parametrize(
    ("written", "read"), [("#ABC", "#aabbcc"), ("#abcd", "#aabbcc"), ("#A1B2C3", "#a1b2c3"), ("#a1b2c3ff", "#a1b2c3")]
)
def test_every_way_to_write_hex_is_read(written, read):
    """Short and long hex, with alpha or without, is the same six digits."""
    assert color_to_hex(written) == read


@pytest.mark.parametrize("text", ["", "reddish", "#12", "#12345", "rgb(1,2,3)", "ff0000", "transparent"])
def test_what_is_no_colour_is_reported(text):
    """Any other text raises an error that says how to write a colour."""
    with pytest.raises(UsageError, match="is no color"):
        color_to_hex(text)
