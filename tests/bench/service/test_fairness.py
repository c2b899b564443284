"""Measures how long a small picture of one account takes while two other accounts push pictures full of text.

Each of the two accounts keeps some uploads of a page with 250 printed words in flight, without a pause. The third
account sends a small picture with one word, again and again: by turns to the back end for text, which the pages keep
busy, and to all local back ends. The cache of the service is off. The goal on a quiet machine: a small picture is
answered within 3 s, and `/healthz` within 0.5 s. Nothing is asserted about time: machines differ.

`LIGHTMETER_BENCH_SECONDS` (40) is the length of the load.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from io import BytesIO

from PIL import Image, ImageDraw, ImageFont

SECONDS = float(os.environ.get("LIGHTMETER_BENCH_SECONDS", "40"))
IDLE_S = 6.0
UPLOADS_AT_ONCE = 3
PAGE_SIDE, PAGE_WORDS, PAGE_COLUMNS = 1000, 250, 10
WORDS = ("time", "people", "water", "called", "other", "right", "think", "around", "another", "because", "different")
PUSHERS, CALLER = ("pusher-1", "pusher-2"), "caller"
PAUSE_S = 0.1


def upload(image: Image.Image) -> str:
    """Return an image as the base64 text of a PNG file."""
    stream = BytesIO()
    image.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def page(seed: int) -> str:
    """Return an upload of a white page with words apart from each other, so that each is a line of its own."""
    chosen = random.Random(seed)  # noqa: S311 (a reproducible page)
    font = ImageFont.load_default(14)
    image = Image.new("RGB", (PAGE_SIDE, PAGE_SIDE), "white")
    draw = ImageDraw.Draw(image)
    rows = PAGE_WORDS // PAGE_COLUMNS
    for number in range(PAGE_WORDS):
        row, column = divmod(number, PAGE_COLUMNS)
        place = (10 + column * PAGE_SIDE // PAGE_COLUMNS, 8 + row * PAGE_SIDE // rows)
        draw.text(place, chosen.choice(WORDS), "black", font)
    return upload(image)


def sign() -> str:
    """Return an upload of a small picture with one word."""
    image = Image.new("RGB", (320, 120), "white")
    ImageDraw.Draw(image).text((40, 40), "Bread", "black", ImageFont.load_default(32))
    return upload(image)


def send(port: int, method: str, path: str, key: str, fields: dict[str, object] | None = None) -> dict:
    """Send one request on a new connection, and return the answer's JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    headers = {"X-API-Key": f"Token {key}", "Content-Type": "application/json"}
    connection.request(method, path, None if fields is None else json.dumps(fields), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def push(port: int, key: str, stop: threading.Event, answers: Counter[str]) -> None:
    """Send pages, one after the other, and poll for those that are acknowledged."""
    seed = 0
    while not stop.is_set():
        seed += 1
        answer = send(port, "POST", "/api/fetch", key, {"file": page(seed % 5), "backend": "rapidocr"})
        while answer["status"] in {"queued", "processing"}:
            if stop.is_set():
                return
            time.sleep(PAUSE_S)
            answer = send(port, "GET", f"/api/response/{answer['request_id']}", key)
        answers[answer["status"]] += 1


def watch_health(port: int, stop: threading.Event, latencies: list[float]) -> None:
    """Measure `/healthz` until `stop` is set."""
    while not stop.wait(PAUSE_S / 2):
        begun = time.perf_counter()
        assert send(port, "GET", "/healthz", CALLER)
        latencies.append(time.perf_counter() - begun)


def measure(port: int, seconds: float) -> dict[str, list[float]]:
    """Return the seconds that the third account's small pictures and `/healthz` take, for some seconds."""
    stop, latencies = threading.Event(), {"text alone": [], "all back ends": [], "/healthz": []}
    health = threading.Thread(target=watch_health, args=(port, stop, latencies["/healthz"]))
    health.start()
    until, small = time.perf_counter() + seconds, sign()
    number = 0
    while time.perf_counter() < until:
        number += 1
        begun = time.perf_counter()
        fields = {"file": small} if number % 2 else {"file": small, "backend": "rapidocr"}
        answer = send(port, "POST", "/api/fetch", CALLER, fields)
        latencies["all back ends" if number % 2 else "text alone"].append(time.perf_counter() - begun)
        (asset,) = answer["all"]["assets"]
        assert asset["texts"][0]["text"] == "Bread"
        time.sleep(PAUSE_S)
    stop.set()
    health.join()
    return latencies


def test_fairness(tmp_path):
    """Each small picture is answered at once, with its text, while two accounts push pages; the figures are printed."""
    keys = [option for key in (*PUSHERS, CALLER) for option in ("--key", f"{key}=1000000")]
    options = ["--port", "0", "--database", f"sqlite:///{tmp_path / 'bench.db'}", "--cache", "0", *keys]
    command = [sys.executable, "-m", "lightmeter", "serve", *options]
    stop, answers = threading.Event(), Counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        try:
            port = int(service.stdout.readline().rsplit(":", 1)[1])
            measure(port, 1.0)  # first calls allocate memory
            idle = measure(port, IDLE_S)
            pushing = [
                threading.Thread(target=push, args=(port, key, stop, answers))
                for key in PUSHERS
                for _ in range(UPLOADS_AT_ONCE)
            ]
            for thread in pushing:
                thread.start()
            time.sleep(2)  # until pages are in all threads
            loaded = measure(port, SECONDS)
            stop.set()
            for thread in pushing:
                thread.join()
        finally:
            service.terminate()
    say = print  # the bench's product
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    say(f"\n{len(os.sched_getaffinity(0))} cores, load average {load}; {sum(answers.values())} pages: {dict(answers)}")
    say(f"{'':16}{'idle p50 s':>12}{'max s':>9}{'loaded p50 s':>14}{'max s':>9}{'n':>6}")
    for name, latencies in loaded.items():
        # Without an answer in all that time, there is nothing to measure.
        figures = [f(each or [math.nan]) for each in (idle[name], latencies) for f in (statistics.median, max)]
        say(f"{name:16}{figures[0]:12.3f}{figures[1]:9.3f}{figures[2]:14.3f}{figures[3]:9.3f}{len(latencies):6}")
    assert set(answers) <= {"completed"}
