"""What a call costs the operator, by the providers' published prices. The price list comes with `genai-prices`.

The list is read from the installed package; nothing is fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

__all__ = ["TokenCounts", "cost_usd", "load_prices"]


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of one call.

    Attributes:
        input: Of prompt and picture, those read from the provider's cache included; None: not counted.
        output: Of the answer, those spent on reasoning included; None: not counted.
        cached: Those of `input` that came from the provider's cache, which cost less.
    """

    input: int | None = None
    output: int | None = None
    cached: int = 0


def load_prices() -> None:
    """Import the price list, which takes about half a second."""
    import genai_prices.data  # noqa: F401, PLC0415 (whoever calls no provider does not pay for it)


def cost_usd(base_url: str, model: str, tokens: TokenCounts) -> Decimal | None:
    """US dollars for a call.

    Args:
        base_url: Where the call went: the same model has other prices elsewhere, and none on the operator's machine.
        model: As the provider names it.
        tokens: What it used.

    Returns:
        None where no price is known, or not all tokens were counted.
    """
    from genai_prices import Usage, calc_price  # noqa: PLC0415 (as above)

    if tokens.input is None or tokens.output is None:
        return None
    used = Usage(input_tokens=tokens.input, output_tokens=tokens.output, cache_read_tokens=tokens.cached or None)
    try:
        return calc_price(used, model, provider_api_url=base_url).total_price
    except (LookupError, ValueError):  # an unknown address or model; counts that contradict each other
        return None
