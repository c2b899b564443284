"""Poison detection: counts the crashes of processes that were running a request, to find requests that cause them.

A crash interrupts all requests of a process, so one crash proves little. A request that was running at `SUSPECT_AFTER`
crashes becomes a suspect. A suspect runs alone: its process runs no other request at the same time. Only a crash while
it runs alone is evidence. After `GIVEN_UP_AFTER` of those the request fails. A poison request so ends after 3 + 4
crashes, and all other requests complete.

Error probability: let processes be killed from outside every T seconds on average, and let a request run alone for d
seconds. An attempt alone then crashes by chance with p = 1 - exp(-d / T), and the request fails wrongly with p^4.

====================================  =======  ========  ==============
kills from outside                    d        p         failed wrongly
====================================  =======  ========  ==============
a process an hour, a long video       60 s     0.017     7.6e-8
a process a minute, a large batch     5 s      0.080     4.1e-5
the kill test, every half second      0.05 s   0.095     8.2e-5
====================================  =======  ========  ==============

With two crashes instead of four, the last row would be 9.1e-3, and that test has hundreds of suspects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = ["GIVEN_UP_AFTER", "SUSPECT_AFTER", "CrashRecord"]

SUSPECT_AFTER: Final = 3
"""Crashes beside other requests. With fewer, more innocent requests run alone, and each blocks its process."""

GIVEN_UP_AFTER: Final = 4
"""Crashes while it ran alone; four keep the probability of a wrong failure below 1e-4 in the table above."""


@dataclass(frozen=True, slots=True)
class CrashRecord:
    """The crashes during a request.

    Attributes:
        deaths: Crashes of processes that ran it beside other requests.
        deaths_alone: Crashes of processes that ran nothing else.
        alone: Whether the last attempt runs alone.
    """

    deaths: int = 0
    deaths_alone: int = 0
    alone: bool = False

    def after_crash(self) -> CrashRecord:
        """Return the record after a crash of the process that ran the last attempt."""
        if self.alone:
            return replace(self, deaths_alone=self.deaths_alone + 1)
        return replace(self, deaths=self.deaths + 1)

    @property
    def is_suspect(self) -> bool:
        """Whether the request must run alone."""
        return self.deaths >= SUSPECT_AFTER

    @property
    def is_given_up(self) -> bool:
        """Whether the request has failed and runs no more."""
        return self.deaths_alone >= GIVEN_UP_AFTER
