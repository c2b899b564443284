"""Loads the flows in `flows/` by path, as a scheduler does."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

FLOWS = sorted((Path(__file__).resolve().parents[2] / "flows").glob("*.py"))


@cache
def load_flow(name: str) -> ModuleType:
    """Return the module `flows/NAME.py`."""
    (path,) = (path for path in FLOWS if path.stem == name)
    spec = importlib.util.spec_from_file_location(f"flow_of_tests_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
