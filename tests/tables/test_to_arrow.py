"""Conversion of lists to arrays: valid values are unchanged, invalid ones become null."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.tables.arrow.schema import ARROW_TYPES, EXTRA_TYPES
from lightmeter.tables.arrow.to_arrow import array_of

MOMENT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
UTC_TYPE = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("values", "arrow_type", "expected"),
    [
        (["a", None, 5, ["b"], "\ud800"], pa.string(), ["a", None, None, None, "?"]),
        ([1, 2.5, "3", "x", True, None, 10**400], pa.float64(), [1.0, 2.5, 3.0, None, None, None, None]),
        ([True, False], pa.float64(), [None, None]),
        ([10**30], pa.float64(), [1e30]),
        ([0, 255, 256, -1, 2.0, 2.5, True], pa.uint8(), [0, 255, None, None, 2, None, None]),
        ([1.5, 2.5], pa.int32(), [None, None]),
        ([2**31 - 1, 2**31], pa.int32(), [2**31 - 1, None]),
        ([2**64 - 1, 2**64], pa.uint64(), [2**64 - 1, None]),
        ([None, None], pa.int64(), [None, None]),
        ([True, 1, "yes", None], pa.bool_(), [True, None, None, None]),
        ([["a", 5], "bc", ("d",), None], pa.list_(pa.string()), [["a", None], None, ["d"], None]),
        ([MOMENT, MOMENT.timestamp(), int(MOMENT.timestamp()), "2024-05-06T07:08:09Z"], UTC_TYPE, [MOMENT] * 4),
        (["2024-05-06T09:08:09+02:00", "soon", 10**20, None], UTC_TYPE, [MOMENT, None, None, None]),
        (["2024-05-06T07:08:09"], pa.timestamp("us"), [MOMENT.replace(tzinfo=None)]),
        (["2024-05-06", "2024-05-06T07:00:00", "x", 5], pa.date32(), [date(2024, 5, 6), date(2024, 5, 6), None, None]),
        ([], UTC_TYPE, []),
    ],
)
def test_wrong_values_are_null_and_right_ones_stay(values, arrow_type, expected):
    """Only an invalid value becomes null; its neighbours are unchanged, and no value is coerced to fit."""
    array = array_of(values, arrow_type)
    assert array.type == arrow_type
    assert array.to_pylist() == expected


BY_NAME = {str(of): of for of in (*ARROW_TYPES.values(), *EXTRA_TYPES.values())}
PLAIN_TYPES = sorted(name for name, of in BY_NAME.items() if not pa.types.is_nested(of))
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


@given(values=st.lists(VALUES, max_size=10), name=st.sampled_from(PLAIN_TYPES))
def test_no_values_raise(values, name):
    """Any values become an array of the same length, whatever the column."""
    assert len(array_of(values, BY_NAME[name])) == len(values)


def test_numbers_that_are_not_finite_are_null():
    """An infinity or a NaN becomes null, whatever the other values of the column are."""
    for beside in (1, 0.5, 2**64):
        assert array_of([beside, math.inf, None, math.nan], pa.float64()).to_pylist() == [beside, None, None, None]
