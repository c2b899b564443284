"""Base class of the adapters that ask language models for descriptions, and the published prices of their calls."""

from __future__ import annotations

import re
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

import httpx2
import orjson

from lightmeter.errors import SettingsError
from lightmeter.media.image import encode_jpeg
from lightmeter.media.image_transforms import FitWithin, transform_array
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.providers.description.prompts import prompt_for
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind, error_in_answer
from lightmeter.service.backends.providers.http_client import decode_json, open_client, read_body, translate_errors
from lightmeter.service.backends.providers.provider import ProviderSettings, Usage
from lightmeter.service.backends.providers.retry import Retrier
from lightmeter.wire.model_text import without_thinking
from lightmeter.wire.response import Description, Entries

TRANSFORM: Final = FitWithin(1024)
"""How pictures are shrunk before they are sent: providers shrink larger pictures anyway, and tokens grow with the
pixels."""

JPEG_QUALITY: Final = 90
"""JPEG quality of sent pictures, 1 to 95."""

MAX_TOKENS: Final = 2048
"""Default token limit of an answer. It is enough for about 1,500 words, or for fewer words if the model reasons
first."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
"""Control characters that are removed from descriptions: all except tab and newline. Some databases reject them in
JSON."""


MAX_ANSWER_BYTES: Final = 4 * 2**20
"""Maximum length of an answer, in bytes; a call with a longer answer fails. A description takes some thousand bytes."""

_ALLOWED_HEADERS: Final = frozenset(
    {
        *("accept", "accept-encoding", "anthropic-version", "connection", "content-length", "content-type", "host"),
        *("transfer-encoding", "user-agent", "x-stainless-raw-response"),
    }
)
"""Headers that are sent if an SDK sets them; all other headers of an SDK are removed. The SDKs would add a
description of this machine. From environment variables that may be meant for another program, they would also add
names of accounts and any other headers. `x-stainless-raw-response` is kept because the SDKs read it back from the
request."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Token counts of one call of a language model.

    Attributes:
        input: Tokens of prompt and picture, including those from the provider's cache; None if not counted.
        output: Tokens of the answer, including reasoning; None if not counted.
        cached: How many of the input tokens came from the provider's cache; they cost less.
    """

    input: int | None = None
    output: int | None = None
    cached: int = 0


def load_prices() -> None:
    """Import the price list of language models (package `genai-prices`) before the first call needs it.

    The import takes about half a second.
    """
    import genai_prices.data  # noqa: F401, PLC0415 (slow; needed for provider calls only)


def cost_usd(base_url: str, model: str, tokens: TokenCounts) -> Decimal | None:
    """Return the cost of a call in US dollars, by published prices.

    Args:
        base_url: Base URL of the call; a model's price depends on the provider.
        model: Name of the model at the provider.
        tokens: Token counts of the call.

    Returns:
        The cost; None if the model has no known price, the tokens were not counted, or the counts contradict each
        other.
    """
    from genai_prices import Usage, calc_price  # noqa: PLC0415 (slow; needed for provider calls only)

    if tokens.input is None or tokens.output is None:
        return None
    used = Usage(input_tokens=tokens.input, output_tokens=tokens.output, cache_read_tokens=tokens.cached or None)
    try:
        return calc_price(used, model, provider_api_url=base_url).total_price
    except (LookupError, ValueError):  # an unknown address or model, or inconsistent counts
        return None


def _restrict_headers(credentials: Mapping[str, str], request: httpx2.Request) -> None:
    """Delete all headers of a request except `_ALLOWED_HEADERS`; add the headers `credentials`, which carry the key."""
    for name in [name for name in request.headers if name.lower() not in _ALLOWED_HEADERS]:
        del request.headers[name]
    request.headers.update(credentials)


class DescriptionAdapter(ABC):
    """Base class of back ends in which a provider's language model describes pictures, one picture in each call.

    Args:
        settings: Name of the back end; the provider's address, model, key and limits. Each item of `settings.options`
            becomes a field of the body sent to the provider: a JSON value, or text if it is not JSON. An empty option
            adds no field; in this way, the operator can remove a default option of the provider.
        credentials: Headers that carry the key.

    Attributes:
        model: Name of the model at the provider.

    Raises:
        SettingsError: the base URL is invalid, or the model is missing.
    """

    def __init__(self, settings: ProviderSettings, credentials: Mapping[str, str]) -> None:
        if not settings.model:
            raise SettingsError(f"Back end {settings.name} needs the name of a model.")
        self.name = settings.name
        self.model = settings.model
        self.features = settings.features & {"descriptions"}
        self.traits = BackendTraits(calls_at_once=settings.concurrency, transform=TRANSFORM, calls_network=True)
        self.settings = settings
        self.client = open_client(settings)
        self.client.event_hooks = {"request": [partial(_restrict_headers, credentials)]}
        self._retrier = Retrier(settings)
        weakref.finalize(self, self.client.close)

    def warm(self) -> None:
        """Load the price list. The provider is not called."""
        load_prices()

    def close(self) -> None:
        """Close the connections, and make no more calls; garbage collection also closes the connections."""
        self._retrier.close()
        self.client.close()

    def analyze(self, pictures: Sequence[RGB], features: frozenset[str], options: AnalysisOptions) -> list[Entries]:
        """Return the description of each picture, in order. Each call of the provider is for one picture.

        Args:
            pictures: Height x width x 3, RGB.
            features: Requested features; without `descriptions`, the results are empty and the provider is not called.
            options: Role, language and prompt.

        Raises:
            BackendError: the provider refused, failed, or answered without a text; the message says why.
        """
        if "descriptions" not in features & self.features:
            return [Entries() for _ in pictures]
        prompt = prompt_for(options)
        return [self._describe(picture, prompt) for picture in pictures]

    def _describe(self, picture: RGB, prompt: str) -> Entries:
        jpeg = encode_jpeg(transform_array(picture, TRANSFORM), quality=JPEG_QUALITY)
        text = self._retrier.run(
            lambda timeout_s: self._request_description(jpeg, prompt, timeout_s), self._retrier.deadline()
        )
        return Entries(descriptions=[Description(description=text, source=self.name)])

    def _request_description(self, jpeg: bytes, prompt: str, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        with translate_errors(timeout_s):
            with self.send(jpeg, prompt, timeout_s) as response:
                content = read_body(response, deadline, MAX_ANSWER_BYTES)
            body = decode_json(content, dict[str, Any])
            error = error_in_answer(body, response.headers, time.time())
            tokens = self.extract_tokens(body.get("usage"))
            if error is None or tokens.output:
                self._count_usage(body, tokens)
            if error is not None:
                error.is_transient &= not tokens.output  # what was written is charged, and would be again
                raise error
            return self.extract_text(body)

    def _count_usage(self, body: Mapping[str, Any], tokens: TokenCounts) -> None:
        reported = body.get("model")
        model = reported if isinstance(reported, str) and reported else self.model
        cost = cost_usd(self.settings.base_url, model, tokens)
        self.settings.metrics.provider_usage(self.name, Usage(model, tokens.input, tokens.output, cost))

    @abstractmethod
    @contextmanager
    def send(self, jpeg: bytes, prompt: str, timeout_s: float) -> Iterator[httpx2.Response]:
        """Ask the provider with `prompt` to describe the picture `jpeg`; yield the answer before its body is read.

        The call is not repeated. `timeout_s` is the limit, in seconds, for each step of the call, such as connecting or
        a single read.
        """

    @abstractmethod
    def extract_text(self, body: Mapping[str, Any]) -> str:
        """Return the description in the body of the language model's answer.

        Raises:
            CallFailed: the answer holds no description.
        """

    @abstractmethod
    def extract_tokens(self, usage: object) -> TokenCounts:
        """Return the token counts in `usage`, a field of the provider's answer, which may hold any JSON value."""


def token_count(usage: object, *path: str) -> int | None:
    """Return the token count at the nested keys `path` of `usage`, a JSON value.

    Return None if there is no such key, or its value is not an integer of at least 0.
    """
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if isinstance(usage, int) and not isinstance(usage, bool) and usage >= 0 else None


def request_fields(options: Mapping[str, str]) -> dict[str, Any]:
    """Convert an adapter's options to fields of a request's body.

    A text that is valid JSON becomes the JSON value; any other text is kept. Empty options are left out.
    """
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if value:
            try:
                fields[name] = orjson.loads(value)
            except ValueError:
                fields[name] = value
    return fields


def join_text_parts(content: Sequence[object]) -> str:
    """Return the texts in the parts of a model's answer, joined; parts of other types, such as thinking, are ignored.

    A part is a text, or an object with a text and a type. Gemini marks a text that is thinking with `thought`.
    """
    texts = []
    for part in content:
        fields = part if isinstance(part, dict) else {"text": part}
        is_answer = fields.get("type", "text") in {"text", "output_text"} and not fields.get("thought")
        if is_answer and isinstance(text := fields.get("text"), str):
            texts.append(text)
    return "".join(texts)


def clean_description(text: str, *, is_cut: bool) -> str:
    """Return a description without the model's thinking, control characters and outer white space.

    Args:
        text: Text of the model.
        is_cut: Whether the model stopped at its token limit; it changes only the message for an empty text.

    Raises:
        CallFailed: the text is empty.
    """
    cleaned = _CONTROL.sub("", without_thinking(text)).strip()
    if cleaned:
        return cleaned
    if is_cut:
        raise CallFailed(
            FailureKind.MALFORMED,
            "the model reached its limit of tokens before it wrote any text; the operator can raise the limit",
        )
    reason = "it has the model's thinking, but no answer" if text.strip(" \n\0") else "it has an empty text"
    raise CallFailed(FailureKind.MALFORMED, reason)
