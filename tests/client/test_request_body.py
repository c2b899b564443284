"""Bodies with a pre-encoded shared part equal the bodies of the same requests encoded as a whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.request_body import RequestBodyBuilder
from lightmeter.errors import UsageError
from lightmeter.wire.request import AnalyzeRequest

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
options = st.fixed_dictionaries(
    {},
    optional={
        "backend": st.lists(words, max_size=3),
        "feature": st.lists(words, max_size=3),
        "prompt": words,
        "tag_score": st.floats(0, 1),
        "max_frames": st.integers(0, 100),
    },
)


@given(options, st.lists(words, min_size=1, max_size=4))
def test_a_body_of_urls_is_the_request_as_it_would_be_written_whole(given_options, urls):
    """One URL is encoded as a string, several as an array, beside all options."""
    whole = AnalyzeRequest(url=urls, **given_options).to_wire()
    assert json.loads(RequestBodyBuilder(AnalyzeRequest(**given_options)).for_urls(urls)) == whole


@given(options, st.lists(st.tuples(words, words), min_size=1, max_size=3))
def test_a_body_of_files_is_the_request_as_it_would_be_written_whole(given_options, files):
    """File contents and names are encoded in the same order."""
    contents, names = [content for content, _ in files], [name for _, name in files]
    whole = AnalyzeRequest(file=contents, file_name=names, **given_options).to_wire()
    assert json.loads(RequestBodyBuilder(AnalyzeRequest(**given_options)).for_files(contents, names)) == whole


def test_requests_that_json_cannot_hold_raise():
    """A lone surrogate, as in broken file names, raises `UsageError`."""
    with pytest.raises(UsageError, match="JSON"):
        RequestBodyBuilder(AnalyzeRequest()).for_files(["QQ=="], ["\ud800.jpg"])
