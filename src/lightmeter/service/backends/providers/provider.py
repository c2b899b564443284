"""What is known of a provider before it is called, and what its adapter is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.util import find_spec
from typing import Final, Protocol

from pydantic import SecretStr

__all__ = ["NO_METRICS", "Provider", "ProviderMetrics", "ProviderSettings", "Usage"]

DEFAULT_CONCURRENCY: Final = 8
"""Calls of one provider at the same time, unless the operator says otherwise."""

DEFAULT_TIMEOUT_S: Final = 60.0
"""Longest wait for one answer of a provider; a vision model takes 2 to 20 seconds for a description."""

DEFAULT_ATTEMPTS: Final = 4
"""Calls for one picture at most: the first, and three more after throttling or a passing error."""

DEFAULT_DEADLINE_S: Final = 180.0
"""Longest time for one picture with all calls and pauses."""

DEFAULT_MAX_PAUSE_S: Final = 60.0
"""Longest pause before another call; the limits of most providers are renewed each minute."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one call of a provider used.

    Attributes:
        model: The model that the provider names in its answer, or the requested one.
        input_tokens: Tokens of prompt and picture; None where the provider does not count them.
        output_tokens: Tokens of the answer; None likewise.
        usd: Cost in US dollars by the provider's published price; None where it is not known.
    """

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: Decimal | None = None


class ProviderMetrics(Protocol):
    """Counts what adapters do. Its methods are called from any thread."""

    def provider_usage(self, backend: str, usage: Usage) -> None:
        """Count one call that was answered."""

    def provider_error(self, backend: str, kind: str) -> None:
        """Count one call that failed; `kind` is one of a few words: throttled, timeout, refused, broken, malformed."""


class _NoMetrics:
    def provider_usage(self, backend: str, usage: Usage) -> None:
        """Count nothing."""

    def provider_error(self, backend: str, kind: str) -> None:
        """Count nothing."""


NO_METRICS: Final[ProviderMetrics] = _NoMetrics()


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider that the service has an adapter for: a row of a table, cheap to import.

    Attributes:
        name: What requests call it, lowercase.
        adapter: `package.module:Class`; `Class(settings)` with `ProviderSettings` is a `Backend`.
        features: Features that it offers.
        model: The default model; None: the operator must name one.
        base_url: Address of its interface; None: the operator must name one.
        base_url_variable: Environment variable with another address; None: only the settings can name one.
        key_variable: Environment variable with the key; None: it needs no key.
        secret_variable: Environment variable with a second secret, where a key is a pair.
        option_variables: Option of the adapter to the environment variable that sets it, where that is not empty.
        key_option: Option that takes the place of the key, such as the file of a service account; None: none does.
        extra: The extra of this package that its adapter needs; None: none.
        package: The module that the extra installs.
        options: Default `options` of its adapter. What the operator sets is laid over them, key by key.
    """

    name: str
    adapter: str
    features: frozenset[str]
    model: str | None
    base_url: str | None
    base_url_variable: str | None = None
    key_variable: str | None = None
    secret_variable: str | None = None
    option_variables: Mapping[str, str] = field(default_factory=dict)
    key_option: str | None = None
    extra: str | None = None
    package: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        """Whether the package that the adapter needs is there; nothing is imported."""
        return self.package is None or find_spec(self.package.partition(".")[0]) is not None


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What an adapter is made from: a row of the provider table, with what the operator has set laid over it.

    Attributes:
        name: Name of the back end: the `source` of its entries.
        base_url: Address of the provider's interface, without a slash at its end.
        model: Name of the model at the provider; empty where the provider has no choice of models.
        api_key: Key of the account; None where none is needed.
        api_secret: Second half of a key, where a key is a pair.
        features: Features to offer.
        concurrency: Calls at the same time, 1 or more.
        timeout_s: Longest wait for one answer, in seconds.
        max_attempts: Calls for one picture at most, 1 or more.
        deadline_s: Longest time for one picture with all calls and pauses, in seconds.
        max_pause_s: Longest pause before another call, in seconds; who is told to wait longer gives up.
        options: Further settings of this adapter alone, such as the region of an AWS account.
        metrics: Counts calls, tokens and errors.
    """

    name: str
    base_url: str
    model: str
    api_key: SecretStr | None = None
    api_secret: SecretStr | None = None
    features: frozenset[str] = frozenset({"descriptions"})
    concurrency: int = DEFAULT_CONCURRENCY
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_attempts: int = DEFAULT_ATTEMPTS
    deadline_s: float = DEFAULT_DEADLINE_S
    max_pause_s: float = DEFAULT_MAX_PAUSE_S
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    metrics: ProviderMetrics = NO_METRICS

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys, which no message may show."""
        return tuple(key.get_secret_value() for key in (self.api_key, self.api_secret) if key is not None)
