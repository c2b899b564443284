"""onnxruntime's telemetry is switched off."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from lightmeter.service.backends.catalog import read_catalog
backend = read_catalog().create_backend("imagenet")
backend.warm()
import os
print(os.environ["ORT_DISABLE_TELEMETRY"])
"""


def test_telemetry_is_disabled(tmp_path):
    """The service disables telemetry before onnxruntime is imported."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == ["1"]
    assert [path for path in tmp_path.rglob("*") if path.name == ".ses"] == []


def test_telemetry_setting_is_not_overridden(tmp_path):
    """An environment variable that is already set is not changed."""
    program = "import lightmeter.service.backends, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "0"}
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert process.stdout.split() == ["0"]
