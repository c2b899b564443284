"""Limits on the price of a plan: `lightmeter plan` and `lightmeter run` end with an error if the price is higher."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from lightmeter.errors import SettingsError, TooExpensive
from lightmeter.planning.comparison.plan_comparison import PlanComparison
from lightmeter.pricing.estimate import CreditRange

_PERCENT: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*%?\s*", re.ASCII)


def parse_percent(text: str) -> Fraction:
    """Parse a percentage and return the number of percent: 10 for the texts `10` and `10%`.

    Raises:
        SettingsError: the text is not a percentage of 0 or more.
    """
    found = _PERCENT.fullmatch(text)
    if found is None:
        raise SettingsError(f"fail-on-rise: {text!r} is no percentage.", hint="Write it as 10 or 10%.")
    return Fraction(found[1])


@dataclass(frozen=True, slots=True)
class PriceLimits:
    """Limits on the upper end of a plan's price range; the budget of the plan does not matter.

    Attributes:
        fail_above: Most credits that the plan may cost; None for no limit.
        fail_on_rise: Most percent by which the plan may cost more than an older plan; None for no limit.
    """

    fail_above: int | None = None
    fail_on_rise: Fraction | None = None

    def exceeded(self, credits_: CreditRange, comparison: PlanComparison | None) -> tuple[str, ...]:
        """Return a sentence for each limit that a price exceeds.

        Args:
            credits_: The price of the plan.
            comparison: What differs from the older plan. If None, the limit `fail_on_rise` is not checked.
        """
        sentences = []
        if self.fail_above is not None and (credits_.high is None or credits_.high > self.fail_above):
            sentences.append(f"The plan may cost {credits_}, more than {self.fail_above} (--fail-above).")
        limit = self.fail_on_rise
        if limit is not None and comparison is not None and comparison.rises_by_more_than(limit):
            prices = f"from {comparison.before} to {comparison.after}"
            sentences.append(f"The price rises {prices}, by more than {float(limit):.6g} % (--fail-on-rise).")
        return tuple(sentences)


def raise_if_exceeded(sentences: tuple[str, ...]) -> None:
    """Raise TooExpensive if there are `sentences`, one for each limit that the price exceeds."""
    if sentences:
        raise TooExpensive(" ".join(sentences), hint="Plan fewer rows or features, or raise the limit.")
