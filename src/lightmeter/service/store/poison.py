"""Counts crashes of the service while it runs a request, to find requests that cause them ("poison").

A crash interrupts all requests of a process, so one crash does not show which request caused it. After
`ALONE_AFTER_CRASHES` crashes, a request runs alone: its process runs no other request at the same time. After
`FAIL_AFTER_CRASHES_ALONE` crashes while it ran alone, the request fails. So a request that always crashes its process
fails after 3 + 4 crashes, and all other requests complete.

Probability that a harmless request fails: processes are killed from outside every T seconds on average, and a request
runs alone for d seconds. Each attempt is then killed by chance with probability p = 1 - exp(-d / T), and the request
fails with probability p^4.

====================================  =======  ========  ==============
kills from outside                    d        p         p^4
====================================  =======  ========  ==============
a process an hour, a long video       60 s     0.017     7.6e-8
a process a minute, a large batch     5 s      0.080     4.1e-5
the kill test, every half second      0.05 s   0.095     8.2e-5
====================================  =======  ========  ==============

With two crashes instead of four, p^2 in the last row would be 9.1e-3, too much for a test with hundreds of requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

ALONE_AFTER_CRASHES: Final = 3
"""Crashes beside other requests after which a process runs only this one; fewer would let harmless ones block it."""

FAIL_AFTER_CRASHES_ALONE: Final = 4
"""Crashes while a request ran alone after which it fails; 4 keep p^4 in the table above below 1e-4."""


@dataclass(frozen=True, slots=True)
class CrashRecord:
    """How often processes of the service crashed while they ran a certain request; decides how it runs next.

    Attributes:
        deaths: Crashes of processes that ran other requests too.
        deaths_alone: Crashes of processes that ran only this request.
        alone: Whether the process of the latest attempt runs only this request.
    """

    deaths: int = 0
    deaths_alone: int = 0
    alone: bool = False

    def after_crash(self) -> CrashRecord:
        """Return a copy with one more crash: in `deaths_alone` if `alone` (no other request ran), else in `deaths`."""
        if self.alone:
            return replace(self, deaths_alone=self.deaths_alone + 1)
        return replace(self, deaths=self.deaths + 1)

    @property
    def must_run_alone(self) -> bool:
        """Whether the request must run alone in its process: `deaths` is `ALONE_AFTER_CRASHES` or more."""
        return self.deaths >= ALONE_AFTER_CRASHES

    @property
    def must_fail(self) -> bool:
        """Whether the request must fail: `deaths_alone` is `FAIL_AFTER_CRASHES_ALONE` or more."""
        return self.deaths_alone >= FAIL_AFTER_CRASHES_ALONE
