"""Perceptual color distance in Python and in SQL."""

from __future__ import annotations

from math import hypot, sqrt

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightmeter.html_fragments import is_hex_color
from lightmeter.ui.gallery.gallery_queries import (
    CHROMATIC_WEIGHTS,
    GREY_WEIGHTS,
    MIN_CHROMA,
    ColorNear,
    distances_sql,
    oklab,
)

HEX = st.integers(0, 0xFFFFFF).map(lambda number: f"#{number:06x}")


def distance(one: str, target: str) -> float | None:
    """Return the distance of two colors in plain Python; None for a nearly grey color if `target` is not grey."""
    (l1, a1, b1), (l2, a2, b2) = oklab(one), oklab(target)
    c1, c2 = hypot(a1, b1), hypot(a2, b2)
    if c1 < MIN_CHROMA <= c2:
        return None
    hue = max(0.0, (a1 - a2) ** 2 + (b1 - b2) ** 2 - (c1 - c2) ** 2)
    weights = CHROMATIC_WEIGHTS if c2 >= MIN_CHROMA else GREY_WEIGHTS
    return hypot(weights[0] * (l1 - l2), weights[1] * (c1 - c2), weights[2] * sqrt(hue))


def sql_distances(colors: list[str], target: str) -> dict[str, float]:
    """Return the distance of each color from `target` as DuckDB computes it."""
    with duckdb.connect() as db:
        db.execute("CREATE TABLE colors (item_id TEXT, red UTINYINT, green UTINYINT, blue UTINYINT)")
        db.executemany("INSERT INTO colors VALUES (?, ?, ?, ?)", [(c, *bytes.fromhex(c[1:])) for c in colors])
        return dict(db.execute(distances_sql(target)).fetchall())


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


@settings(max_examples=20, deadline=None)
@given(colors=st.lists(HEX, min_size=1, unique=True), target=HEX)
def test_sql_and_python_distances_agree(colors, target):
    """DuckDB computes the same distances as plain Python, 0 for the same color, and leaves out the same colors."""
    expected = {color: distance(color, target) for color in [*colors, target]}
    found = sql_distances(list(expected), target)
    assert found == pytest.approx({color: value for color, value in expected.items() if value is not None}, abs=1e-6)
    assert found[target] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("word", "similar", "other"),
    [
        ("red", ["#9c231a", "#cd5532"], ["#834c2d", "#1153b3", "#1b1b1b"]),
        ("orange", ["#da9a5d", "#cb824f"], ["#9c231a", "#93aa33"]),
        ("yellow", ["#c4cc3b"], ["#da9a5d", "#fefdeb"]),
        ("green", ["#4a6425", "#7aa25c"], ["#236c6d", "#b1c53c", "#9b9d9a"]),
        ("teal", ["#015b5b", "#44757a"], ["#4b4b4b", "#6c6c6c", "#1153b3"]),
        ("blue", ["#1153b3", "#3168cc", "#2d496e"], ["#015b5b", "#54535b"]),
        ("purple", ["#6a2c7a"], ["#1153b3", "#9c231a"]),
        ("pink", ["#f4b8c6"], ["#cd5532", "#d4cbcc"]),
        ("brown", ["#744b2b", "#834c2d"], ["#d38b43", "#2d2c32"]),
        ("white", ["#fefdeb", "#e3e1e4"], ["#9c9c9c", "#abc7ec"]),
        ("black", ["#010000", "#0d0b0c"], ["#6c6c6c", "#0d2a4c"]),
        ("grey", ["#848484", "#6d6a63"], ["#1b1b1b", "#fefefe", "#44757a"]),
    ],
)
def test_color_words_find_colors_of_photographs(word, similar, other):
    """Within the default distance of a color word are the colors of photographs that people call so, and no others."""
    target = ColorNear(color=word)
    near = {color for color, apart in sql_distances(similar + other, target.color).items() if apart <= target.distance}
    assert near == set(similar)


@pytest.mark.parametrize("text", ["", "red", "#fff", "#12345g", "#1234567", "#123456;x", "#123456\n"])
def test_only_hex_colors_are_accepted(text):
    """A text that is not exactly #rrggbb is not a color."""
    assert not is_hex_color(text)
    with pytest.raises(ValueError, match="not written as"):
        oklab(text)
