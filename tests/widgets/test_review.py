"""The review as a notebook widget; `tests/ui` tests what it does."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("widget", ["Review", "Explorer"])
def test_a_folder_without_a_run_is_one_error(tmp_path, widget):
    """The widget that could not be made ends without a second traceback."""
    code = f"import lightmeter as lm; lm.{widget}({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.count("Traceback") == 1
    assert "holds no run" in done.stderr.splitlines()[-1]
