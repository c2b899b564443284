"""Remote stores on loopback: a small Hugging Face hub, and emulators of Google's and Azure's stores if installed."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The public key of every Azurite."""


@dataclass
class Hub:
    """The data set repository `u/n` of a hub: its files by path, and its commits.

    Attributes:
        address: Base address of the hub.
        token: The token that the hub wants; None if anyone may read and write.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[list[str]] = field(default_factory=list)
    address: str = ""
    token: str | None = None

    def entries(self, folder: str, *, recursive: bool) -> list[dict]:
        """Return the files and folders below a folder as the hub lists them."""
        prefix = f"{folder}/" if folder else ""
        found: dict[str, dict] = {}
        for path, content in sorted(self.files.items()):
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts)):
                name = prefix + "/".join(parts[:depth])
                found[name] = {"type": "directory", "path": name, "oid": "0" * 40, "size": 0}
            found[path] = {"type": "file", "path": path, "oid": "0" * 40, "size": len(content)}
        return [entry for name, entry in found.items() if recursive or "/" not in name[len(prefix) :]]

    def info(self, path: str) -> list[dict]:
        """Return the file or folder of a path as the hub describes it."""
        folder, _, _ = path.rpartition("/")
        return [entry for entry in self.entries(folder, recursive=False) if entry["path"] == path]

    def commit(self, lines: list[dict]) -> None:
        """Apply the operations of a commit."""
        changed = []
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "deletedFile":
                del self.files[value["path"]]
            changed += [value["path"]] if line["key"] != "header" else []
        self.commits.append(changed)


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:  # noqa: C901 (one method for each HTTP method)
    class HubHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536  # headers and body leave together

        def log_message(self, *arguments):
            """Log nothing."""

        def answer(self, body: object, status: int = 200, **headers: str) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def refused(self, path: str) -> bool:
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self.answer({"error": "Invalid credentials"}, 401)
            elif "datasets/u/n" not in path:
                self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            else:
                return False
            return True

        def do_GET(self):
            parts = urlsplit(self.path)
            path = unquote(parts.path)
            if self.refused(path):
                return
            if path.startswith("/datasets/u/n/resolve/main/"):
                self.file(hub.files.get(path.removeprefix("/datasets/u/n/resolve/main/")))
            elif path.startswith("/api/datasets/u/n/tree/main"):
                folder = path.removeprefix("/api/datasets/u/n/tree/main").strip("/")
                recursive = parse_qs(parts.query).get("recursive", ["false"])[0].lower() == "true"
                found = hub.entries(folder, recursive=recursive)
                self.answer(*([found] if found or not folder else [{"error": "not found"}, 404]))
            else:
                self.answer({"id": "u/n", "sha": "0" * 40, "private": False, "tags": [], "downloads": 0, "likes": 0})

        do_HEAD = do_GET  # noqa: N815 (named by http.server)

        def file(self, content: bytes | None) -> None:
            if content is None:
                self.answer({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound")
                return
            wanted = self.headers.get("Range")
            if wanted is None:
                self.answer(content, ETag='"0"', X_Repo_Commit="0" * 40)
                return
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            span = content[int(first) : int(last) + 1 if last else None]
            self.answer(span, 206, Content_Range=f"bytes {first}-{int(first) + len(span) - 1}/{len(content)}")

        def do_POST(self):
            path = unquote(urlsplit(self.path).path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.refused(path):
                return
            if "/paths-info/" in path:
                form = json.loads(body) if body.startswith(b"{") else parse_qs(body.decode())
                self.answer([entry for name in form["paths"] for entry in hub.info(name)])
            elif "/preupload/" in path:
                names = [one["path"] for one in json.loads(body)["files"]]
                modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
                self.answer({"files": modes})
            elif "/commit/" in path:
                hub.commit([json.loads(line) for line in body.splitlines()])
                url = f"{hub.address}/datasets/u/n/commit/{'0' * 40}"
                self.answer({"success": True, "commitOid": "0" * 40, "commitUrl": url, "hookOutput": ""})
            else:
                self.answer({})

    return HubHandler


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Serve a hub on loopback, written from the hub's public API documentation."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _process(*arguments: str, port: int) -> Iterator[None]:
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serve_google() -> Iterator[str]:
    """Serve a bucket `lake` of Google's protocol; yield the options of URIs such as `gs://anonymous@lake/…`."""
    program = shutil.which("gcp-storage-emulator")
    if program is None:
        pytest.skip("gcp-storage-emulator is not installed: pip install gcp-storage-emulator")
    port = _free_port()
    options = ("--host", "127.0.0.1", "--port", str(port), "--in-memory", "--default-bucket", "lake")
    with _process(program, "start", *options, port=port):
        yield f"scheme=http&endpoint_override=127.0.0.1%3A{port}"


@contextmanager
def serve_azure(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve an account of Azure's protocol, whose key is set in the environment; yield the options of its URIs."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite is not installed: npm install azurite, and its node_modules/.bin in PATH")
    port = _free_port()
    options = ("--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder), "--disableTelemetry")
    patch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1")
    patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)
    with _process(program, *options, "--skipApiVersionCheck", "--silent", port=port):
        yield f"scheme=http&endpoint_override=127.0.0.1%3A{port}"
