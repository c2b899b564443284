"""Shares the simulated accounts and services with the tests beside it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package; this is how they share a module
