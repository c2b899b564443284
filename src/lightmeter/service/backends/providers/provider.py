"""Description of a provider, settings of its adapter (the class that calls the provider), and metrics of the calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.util import find_spec
from typing import Final, Protocol

from pydantic import SecretStr

DEFAULT_CONCURRENCY: Final = 8
"""Default maximum number of simultaneous calls of one provider."""

DEFAULT_TIMEOUT_S: Final = 60.0
"""Default timeout of one call, in seconds; a language model takes 2 to 20 seconds for a description."""

DEFAULT_ATTEMPTS: Final = 4
"""Default maximum number of calls for one picture: the first, and up to three more after throttling or a transient
error."""

DEFAULT_DEADLINE_S: Final = 180.0
"""Default time limit for one picture, with all its calls and pauses, in seconds."""

DEFAULT_MAX_PAUSE_S: Final = 60.0
"""Default maximum pause before another call, in seconds; most providers renew their limits each minute."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of one successful call of a provider.

    Attributes:
        model: Model that the provider's answer names; if it names none, the model that was requested.
        input_tokens: Tokens of prompt and picture; None if the provider does not count them.
        output_tokens: Tokens of the answer; None if the provider does not count them.
        usd: Cost in US dollars by the provider's published price; None if unknown.
    """

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: Decimal | None = None


class ProviderMetrics(Protocol):
    """Protocol of an object that counts calls of providers. Several threads may call its methods at once."""

    def provider_usage(self, backend: str, usage: Usage) -> None:
        """Count one successful call of a provider by the back end named `backend`, with its tokens and cost."""

    def provider_error(self, backend: str, kind: str) -> None:
        """Count one failed call of a provider by the back end named `backend`.

        `kind` is a `FailureKind`: throttled, timeout, refused, broken or malformed.
        """


class _NoMetrics:
    """Implementation of `ProviderMetrics` that counts nothing, for callers that need no metrics."""

    def provider_usage(self, backend: str, usage: Usage) -> None:
        pass

    def provider_error(self, backend: str, kind: str) -> None:
        pass


NO_METRICS: Final[ProviderMetrics] = _NoMetrics()


@dataclass(frozen=True, slots=True)
class Provider:
    """Provider of an analysis API: its defaults, its environment variables, and its adapter, the class that calls it.

    Attributes:
        name: Name of the provider in requests, lowercase.
        adapter: `package.module:Class`, not imported yet. `Class(settings)`, with `ProviderSettings`, creates the back
            end.
        features: Features that the adapter offers.
        model: Default model. None means that the operator must set one. Empty means that the provider has no choice of
            models.
        base_url: Base URL of the provider's API; None means that the operator must set it.
        base_url_variable: Environment variable that overrides `base_url`; None means that only the settings can.
        key_variable: Environment variable that holds the key; None means that no key is needed.
        secret_variable: Environment variable that holds the second part of a key with two parts; None means that the
            key has one part.
        option_variables: Option of the adapter → environment variable that sets this option. An empty variable has no
            effect.
        key_option: Option that can replace the key, such as the file of a service account; None means that there is no
            such option.
        extra: Optional dependencies (extra) of lightmeter that the adapter needs; None means that it needs none.
        package: Module that the extra installs; None if there is no extra.
        options: Default `options` of the adapter; the operator's options override them key by key.
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
        """Whether the package that the adapter needs is installed; true if the adapter needs none.

        The check does not import the package.
        """
        return self.package is None or find_spec(self.package.partition(".")[0]) is not None


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Settings of an adapter, which calls a provider's API: the provider's defaults with the operator's overrides.

    Attributes:
        name: Name of the back end; also the `source` of its entries.
        base_url: Base URL of the provider's API, without a slash at its end.
        model: Name of the model at the provider; empty if the provider has no choice of models.
        api_key: Key of the account, or the first part of a key with two parts (at AWS, the access key id); None if no
            key is needed.
        api_secret: Second part of a key with two parts (at AWS, the secret access key); None if the key has one part.
        features: Features to offer.
        concurrency: Maximum number of simultaneous calls, 1 or more.
        timeout_s: Longest time for one call, in seconds.
        max_attempts: Maximum number of calls for one picture, 1 or more.
        deadline_s: Longest time for one picture with all calls and pauses, in seconds.
        max_pause_s: Longest pause before another call, in seconds; if the provider asks for more, the picture fails.
        options: Settings that only this adapter has, such as the region of an AWS account.
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
        """The plain texts of `api_key` and `api_secret`, without those that are None. No message may show them."""
        return tuple(key.get_secret_value() for key in (self.api_key, self.api_secret) if key is not None)
