"""Processes that are ours alone get by with less memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lightmeter.lean import LEAN, begin_lean, spare_pandas

SPARED = """
import sys
from lightmeter.lean import begin_lean, spare_pandas
begin_lean()
import numpy as np, pyarrow as pa
spare_pandas()
pa.array(["a", None]), pa.array(np.zeros(3)), pa.scalar(1), pa.nulls(2, pa.int8()).to_numpy(zero_copy_only=False)
print(pa.default_memory_pool().backend_name, "pandas" in sys.modules)
frame = pa.table({"a": [1, None]}).to_pandas()
print("pandas" in sys.modules, len(frame), pa.array(frame["a"]).null_count)
"""


@pytest.mark.parametrize(("chosen", "pool"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")])
def test_arrow_does_without_pandas_until_a_frame_is_wanted(chosen, pool):
    """Arrays of all kinds are made without it, and frames all the same; whoever chose a memory pool keeps it."""
    environment = {name: value for name, value in os.environ.items() if name not in LEAN} | chosen
    done = subprocess.run([sys.executable, "-c", SPARED], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{pool} False", "True 2 1"], done.stderr


def test_a_pandas_that_is_there_is_left_alone(monkeypatch):
    """Somebody who has imported it may give its frames to Arrow."""
    monkeypatch.setitem(sys.modules, "pandas", object())
    before = list(sys.meta_path)
    spare_pandas()
    assert sys.meta_path == before


def test_what_is_chosen_is_not_chosen_again(monkeypatch):
    """The environment is added to, not changed."""
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    begin_lean()
    assert os.environ["ARROW_DEFAULT_MEMORY_POOL"] == "jemalloc"
