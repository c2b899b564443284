"""Perceptual color distance in Python and in SQL."""

from __future__ import annotations

from math import dist

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.html_fragments import is_hex_color
from lightmeter.ui.gallery.gallery_queries import DISTANCES_SQL, oklab

HEX = st.integers(0, 0xFFFFFF).map(lambda number: f"#{number:06x}")


def distance(one: str, other: str) -> float:
    """Return the Oklab distance of two colors `#rrggbb`."""
    return dist(oklab(one), oklab(other))


@pytest.mark.parametrize(
    ("colour", "expected"),
    [
        ("#ffffff", (1, 0, 0)),
        ("#000000", (0, 0, 0)),
        ("#ff0000", (0.628, 0.225, 0.126)),
        ("#0000ff", (0.452, -0.032, -0.312)),
    ],
)
def test_oklab_has_the_published_values(colour, expected):
    """White, black, red and blue have the published Oklab values."""
    assert oklab(colour) == pytest.approx(expected, abs=1e-3)


@given(one=HEX, other=HEX)
def test_distance_is_a_metric(one, other):
    """A color has distance 0 from itself; the distance is symmetric and at most that of the extremes."""
    assert distance(one, one) == 0
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert 0 <= distance(one, other) < 1.01


def test_sql_and_python_distances_agree():
    """DuckDB computes the same distances as the Python function."""
    colors = ["#000000", "#ffffff", "#0a0b0c", "#c04020", "#20c040", "#4020c0", "#7f7f7f"]
    with duckdb.connect() as db:
        db.execute("CREATE TABLE colors (item_id TEXT, red UTINYINT, green UTINYINT, blue UTINYINT)")
        db.executemany("INSERT INTO colors VALUES (?, ?, ?, ?)", [(c, *bytes.fromhex(c[1:])) for c in colors])
        found = dict(db.execute(DISTANCES_SQL, oklab("#c04020")).fetchall())
    assert found == pytest.approx({colour: distance(colour, "#c04020") for colour in colors})


@pytest.mark.parametrize("text", ["", "red", "#fff", "#12345g", "#1234567", "#123456;x", "#123456\n"])
def test_only_hex_colors_are_accepted(text):
    """A text that is not exactly #rrggbb is not a color."""
    assert not is_hex_color(text)
    with pytest.raises(ValueError, match="not written as"):
        oklab(text)
