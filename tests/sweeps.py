"""Parameters of a test that only the sweeps (`--sweeps`) test."""

from __future__ import annotations

from typing import Any

import pytest


def sweep(*values: object, name: str | None = None) -> Any:
    """Return arguments for `pytest.mark.parametrize` that only the sweeps test; `name` stands for them in test ids."""
    return pytest.param(*values, id=name, marks=pytest.mark.sweep)
