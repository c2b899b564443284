"""A model's answer with status 200 may hold its thinking, several parts or an error; only its text is a description."""

from __future__ import annotations

import pytest

from lightmeter.errors import BackendError
from lightmeter.testing import StubAnswer
from tests.service.providers.test_openai_compatible import answers, choice, message


@pytest.mark.parametrize(
    "content",
    [
        "<think>A dog?\nNo.</think>\n\nA cat.",
        "A dog? No.</think>A cat.",
        "<Thinking>A dog?</thinking>A cat.",
        "<thought>A dog?</thought>A cat.",
        "<seed:think>A dog?</seed:think>A cat.",
        "[THINK]A dog?[/THINK]A cat.",
        "◁think▷A dog?◁/think▷A cat.",
        "<think>A <think>dog?</think></think>A cat.",
        "<think>A dog?</think>A cat.<think>Is that right?",
        "<|channel|>analysis<|message|>A dog?<|end|><|channel|>final<|message|>A cat.",
        [{"type": "text", "text": "A "}, {"type": "text", "text": "cat."}],
        ["A ", {"type": "output_text", "text": "cat."}],
        [{"type": "thinking", "thinking": [{"type": "text", "text": "A dog?"}]}, {"type": "text", "text": "A cat."}],
        [{"type": "reasoning", "text": "A dog?"}, {"text": "Hm.", "thought": True}, {"text": "A cat."}],
        [{"type": "text", "text": "<think>A dog?</think>A cat."}, {"type": "image_url"}, 7, None],
    ],
    ids=str,
)
def test_thinking_is_no_part_of_the_description(create_adapter, stub, describe, content):
    """What a model thinks is not sold as its answer, however it is marked; texts in parts are joined."""
    stub.answer = answers(message(content=content, reasoning_content="A dog?", reasoning="A dog?"))
    assert describe(create_adapter()) == "A cat."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"message": "Slow down", "code": 429}}, "throttled"),
        ({"error": {"message": "Slow down", "type": "rate_limit_error", "code": None}}, "throttled"),
        ({"error": {"message": "Slow down", "type": "requests", "code": "rate_limit_exceeded"}}, "throttled"),
        ({"error": {"message": "Overloaded", "type": "overloaded_error"}, "choices": []}, "throttled"),
        ([{"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED"}}], "throttled"),
        ({"error": {"message": "Provider returned error", "code": "502"}}, "broken"),
        ({"error": {"message": "Busy", "status": "UNAVAILABLE"}}, "broken"),
        ({"object": "error", "message": "Oh", "type": "InternalServerError", "code": 500}, "broken"),
        ({"error": {"message": "Late", "type": "timeout_error"}}, "broken"),
        ({"error": "Slow down", "code": "rate-limit-exceeded"}, "throttled"),
    ],
)
def test_an_error_with_status_200_is_that_error(create_adapter, stub, counted, describe, error, kind):
    """An error in the body of an answer with status 200 is repeated as one with its own status."""
    stub.answer = answers(StubAnswer(error), "A cat.")
    assert describe(create_adapter()) == "A cat."
    assert counted.errors == [("openai", kind)]
    assert len(counted.usages) == 1


def test_an_error_after_tokens_were_written_is_not_repeated(create_adapter, stub, counted, describe):
    """The provider charges the tokens of an answer that ends with an error: the call is counted and not repeated."""
    stub.answer = answers(StubAnswer({"error": {"code": 502}, "usage": {"prompt_tokens": 9, "completion_tokens": 4}}))
    with pytest.raises(BackendError, match="502"):
        describe(create_adapter())
    assert (len(stub.requests), len(counted.usages)) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (StubAnswer({"error": {"message": "No model.", "code": 404}}), "refused", "No model"),
        (StubAnswer({"error": {"code": "insufficient_quota", "message": "No money."}}), "refused", "No money"),
        (
            choice(finish_reason="error", error={"code": 502, "message": "Lost."}),
            "malformed",
            "ended with an error: Lost",
        ),
        (message(content=[]), "malformed", "empty text"),
        (
            message(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "A cat?"}]}]),
            "malformed",
            "empty",
        ),
        (message(content=[{"type": "refusal", "refusal": "I will not."}]), "refused", "model refused: I will not"),
        (message(content="<think>A cat?</think>"), "malformed", "thinking, but no answer"),
        (message(content="<think>A cat?"), "malformed", "thinking, but no answer"),
        (message("length", content="<think>A cat?"), "malformed", "limit of tokens"),
        (message(content=None, reasoning_content="A cat?"), "malformed", "no text"),
        (message(content="", reasoning="A cat?"), "malformed", "empty text"),
    ],
)
def test_an_answer_without_a_text_says_why(create_adapter, stub, counted, describe, answer, kind, says):  # noqa: PLR0917
    """Thinking alone, a refusal in the parts and a final error are errors after one call."""
    stub.answer = answers(answer)
    with pytest.raises(BackendError, match=says):
        describe(create_adapter())
    assert (len(stub.requests), counted.errors) == (1, [("openai", kind)])
