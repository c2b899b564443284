"""`lightmeter.testing.odd_service` runs a faulty service for a block."""

from __future__ import annotations

import base64
import tempfile

import pytest
import requests

from lightmeter.errors import SettingsError
from lightmeter.testing import odd_service, tiny_png


def analyze_picture(base_url: str, key: str) -> dict:
    """Return the answer to one picture."""
    body = {"file": base64.b64encode(tiny_png()).decode()}
    headers = {"X-API-Key": f"Token {key}"}
    return requests.post(f"{base_url}/api/fetch", json=body, headers=headers, timeout=30).json()


def test_an_odd_service_is_there_for_a_block(monkeypatch, tmp_path):
    """The service listens on loopback and injects its faults; afterwards its port and folder are gone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with odd_service({"prices": 10}, key="mine", credits=5) as base_url:
        assert base_url.startswith("http://127.0.0.1:")
        answered = analyze_picture(base_url, "mine")
        assert (answered["credits_paid"], answered["credits"]) == (2, 3)
        assert analyze_picture(base_url, "another")["error"] == "Access denied."
    with pytest.raises(requests.ConnectionError):
        analyze_picture(base_url, "mine")
    assert list(tmp_path.iterdir()) == []


def test_two_services_have_separate_balances():
    """Two services have separate balances; without faults a service is normal."""
    with odd_service(credits=5) as one, odd_service({"text-credits": True}, credits=9) as other:
        assert (analyze_picture(one, "rehearsal")["credits"], analyze_picture(other, "rehearsal")["credits"]) == (
            4,
            "8",
        )


def test_a_fault_that_is_none_is_refused():
    """An unknown fault is refused before the service starts."""
    with pytest.raises(SettingsError, match="Fault odd: unknown"), odd_service({"odd": 1}):
        pytest.fail("it started")
