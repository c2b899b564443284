"""Whatever odd value an answer holds, the rest of it is read."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.lenient_json import loads_lenient, parse_object_lenient

ODD = {
    "NaN": (b'{"score": NaN, "credits_paid": 2}', None),
    "infinity": (b'{"score": -Infinity, "credits_paid": 2}', None),
    "half a surrogate pair": (rb'{"score": "a\ud800b", "credits_paid": 2}', "a?b"),
    "no UTF-8": (b'{"score": "a\xffb", "credits_paid": 2}', "a\ufffdb"),
    "too large for a double": (b'{"score": 1e999, "credits_paid": 2}', None),
    "an integer of 400 digits": (b'{"score": ' + b"9" * 400 + b', "credits_paid": 2}', None),
    "an integer of 9000 digits": (b'{"score": ' + b"9" * 9000 + b', "credits_paid": 2}', None),
    "something after it": (b'{"score": "x", "credits_paid": 2}\n<!-- cached -->', "x"),
    "a line break in a text": (b'{"score": "a\nb", "credits_paid": 2}', "a\nb"),
    "a byte order mark": (b'\xef\xbb\xbf{"score": NaN, "credits_paid": 2}', None),
}


@pytest.mark.parametrize(("body", "score"), ODD.values(), ids=ODD)
def test_one_odd_value_leaves_the_rest(body, score):
    """The value becomes what a table can hold, and what was paid is still known."""
    assert parse_object_lenient(body) == {"score": score, "credits_paid": 2}
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(body)


@pytest.mark.parametrize("body", [b"", b"null", b"[1]", b"{", b'{"a": ', b"\xff", b"<html>", b"[" * 100_000])
def test_what_holds_no_object_is_none(body):
    """A body without a complete JSON object is read as None."""
    assert parse_object_lenient(body) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=9))
def test_what_is_read_can_be_written(value):
    """Whatever a writer of JSON made, with NaN and any text: what is read is strict JSON."""
    read = loads_lenient(json.dumps({"a": value}).encode("utf-8", "surrogatepass"))
    assert orjson.loads(json.dumps(read, allow_nan=False)) == read


@given(st.binary(max_size=80))
def test_no_bytes_raise(body):
    """No bytes raise an error."""
    loads_lenient(body)
    loads_lenient(b'{"a": ' + body)


@given(st.integers(-(10**40), 10**40) | st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**30]))
def test_a_number_is_the_same_beside_one_that_no_double_holds(number):
    """Python's reader gives large integers the type and value that orjson gives them."""
    lenient, beyond = loads_lenient(b"[%d, 1e999]" % number)
    strict = orjson.loads(b"%d" % number)
    assert (lenient, type(lenient), beyond) == (strict, type(strict), None)


ANSWER = {"credits_paid": 2, "all": {"assets": []}}
HIDDEN = {
    "UTF-16": json.dumps(ANSWER).encode("utf-16"),
    "JSONP": b"cb(%s);" % json.dumps(ANSWER).encode(),
    "a prefix": b")]}',\n" + json.dumps(ANSWER).encode(),
    "HTML": b"<pre>%s</pre>" % json.dumps(ANSWER).encode(),
    "a list": json.dumps([ANSWER]).encode(),
    "a text": json.dumps(json.dumps(ANSWER)).encode(),
}


@pytest.mark.parametrize("body", HIDDEN.values(), ids=HIDDEN)
def test_a_hidden_answer_is_found(body):
    """An answer in another encoding, in a list, or in a text is the answer."""
    assert parse_object_lenient(body) == ANSWER


def test_fields_around_an_answer_are_kept():
    """An answer in a field has the fields of the object around it, too, unless it has them itself."""
    around = {"credits_paid": 1, "credits": 9, "status": "success", "data": ANSWER}
    found = parse_object_lenient(json.dumps({"outer": around}).encode())
    assert (found["all"], found["credits_paid"], found["credits"], found["status"]) == ({"assets": []}, 2, 9, "success")


@pytest.mark.parametrize(
    "body",
    [
        json.dumps([ANSWER, ANSWER]).encode(),
        b"<script>a = {}; b = %s</script>" % json.dumps(ANSWER).encode(),
        b'cb({"error": "No credits."});',
        b'[{"error": "No credits."}]',
        b"cb(%s" % json.dumps(ANSWER).encode()[:-1],
    ],
)
def test_what_is_ambiguous_is_no_answer(body):
    """Two answers, an answer beside other braces, a part of one, and an error that is not the whole are no answer."""
    assert parse_object_lenient(body) is None


def test_two_answers_in_one_object_are_none():
    """If two fields hold answers, the object is returned as it is."""
    both = {"first": ANSWER, "second": ANSWER}
    assert parse_object_lenient(json.dumps(both).encode()) == both


@given(st.recursive(st.text() | st.integers(0, 9), lambda inner: st.dictionaries(st.sampled_from("abc"), inner)))
def test_objects_that_are_no_answers_stay_as_they_are(value):
    """An object without an answer in it is returned unchanged."""
    assert parse_object_lenient(json.dumps({"a": value}).encode()) == {"a": value}
