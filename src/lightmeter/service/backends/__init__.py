"""Back ends: what looks at pictures. One protocol, a registry of names, one file for each."""

from __future__ import annotations

import os

# The packaged onnxruntime reports its use to its maker's servers, from the first model on, unless it is told not to
# before it is loaded. A service that looks at other people's pictures talks to nobody it was not told to talk to.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
