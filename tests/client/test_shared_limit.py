"""Processes with one API key share its limit equally, and the share of a dead process becomes free."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.rate_limit import AdaptiveLimiter
from lightmeter.client.shared_limit import STATE_MAX_AGE_S, join_shared_limit

HOLDER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from lightmeter.client.shared_limit import join_shared_limit
    with join_shared_limit(Path(sys.argv[1]), "http://x", "key") as share:
        share.exchange_states({"rate": 4.0, "sharers": 1.0})
        print("here", flush=True)
        sys.stdin.read()
""")


def at(folder, key="key"):
    return join_shared_limit(folder, "http://x", key)


def test_states_are_exchanged_between_processes_with_one_key(tmp_path):
    """A process reads the states of others with the same key, not its own, and not of those that have left."""
    with at(tmp_path) as one, at(tmp_path, "another") as stranger:
        one.exchange_states({"rate": 3.0})
        stranger.exchange_states({"rate": 99.0})
        with at(tmp_path) as two:
            assert two.exchange_states({"rate": 5.0}) == [{"rate": 3.0}]
            assert one.exchange_states({}) == [{"rate": 5.0}]
        assert one.exchange_states({}) == []


def test_a_process_that_was_killed_frees_its_share(tmp_path):
    """The file of a killed process is unlocked by the system and removed at the next exchange."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"here\n"
        with at(tmp_path) as share:
            assert share.exchange_states({}) == [{"rate": 4.0, "sharers": 1.0}]
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert share.exchange_states({}) == []
            assert len(list(tmp_path.glob("pace/*/*.member"))) == 1
    finally:
        process.kill()
        process.communicate()


def test_the_api_key_is_not_stored(tmp_path):
    """The API key is neither in a file name nor in a file."""
    with at(tmp_path, "very-secret") as share:
        share.exchange_states({"rate": 1.0})
        share.save_last_state({"rate": 1.0}, 0.0)
        for path in tmp_path.rglob("*"):
            assert "very-secret" not in path.name
            assert path.is_dir() or b"very-secret" not in path.read_bytes()


def test_the_last_state_is_saved_for_a_week(tmp_path):
    """The last state is saved for a week; an unreadable or older one is ignored."""
    with at(tmp_path) as share:
        assert share.load_last_state(0.0) == {}
        share.save_last_state({"rate": 7.0, "sharers": 2.0}, 1000.0)
        assert share.load_last_state(1000.0) == {"rate": 7.0, "sharers": 2.0}
        assert share.load_last_state(1001.0 + STATE_MAX_AGE_S) == {}
        share.save_last_state({}, 2000.0)
        assert share.load_last_state(2000.0) == {"rate": 7.0, "sharers": 2.0}, "who learned nothing takes nothing away"
        (last_file,) = tmp_path.glob("pace/*/last.json")
        for broken in (
            b"",
            b"[]",
            b"{}",
            b'{"state": 1, "at": "x"}',
            json.dumps({"state": ["a"], "at": 2000}).encode(),
        ):
            last_file.write_bytes(broken)
            assert share.load_last_state(2000.0) == {}


def limited(rate):
    limiter = AdaptiveLimiter(64)
    limiter.warm_start({"rate": rate / 0.7}, 0.0)
    return limiter


@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=6))
def test_shares_become_equal(rates):
    """Shares become equal after two exchanges and add up to the mean of the estimates."""
    limiters = [limited(rate) for rate in rates]
    for now in (1.0, 2.0):
        states = [limiter.state() for limiter in limiters]
        for number, limiter in enumerate(limiters):
            limiter.adopt_share(states[:number] + states[number + 1 :], now)
    parts = [limiter.rate_estimator.rate for limiter in limiters]
    assert max(parts) <= 1.06 * min(parts)
    assert sum(parts) == pytest.approx(sum(rates) / len(rates), rel=0.06)


@given(st.floats(0.5, 500), st.integers(1, 5))
def test_processes_that_join_and_leave_change_the_shares(rate, others):
    """Processes that join get an equal share, and the last one left has the whole limit again."""
    limiters = [limited(rate), *(AdaptiveLimiter(64) for _ in range(others))]
    for now in (1.0, 2.0):
        states = [limiter.state() for limiter in limiters]
        for number, limiter in enumerate(limiters):
            limiter.adopt_share(states[:number] + states[number + 1 :], now)
    for limiter in limiters:
        assert limiter.rate_estimator.rate == pytest.approx(rate / (others + 1), rel=0.06)
    limiters[0].adopt_share([], 3.0)
    assert limiters[0].rate_estimator.rate == pytest.approx(rate, rel=0.06)


def test_a_concurrency_limit_is_shared():
    """A concurrency limit of six is three for each of two processes."""
    one, two = AdaptiveLimiter(64), AdaptiveLimiter(64)
    one.concurrency_limit = 6
    state = one.state()
    two.adopt_share([state], 1.0)
    one.adopt_share([two.state()], 1.0)
    assert (one.concurrency_limit, two.concurrency_limit) == (3, 3)


def test_a_warm_start_counts_former_sharers():
    """A warm start of one process uses 0.7 of the whole limit that two shared before."""
    limiter = AdaptiveLimiter(64)
    limiter.warm_start({"rate": 5.0, "sharers": 2.0}, 0.0)
    assert limiter.rate_estimator.rate == pytest.approx(7.0)
