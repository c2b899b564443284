"""Descriptions from any endpoint that speaks OpenAI's chat completions with pictures."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from openai import OpenAI

from lightmeter.service.backends.providers.description.adapter import (
    MAX_TOKENS,
    DescriptionAdapter,
    clean_description,
    request_fields,
    token_count,
)
from lightmeter.service.backends.providers.description.token_prices import TokenCounts
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind, provider_message
from lightmeter.service.backends.providers.http_client import timeouts
from lightmeter.service.backends.providers.provider import ProviderSettings

__all__ = ["Ollama", "OpenAICompatible", "ollama_base_url"]

OLLAMA_PORT: Final = 11434

_TOKEN_LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""The older name, which local servers know, and the one that OpenAI's reasoning models insist on."""

_NO_KEY: Final = "none"
"""The SDK wants a key; it is not sent."""


class OpenAICompatible(DescriptionAdapter):
    """Descriptions by a chat model that sees pictures: OpenAI, xAI, Gemini, Jina, vLLM, llama.cpp and others.

    Model: any that the endpoint serves under `settings.model`. Terms: those of the provider. It cannot tell whether a
    description is true, does not check that a `tweet` keeps its length, and reads no streamed answers.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        super().__init__(settings, {"authorization": f"Bearer {key}"} if key else {})
        self._api = OpenAI(api_key=key or _NO_KEY, base_url=settings.base_url, max_retries=0, http_client=self.client)
        fields = request_fields(settings.options)
        if not any(name in settings.options for name in _TOKEN_LIMITS):
            fields["max_tokens"] = MAX_TOKENS
        self._fields = fields

    @contextmanager
    def send(self, jpeg: bytes, prompt: str, timeout_s: float) -> Iterator[httpx2.Response]:
        """Send one request, without retries; the body of the answer is not read yet."""
        picture = f"data:image/jpeg;base64,{b64encode(jpeg).decode()}"
        with self._api.chat.completions.with_streaming_response.create(
            model=self.model,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": prompt},
                        {"type": "image_url", "image_url": {"url": picture}},
                    ],
                }
            ],
            extra_body=self._fields,
            timeout=timeouts(timeout_s),
        ) as response:
            yield response.http_response

    def text_of(self, body: Mapping[str, Any]) -> str:
        """The text of the first choice.

        Raises:
            CallFailed: there is none, it was filtered, or the model refused.
        """
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            error = provider_message(body.get("error"))
            raise CallFailed(FailureKind.MALFORMED, f"it has no choice{': ' + error if error else '.'}")
        finish, message = choice.get("finish_reason"), choice.get("message")
        if isinstance(finish, str) and finish.startswith("content_filter"):
            raise CallFailed(FailureKind.REFUSED, "its content filter withheld the description")
        if not isinstance(message, dict):
            raise CallFailed(FailureKind.MALFORMED, "it has no message")
        content, refusal = message.get("content"), message.get("refusal")
        if isinstance(refusal, str) and refusal.strip():
            raise CallFailed(FailureKind.REFUSED, f"the model refused: {refusal}")
        is_cut = finish == "length"
        if not isinstance(content, str) and not (content is None and is_cut):
            raise CallFailed(FailureKind.MALFORMED, "it has no text")
        return clean_description(content or "", is_cut=is_cut)

    def tokens_of(self, usage: object) -> TokenCounts:
        """Prompt and completion tokens.

        xAI and Gemini leave reasoning out of `completion_tokens` but not out of `total_tokens`, and charge for it.
        """
        prompt, written = token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")
        total = token_count(usage, "total_tokens")
        if prompt is not None and total is not None:
            written = max(written or 0, total - prompt)
        return TokenCounts(prompt, written, token_count(usage, "prompt_tokens_details", "cached_tokens") or 0)


class Ollama(OpenAICompatible):
    """Descriptions by a model of an Ollama server, such as LLaVA and BakLLaVA; nothing leaves the operator's machines.

    Models: LLaVA 1.6 (Vicuna or Mistral with a CLIP encoder), BakLLaVA 1 (Mistral 7B). Terms: those of the model, which
    `ollama show` prints. Both read little text in pictures, count badly, and write English far better than other
    languages.
    """

    licence = "terms of the model"

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(replace(settings, base_url=ollama_base_url(settings.base_url)))


def ollama_base_url(host: str) -> str:
    """The OpenAI-compatible address of the server that `OLLAMA_HOST` names.

    Args:
        host: `host`, `host:port` or a URL, as Ollama takes it; also the whole base URL, with a path.

    Example:
        >>> ollama_base_url("0.0.0.0")
        'http://127.0.0.1:11434/v1'
    """
    has_scheme = "://" in host
    parts = urlsplit(host if has_scheme else f"http://{host}")
    name = parts.hostname or "127.0.0.1"
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 (what a server listens on, nobody can call)
    try:
        port = parts.port
    except ValueError:
        return host  # refused as a base URL, with a message
    port = port or (None if has_scheme else OLLAMA_PORT)
    address = f"[{name}]" if ":" in name else name
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{address}{f':{port}' if port else ''}{path}"
