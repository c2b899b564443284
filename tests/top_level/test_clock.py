"""`RunClock` does not jump; times of earlier processes count only as far as both clocks agree."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.clock import ClockAnchor, RunClock, SystemClock

HOUR_S = 3600.0
steps = st.sampled_from([-86_400.0, -HOUR_S, -5.0, 5.0, HOUR_S, 25 * HOUR_S])


@dataclass
class Machine:
    """A machine with simulated time, whose wall clock can be set."""

    true_s: float = 1_700_000_000.0
    booted_s: float = 1_700_000_000.0 - 1000.0
    step_s: float = 0.0
    boot: str = "first"

    def now(self) -> float:
        return self.true_s + self.step_s

    def monotonic(self) -> float:
        return self.uptime()

    def uptime(self) -> float:
        return self.true_s - self.booted_s

    def boot_id(self) -> str:
        return self.boot

    async def sleep(self, seconds: float) -> None:
        self.true_s += seconds


@given(steps, st.floats(0, 500), st.floats(0, 500))
def test_a_step_within_a_process_changes_no_age(step_s, before_s, after_s):
    """However the wall clock is set, ages are exact and the jump is measured."""
    machine = Machine()
    clock = RunClock(machine)
    sent_at = clock.now()
    machine.true_s += before_s
    machine.step_s = step_s
    machine.true_s += after_s
    assert abs(clock.min_age_s(sent_at, earlier=False) - before_s - after_s) < 1e-3
    assert abs(clock.step_s - step_s) < 1e-3


@given(steps | st.just(0.0), st.floats(0, 400), st.floats(0, 400), st.booleans(), st.floats(0, 300))
def test_the_age_of_an_earlier_time_is_never_overestimated(step_s, in_first_s, between_s, reboots, in_second_s):
    """Whatever happens to the wall clock between two processes, `min_age_s` is at most the true age."""
    machine = Machine()
    first = RunClock(machine)
    machine.true_s += in_first_s
    sent_at, true_sent_s = first.now(), machine.true_s
    machine.true_s += between_s / 2
    machine.step_s = step_s
    if reboots:
        machine.boot, machine.booted_s = "second", machine.true_s
    machine.true_s += between_s / 2
    second_start_s = machine.true_s
    second = RunClock(machine, first.anchor)
    machine.true_s += in_second_s
    age_s = second.min_age_s(sent_at, earlier=True)
    assert in_second_s - 1e-3 <= age_s <= machine.true_s - true_sent_s + 1e-3
    if not reboots and not step_s:
        assert abs(age_s - (machine.true_s - true_sent_s)) < 1e-3, "clocks that agree give the exact age"
    assert age_s <= max(in_second_s, machine.true_s - true_sent_s) + 1e-3
    assert second_start_s <= machine.true_s


def test_the_system_clock_reports_uptime_and_boot_id():
    """Uptime does not decrease, and the boot id does not change."""
    machine = SystemClock()
    assert 0 < machine.uptime() <= machine.uptime()
    assert machine.boot_id() == machine.boot_id()
    assert RunClock(machine, ClockAnchor("another", 5.0, 5.0)).restart_step_s is None


def test_uptime_without_a_boot_time_counts_sleep_where_the_system_does(monkeypatch):
    """On macOS, which has no CLOCK_BOOTTIME, uptime is the system's CLOCK_MONOTONIC: it goes on during sleep."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_MONOTONIC: 12_345.0}.__getitem__)
    assert SystemClock().uptime() == 12_345.0
