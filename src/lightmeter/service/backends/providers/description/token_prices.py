"""Cost of a call in US dollars by the providers' published prices, from the installed package `genai-prices`."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Token counts of one call.

    Attributes:
        input: Tokens of prompt and picture, including those from the provider's cache; None if not counted.
        output: Tokens of the answer, including reasoning; None if not counted.
        cached: Input tokens from the provider's cache, which cost less.
    """

    input: int | None = None
    output: int | None = None
    cached: int = 0


def load_prices() -> None:
    """Import the price list in advance, because this takes about half a second."""
    import genai_prices.data  # noqa: F401, PLC0415 (slow; needed for provider calls only)


def cost_usd(base_url: str, model: str, tokens: TokenCounts) -> Decimal | None:
    """Return the cost of a call in US dollars.

    Args:
        base_url: Base URL of the call; a model's price depends on the provider.
        model: Name of the model at the provider.
        tokens: Token counts of the call.

    Returns:
        The cost; None if the model has no known price, or the tokens were not counted.
    """
    from genai_prices import Usage, calc_price  # noqa: PLC0415 (slow; needed for provider calls only)

    if tokens.input is None or tokens.output is None:
        return None
    used = Usage(input_tokens=tokens.input, output_tokens=tokens.output, cache_read_tokens=tokens.cached or None)
    try:
        return calc_price(used, model, provider_api_url=base_url).total_price
    except (LookupError, ValueError):  # an unknown address or model, or inconsistent counts
        return None
