"""The fields of an answer that decide about money and rows are read leniently and never fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.answer_fields import AnswerFields, whole_credits

FIELDS = ("status", "request_id", "response_uri", "error", "all", "credits_paid", "credits")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["assets", "errors", "name", "0"]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_no_value_makes_a_field_unreadable(data):
    """Every property has a value for every JSON object."""
    answer = AnswerFields(data)
    for name in dir(AnswerFields):
        if isinstance(getattr(AnswerFields, name), property):
            getattr(answer, name)


@pytest.mark.parametrize(
    ("value", "charge", "free"),
    [(0, 0, True), (2, 2, False), ("2", 2, False), ("0", 0, False), (True, None, False), (False, None, False)],
)
def test_the_charge_is_a_number_or_a_number_in_a_string(value, charge, free):
    """A boolean is no charge, and only the number zero says that an answer was free."""
    answer = AnswerFields({"credits_paid": value})
    assert (answer.credits_paid, answer.is_free) == (charge, free)


def test_credits_are_rounded_up():
    """A fraction counts as a whole credit; negative and huge amounts count as absent."""
    assert [whole_credits(amount) for amount in (None, 0, 1.2, -1, 2.0**60)] == [None, 0, 2, None, None]


def test_the_request_id_may_stand_in_the_result_address():
    """The last path segment of `response_uri` is the id where the answer has no field for it."""
    assert AnswerFields({"response_uri": "https://elsewhere/api/response/a%20b/"}).request_id == "a b"
    assert AnswerFields({"request_id": 7}).request_id == "7"
    assert AnswerFields({"request_id": True, "response_uri": "http://[broken"}).request_id is None
