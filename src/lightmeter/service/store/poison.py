"""Counts how often the service crashed while it ran a request, to find requests that cause crashes ("poison").

A crash interrupts all requests of a process, so one crash does not show which request caused it. If a request was
interrupted by `ALONE_AFTER_CRASHES` crashes, it runs alone: its process runs no other request at the same time. If
`FAIL_AFTER_CRASHES_ALONE` crashes happen while it runs alone, the request fails. So a request that always crashes its
process fails after 3 + 4 crashes, and all other requests complete.

A harmless request fails if its process is killed from outside four times while the request runs alone. Suppose that the
process is killed every T seconds on average, and the request runs alone for d seconds. Then each attempt is killed with
the probability p = 1 - exp(-d / T), and the request fails with the probability p^4.

============================================  ======  ======  =====  ======
example                                       T       d       p      p^4
============================================  ======  ======  =====  ======
a long video; one kill an hour                3600 s  60 s    0.017  7.6e-8
a large request; one kill a minute            60 s    5 s     0.080  4.1e-5
a test that kills the process twice a second  0.5 s   0.05 s  0.095  8.2e-5
============================================  ======  ======  =====  ======

With two crashes instead of four, p^2 in the last row would be 9.1e-3, too much for a test with hundreds of requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

ALONE_AFTER_CRASHES: Final = 3
"""After this number of crashes while it ran together with other requests, a request runs alone in its process.

With a smaller number, more harmless requests would run alone, and block the process for others.
"""

FAIL_AFTER_CRASHES_ALONE: Final = 4
"""After this number of crashes while it ran alone, a request fails.

4 is enough to keep the probability that a harmless request fails, p^4 in the table above, below 1e-4.
"""


@dataclass(frozen=True, slots=True)
class CrashRecord:
    """How often processes of the service crashed while they ran a request. This decides how the request runs next.

    Attributes:
        crashes_shared: Crashes of processes that ran other requests too.
        crashes_alone: Crashes of processes that ran only this request.
        alone: Whether the process of the latest attempt runs only this request.
    """

    crashes_shared: int = 0
    crashes_alone: int = 0
    alone: bool = False

    def after_crash(self) -> CrashRecord:
        """Return a copy of this record that counts one more crash, namely of the latest attempt.

        The attribute `alone` says whether that attempt ran alone in its process. If so, the crash counts in
        `crashes_alone`, else in `crashes_shared`.
        """
        if self.alone:
            return replace(self, crashes_alone=self.crashes_alone + 1)
        return replace(self, crashes_shared=self.crashes_shared + 1)

    @property
    def must_run_alone(self) -> bool:
        """Whether the request must run alone in its process: `crashes_shared` is `ALONE_AFTER_CRASHES` or more."""
        return self.crashes_shared >= ALONE_AFTER_CRASHES

    @property
    def must_fail(self) -> bool:
        """Whether the request must fail: `crashes_alone` is `FAIL_AFTER_CRASHES_ALONE` or more."""
        return self.crashes_alone >= FAIL_AFTER_CRASHES_ALONE
