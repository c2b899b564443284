"""Service accounts of Google: a signed assertion is exchanged for a token, which is kept until it expires."""

from __future__ import annotations

import base64
import json
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from lightmeter.errors import BackendError, SettingsError

RESULT = {"responses": [{"labelAnnotations": [{"description": "Dog", "score": 0.9}]}]}


@pytest.fixture(scope="module")
def private_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def key_file(private_key, http_provider, tmp_path):
    """Return the key file of a service account whose token server is on loopback."""
    pem = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path / "account.json"
    account = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "id",
        "private_key": pem.decode(),
        "client_email": "robot@project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{http_provider.url}/token",
    }
    path.write_text(json.dumps(account))
    return path


@pytest.fixture
def backend(adapter_of, http_provider, key_file):
    return adapter_of("googlevision", http_provider.url, api_key=None, options={"credentials_file": str(key_file)})


def part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_token_is_fetched_once_and_sent(backend, http_provider, analyze, private_key):
    """The assertion names account and scope and is signed with its key; the token authorises every later call."""
    token = {"access_token": "token-0123456789", "expires_in": 3600, "token_type": "Bearer"}
    http_provider.script.append(http_provider.reply(200, token))
    http_provider.otherwise = http_provider.reply(200, RESULT)
    assert analyze(backend, "tags").tags
    assert analyze(backend, "tags").tags
    token_request, *calls = http_provider.requests
    form = parse_qs(token_request.body.decode())
    assert (token_request.path, form["grant_type"]) == ("/token", ["urn:ietf:params:oauth:grant-type:jwt-bearer"])
    signed, _, signature = form["assertion"][0].rpartition(".")
    private_key.public_key().verify(part(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    claims = json.loads(part(signed.split(".")[1]))
    assert claims["iss"] == "robot@project.iam.gserviceaccount.com"
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-vision"
    assert [(call.path, call.headers["authorization"]) for call in calls] == [
        ("/v1/images:annotate", "Bearer token-0123456789")
    ] * 2
    assert all("x-goog-api-key" not in call.headers for call in calls)


def test_an_account_that_is_refused_is_an_error(backend, http_provider, analyze, counted):
    """If the token server refuses, its text is the message, and no picture is sent."""
    refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    http_provider.otherwise = http_provider.reply(400, refusal)
    with pytest.raises(BackendError, match=r"refused the call: no access token: .*invalid_grant"):
        analyze(backend, "tags")
    assert counted.errors == [("googlevision", "refused")]
    assert {request.path for request in http_provider.requests} == {"/token"}


def test_a_token_server_that_cannot_be_reached_is_an_error(backend, http_provider, analyze, counted):
    """If the token server cannot be reached, the picture fails as after a lost connection."""
    http_provider.otherwise = http_provider.reset
    with pytest.raises(BackendError, match="could not be reached"):
        analyze(backend, "tags")
    assert set(counted.errors) == {("googlevision", "broken")}


@pytest.mark.parametrize("content", [None, "no json", "{}", '{"type": "authorized_user"}'])
def test_a_file_that_is_no_key_file_is_one_sentence(content, adapter_of, tmp_path):
    """An invalid key file is refused with the name of its variable and without its content."""
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match="GOOGLE_APPLICATION_CREDENTIALS must name"):
        adapter_of("googlevision", "http://127.0.0.1:9", api_key=None, options={"credentials_file": str(path)})


def test_an_api_key_is_used_before_an_account(adapter_of, http_provider, analyze, key_file):
    """If there are an API key and a key file, no token is requested."""
    http_provider.otherwise = http_provider.reply(200, RESULT)
    analyze(adapter_of("googlevision", http_provider.url, options={"credentials_file": str(key_file)}), "tags")
    assert [request.path for request in http_provider.requests] == ["/v1/images:annotate"]
