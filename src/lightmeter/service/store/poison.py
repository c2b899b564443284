"""Which of the requests that were in work when a process died may have killed it: pure counting.

A process that dies takes all it was doing with it, so a death beside others proves little. A request that was in work
at `SUSPECT_AFTER` deaths becomes a suspect. A suspect is done alone: nothing else is in work in its process then, also
no request whose caller waits. Only a death while it ran alone is evidence, and after `GIVEN_UP_AFTER` of those it has
failed. A culprit ends there after 3 + 4 deaths of processes; its neighbours are done whatever happens.

The odds against an innocent one: with a kill from outside every T seconds on average and d seconds of work alone, an
attempt alone dies by chance with p = 1 - exp(-d / T), and it is given up with p^4.

====================================  =======  ========  =========
kills from outside                    d        p         given up
====================================  =======  ========  =========
a process an hour, a long video       60 s     0.017     7.6e-8
a process a minute, a large batch     5 s      0.080     4.1e-5
the bench: every half second, a lot   0.05 s   0.095     8.2e-5
====================================  =======  ========  =========

Two deaths alone would be 9.1e-3 in the last row, and that bench makes suspects by the hundred.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

__all__ = ["GIVEN_UP_AFTER", "SUSPECT_AFTER", "CrashRecord"]

SUSPECT_AFTER: Final = 3
"""Deaths beside others. Fewer make suspects of more bystanders, and each of those stops its process for a moment."""

GIVEN_UP_AFTER: Final = 4
"""Deaths alone."""


@dataclass(frozen=True, slots=True)
class CrashRecord:
    """What a request has been through.

    Attributes:
        deaths: Processes that died while they did it beside other requests.
        deaths_alone: Processes that died while they did nothing else.
        alone: Whether the last attempt is done alone.
    """

    deaths: int = 0
    deaths_alone: int = 0
    alone: bool = False

    def died(self) -> CrashRecord:
        """The process of the last attempt has died."""
        if self.alone:
            return replace(self, deaths_alone=self.deaths_alone + 1)
        return replace(self, deaths=self.deaths + 1)

    @property
    def is_suspect(self) -> bool:
        """Whether it is to be done alone."""
        return self.deaths >= SUSPECT_AFTER

    @property
    def is_given_up(self) -> bool:
        """Whether it is not to be done at all any more."""
        return self.deaths_alone >= GIVEN_UP_AFTER
