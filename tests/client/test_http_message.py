"""No bytes make the reading of a response raise an error, or lose what is not understood."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.classify import classify_poll, classify_submission
from lightmeter.client.http_answer import RawAnswer, decode_answer, decode_content
from lightmeter.export.asset_matching import outcome_of
from lightmeter.http_message import find_inflater, read_body, read_head

LIMIT = 1_000_000
START = b"HTTP/1.1 200 OK\r\n"
FIELDS = ("all", "error", "status", "request_id", "response_uri", "credits", "credits_paid", "data", "backends")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from((*FIELDS, "assets", "errors", "name")), inner),
)


def judge(status, headers, body):
    """Do with an answer all that decides about money."""
    for classify in (classify_submission, classify_poll):
        classification = classify(RawAnswer(status, headers, body), now=1.0)
        outcome_of(body, [(0, "a"), (1, "b")], 3, classification.data)
        decode_answer(body)


@given(
    st.integers(0, 999),
    st.dictionaries(st.sampled_from(["retry-after", "date", "content-type"]), st.text()),
    st.binary() | st.dictionaries(st.sampled_from(FIELDS), VALUES).map(lambda one: json.dumps(one).encode()),
)
def test_no_answer_raises(status, headers, body):
    """Any status, headers and body have a verdict and an outcome."""
    judge(status, headers, body)


@pytest.mark.parametrize("levels", [300, 1010, 100_000])
@pytest.mark.parametrize("field", FIELDS)
def test_no_depth_raises(field, levels):
    """A value that is nested deeply, in any field, has a verdict and an outcome."""
    for deep in (b"[" * levels + b"]" * levels, b'{"a":' * levels + b"1" + b"}" * levels):
        judge(200, {}, b'{"%s": %s}' % (field.encode(), deep))
        judge(
            200,
            {},
            b'{"request_id": "r", "all": {"assets": [], "errors": [%s]}, "%s": %s}' % (deep, field.encode(), deep),
        )


@given(st.binary(), st.sampled_from([b"", START, START + b"Transfer-Encoding: chunked\r\n\r\n"]))
def test_no_bytes_of_a_response_raise(wire, start):
    """Any bytes have a head, or none yet; the head for the HTTP library is one."""
    head = read_head(start + wire)
    if head is not None:
        assert read_head(head.to_strict()) is not None
        read_body(head, start + wire)


@given(st.binary(max_size=500), st.integers(1, 9))
def test_a_body_in_chunks_is_joined(body, size):
    """The pieces of a body in chunks are the body, also when the last chunk lacks."""
    chunks = b"".join(
        b"%x;note\r\n%s\r\n" % (len(one), one) for at in range(0, len(body), size) if (one := body[at : at + size])
    )
    for end in (b"0\r\n\r\n", b""):
        wire = START + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + end
        assert read_body(read_head(wire), wire) == body


@given(st.binary(), st.text(), st.sampled_from([b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x78\x9c"]))
def test_what_cannot_be_decoded_stays_as_it_came(body, coding, start):
    """Bytes that are not compressed, or are cut, are returned unchanged."""
    assert decode_content(start + body, coding, LIMIT) in {start + body, b""}


@pytest.mark.parametrize(
    "compress", [gzip.compress, zlib.compress, zstandard.compress, lambda b: zlib.compress(b)[2:-4]]
)
def test_a_bomb_is_not_decoded(compress):
    """A body that is longer than allowed when decoded is reported, also inside another compression."""
    bomb = b'{"a": "' + b" " * (2 * LIMIT) + b'"}'
    assert decode_content(compress(bomb), "deflate", LIMIT) is None
    assert decode_content(gzip.compress(compress(bomb)), "gzip", LIMIT) in {None, compress(bomb)}
    assert decode_content(compress(bomb), "deflate", 3 * LIMIT) == bomb


@pytest.mark.parametrize("excess", [0, 1, 130, 258])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, lambda b: zlib.compress(b)[2:-4]])
def test_pieces_are_the_whole(compress, excess):
    """What arrives byte by byte, or at once, is decompressed to its last byte, whatever the size of the pieces."""
    body = bytes(3000 + excess)
    packed = compress(body)
    for size in (1, len(packed)):
        inflater = find_inflater(packed, "deflate", 1000)
        parts = [packed[at : at + size] for at in range(0, len(packed), size)]
        assert b"".join(piece for part in parts for piece in inflater.pieces(part)) == body
        assert inflater.is_whole
