"""Embeddings: vectors come out as they went in, in single precision, and no odd one costs more than itself."""

from __future__ import annotations

import struct

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.tables.arrow.schema import schema
from tests.facts.fact_rows import fact_tables

CONTEXT = AnswerContext(run_id="run", request_id="req", role=None, language=None)
SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)


def table_of(*assets: bytes) -> pa.Table | None:
    """The table `embeddings` of one answer with these assets, given as JSON."""
    flattener = Flattener()
    items = [ItemRef(str(place), "u", place) for place in range(len(assets))]
    flattener.add_answer(b'{"all":{"assets":[' + b",".join(assets) + b"]}}", items, CONTEXT)
    return fact_tables(flattener).get("embeddings")


def rows_of(value: object) -> list[tuple]:
    """What the table says of an asset whose `embeddings` are this value."""
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    table = table_of(b'{"embeddings":' + raw + b',"tags":{"a":[{"name":"a"}]}}')
    return [] if table is None else [(row["model"], row["vector"], row["source"]) for row in table.to_pylist()]


@given(vectors=st.lists(st.lists(SINGLES, min_size=1, max_size=5), max_size=4))
def test_vectors_come_out_as_they_went_in(vectors):
    """A vector in single precision is the same to the bit, for a picture and for each frame of a video."""
    entries = [{"model": "m", "vector": vector, "source": "s"} for vector in vectors]
    frames = [{"index": at, "embeddings": [entry]} for at, entry in enumerate(entries)]
    table = table_of(orjson.dumps({"embeddings": entries, "frames": frames}))
    rows = [] if table is None else table.to_pylist()
    assert [(row["frame"], row["vector"]) for row in rows] == [(None, vector) for vector in vectors] + list(
        enumerate(vectors)
    )
    assert table is None or table.schema.equals(schema("embeddings"))


def test_single_precision_is_enough_to_compare_unit_vectors():
    """The cosine of two vectors of 1280 coordinates is kept to better than one millionth."""
    vectors = np.random.default_rng(0).standard_normal((20, 1280))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = table_of(*(orjson.dumps({"embeddings": [{"vector": vector.tolist()}]}) for vector in vectors))
    stored_vectors = np.array(table.column("vector").to_pylist())
    assert np.abs(stored_vectors @ stored_vectors.T - vectors @ vectors.T).max() < 1e-6


GOOD = b'{"model":"m","vector":[0.5,-1],"source":"s"}'
VALID_ENTRY = ("m", [0.5, -1.0], "s")


@pytest.mark.parametrize(
    ("odd", "vector"),
    [
        (b'["0.5",1]', [0.5, 1.0]),
        (b'["x",1]', None),
        (b"[NaN,1]", None),
        (b"[1e999,1]", None),
        (b"[1e39,1]", None),
        (b"[-3.4028234663852886e38]", [-3.4028234663852886e38]),
        (b"[[1,2],[3]]", None),
        (b"[true]", None),
        (b"[]", None),
        (b"null", None),
        (b'"0.5"', None),
        (b'{"0":1}', None),
    ],
)
def test_an_odd_vector_is_left_out_and_its_neighbours_stay(odd, vector):
    """What is not all numbers within single precision costs its own entry, and nothing else."""
    rows = rows_of(b"[" + GOOD + b',{"model":"o","vector":' + odd + b"}," + GOOD + b"]")
    assert rows == [VALID_ENTRY, *([] if vector is None else [("o", vector, None)]), VALID_ENTRY]


@pytest.mark.parametrize(
    "value",
    [None, 5, "m", True, [], {}, [0.1] * 1000, [[0.1, 0.2]], [{"model": "m"}], [None, "m", 3], {"m": [0.1] * 1000}],
)
def test_what_holds_no_vector_field_is_left_out(value):
    """Values that are no embeddings make no rows: not one for each number of a bare list."""
    assert rows_of(value) == []


@pytest.mark.parametrize(
    "value",
    [
        {"model": "m", "vector": [0.5, -1], "source": "s"},
        {"m": {"vector": [0.5, -1], "source": "s"}},
        {"m": [{"vector": [0.5, -1], "source": "s"}]},
        [{"model": "m", "vector": ["0.5", "-1"], "source": "s"}, 7, None],
    ],
)
def test_other_shapes_say_the_same(value):
    """One embedding alone, an object by model, and a list with other things in it are read as the usual list."""
    assert rows_of(value) == [VALID_ENTRY]


def test_a_missing_or_odd_model_is_null():
    """A vector without the name of its model is kept."""
    assert rows_of([{"vector": [1]}, {"model": 5, "vector": [1], "source": {}}]) == [(None, [1.0], None)] * 2


def test_a_hundred_thousand_coordinates_are_kept():
    """No length of a vector is too long, and vectors of other lengths stand beside it."""
    long = [0.001] * 100_000
    rows = rows_of([{"model": "m", "vector": long}, {"model": "m", "vector": [1]}])
    (single,) = struct.unpack("f", struct.pack("f", 0.001))
    assert rows[0][1] == [single] * len(long)
    assert rows[1] == ("m", [1.0], None)
