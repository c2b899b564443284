"""The test of `kill -9` at random instants, with ten times as many: 100 on SQLite, 100 on PostgreSQL.

`LIGHTMETER_KILLS` sets another number. What was acknowledged, answered, cut off and tried again is logged at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).parents[1] / "service" / "processes" / "test_kills.py"


def test_two_hundred_kills():
    """Every acknowledged id answers, charges equal settled results, the ledger sums to the grant."""
    environment = {"LIGHTMETER_KILLS": "200", **os.environ}
    options = ["-q", "-p", "no:cacheprovider", "--log-cli-level=INFO", "--sweeps", "all"]
    command = [sys.executable, "-m", "pytest", *options, str(TEST)]
    ended = subprocess.run(command, env=environment, check=False, cwd=TEST.parents[3])
    assert ended.returncode == 0
