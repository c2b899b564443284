"""Claude adapter, tested with a server that follows Anthropic's documentation of API version 2026-10-21.

"Create a Message", "Vision", "Errors", "Handling stop reasons". No test reaches Anthropic.
"""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from lightmeter.errors import BackendError, SettingsError
from lightmeter.service.backends.base import Backend
from lightmeter.testing import StubAnswer, tiny_picture

KEY = "sk-proj-4f2a9c77d1e84b06"
REFUSED = {"type": "refusal", "category": "general_harms", "explanation": "This may be harmful."}
USAGE = {
    "input_tokens": 880,
    "cache_creation_input_tokens": 12,
    "cache_read_input_tokens": 8,
    "output_tokens": 35,
    "service_tier": "standard",
}


def message(*content, stop="end_turn", **more):
    """Return an answer."""
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]
    return StubAnswer(
        {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-5-5",
            "content": blocks,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": USAGE,
            **more,
        }
    )


def error(status, kind, text, **headers):
    """Return an error answer."""
    body = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_01"}
    return StubAnswer(body, status, headers)


def answers(*script):
    """Return a script of answers; the last one is repeated."""
    rest = chain(script, repeat(script[-1]))
    return lambda _: next(rest)


def test_the_request_is_what_the_documentation_shows(create_adapter, stub, describe, assert_shows):
    """A request is a POST to /v1/messages with the documented headers and one user message: a JPEG and a text."""
    stub.answer = answers(message("A picture."))
    picture = tiny_picture(4)
    assert describe(create_adapter("claude"), picture, role="caption", language="FRENCH") == "A picture."
    (request,) = stub.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2026-10-21"
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers
    assert request.body.keys() == {"model", "max_tokens", "messages"}
    assert (request.body["model"], request.body["max_tokens"]) == ("model-1", 2048)
    (user_message,) = request.body["messages"]
    image, text = user_message["content"]
    assert (user_message["role"], image["type"], text["type"]) == ("user", "image", "text")
    assert (image["source"]["type"], image["source"]["media_type"]) == ("base64", "image/jpeg")
    assert_shows(image["source"]["data"], picture)
    assert text["text"].endswith("Answer in French.")


def test_our_answers_are_messages_to_anthropics_own_types():
    """The answers of these tests are valid by the SDK's own types."""
    from anthropic.types import ErrorResponse, Message  # noqa: PLC0415 (takes seconds)

    parsed = Message.model_validate(message("A cat.").body, strict=True)
    assert (parsed.content[0].text, parsed.usage.output_tokens) == ("A cat.", 35)
    Message.model_validate(message("I", stop="refusal", stop_details=REFUSED).body, strict=True)
    ErrorResponse.model_validate(error(529, "overloaded_error", "Overloaded").body, strict=True)


def test_it_is_a_back_end(create_adapter):
    """The adapter satisfies the protocol of back ends and loads without a call."""
    adapter = create_adapter("claude")
    assert isinstance(adapter, Backend)
    adapter.warm()
    assert adapter.name == "claude"


def test_options_are_fields_of_the_body(create_adapter, stub, describe):
    """Thinking can be switched off, and the limit of tokens set."""
    stub.answer = answers(message("A picture."))
    describe(create_adapter("claude", options={"max_tokens": "77", "thinking": '{"type": "disabled"}'}))
    body = stub.requests[0].body
    assert (body["max_tokens"], body["thinking"]) == (77, {"type": "disabled"})


def test_the_environment_adds_nothing(create_adapter, stub, describe, monkeypatch, tmp_path):
    """Environment variables and profiles on disk change neither headers nor the address."""
    for name, value in {
        "ANTHROPIC_AUTH_TOKEN": "other",
        "ANTHROPIC_API_KEY": "other",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "ANTHROPIC_CUSTOM_HEADERS": "X-Api-Key: other\nX-Other: other",
        "ANTHROPIC_CONFIG_DIR": str(tmp_path),
        "HTTP_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    stub.answer = answers(message("A picture."))
    describe(create_adapter("claude"))
    describe(create_adapter("claude", api_key=None))
    first, second = stub.requests
    assert first.headers["x-api-key"] == KEY
    assert not {"x-api-key", "authorization"} & second.headers.keys()
    assert "other" not in str([first.headers, second.headers])


def test_only_texts_are_the_description(create_adapter, stub, describe):
    """Thinking and unknown blocks are ignored, also thinking in texts, and text blocks are joined."""
    thinking = {"type": "thinking", "thinking": "Let me see.", "signature": "x"}
    stub.answer = answers(
        message(thinking, "<think>A dog?</think>A cat", {"type": "novelty", "text": " no"}, " on a mat.\n")
    )
    assert describe(create_adapter("claude")) == "A cat on a mat."


def test_cut_texts_are_kept(create_adapter, stub, describe):
    """A text that was cut at the token limit is a valid description."""
    stub.answer = answers(message("A cat on a", stop="max_tokens"))
    assert describe(create_adapter("claude")) == "A cat on a"


def test_tokens_are_counted(create_adapter, stub, counted, describe):
    """Input tokens are the sum of uncached, cache-written and cache-read tokens."""
    stub.answer = answers(message("A cat."))
    describe(create_adapter("claude"))
    ((backend, used),) = counted.usages
    assert (backend, used.model) == ("claude", "claude-haiku-5-5")
    assert (used.input_tokens, used.output_tokens, used.usd) == (900, 35, None)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (error(429, "rate_limit_error", "This would exceed your rate limit.", **{"retry-after": "0.03"}), "throttled"),
        (error(529, "overloaded_error", "Overloaded"), "throttled"),
        (error(500, "api_error", "Internal server error"), "broken"),
        (error(504, "timeout_error", "Timed out"), "broken"),
        (StubAnswer(is_reset=True), "broken"),
        (error(200, "overloaded_error", "Overloaded"), "throttled"),
        (error(200, "api_error", "Internal server error"), "broken"),
    ],
)
def test_passing_failures_are_repeated(create_adapter, stub, counted, describe, failure, kind):
    """Throttling, overload, server errors and lost connections are retried."""
    stub.answer = answers(failure, message("A cat."))
    assert describe(create_adapter("claude")) == "A cat."
    assert (len(stub.requests), counted.errors) == (2, [("claude", kind)])


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (error(401, "authentication_error", f"invalid x-api-key {KEY}"), "operator must check the provider's key"),
        (error(400, "invalid_request_error", "Your credit balance is too low."), "credit balance is too low"),
        (error(403, "permission_error", "No access to this model."), "No access to this model"),
        (error(404, "not_found_error", "model: model-1"), "model: model-1"),
        (error(413, "request_too_large", "Request exceeds the maximum size"), "exceeds the maximum size"),
        (error(400, "invalid_request_error", "x", **{"x-should-retry": "false"}), "400"),
    ],
)
def test_refusals_are_final(create_adapter, stub, counted, describe, failure, says):
    """Refusals are not retried; the message is the provider's, without the key."""
    stub.answer = answers(failure)
    with pytest.raises(BackendError, match=says) as raised:
        describe(create_adapter("claude"))
    assert KEY not in str(raised.value)
    assert (len(stub.requests), counted.errors) == (1, [("claude", "refused")])


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (message("I", stop="refusal", stop_details=REFUSED), "refused", "refused: This may be harmful"),
        (message(stop="refusal", stop_details=None), "refused", r"refused\.$"),
        (message(stop="refusal", stop_details=["odd"]), "refused", r"refused\.$"),
        (message(), "malformed", "empty text"),
        (message({"type": "thinking", "thinking": "Hm."}, stop="max_tokens"), "malformed", "limit of tokens"),
        (message({"type": "text", "text": None}), "malformed", "empty text"),
        (message("x", content=None), "malformed", "no content"),
        (message("x", content="A cat."), "malformed", "no content"),
        (message("x", content=[7, None]), "malformed", "empty text"),
        (message("<think>A cat?"), "malformed", "thinking, but no answer"),
        (StubAnswer({"type": "error", "error": {"message": "Odd"}}), "malformed", "Odd"),
        (StubAnswer("<html></html>"), "malformed", "JSON"),
        (StubAnswer('{"content": ['), "malformed", "JSON"),
        (StubAnswer(b""), "malformed", "JSON"),
    ],
)
def test_answers_without_a_description_are_errors(create_adapter, stub, counted, describe, answer, kind, says):  # noqa: PLR0917
    """An invalid answer with status 200 is a BackendError after one call."""
    stub.answer = answers(answer)
    with pytest.raises(BackendError, match=says):
        describe(create_adapter("claude"))
    assert (len(stub.requests), counted.errors) == (1, [("claude", kind)])


def test_missing_answer_is_a_timeout(create_adapter, stub, counted, describe):
    """A provider that does not answer in time is retried, then a BackendError is raised."""
    stub.answer = answers(StubAnswer(delay_s=30))
    with pytest.raises(BackendError, match="did not answer in time"):
        describe(create_adapter("claude", timeout_s=0.1, max_attempts=2))
    assert counted.errors == [("claude", "timeout")] * 2


def test_settings_that_cannot_work(create_adapter):
    """An invalid address and a missing model are refused when the adapter is created."""
    with pytest.raises(SettingsError, match="base URL of claude"):
        create_adapter("claude", base_url="anthropic")
    with pytest.raises(SettingsError, match="claude needs the name of a model"):
        create_adapter("claude", model="")
