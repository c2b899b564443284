"""Clarifai on loopback: a real gRPC server of its protocol receives the calls and answers them."""

from __future__ import annotations

import socket
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from clarifai_grpc.grpc.api import resources_pb2, service_pb2, service_pb2_grpc
from clarifai_grpc.grpc.api.status import status_code_pb2, status_pb2

from lightmeter.errors import BackendError, SettingsError
from lightmeter.service.backends.base import Backend

CODE = status_code_pb2.StatusCode
CONCEPTS = {
    "general-image-recognition": [("dog", 0.875), ("no person", 0.75)],
    "nsfw-recognition": [("sfw", 0.9375), ("nsfw", 0.0625)],
}


def answer(concepts, code=CODE.SUCCESS, description="Ok", details="", output_code=CODE.SUCCESS):
    """Return an answer of the protocol."""
    status = status_pb2.Status(code=code, description=description, details=details)
    data = resources_pb2.Data(concepts=[resources_pb2.Concept(name=name, value=value) for name, value in concepts])
    output = resources_pb2.Output(status=status_pb2.Status(code=output_code, description=description), data=data)
    return service_pb2.MultiOutputResponse(status=status, outputs=[output])


class Servicer(service_pb2_grpc.V2Servicer):
    """gRPC service that answers by a script, or with the concepts of the model, and records the requests."""

    def __init__(self):
        self.script = deque()
        self.by_model = {}
        self.requests = []
        self.released = threading.Event()

    def PostModelOutputs(self, request, context):  # noqa: N802 (the protocol's name)
        self.requests.append((request, dict(context.invocation_metadata())))
        if request.model_id in self.by_model:
            return self.by_model[request.model_id]
        if not self.script:
            return answer(CONCEPTS[request.model_id])
        step = self.script.popleft()
        return step(context) if callable(step) else step


@pytest.fixture
def provider():
    """A gRPC server on loopback."""
    servicer = Servicer()
    server = grpc.server(ThreadPoolExecutor(4))
    service_pb2_grpc.add_V2Servicer_to_server(servicer, server)
    servicer.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    servicer.stop = server.stop
    server.start()
    yield servicer
    servicer.released.set()
    server.stop(0).wait()


@pytest.fixture
def backend(adapter_of, provider):
    return adapter_of("clarifai", provider.url)


def aborted(code, details="", **metadata):
    """End the call with a status of gRPC."""

    def act(context):
        context.set_trailing_metadata([(name.replace("_", "-"), value) for name, value in metadata.items()])
        context.abort(code, details)

    return act


@pytest.mark.parametrize(("feature", "model"), [("tags", "general-image-recognition"), ("nsfw", "nsfw-recognition")])
def test_each_feature_is_one_call(feature, model, backend, analyze, provider, is_the_picture):
    """A call names the provider's model, carries the token as metadata and the picture as bytes."""
    entries = analyze(backend, feature, "faces")
    ((request, metadata),) = provider.requests
    assert metadata["authorization"] == "Key key-0123456789abcdef"
    assert (request.user_app_id.user_id, request.user_app_id.app_id) == ("clarifai", "main")
    assert request.model_id == model
    (image_input,) = request.inputs
    assert is_the_picture(image_input.data.image.base64)
    assert {name for name, value in entries.model_dump().items() if value} == {feature}


def test_the_toolkit_reads_every_feature(backend, analyze, tables, counted):
    """Concepts become tags and moderation labels with their values as scores; each call is counted by its model."""
    assert isinstance(backend, Backend)
    rows = tables(analyze(backend))
    assert [(row["name"], row["score"], row["source"]) for row in rows["tags"]] == [
        ("dog", 0.875, "clarifai"),
        ("no person", 0.75, "clarifai"),
    ]
    assert [(row["label"], row["score"], row["severity"]) for row in rows["nsfw"]] == [
        ("sfw", 0.9375, 0.0625),
        ("nsfw", 0.0625, 0.0625),
    ]
    assert sorted(model for _, model in counted.usages) == ["general-image-recognition", "nsfw-recognition"]


def test_other_models_can_be_set(adapter_of, provider, analyze):
    """Tags come from the model of the settings, moderation from that of the option."""
    provider.script.extend([answer([("drug", 0.5)]), answer([("dog", 0.5)])])
    backend = adapter_of(
        "clarifai", provider.url, model="food-item-recognition", options={"nsfw_model": "moderation-recognition"}
    )
    analyze(backend)
    models = {request.model_id for request, _ in provider.requests}
    assert models == {"moderation-recognition", "food-item-recognition"}


@pytest.mark.parametrize(
    "throttled",
    [
        answer([], CODE.CONN_THROTTLED, "Making too many requests", "exceeded limit of 15 requests per second"),
        answer([], CODE.MODEL_BUSY_PLEASE_RETRY, "Model is busy"),
        answer([("dog", 1)], output_code=CODE.CONN_THROTTLED),
        aborted(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests", retry_after="0"),
        aborted(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests", grpc_retry_pushback_ms="5"),
    ],
)
def test_throttled_then_answered(throttled, backend, provider, analyze, counted):
    """Throttling is retried, whether the provider or gRPC reports it."""
    provider.script.append(throttled)
    assert analyze(backend, "tags").tags["dog"][0].score == 0.875
    assert counted.errors == [("clarifai", "throttled")]


@pytest.mark.parametrize("hint", [{"retry_after": "3600"}, {"grpc_retry_pushback_ms": "3600000"}])
def test_a_wait_beyond_the_deadline_is_not_waited_for(hint, backend, provider, analyze):
    """If the provider asks to wait for an hour, the picture fails at once."""
    provider.script.append(aborted(grpc.StatusCode.RESOURCE_EXHAUSTED, "quota", **hint))
    with pytest.raises(BackendError, match="limits the rate of calls: RESOURCE_EXHAUSTED: quota"):
        analyze(backend, "tags")
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (answer([], CODE.CONN_KEY_INVALID, "Invalid API key key-0123456789abcdef"), "refused"),
        (answer([], CODE.INPUT_DOWNLOAD_FAILED, "Input download failed"), "refused"),
        (answer([], CODE.CONN_EXCEED_MONTHLY_LIMIT, "Monthly limit"), "throttled"),
        (aborted(grpc.StatusCode.UNAUTHENTICATED, "no key-0123456789abcdef"), "refused"),
        (aborted(grpc.StatusCode.PERMISSION_DENIED, "scopes"), "refused"),
        (service_pb2.MultiOutputResponse(), "malformed"),
        (service_pb2.MultiOutputResponse(status=status_pb2.Status(code=CODE.SUCCESS)), "malformed"),
        (answer([]), "malformed"),
        (answer([("", 0.5)]), "malformed"),
        (answer([("dog", float("nan"))]), "malformed"),
    ],
)
def test_what_does_not_pass_is_one_call(failure, kind, backend, provider, analyze, counted):
    """Refusals, used-up quotas and answers without concepts are errors after one call; messages hold no key."""
    provider.script.append(failure)
    with pytest.raises(BackendError) as raised:
        analyze(backend, "tags")
    assert "key-0123456789abcdef" not in str(raised.value)
    assert (counted.errors, len(provider.requests)) == ([("clarifai", kind)], 1)


@pytest.mark.parametrize(
    "failure",
    [
        answer([], CODE.INTERNAL_UNCATEGORIZED, "Internal error"),
        answer([], CODE.TRY_AGAIN, "Try the request again"),
        aborted(grpc.StatusCode.UNAVAILABLE, "upstream connect error"),
        aborted(grpc.StatusCode.INTERNAL, "stream reset"),
    ],
)
def test_errors_on_the_providers_side_pass(failure, backend, provider, analyze, counted):
    """Internal errors are retried up to the allowed number of attempts."""
    provider.script.append(failure)
    assert analyze(backend, "tags").tags
    provider.script.extend([failure] * 2)
    with pytest.raises(BackendError, match=r"failed \(2 calls\)"):
        analyze(backend, "tags")
    assert counted.errors == [("clarifai", "broken")] * 3


def test_one_call_that_fails_fails_its_feature_alone(backend, provider, analyze):
    """If moderation is refused, the tags that were paid for are kept, and the error is that of the feature."""
    provider.by_model["nsfw-recognition"] = answer([], CODE.MODEL_DOES_NOT_EXIST, "Model does not exist")
    entries = analyze(backend)
    assert set(entries.tags) == {"dog", "no person"}
    assert {*entries.failures} == {"nsfw"}
    assert "refused the call: 21200: Model does not exist" in entries.failures["nsfw"]
    with pytest.raises(BackendError, match="refused the call: 21200: Model does not exist"):
        analyze(backend, "nsfw")


def test_missing_answer_is_a_timeout(adapter_of, provider, analyze, counted):
    """A provider that does not answer fails after the timeout."""
    provider.script.append(lambda context: provider.released.wait(20) and answer([]))
    with pytest.raises(BackendError, match=r"no answer within 0\.3 s"):
        analyze(adapter_of("clarifai", provider.url, timeout_s=0.3, max_attempts=1), "tags")
    assert counted.errors == [("clarifai", "timeout")]


def test_what_is_no_message_is_an_error(adapter_of, analyze, counted):
    """Bytes that are no message of the protocol are counted as malformed."""
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(lambda *_: b"\xff\xff\xff")
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("clarifai.api.V2", {"PostModelOutputs": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(BackendError, match="cannot be read"):
        analyze(adapter_of("clarifai", f"http://127.0.0.1:{port}"), "tags")
    server.stop(0).wait()
    assert counted.errors == [("clarifai", "malformed")]


def test_a_provider_that_went_away_is_an_error(adapter_of, provider, analyze, counted):
    """A refused connection raises BackendError."""
    provider.stop(0).wait()
    with pytest.raises(BackendError, match="could not be reached"):
        analyze(adapter_of("clarifai", provider.url, max_attempts=1, timeout_s=3), "tags")
    assert counted.errors == [("clarifai", "broken")]


def test_proxies_of_the_environment_are_not_used(adapter_of, provider, analyze, monkeypatch):
    """Pictures and keys go to the provider's address alone."""
    for variable in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert analyze(adapter_of("clarifai", provider.url), "tags").tags


def test_the_connection_is_encrypted(adapter_of, analyze):
    """To an https address the first bytes are those of a TLS handshake, and no key is among them."""
    first_bytes = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet():
            connection, _ = listener.accept()
            with connection:
                first_bytes.append(connection.recv(4096))

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        address = f"https://localhost:{listener.getsockname()[1]}"
        with pytest.raises(BackendError):
            analyze(adapter_of("clarifai", address, timeout_s=2, max_attempts=1), "tags")
        thread.join()
    assert first_bytes[0].startswith(b"\x16\x03")
    assert b"key-0123456789abcdef" not in first_bytes[0]


@pytest.mark.parametrize(
    ("address", "more", "sentence"),
    [
        ("http://api.clarifai.com", {}, "no https address"),
        ("http://10.0.0.1:8080", {}, "no https address"),
        ("api.clarifai.com", {}, "no https address"),
        ("https://api.clarifai.com:99999", {}, "no https address"),
        ("https://api.clarifai.com", {"api_key": None}, "CLARIFAI_PAT"),
        ("https://api.clarifai.com", {"features": frozenset({"faces"})}, "offers nsfw, tags, not faces"),
    ],
)
def test_wrong_settings_are_one_sentence(address, more, sentence, adapter_of):
    """An http address of another machine, or a missing setting, is refused when the adapter is created."""
    with pytest.raises(SettingsError, match=sentence):
        adapter_of("clarifai", address, **more)
