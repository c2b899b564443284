"""The rate at which requests are sent while no limit of the service is known."""

from __future__ import annotations

import math
from typing import Final

_FIRST_RATE: Final = 16.0
"""Requests per second at the start."""

_DOUBLING_LATENCIES: Final = 5.0
"""The rate doubles in this many mean latencies. So, when a rejection arrives, the rate has grown by some 15 % since."""

_SHORTEST_DOUBLING_S: Final = 0.1
"""Least seconds in which the rate doubles."""

_LONGEST_DOUBLING_S: Final = 1.0
"""Most seconds in which the rate doubles. The rate doubles in this time also while the latency is not known."""


class StartRate:
    """Requests per second that may be sent while no limit is known; the rate doubles again and again.

    Attributes:
        rate: The present rate, in requests per second.
    """

    def __init__(self) -> None:
        self.rate = _FIRST_RATE
        self._doubling_s = _LONGEST_DOUBLING_S

    def on_sent(self) -> None:
        """Raise the rate a little, because a request was sent."""
        self.rate += math.log(2) / self._doubling_s

    def on_latency(self, latency_s: float) -> None:
        """Set how fast the rate grows from now on; `latency_s` is the mean seconds from a request to its answer."""
        self._doubling_s = min(_LONGEST_DOUBLING_S, max(_SHORTEST_DOUBLING_S, _DOUBLING_LATENCIES * latency_s))
