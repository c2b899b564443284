"""Descriptions over OpenAI's chat completions, from a server that answers as the providers' documentation says.

OpenAI, "Create chat completion" and "Images and vision"; xAI, "Chat completions" and "Image understanding"; Google,
"OpenAI compatibility"; Jina, "jina-vlm"; Ollama, "OpenAI compatibility". No test reaches a provider.
"""

from __future__ import annotations

from itertools import chain, repeat

import httpx2
import numpy as np
import pytest

from lightmeter.errors import BackendError, SettingsError
from lightmeter.media.image_transforms import FitWithin
from lightmeter.service.backends.base import AnalysisOptions, Backend
from lightmeter.testing import StubAnswer, chat_completion, tiny_picture

KEY = "sk-proj-4f2a9c77d1e84b06"
THROTTLED = {"error": {"message": "Rate limit reached for model-1 in organization org-Zx81bQ9a on tokens per min."}}


def answers(*script):
    """Return a script of answers; the last one is repeated."""
    rest = chain(script, repeat(script[-1]))
    return lambda _: next(rest)


def choice(**fields):
    """Return a chat completion whose only choice has these fields."""
    return StubAnswer({**chat_completion("x"), "choices": [{"index": 0, **fields}]})


def message(finish="stop", **fields):
    """Return a chat completion with this message."""
    return choice(finish_reason=finish, message={"role": "assistant", **fields})


def test_the_request_is_what_the_documentation_shows(create_adapter, stub, describe, assert_shows):
    """A request is a POST to /v1/chat/completions with a bearer token and one user message: a text and a JPEG."""
    picture = tiny_picture(3)
    assert describe(create_adapter(), picture) == "A picture."
    (request,) = stub.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.body.keys() == {"model", "messages", "max_tokens"}
    assert (request.body["model"], request.body["max_tokens"]) == ("model-1", 2048)
    (message,) = request.body["messages"]
    text, image = message["content"]
    assert (message["role"], text["type"], image["type"]) == ("user", "text", "image_url")
    assert text["text"].endswith("Answer in English.")
    head, _, encoded = image["image_url"]["url"].partition(",")
    assert head == "data:image/jpeg;base64"
    assert_shows(encoded, picture)


def test_our_answers_are_completions_to_openais_own_types():
    """The stub's answers pass the validation of OpenAI's SDK."""
    from openai.types.chat import ChatCompletion  # noqa: PLC0415 (takes seconds)

    parsed = ChatCompletion.model_validate(chat_completion("A cat."), strict=True)
    assert (parsed.choices[0].message.content, parsed.usage.total_tokens) == ("A cat.", 930)
    ChatCompletion.model_validate(chat_completion(None, refusal="No."), strict=True)


def test_the_stub_takes_other_clients(stub):
    """The stub answers and records any path and method; its answer can be replaced while it runs."""
    stub.answer = lambda request: StubAnswer({"method": request.method}, 202, {"X-Served-By": "stub"})
    with httpx2.Client(trust_env=False) as client:
        listed = client.get(f"{stub.base_url}/models?limit=1")
        posted = client.post(f"{stub.origin}/other", content=b"\xff")
    assert (listed.status_code, listed.json(), listed.headers["x-served-by"]) == (202, {"method": "GET"}, "stub")
    assert posted.json() == {"method": "POST"}
    first, second = stub.requests
    assert (first.path, first.body, second.path, second.content) == ("/v1/models?limit=1", None, "/other", b"\xff")


def test_it_is_a_back_end(create_adapter, counted):
    """The adapter satisfies the protocol, offers only descriptions, and allows the configured number of calls."""
    adapter = create_adapter(name="mine", concurrency=3)
    assert isinstance(adapter, Backend)
    assert (adapter.name, adapter.features) == ("mine", {"descriptions"})
    assert (adapter.traits.calls_at_once, adapter.traits.pictures_a_call) == (3, 1)
    assert adapter.traits.transform == FitWithin(1024)
    assert adapter.model == "model-1"
    adapter.warm()
    assert counted.errors == []


def test_other_features_cost_no_call(create_adapter, stub):
    """A request without `descriptions` gets empty entries and makes no call."""
    (entries,) = create_adapter().analyze([tiny_picture()], frozenset({"tags"}), AnalysisOptions())
    assert (entries.descriptions, stub.requests) == ([], [])


def test_large_pictures_are_shrunk(create_adapter, stub, describe, assert_shows):
    """No side of a sent picture is longer than 1024 pixels."""
    describe(create_adapter(), tiny_picture(width=2048, height=512))
    encoded = stub.requests[0].body["messages"][0]["content"][1]["image_url"]["url"].partition(",")[2]
    assert_shows(encoded, tiny_picture(width=1024, height=256))


def test_role_language_and_prompt_are_in_the_request(create_adapter, stub, describe):
    """A custom prompt replaces the role's prompt; the language is named in English."""
    adapter = create_adapter()
    describe(adapter, role="tweet", language="german")
    describe(adapter, role="tweet", language="Klingon", prompt="Count the chairs.")
    first, second = (request.body["messages"][0]["content"][0]["text"] for request in stub.requests)
    assert "280 characters" in first
    assert first.endswith("\n\nAnswer in German.")
    assert second == "Count the chairs.\n\nAnswer in English."


def test_options_are_fields_of_the_body(create_adapter, stub, describe):
    """Options are sent as JSON or text, empty ones are not sent, and a token limit replaces the default."""
    options = {"max_completion_tokens": "99", "reasoning_effort": "none", "stop": '["a"]', "seed": ""}
    describe(create_adapter(options=options))
    body = stub.requests[0].body
    assert (body["max_completion_tokens"], body["reasoning_effort"], body["stop"]) == (99, "none", ["a"])
    assert not {"max_tokens", "seed"} & body.keys()


def test_no_key_sends_none(create_adapter, stub, describe, monkeypatch):
    """Without a key, no key is sent, not even one in the environment for another provider."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    describe(create_adapter("llava", api_key=None))
    assert "authorization" not in stub.requests[0].headers


def test_the_environment_adds_nothing(create_adapter, stub, describe, monkeypatch):
    """Environment variables with accounts, headers and proxies do not change requests."""
    for name, value in {
        "OPENAI_ORG_ID": "org-other",
        "OPENAI_PROJECT_ID": "proj-other",
        "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer other\nX-Other: other",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    assert describe(create_adapter()) == "A picture."
    headers = stub.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert "other" not in str(headers)
    assert headers.keys() <= {
        *("accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host"),
        *("user-agent", "x-stainless-raw-response"),
    }


@pytest.mark.parametrize("hint", [{"retry-after-ms": "30"}, {"Retry-After": "0.03"}, {}])
def test_throttled_calls_are_repeated(create_adapter, stub, counted, describe, hint):
    """After status 429, the same request is sent again; both the failure and the success are counted."""
    stub.answer = answers(StubAnswer(THROTTLED, 429, hint), "A cat.")
    assert describe(create_adapter()) == "A cat."
    first, second = stub.requests
    assert first.content == second.content
    assert counted.errors == [("openai", "throttled")]
    assert [backend for backend, _ in counted.usages] == ["openai"]


@pytest.mark.parametrize(
    ("status", "kind"), [(500, "broken"), (502, "broken"), (503, "broken"), (408, "timeout"), (409, "broken")]
)
def test_transient_errors_are_retried(create_adapter, stub, counted, describe, status, kind):
    """A call is repeated after a server error, a timeout status or a conflict."""
    stub.answer = answers(StubAnswer("upstream connect error", status), "A cat.")
    assert describe(create_adapter()) == "A cat."
    assert counted.errors == [("openai", kind)]


def test_attempts_are_bounded(create_adapter, stub, counted, describe):
    """After three attempts, the error shows the provider's message without the account's name."""
    stub.answer = answers(StubAnswer(THROTTLED, 429))
    with pytest.raises(BackendError, match=r"HTTP status 429: Rate limit reached for model-1") as raised:
        describe(create_adapter(max_attempts=3))
    assert "org-" not in str(raised.value)
    assert (len(stub.requests), counted.errors) == (3, [("openai", "throttled")] * 3)


def test_a_provider_that_wants_a_long_pause_is_given_up(create_adapter, stub, describe):
    """If the provider asks to wait for an hour, no second request is sent."""
    stub.answer = answers(StubAnswer(THROTTLED, 429, {"Retry-After": "3600"}))
    with pytest.raises(BackendError, match="429"):
        describe(create_adapter())
    assert len(stub.requests) == 1


def test_the_provider_says_whether_to_repeat(create_adapter, stub, describe):
    """`x-should-retry` overrules the status, both ways."""
    adapter = create_adapter()
    stub.answer = answers(StubAnswer({}, 500, {"x-should-retry": "false"}))
    with pytest.raises(BackendError, match="500"):
        describe(adapter)
    assert len(stub.requests) == 1
    stub.answer = answers(StubAnswer({}, 400, {"x-should-retry": "true"}), "A cat.")
    assert describe(adapter) == "A cat."


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, {"error": {"message": f"Incorrect API key provided: {KEY}. See https://a.b/?key={KEY}."}}, "Incorrect"),
        (401, {"error": {"message": "Incorrect API key provided: sk-proj-4f2a****4b06."}}, "operator must check"),
        (400, [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}], "not valid"),
        (403, {"code": "permission-denied", "error": "Your team has no credits."}, "no credits"),
        (404, {"error": {"message": 'model "llava" not found, try pulling it first'}}, 'model "llava" not found'),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "field required"),
        (429, {"error": {"message": "You exceeded your quota.", "code": "insufficient_quota"}}, "exceeded your quota"),
        (413, "<html><body>Request Entity Too Large</body></html>", "HTTP status 413."),
    ],
)
def test_refusals_are_final_and_keep_secrets(create_adapter, stub, counted, describe, status, body, says):  # noqa: PLR0917
    """Refused calls are not repeated; the error holds the provider's message, but no key and no address."""
    stub.answer = answers(StubAnswer(body, status))
    with pytest.raises(BackendError) as raised:
        describe(create_adapter())
    message = str(raised.value)
    assert says in message
    assert not any(secret in message for secret in (KEY, "sk-proj", "4b06", "://", "<"))
    assert (len(stub.requests), counted.errors) == (1, [("openai", "refused")])


def test_redirects_are_not_followed(create_adapter, stub, describe):
    """A redirect is an error, and the picture is not sent to its target."""
    stub.answer = answers(StubAnswer(b"", 307, {"Location": f"{stub.origin}/v1/elsewhere"}))
    with pytest.raises(BackendError, match="307"):
        describe(create_adapter())
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (StubAnswer("<!doctype html>", headers={"Content-Type": "text/html"}), "malformed", "JSON"),
        (StubAnswer('{"choices": [{"mess'), "malformed", "JSON"),
        (StubAnswer(b""), "malformed", "JSON"),
        (StubAnswer("[]"), "malformed", "JSON"),
        (StubAnswer("null"), "malformed", "JSON"),
        (StubAnswer("[" * 5000 + "]" * 5000), "malformed", "JSON"),
        (StubAnswer(b"\xff\xfe{}"), "malformed", "JSON"),
        (StubAnswer({}), "malformed", "no choice"),
        (StubAnswer({**chat_completion("x"), "choices": []}), "malformed", "no choice"),
        (StubAnswer({**chat_completion("x"), "choices": None}), "malformed", "no choice"),
        (StubAnswer({**chat_completion("x"), "choices": ["text"]}), "malformed", "no choice"),
        (StubAnswer({"error": {"message": "Provider returned error"}}), "malformed", "returned error"),
        (StubAnswer({"error": "It is odd."}), "malformed", "It is odd"),
        (choice(finish_reason="stop"), "malformed", "no message"),
        (message(content=None), "malformed", "no text"),
        (message(), "malformed", "no text"),
        (message(content={"text": "A cat."}), "malformed", "no text"),
        (message(content=" \n\0"), "malformed", "empty text"),
        (message("length", content=""), "malformed", "limit of tokens"),
        (message("length", content=None), "malformed", "limit of tokens"),
        (message(content=None, refusal="I'm sorry, I can't help."), "refused", "model refused: I'm sorry"),
        (message("content_filter", content="A"), "refused", "content filter"),
        (message("content_filter: PROHIBITED_CONTENT", content=None), "refused", "content filter"),
        (StubAnswer(b" " * 5_000_000), "malformed", "longer than"),
        (StubAnswer(b"\x1f\x8b no gzip", headers={"Content-Encoding": "gzip"}), "malformed", "decompressed"),
    ],
)
def test_answers_without_a_description_are_errors(create_adapter, stub, counted, describe, answer, kind, says):  # noqa: PLR0917
    """An invalid answer with status 200 is a BackendError after one call."""
    stub.answer = answers(answer)
    with pytest.raises(BackendError, match=says):
        describe(create_adapter())
    assert (len(stub.requests), counted.errors) == (1, [("openai", kind)])


def test_cut_and_unclean_texts_are_kept(create_adapter, stub, describe):
    """A text cut at the token limit is a description; control characters and outer spaces are removed."""
    adapter = create_adapter()
    stub.answer = answers(message("length", content="A cat on a"))
    assert describe(adapter) == "A cat on a"
    stub.answer = answers(message(content="\n A\0 cat.\r\n\tHm — ä 猫 \x1b\n"))
    assert describe(adapter) == "A cat.\n\tHm — ä 猫"


def test_missing_answer_is_a_timeout(create_adapter, stub, counted, describe):
    """A provider that does not answer in time is retried, then a BackendError is raised."""
    stub.answer = answers(StubAnswer(delay_s=30))
    with pytest.raises(BackendError, match="did not answer in time"):
        describe(create_adapter(timeout_s=0.1, max_attempts=2))
    assert counted.errors == [("openai", "timeout")] * 2


def test_slow_answer_is_a_timeout(create_adapter, stub, counted, describe):
    """An answer that arrives byte by byte must be complete within the timeout."""
    stub.answer = answers(StubAnswer(chat_completion("A cat."), drip_s=0.05))
    with pytest.raises(BackendError, match="in time"):
        describe(create_adapter(timeout_s=0.3, max_attempts=1))
    assert counted.errors == [("openai", "timeout")]


def test_all_attempts_share_one_deadline(create_adapter, stub, describe):
    """No attempt starts after the deadline or lasts beyond it."""
    stub.answer = answers(StubAnswer(delay_s=30))
    with pytest.raises(BackendError, match="did not answer in time"):
        describe(create_adapter(timeout_s=30.0, deadline_s=0.2, max_attempts=1000))
    assert len(stub.requests) <= 5


def test_lost_connections_are_repeated(create_adapter, stub, counted, describe):
    """After a connection reset, the call is repeated."""
    stub.answer = answers(StubAnswer(is_reset=True), "A cat.")
    assert describe(create_adapter()) == "A cat."
    assert counted.errors == [("openai", "broken")]


def test_refused_connection_is_an_error(create_adapter, counted, describe):
    """A refused connection raises BackendError, whose message shows no address."""
    with pytest.raises(BackendError, match=r"could not be reached or failed: no connection \(ConnectError\)") as raised:
        describe(create_adapter(base_url="http://127.0.0.1:9/v1", max_attempts=1))
    assert "127.0.0.1" not in str(raised.value)
    assert counted.errors == [("openai", "broken")]


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 900, "completion_tokens": 30, "total_tokens": 930}, (900, 30)),
        # xAI and Gemini: reasoning is in the total alone.
        ({"prompt_tokens": 900, "completion_tokens": 30, "total_tokens": 1000}, (900, 100)),
        ({"prompt_tokens": 900, "completion_tokens": 30}, (900, 30)),
        ({"prompt_tokens": "900", "completion_tokens": -1, "total_tokens": True}, (None, None)),
        ([], (None, None)),
        (None, (None, None)),
    ],
)
def test_tokens_are_counted(create_adapter, stub, counted, describe, usage, counts):
    """Tokens are counted as the answer reports them, with its model; calls to an unknown address have no cost."""
    stub.answer = answers(StubAnswer({**chat_completion("A cat."), "usage": usage}))
    describe(create_adapter())
    ((backend, used),) = counted.usages
    assert (backend, used.model, used.usd) == ("openai", "stub-model", None)
    assert (used.input_tokens, used.output_tokens) == counts


def test_what_was_filtered_is_counted_too(create_adapter, stub, counted, describe):
    """Tokens are counted even if the answer holds no description."""
    stub.answer = answers(message("content_filter", content=None))
    with pytest.raises(BackendError):
        describe(create_adapter())
    assert [used.input_tokens for _, used in counted.usages] == [900]


def test_pictures_that_are_not_to_be_written_to(create_adapter, describe):
    """Read-only pictures and slices of pictures are accepted."""
    picture = tiny_picture(width=80)[:, ::2]
    picture.setflags(write=False)
    assert describe(create_adapter(), picture) == "A picture."
    assert describe(create_adapter(), np.zeros((1, 1, 3), np.uint8)) == "A picture."


@pytest.mark.parametrize("address", ["", "api.openai.com/v1", "ftp://a/v1", "http:///v1", "file:///etc/passwd"])
def test_addresses_that_are_none(create_adapter, address):
    """An invalid address is refused when the adapter is created; the error names the back end, not the address."""
    with pytest.raises(SettingsError, match="base URL of mine"):
        create_adapter(name="mine", base_url=address)


def test_a_model_must_be_named(create_adapter):
    """Settings without a model are refused."""
    with pytest.raises(SettingsError, match="mine needs the name of a model"):
        create_adapter(name="mine", model="")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000/v1"),
        ("[::]:8000", "http://[::1]:8000/v1"),
        ("gpu.local:11434/", "http://gpu.local:11434/v1"),
        ("https://ollama.example", "https://ollama.example/v1"),
        ("http://gpu:11434/v1", "http://gpu:11434/v1"),
        (":11434", "http://127.0.0.1:11434/v1"),
        ("http://gpu/proxy/v1/", "http://gpu/proxy/v1"),
    ],
)
def test_ollama_hosts(host, address):
    """OLLAMA_HOST is read as Ollama reads it; a listen address becomes an address that can be called."""
    from lightmeter.service.backends.providers.description.openai_compatible import ollama_base_url  # noqa: PLC0415

    assert ollama_base_url(host) == address


def test_ollama_is_called_where_its_host_says(create_adapter, stub, describe):
    """A host and a port suffice: the path of the API is added."""
    adapter = create_adapter("bakllava", base_url=stub.origin.removeprefix("http://"), api_key=None)
    assert describe(adapter) == "A picture."
    assert stub.requests[0].path == "/v1/chat/completions"
    with pytest.raises(SettingsError, match="base URL of bakllava"):
        create_adapter("bakllava", base_url="gpu:many")
