"""What all description adapters have in common: a picture goes out as JPEG with a prompt, and a text comes back."""

from __future__ import annotations

import re
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import httpx2
import orjson

from lightmeter.errors import SettingsError
from lightmeter.media.image import encode_jpeg
from lightmeter.media.model_views import FitWithin, transform_array
from lightmeter.models.response import Description, Entries
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.providers.description.failures import DescriptionCallFailed, FailureKind
from lightmeter.service.backends.providers.description.http_client import (
    open_client,
    read_json,
    secrets_of,
    translate_errors,
)
from lightmeter.service.backends.providers.description.prompts import prompt_for
from lightmeter.service.backends.providers.description.retry import DescriptionRetrier
from lightmeter.service.backends.providers.description.token_prices import TokenCounts, cost_usd, load_prices
from lightmeter.service.backends.providers.provider import ProviderSettings, Usage

__all__ = ["MAX_TOKENS", "DescriptionAdapter", "clean_description", "request_fields", "token_count"]

VIEW: Final = FitWithin(1024)
"""Providers shrink larger pictures themselves; tokens grow with the pixels."""

JPEG_QUALITY: Final = 90

MAX_TOKENS: Final = 2048
"""Of one answer, unless the options say otherwise: some 1,500 words, or fewer with the model's reasoning."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""Control characters but tab and newline: some databases take none of them in JSON."""


class DescriptionAdapter(ABC):
    """A back end that asks a language model of a provider for a description of each picture.

    `analyze` sends one call for each picture from the caller's thread. Pictures leave this machine.

    Args:
        settings: Name, address, key and limits. Each of its `options` is a further field of the request's body: JSON,
            or text where it is none; an empty one leaves the field out.
        credentials: Headers that carry the key.

    Attributes:
        name: The `source` of its entries.
        features: `descriptions`, if the settings offer it.
        traits: As many calls at once as the settings allow; the whole picture, no side longer than 1024 pixels.
        model: Name of the model at the provider.
        licence: Of what it answers.

    Raises:
        SettingsError: the base URL or the model is missing or none.
    """

    licence = "terms of the provider"

    def __init__(self, settings: ProviderSettings, credentials: Mapping[str, str]) -> None:
        if not settings.model:
            raise SettingsError(f"Back end {settings.name} needs the name of a model.")
        self.name = settings.name
        self.model = settings.model
        self.features = settings.features & {"descriptions"}
        self.traits = BackendTraits(calls_at_once=settings.concurrency, view=VIEW)
        self.settings = settings
        self.client = open_client(settings, credentials)
        self._secrets = secrets_of(settings)
        self._retries = DescriptionRetrier(settings)
        weakref.finalize(self, self.client.close)

    def warm(self) -> None:
        """Load the price list. The provider is not called."""
        load_prices()

    def close(self) -> None:
        """Close the connections; who forgets it has them closed with the last reference to this object."""
        self.client.close()

    def analyze(self, pictures: Sequence[RGB], features: frozenset[str], options: AnalysisOptions) -> list[Entries]:
        """Describe each picture; one entry each, with this back end's name as its source.

        Raises:
            BackendError: the provider refused, failed, or answered with no text; the message says which.
        """
        if "descriptions" not in features & self.features:
            return [Entries() for _ in pictures]
        prompt = prompt_for(options)
        return [self._described(picture, prompt) for picture in pictures]

    def _described(self, picture: RGB, prompt: str) -> Entries:
        jpeg = encode_jpeg(transform_array(picture, VIEW), quality=JPEG_QUALITY)
        text = self._retries.call(lambda timeout_s: self._ask(jpeg, prompt, timeout_s))
        return Entries(descriptions=[Description(description=text, source=self.name)])

    def _ask(self, jpeg: bytes, prompt: str, timeout_s: float) -> str:
        with translate_errors(self._secrets):
            until = time.monotonic() + timeout_s
            with self.send(jpeg, prompt, timeout_s) as response:
                body = read_json(response.iter_bytes(), until)
            self._count(body)
            return self.text_of(body)

    def _count(self, body: Mapping[str, Any]) -> None:
        tokens = self.tokens_of(body.get("usage"))
        answered = body.get("model")
        model = answered if isinstance(answered, str) and answered else self.model
        cost = cost_usd(self.settings.base_url, model, tokens)
        self.settings.metrics.provider_usage(self.name, Usage(model, tokens.input, tokens.output, cost))

    @abstractmethod
    @contextmanager
    def send(self, jpeg: bytes, prompt: str, timeout_s: float) -> Iterator[httpx2.Response]:
        """Send one request, without retries; the body of the answer is not read yet."""

    @abstractmethod
    def text_of(self, body: Mapping[str, Any]) -> str:
        """The description in an answer.

        Raises:
            CallFailed: there is none.
        """

    @abstractmethod
    def tokens_of(self, usage: object) -> TokenCounts:
        """The counts in the `usage` of an answer, whatever stands there."""


def token_count(usage: object, *path: str) -> int | None:
    """A number of tokens somewhere in a JSON value; None where there is no whole number, 0 or more."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if isinstance(usage, int) and not isinstance(usage, bool) and usage >= 0 else None


def request_fields(options: Mapping[str, str]) -> dict[str, Any]:
    """Further fields of a request's body: JSON values, or text where it is no JSON; empty ones are left out."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if value:
            try:
                fields[name] = orjson.loads(value)
            except ValueError:
                fields[name] = value
    return fields


def clean_description(text: str, *, is_cut: bool) -> str:
    """A description without control characters and outer white space.

    Args:
        text: What the model wrote.
        is_cut: Whether it reached the limit of tokens; what it has written is kept.

    Raises:
        CallFailed: nothing is left.
    """
    written = _CONTROL.sub("", text).strip()
    if written:
        return written
    if is_cut:
        raise DescriptionCallFailed(
            "The model reached its limit of tokens before it wrote any text. The operator can raise the limit.",
            FailureKind.MALFORMED,
        )
    raise DescriptionCallFailed("The model answered with an empty text.", FailureKind.MALFORMED)
