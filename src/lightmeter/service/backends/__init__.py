"""Contains the back ends (models and providers that analyze pictures), their protocol and their catalog."""

from __future__ import annotations

import os

# onnxruntime sends telemetry to its maker from the first model on, unless this is set before its import. The service
# contacts no server that the operator has not configured.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
