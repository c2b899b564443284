"""Says what the user must consent to before a run, and warns of providers (such as OpenAI) that charge the user too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lightmeter.embedded_service import is_embedded
from lightmeter.errors import UsageError
from lightmeter.options import Options
from lightmeter.planning.preflight import ServiceInfo
from lightmeter.pricing.rates import RateTable
from lightmeter.settings import Settings

_HINT: Final = (
    "Name back ends (option backends) and a frame limit (max_frames), or consent: --yes on the command line, "
    "consent=True in Python and in Prefect"
)


def provider_notes(rates: RateTable, options: Options, settings: Settings) -> Iterator[str]:
    """Yield a warning for each back end that is a provider, such as OpenAI, and charges the user besides the credits.

    Only the embedded service calls providers with the user's own keys, so yield nothing for other services. `rates` is
    the price table: each of its back ends that is not in `rates.local` is a provider.
    """
    if not is_embedded(options, settings):
        return
    for name in options.backends:
        if name in rates.rates and name not in rates.local:
            yield f"{name} is a provider: pictures are sent to it, and it charges your account with it besides credits."


def consent_needed(options: Options, settings: Settings, service: ServiceInfo) -> tuple[str, ...]:
    """Return one sentence for each thing that the user must allow before a run; none for the embedded service.

    `service` says which back ends are used if the options name none.
    """
    if is_embedded(options, settings):
        return ()
    needed = []
    if not options.backends and service.defaults:
        names = ", ".join(service.defaults)
        needed.append(f"No back end is named: the service uses its defaults, which may change: now {names}.")
    elif not options.backends:
        needed.append("No back end is named: the account's own defaults, and their price, are not known here.")
    if options.max_frames == 0:
        needed.append("max-frames 0 captures every frame a video has, without a limit.")
    return tuple(needed)


def must_be_explicit(options: Options, settings: Settings) -> None:
    """Raise UsageError if the options name no back end, or set no frame limit.

    For the embedded service, never raise: it needs no consent.
    """
    raise_if_consent_needed(consent_needed(options, settings, ServiceInfo()))


def raise_if_consent_needed(needed: Sequence[str]) -> None:
    """Raise UsageError if `needed` is not empty; it holds the sentences that `consent_needed` returns."""
    if needed:
        raise UsageError(" ".join(needed), hint=_HINT)
