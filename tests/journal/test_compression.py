"""Stored answers: what is compressed comes back, and damaged bytes are an error of the journal."""

from __future__ import annotations

from contextlib import suppress

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import JournalError
from lightmeter.journal.compression import MAX_BYTES, compress, decompress

FRAME_OF_1_TB = bytes.fromhex("28b52ffd e0") + (2**40).to_bytes(8, "little") + bytes.fromhex("010000")
"""A Zstandard frame (RFC 8878, 3.1.1) whose header states a content of 2**40 bytes, with one empty block."""


@given(st.binary(max_size=2000))
def test_an_answer_comes_back_as_it_was(answer):
    """Decompressing gives the bytes that were compressed."""
    assert decompress(compress(answer)) == answer


@given(st.binary(max_size=200), st.data())
def test_damaged_bytes_are_an_error_of_the_journal_or_another_answer(answer, data):
    """Whatever one byte of a stored answer is changed to, reading it raises nothing but JournalError."""
    damaged = bytearray(compress(answer))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(JournalError):
        decompress(bytes(damaged))


def test_an_impossible_size_is_refused_before_memory_is_taken():
    """A frame that states a terabyte is damaged; no memory is reserved for it."""
    assert zstandard.frame_content_size(FRAME_OF_1_TB) > MAX_BYTES
    with pytest.raises(JournalError, match="impossible"):
        decompress(FRAME_OF_1_TB)


def test_a_frame_without_its_size_is_refused():
    """`compress` always states the size, so a frame without it is damaged."""
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"answer")
    with pytest.raises(JournalError, match="does not state its size"):
        decompress(frame)
