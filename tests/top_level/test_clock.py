"""A run measures time by a clock that nobody sets; earlier processes are believed if both clocks agree."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.clock import ClockAnchor, RunClock, SystemClock

HOUR_S = 3600.0
steps = st.sampled_from([-86_400.0, -HOUR_S, -5.0, 5.0, HOUR_S, 25 * HOUR_S])


@dataclass
class Machine:
    """A machine whose time passes, and whose wall clock is set."""

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
    """However the wall clock is set, as much time has passed as has passed, and the step is seen."""
    machine = Machine()
    clock = RunClock(machine)
    sent_at = clock.now()
    machine.true_s += before_s
    machine.step_s = step_s
    machine.true_s += after_s
    assert abs(clock.min_age_s(sent_at, earlier=False) - before_s - after_s) < 1e-3
    assert abs(clock.step_s - step_s) < 1e-3


@given(steps | st.just(0.0), st.floats(0, 400), st.floats(0, 400), st.booleans(), st.floats(0, 300))
def test_an_earlier_moment_is_never_believed_to_be_older_than_it_is(
    step_s, in_first_s, restart_step_s, reboots, here_s
):
    """Whatever happened to the clock between two processes, a request may still be charged as long as it truly may."""
    machine = Machine()
    first = RunClock(machine)
    machine.true_s += in_first_s
    sent_at, truly_sent = first.now(), machine.true_s
    machine.true_s += restart_step_s / 2
    machine.step_s = step_s
    if reboots:
        machine.boot, machine.booted_s = "second", machine.true_s
    machine.true_s += restart_step_s / 2
    began_s = machine.true_s
    second = RunClock(machine, first.anchor)
    machine.true_s += here_s
    age_s = second.min_age_s(sent_at, earlier=True)
    assert here_s - 1e-3 <= age_s <= machine.true_s - truly_sent + 1e-3
    if not reboots and not step_s:
        assert abs(age_s - (machine.true_s - truly_sent)) < 1e-3, "two clocks that agree are believed"
    assert age_s <= max(here_s, machine.true_s - truly_sent) + 1e-3
    assert began_s <= machine.true_s


def test_the_machines_clock_knows_since_when_it_runs():
    """Uptime grows and a start of the machine has one name."""
    machine = SystemClock()
    assert 0 < machine.uptime() <= machine.uptime()
    assert machine.boot_id() == machine.boot_id()
    assert RunClock(machine, ClockAnchor("another", 5.0, 5.0)).restart_step_s is None
