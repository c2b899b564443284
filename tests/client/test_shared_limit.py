"""Processes that use one key share its limit in equal parts, and a dead one's part is free."""

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


def test_each_hears_what_the_others_have_learned(tmp_path):
    """Of the same key only, never of oneself, and no more once they have left."""
    with at(tmp_path) as one, at(tmp_path, "another") as stranger:
        one.exchange_states({"rate": 3.0})
        stranger.exchange_states({"rate": 99.0})
        with at(tmp_path) as two:
            assert two.exchange_states({"rate": 5.0}) == [{"rate": 3.0}]
            assert one.exchange_states({}) == [{"rate": 5.0}]
        assert one.exchange_states({}) == []


def test_a_process_that_was_killed_frees_its_share(tmp_path):
    """The system drops the lock of whoever dies; the next look takes its file away."""
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


def test_the_key_is_written_nowhere(tmp_path):
    """Neither in a name nor in a file."""
    with at(tmp_path, "very-secret") as share:
        share.exchange_states({"rate": 1.0})
        share.save_last_state({"rate": 1.0}, 0.0)
        for path in tmp_path.rglob("*"):
            assert "very-secret" not in path.name
            assert path.is_dir() or b"very-secret" not in path.read_bytes()


def test_what_was_known_last_is_kept_for_a_week(tmp_path):
    """And what cannot be read, or is older, is as if there were nothing."""
    with at(tmp_path) as share:
        assert share.load_last_state(0.0) == {}
        share.save_last_state({"rate": 7.0, "sharers": 2.0}, 1000.0)
        assert share.load_last_state(1000.0) == {"rate": 7.0, "sharers": 2.0}
        assert share.load_last_state(1001.0 + STATE_MAX_AGE_S) == {}
        share.save_last_state({}, 2000.0)
        assert share.load_last_state(2000.0) == {"rate": 7.0, "sharers": 2.0}, "who learned nothing takes nothing away"
        (kept,) = tmp_path.glob("pace/*/last.json")
        for broken in (
            b"",
            b"[]",
            b"{}",
            b'{"state": 1, "at": "x"}',
            json.dumps({"state": ["a"], "at": 2000}).encode(),
        ):
            kept.write_bytes(broken)
            assert share.load_last_state(2000.0) == {}


def limited(rate):
    pace = AdaptiveLimiter(64)
    pace.warm_start({"rate": rate / 0.7}, 0.0)
    return pace


@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=6))
def test_equal_parts_of_what_all_think_the_whole_is(rates):
    """However different what each has learned: after a look or two the parts are equal, and add up to the mean."""
    paces = [limited(rate) for rate in rates]
    for now in (1.0, 2.0):
        states = [pace.state() for pace in paces]
        for number, pace in enumerate(paces):
            pace.share(states[:number] + states[number + 1 :], now)
    parts = [pace.rate_estimator.rate for pace in paces]
    assert max(parts) <= 1.06 * min(parts)
    assert sum(parts) == pytest.approx(sum(rates) / len(rates), rel=0.06)


@given(st.floats(0.5, 500), st.integers(1, 5))
def test_who_comes_gets_a_part_and_who_goes_leaves_it(rate, others):
    """One that knows the limit, and some that know nothing: all get the same, and the last one has it all again."""
    paces = [limited(rate), *(AdaptiveLimiter(64) for _ in range(others))]
    for now in (1.0, 2.0):
        states = [pace.state() for pace in paces]
        for number, pace in enumerate(paces):
            pace.share(states[:number] + states[number + 1 :], now)
    for pace in paces:
        assert pace.rate_estimator.rate == pytest.approx(rate / (others + 1), rel=0.06)
    paces[0].share([], 3.0)
    assert paces[0].rate_estimator.rate == pytest.approx(rate, rel=0.06)


def test_a_number_in_flight_is_shared_too():
    """Six at once are three for each of two."""
    one, two = AdaptiveLimiter(64), AdaptiveLimiter(64)
    one.concurrency_limit = 6
    state = one.state()
    two.share([state], 1.0)
    one.share([two.state()], 1.0)
    assert (one.concurrency_limit, two.concurrency_limit) == (3, 3)


def test_a_warm_start_takes_what_is_left_of_the_whole():
    """What a run with one neighbour kept is half of the whole: alone, one begins with 0.7 of all of it."""
    pace = AdaptiveLimiter(64)
    pace.warm_start({"rate": 5.0, "sharers": 2.0}, 0.0)
    assert pace.rate_estimator.rate == pytest.approx(7.0)
