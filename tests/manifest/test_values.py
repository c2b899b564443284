"""Values of a manifest that are hard to store: integers beyond 64 bits."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.manifest.readers import ManifestReader
from tests.manifest.test_tars import make_tar

URL = "https://example.com/a.jpg"
DIGITS = '0123456789\\é"'
LONG = (2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 10**300)


def manifest(folder, form, rows):
    """Return a manifest of this form with these rows."""
    path = folder / f"m.{form}"
    match form:
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "json":
            path.write_text(json.dumps(rows))
    return path


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_integers_beyond_64_bits_lose_no_digit(tmp_path, form):
    """An integer that no column of integers holds is kept as text, and as an id it differs from the next integer."""
    items = list(ManifestReader(manifest(tmp_path, form, [{"url": URL, "id": one, "n": [one]} for one in LONG])))
    assert [item.item_id for item in items] == list(map(str, LONG))
    expected = [one if -(2**63) <= one < 2**64 else str(one) for one in LONG]
    assert [item.extra["n"] for item in items] == [[one] for one in expected]


def test_an_integer_beyond_64_bits_in_a_tar_is_text(tmp_path):
    """The `.json` of a sample keeps all digits of its integers too."""
    make_tar(tmp_path / "m.tar", {"a.jpg": b"x", "a.json": b'{"n": 18446744073709551617}'})
    assert [item.extra for item in ManifestReader(tmp_path / "m.tar")] == [{"json": {"n": "18446744073709551617"}}]


@given(number=st.integers(), other=st.floats(allow_nan=False, allow_infinity=False), text=st.text(DIGITS))
def test_a_long_integer_changes_no_other_value_of_its_row(number, other, text):
    """Beside an integer of any length, all values are read as they are in other rows."""
    rows = [{"url": URL, "a": other, "b": text, "c": [of], "d": None} for of in (number, 1)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    first, second = ManifestReader("-", stdin=io.BytesIO(lines.encode()))
    assert first.extra | {"c": 1} == second.extra | {"c": 1}
    assert str(first.extra["c"][0]) == str(number)
