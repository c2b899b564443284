"""Events as Prefect's client gets them."""

from __future__ import annotations

import pytest
from prefect.events.clients import AssertingEventsClient
from prefect.events.schemas.events import Event
from prefect.events.worker import EventsWorker
from prefect.settings import PREFECT_API_URL, temporary_settings

from lightmeter.prefect_integration.events import emit_event


def emitted_events() -> list[Event]:
    """Return the events that Prefect's client for tests was given."""
    EventsWorker.drain_all(timeout=60)
    return [event for client in AssertingEventsClient.all for event in client.events]


@pytest.fixture
def _no_server():
    """Prefect's own client for tests in place of the one that connects to a server."""
    AssertingEventsClient.reset()
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}):
        EventsWorker.set_client_override(AssertingEventsClient)
        yield
        EventsWorker.drain_all(timeout=60)
        EventsWorker.set_client_override(None)


@pytest.mark.usefixtures("_no_server")
def test_events_have_labels_for_automations_and_no_credentials():
    """The resource names the folder or service, the event and the state; credentials are removed everywhere."""
    message = "GET https://user:SecretOfATest@cdn.example/a.jpg failed"
    emit_event("lightmeter.run.failed", "s3://KEY:SecretOfATest@bucket/out", state="InDoubt", message=message, rows=3)
    (event,) = emitted_events()
    assert event.event == event.resource["lightmeter.event"] == "lightmeter.run.failed"
    assert event.resource["lightmeter.state"] == "InDoubt"
    assert event.resource["prefect.resource.name"] == "s3://bucket/out"
    assert event.resource.id.startswith("lightmeter.run.")
    assert event.payload["rows"] == 3
    assert "SecretOfATest" not in event.model_dump_json()
