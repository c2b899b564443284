"""The client for synchronous code."""

from __future__ import annotations

import pytest

import lightmeter as lm
from lightmeter.testing import odd_service, tiny_jpeg


def test_the_client_answers_without_await():
    """Balance, back ends and answers come as plain values, also where an event loop is running."""
    with odd_service() as base_url, lm.Client(base_url, "rehearsal") as client:
        before = client.credits()
        answer = client.analyze(files=tiny_jpeg(), features="colors")
        assert answer.all.assets[0].colors
        assert client.credits() == before - answer.credits_paid
        assert "palette" in {offer.name for offer in client.backends()}


def test_a_client_that_is_not_open_says_so():
    """Without its `with` block, and behind it, a call is an error that says what to write."""
    client = lm.Client("http://127.0.0.1:9", "key")
    with pytest.raises(lm.errors.UsageError, match="not open"):
        client.credits()
    with client:
        pass
    with pytest.raises(lm.errors.UsageError, match="not open"):
        client.credits()
