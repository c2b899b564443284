"""Amazon Rekognition on loopback: signed calls of its JSON protocol, and its documented answers as entries."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import threading

import pytest
from pydantic import SecretStr

from lightmeter.errors import BackendError, SettingsError
from lightmeter.service.backends.base import Backend

KEY, SECRET = "key-0123456789abcdef", "secret-0123456789abcdef"
LABELS = {
    "LabelModelVersion": "3.0",
    "Labels": [
        {
            "Name": "Dog",
            "Confidence": 98.5,
            "Parents": [{"Name": "Pet"}],
            "Aliases": [],
            "Categories": [],
            "Instances": [{"BoundingBox": {"Left": 0.1, "Top": 0.1, "Width": 0.5, "Height": 0.5}, "Confidence": 98.5}],
        },
        {"Name": "Pet", "Confidence": 61.25, "Instances": [], "Parents": []},
    ],
}
MODERATION = {
    "ModerationModelVersion": "7.0",
    "ModerationLabels": [
        {"Confidence": 93.0, "Name": "Weapons", "ParentName": "Violence", "TaxonomyLevel": 2},
        {"Confidence": 93.0, "Name": "Violence", "ParentName": "", "TaxonomyLevel": 1},
    ],
    "ContentTypes": [],
}
FACES = {
    "FaceDetails": [
        {
            "BoundingBox": {"Left": 0.25, "Top": -0.05, "Width": 0.5, "Height": 0.75},
            "AgeRange": {"Low": 24, "High": 32},
            "Smile": {"Value": True, "Confidence": 97.5},
            "Gender": {"Value": "Female", "Confidence": 99.5},
            "Emotions": [{"Type": "HAPPY", "Confidence": 91.0}, {"Type": "CALM", "Confidence": 0.5}],
            "Landmarks": [{"Type": "eyeLeft", "X": 0.4, "Y": 0.3}],
            "Pose": {"Roll": 1.0, "Yaw": 2.0, "Pitch": 3.0},
            "Quality": {"Brightness": 80.0, "Sharpness": 90.0},
            "Confidence": 99.9,
        }
    ]
}
ANSWERS = {
    "tags": ("RekognitionService.DetectLabels", LABELS, {"MaxLabels": 50}),
    "nsfw": ("RekognitionService.DetectModerationLabels", MODERATION, {}),
    "faces": ("RekognitionService.DetectFaces", FACES, {"Attributes": ["ALL"]}),
}


@pytest.fixture
def answers(http_provider):
    """Server that answers each operation by the header of its target."""
    by_target = {target: http_provider.reply(200, answer) for target, answer, _ in ANSWERS.values()}
    unknown = http_provider.reply(400, {"__type": "UnknownOperationException"})

    def act(handler, released):
        return by_target.get(handler.headers["X-Amz-Target"], unknown)(handler, released)

    http_provider.otherwise, http_provider.by_target = act, by_target
    return http_provider


@pytest.fixture
def backend(adapter_of, answers):
    return adapter_of("rekognition", answers.url, options={"region": "eu-west-1"})


def signature_of(request, secret: str) -> str:
    """Return the signature of a request by the reference of AWS Signature Version 4."""
    fields = dict(re.findall(r"(\w+)=([^,]+)", request.headers["authorization"]))
    _, day, region, service, kind = fields["Credential"].split("/")
    names = fields["SignedHeaders"].split(";")
    headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in names)
    body = hashlib.sha256(request.body).hexdigest()
    canonical = "\n".join((request.method, request.path, "", headers, ";".join(names), body))
    scope = f"{day}/{region}/{service}/{kind}"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, digest))
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, kind):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()


@pytest.mark.parametrize("feature", ANSWERS)
def test_each_feature_is_one_signed_call(feature, backend, analyze, http_provider, is_the_picture):
    """A call is the documented JSON for its operation, signed with the account's keys for its region."""
    entries = analyze(backend, feature, "descriptions")
    (request,) = http_provider.requests
    target, _, arguments = ANSWERS[feature]
    assert (request.headers["x-amz-target"], request.headers["content-type"]) == (target, "application/x-amz-json-1.1")
    body = json.loads(request.body)
    assert is_the_picture(base64.b64decode(body.pop("Image")["Bytes"], validate=True))
    assert body == arguments
    authorization = request.headers["authorization"]
    assert authorization.startswith(f"AWS4-HMAC-SHA256 Credential={KEY}/")
    assert "/eu-west-1/rekognition/aws4_request" in authorization
    assert {"host", "x-amz-date", "x-amz-target"} <= set(re.findall(r"[a-z0-9-]+", authorization.split("Headers=")[1]))
    assert authorization.endswith(f"Signature={signature_of(request, SECRET)}")
    assert not authorization.endswith(f"Signature={signature_of(request, 'another secret')}")
    assert {name for name, value in entries.model_dump().items() if value} == {feature}


def test_it_is_a_back_end_with_the_features_of_the_price_table(backend, analyze, counted):
    """The adapter satisfies the protocol; all features are three calls, each counted by its operation."""
    assert isinstance(backend, Backend)
    assert backend.features == set(ANSWERS)
    analyze(backend)
    operations = {operation for _, operation in counted.usages}
    assert operations == {"DetectFaces", "DetectModerationLabels", "DetectLabels"}
    assert len(counted.usages) == 3


def test_the_toolkit_reads_every_feature(backend, analyze, tables):
    """Boxes in pixels, percentages as 0 to 1, ages, genders and emotions are in the columns of the tables."""
    rows = tables(analyze(backend))
    assert [(row["name"], row["score"], row["source"]) for row in rows["tags"]] == [
        ("Dog", 0.985, "rekognition"),
        ("Pet", 0.6125, "rekognition"),
    ]
    assert [(row["label"], row["score"], row["severity"]) for row in rows["nsfw"]] == [
        ("Weapons", 0.93, 0.93),
        ("Violence", 0.93, 0.93),
    ]
    (face,) = rows["faces"]
    assert [face[side] for side in ("left", "top", "width", "height")] == [50, -5, 100, 75]
    assert (face["age_low"], face["age_high"]) == (24, 32)
    assert (face["gender"], face["gender_score"]) == ("Female", 0.995)
    assert dict(face["emotions"]) == {"HAPPY": 0.91, "CALM": 0.005}
    assert json.loads(face["raw"])["smile"] == {"value": True, "confidence": 0.975}


def test_nothing_found_is_empty_entries(adapter_of, http_provider, analyze):
    """A harmless picture without faces has empty lists."""
    http_provider.otherwise = http_provider.reply(200, {"FaceDetails": [], "ModerationLabels": []})
    entries = analyze(adapter_of("rekognition", http_provider.url), "faces", "nsfw")
    assert (entries.faces, entries.nsfw) == ([], [])


@pytest.mark.parametrize("code", ["ThrottlingException", "ProvisionedThroughputExceededException"])
def test_throttling_of_one_call_is_retried(code, backend, analyze, answers, counted):
    """After throttling, which AWS reports by a code with HTTP status 400, only that call is repeated."""
    answers.script.append(answers.reply(400, {"__type": code, "message": "Rate exceeded"}))
    entries = analyze(backend, "faces", "tags")
    assert (len(entries.faces), len(entries.tags)) == (1, 2)
    assert counted.errors == [("rekognition", "throttled")]
    assert sorted(counted.usages) == [("rekognition", "DetectFaces"), ("rekognition", "DetectLabels")]


THROTTLED = {"__type": "com.amazonaws.rekognition#ThrottlingException", "message": "Slow down"}


def test_one_call_that_fails_fails_its_feature_alone(backend, analyze, answers):
    """If one of several calls is throttled until its last attempt, the answers of the others are kept."""
    answers.by_target["RekognitionService.DetectLabels"] = answers.reply(400, THROTTLED)
    entries = analyze(backend)
    assert (len(entries.faces), len(entries.nsfw), entries.tags) == (1, 2, {})
    assert entries.failures == {
        "tags": "The provider limits the rate of calls (2 calls): ThrottlingException: Slow down"
    }
    assert "failures" not in entries.model_dump()


def test_calls_that_all_fail_fail_the_picture(adapter_of, analyze, http_provider):
    """If no call succeeds, the picture fails, and a reason that all calls have is given once."""
    http_provider.otherwise = http_provider.reply(403, {"__type": "AccessDeniedException", "message": "No."})
    with pytest.raises(BackendError, match=r"^The provider refused the call: AccessDeniedException: No\.$"):
        analyze(adapter_of("rekognition", http_provider.url))


def test_the_calls_for_a_picture_run_at_once(adapter_of, analyze, answers):
    """All features of a picture are requested at the same time: no call waits for the answer of another."""
    answer, together = answers.otherwise, threading.Barrier(3)

    def act(handler, released):
        together.wait(10)  # it breaks if the calls come one after the other
        answer(handler, released)

    answers.otherwise = act
    assert not hasattr(analyze(adapter_of("rekognition", answers.url, max_attempts=1)), "failures")


def test_calls_at_once_are_limited(adapter_of, analyze, answers):
    """The features of a picture share the limit of simultaneous calls."""
    answer, lock, inside, most = answers.otherwise, threading.Lock(), [0], []

    def act(handler, released):
        with lock:
            inside[0] += 1
            most.append(inside[0])
        released.wait(0.05)
        with lock:
            inside[0] -= 1
        answer(handler, released)

    answers.otherwise = act
    assert not hasattr(analyze(adapter_of("rekognition", answers.url, concurrency=1)), "failures")
    assert most == [1, 1, 1]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"Labels": {"Name": "Dog"}},
        {"Labels": [{"Name": "Dog", "Confidence": "high"}]},
        {"Labels": [{"Name": 7, "Confidence": 1.0}]},
        b"<html>",
        b"",
    ],
)
def test_what_is_no_answer_is_an_error(answer, backend, analyze, http_provider, counted):
    """An answer of another structure is counted as malformed and not retried."""
    http_provider.script.append(http_provider.reply(200, answer))
    with pytest.raises(BackendError, match="cannot be read"):
        analyze(backend, "tags")
    assert (counted.errors, len(http_provider.requests)) == ([("rekognition", "malformed")], 1)


def test_a_box_without_finite_numbers_is_an_error(backend, analyze, http_provider):
    """A face whose box is NaN is malformed."""
    face = b'{"FaceDetails": [{"BoundingBox": {"Left": NaN, "Top": 0, "Width": 1, "Height": 1}}]}'
    http_provider.script.append(http_provider.reply(200, face))
    with pytest.raises(BackendError, match="finite"):
        analyze(backend, "faces")


def test_nothing_of_the_environment_is_read(adapter_of, answers, analyze, monkeypatch, tmp_path, http_provider):
    """AWS files, AWS variables and proxies do not change the address and the signature of a call."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("this is no configuration file")
    for name, value in {
        "HOME": str(tmp_path),
        "AWS_PROFILE": "nobody",
        "AWS_CONFIG_FILE": str(tmp_path / ".aws" / "config"),
        "AWS_ACCESS_KEY_ID": "another",
        "AWS_SECRET_ACCESS_KEY": "another",
        "AWS_SESSION_TOKEN": "another",
        "AWS_REGION": "us-west-2",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_DEFAULTS_MODE": "auto",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_REKOGNITION": "http://127.0.0.1:9",
        "AWS_CA_BUNDLE": "/nowhere",
        "AWS_USE_FIPS_ENDPOINT": "true",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    assert analyze(adapter_of("rekognition", answers.url), "tags").tags
    (request,) = http_provider.requests
    assert f"Credential={KEY}/" in request.headers["authorization"]
    assert "/us-east-1/" in request.headers["authorization"]
    assert "x-amz-security-token" not in request.headers


def test_temporary_keys_come_with_their_token(adapter_of, answers, analyze, http_provider):
    """The session token is sent and signed, and no message shows it."""
    token = "session-token-0123456789"
    backend = adapter_of("rekognition", answers.url, options={"session_token": token})
    analyze(backend, "tags")
    (request,) = http_provider.requests
    assert request.headers["x-amz-security-token"] == token
    assert request.headers["authorization"].endswith(f"Signature={signature_of(request, SECRET)}")
    denied = {"__type": "ExpiredTokenException", "message": f"The token {token} of {KEY} ({SECRET}) has expired"}
    http_provider.script.append(http_provider.reply(400, denied))
    with pytest.raises(BackendError, match="ExpiredTokenException") as raised:
        analyze(backend, "tags")
    assert not {word for word in (token, KEY, SECRET) if word in str(raised.value)}


def test_the_region_stands_in_the_address(adapter_of):
    """The default address contains the configured region."""
    backend = adapter_of("rekognition", "https://rekognition.{region}.amazonaws.com", options={"region": "ap-south-1"})
    assert backend._client.meta.endpoint_url == "https://rekognition.ap-south-1.amazonaws.com"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"api_secret": None}, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ({"options": {"region": "no region!"}}, "region"),
        ({"base_url": "no address"}, "address"),
        ({"features": frozenset({"texts"})}, "not texts"),
    ],
)
def test_wrong_settings_are_one_sentence(more, sentence, adapter_of):
    """Missing or invalid settings are refused when the adapter is created."""
    address = more.pop("base_url", "http://127.0.0.1:9")
    with pytest.raises(SettingsError, match=sentence):
        adapter_of("rekognition", address, **{"api_key": SecretStr(KEY), **more})
