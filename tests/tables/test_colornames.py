"""Names of colours."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lightmeter.tables import schema
from lightmeter.tables.colornames import CSS_NAMES, nearest_css_names, with_css_names


def test_every_css_colour_is_its_own_nearest():
    """A colour that has a name gets that name, and no two names are the same colour."""
    assert nearest_css_names([list(bytes.fromhex(code)) for code in CSS_NAMES.values()]) == list(CSS_NAMES)
    assert len(set(CSS_NAMES.values())) == len(CSS_NAMES) == 139


@pytest.mark.parametrize(
    ("channels", "name"), [((254, 1, 1), "red"), ((2, 3, 2), "black"), ((247, 248, 254), "ghostwhite")]
)
def test_a_colour_near_a_named_one_gets_its_name(channels, name):
    """A small step away from a named colour is still called so."""
    assert nearest_css_names([channels]) == [name]


def test_a_table_of_colours_gets_a_column():
    """Rows keep their order, a colour without all its channels has no name, and no rows are no trouble."""
    empty = schema("colors").empty_table()
    assert with_css_names(empty).column("css_name").to_pylist() == []
    channels = {"red": [255, None, 0], "green": [0, 0, 0], "blue": [0, 0, 128]}
    table = pa.table({name: pa.array(values, pa.uint8()) for name, values in channels.items()})
    assert with_css_names(table).column("css_name").to_pylist() == ["red", None, "navy"]
