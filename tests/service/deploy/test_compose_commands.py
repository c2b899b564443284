"""The commands of the compose file, as processes without containers, are a service that works."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.service.deploy.test_files import DEPLOY, compose, settle

pytestmark = [pytest.mark.sweep, pytest.mark.postgres]

CONTAINER_PORTS = {"service-1": 8080, "service-2": 8080, "worker": 9090}
DEADLINE_S = 120
PICTURE = Path(__file__).resolve().parents[3] / "data" / "media" / "coffee.jpg"


def free_port():
    """Return a port of loopback that nothing uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def read(url, body=None, key=None, deadline_s=DEADLINE_S):
    """Return the body of an answer with status 200 or 202; repeat a request without a body until there is one."""
    headers = {"Content-Type": "application/json"} | ({"X-API-Key": f"Token {key}"} if key else {})
    data, end = None if body is None else json.dumps(body).encode(), time.monotonic() + deadline_s
    while True:
        try:
            request = urllib.request.Request(url, data, headers)  # noqa: S310 (loopback)
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (likewise)
                return answer.read()
        except (OSError, urllib.error.URLError):
            if data is not None or time.monotonic() > end:
                raise
            time.sleep(0.1)


class Deployment:
    """The processes of the compose file on loopback; commands, environment and health checks are those of the file."""

    def __init__(self, database, stack):
        services = compose()["services"]
        self.ports = {name: free_port() for name in (*CONTAINER_PORTS, "proxy")}
        environment = {name: settle(value) for name, value in services["migrate"]["environment"].items()}
        self.environment = {**os.environ, **environment, "LIGHTMETER_DATABASE": database}
        self.processes = {}
        self.lightmeter(services["migrate"]["command"])
        for name, port in CONTAINER_PORTS.items():
            command = [
                settle(word).replace("0.0.0.0", "127.0.0.1").replace(str(port), str(self.ports[name]))  # noqa: S104
                for word in services[name]["command"]
            ]
            command += ["--backends", "palette"]
            self.processes[name] = self.start([sys.executable, "-m", "lightmeter", *command], stack)
        for name, port in CONTAINER_PORTS.items():
            self.wait_until_healthy(services[name].get("healthcheck"), str(port), str(self.ports[name]))

    def lightmeter(self, arguments):
        """Run a command of lightmeter to its end; return what it prints."""
        command = [sys.executable, "-m", "lightmeter", *arguments]
        return subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True).stdout

    def start(self, command, stack):
        """Start a process that ends with the test."""
        process = subprocess.Popen(command, env=self.environment)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        return process

    def wait_until_healthy(self, check, port, own_port):
        """Repeat the health check of the compose file, or else of the Dockerfile, until it passes."""
        line = re.search(r"^    CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[1]
        words = check["test"][1:] if check else json.loads(line)
        words = [sys.executable, *(word.replace(port, own_port) for word in words[1:])]
        end = time.monotonic() + DEADLINE_S
        while subprocess.run(words, check=False, capture_output=True).returncode != 0:
            assert time.monotonic() < end, "not healthy in time"
            time.sleep(0.2)


def test_the_compose_file_is_a_service_that_works(postgres, tmp_path, capfd):
    """Through the proxy, pictures are analyzed and charged once, also after a service and the worker were killed."""
    caddy = shutil.which("caddy")
    if caddy is None:
        pytest.skip("caddy is not installed")
    body = {"file": base64.b64encode(PICTURE.read_bytes()).decode(), "feature": ["colors"]}
    with ExitStack() as stack:
        deployed = Deployment(postgres, stack)
        key = deployed.lightmeter(["keys", "add", "alice", "--credits", "10"]).split()[-1]
        text = (DEPLOY / "Caddyfile").read_text()
        for name in ("service-1", "service-2"):
            text = text.replace(f"{name}:8080", f"127.0.0.1:{deployed.ports[name]}")
        (tmp_path / "Caddyfile").write_text(text)
        deployed.environment |= {"SITE_ADDRESS": f"http://127.0.0.1:{deployed.ports['proxy']}", "HOME": str(tmp_path)}
        deployed.start([caddy, "run", "--adapter", "caddyfile", "--config", str(tmp_path / "Caddyfile")], stack)
        proxy = f"http://127.0.0.1:{deployed.ports['proxy']}"
        assert json.loads(read(f"{proxy}/api/credits", key=key))["credits"] == 10
        assert json.loads(read(f"{proxy}/api/fetch", body, key))["credits"] == 9
        targets = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
        assert targets[0]["static_configs"][0]["targets"] == ["service-1:8080", "service-2:8080"]
        for name in CONTAINER_PORTS:
            assert b"lightmeter_build_info" in read(f"http://127.0.0.1:{deployed.ports[name]}/metrics")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{proxy}/metrics", timeout=60)  # noqa: S310 (loopback)
        for name in ("service-1", "worker"):
            deployed.processes[name].kill()
            deployed.processes[name].wait()
        assert json.loads(read(f"{proxy}/api/credits", key=key))["credits"] == 9
        assert json.loads(read(f"{proxy}/api/fetch", body, key))["credits"] == 8
        deployed.processes["service-2"].kill()
        deployed.processes["service-2"].wait()
        with pytest.raises(urllib.error.HTTPError, match=r"50[23]"):
            read(f"{proxy}/api/fetch", body, key)
    assert key not in capfd.readouterr().err
