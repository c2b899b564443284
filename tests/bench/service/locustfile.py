"""Users of the service for locust: each sends batches of new pictures, polls every batch to its end, and counts it.

The name `analysis` in locust's report is the time from sending a batch to reading its result; `send` and `poll` are
single requests. The environment has `LIGHTMETER_API_KEY`, `LOAD_FOLDER` (photographs), `LOAD_PICTURES` (a batch) and
`LOAD_COUNT` (a file for the number of finished batches).
"""

from __future__ import annotations

import base64
import itertools
import os
import time
from pathlib import Path
from typing import Any

from locust import HttpUser, constant, events, task

FILES = [path.read_bytes() for path in sorted(Path(os.environ["LOAD_FOLDER"]).glob("*.jpg"))]
PICTURES = int(os.environ["LOAD_PICTURES"])
MARK = os.urandom(16)
NUMBERS = itertools.count()
HEADERS = {"X-API-Key": f"Token {os.environ['LIGHTMETER_API_KEY']}"}
POLL_S = 0.1


@events.quitting.add_listener
def write_count(environment: Any, **_: Any) -> None:
    """Write the number of finished batches, also those that the last CSV file of locust does not count."""
    Path(os.environ["LOAD_COUNT"]).write_text(str(environment.stats.get("analysis", "BATCH").num_requests))


def new_picture() -> str:
    """Return a photograph as base64 that was never sent before, so that no cache helps."""
    number = next(NUMBERS)
    return base64.b64encode(FILES[number % len(FILES)] + MARK + number.to_bytes(8, "big")).decode()


class Analyst(HttpUser):
    """A user who sends one batch after the other."""

    wait_time = constant(0)

    @task
    def analyze(self) -> None:
        """Send a batch and poll it until it is completed; count it as failed if it is not."""
        body = {"file": [new_picture() for _ in range(PICTURES)], "feature": "tags", "backend": "imagenet"}
        begun = time.perf_counter()
        result = self.client.post("/api/fetch", json=body, headers=HEADERS, name="send").json()
        while result.get("status") in {"queued", "processing"}:
            time.sleep(POLL_S)
            address = f"/api/response/{result['request_id']}"
            result = self.client.get(address, headers=HEADERS, name="poll").json()
        completed = result.get("status") == "completed" and len(result["all"]["assets"]) == PICTURES
        self.environment.events.request.fire(
            request_type="BATCH",
            name="analysis",
            response_time=(time.perf_counter() - begun) * 1000,
            response_length=0,
            exception=None if completed else RuntimeError(str(result)[:300]),
        )
