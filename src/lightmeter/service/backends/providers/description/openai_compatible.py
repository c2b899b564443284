"""Description adapters for all endpoints with OpenAI's chat completions API, and for Ollama."""

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
    TokenCounts,
    clean_description,
    join_text_parts,
    request_fields,
    token_count,
)
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind, provider_message
from lightmeter.service.backends.providers.http_client import timeouts
from lightmeter.service.backends.providers.provider import ProviderSettings

OLLAMA_PORT: Final = 11434

_TOKEN_LIMITS: Final = ("max_tokens", "max_completion_tokens")
"""Names of the field for the token limit. `max_tokens` is the older one, which local servers support; OpenAI's
reasoning models use `max_completion_tokens`."""

_NO_KEY: Final = "none"
"""Placeholder that the SDK gets if no key is set, because it requires one; the placeholder is not sent."""


class OpenAICompatible(DescriptionAdapter):
    """Back end that describes pictures with a chat model: OpenAI, xAI, Gemini, Jina, vLLM, llama.cpp and others.

    Model: any vision model that the endpoint serves as `settings.model`. Terms: those of the provider. Descriptions are
    not checked for truth. For the role `tweet`, their length is not checked, either. Streamed answers are not
    supported.
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
        """Ask the model with `prompt` to describe the picture `jpeg`; yield the answer before its body is read.

        The call is not repeated. `timeout_s` is the limit, in seconds, for each step of the call, such as connecting or
        a single read.
        """
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

    def extract_text(self, body: Mapping[str, Any]) -> str:
        """Return the description in an answer's body: the text of the first of its `choices`.

        Raises:
            CallFailed: there is no text, the provider's content filter withheld it, or the model refused.
        """
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            raise CallFailed(FailureKind.MALFORMED, "it has no choice")
        if choice.get("error"):
            raise CallFailed(FailureKind.MALFORMED, f"it ended with an error: {provider_message(choice)}")
        finish, message = choice.get("finish_reason"), choice.get("message")
        if isinstance(finish, str) and finish.startswith("content_filter"):
            raise CallFailed(FailureKind.REFUSED, "its content filter withheld the description")
        if not isinstance(message, dict):
            raise CallFailed(FailureKind.MALFORMED, "it has no message")
        content, refusal = message.get("content"), message.get("refusal")
        if isinstance(content, list):
            refusals = (part.get("refusal") for part in content if isinstance(part, dict))
            refusal, content = next(filter(None, refusals), refusal), join_text_parts(content)
        if isinstance(refusal, str) and refusal.strip():
            raise CallFailed(FailureKind.REFUSED, f"the model refused: {refusal}")
        is_cut = finish == "length"
        if not isinstance(content, str) and not (content is None and is_cut):
            raise CallFailed(FailureKind.MALFORMED, "it has no text")
        return clean_description(content or "", is_cut=is_cut)

    def extract_tokens(self, usage: object) -> TokenCounts:
        """Return the token counts of prompt and answer in `usage`, a field of the answer.

        Tokens of the model's reasoning count as part of the answer. xAI and Gemini charge for them, but report them
        only in `total_tokens`.
        """
        prompt, completion = token_count(usage, "prompt_tokens"), token_count(usage, "completion_tokens")
        total = token_count(usage, "total_tokens")
        if prompt is not None and total is not None:
            completion = max(completion or 0, total - prompt)
        return TokenCounts(prompt, completion, token_count(usage, "prompt_tokens_details", "cached_tokens") or 0)


class Ollama(OpenAICompatible):
    """Back end that describes pictures with a model of the operator's Ollama server, such as LLaVA or BakLLaVA.

    Models: LLaVA 1.6 (Vicuna or Mistral with a CLIP encoder), BakLLaVA 1 (Mistral 7B). Terms: those of the model, which
    `ollama show` prints. These models are weak at reading text, at counting, and at languages other than English.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(replace(settings, base_url=ollama_base_url(settings.base_url)))


def ollama_base_url(host: str) -> str:
    """Return the OpenAI-compatible base URL of an Ollama server.

    Args:
        host: Value of `OLLAMA_HOST`: `host`, `host:port` or a URL. If the URL has a path, the path replaces `/v1`.

    Example:
        >>> ollama_base_url("0.0.0.0")
        'http://127.0.0.1:11434/v1'
    """
    has_scheme = "://" in host
    parts = urlsplit(host if has_scheme else f"http://{host}")
    name = parts.hostname or "127.0.0.1"
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)  # noqa: S104 (a listen address is not a target address)
    try:
        port = parts.port
    except ValueError:
        return host  # `open_client` rejects it later with a message
    port = port or (None if has_scheme else OLLAMA_PORT)
    address = f"[{name}]" if ":" in name else name
    path = parts.path.rstrip("/") or "/v1"
    return f"{parts.scheme}://{address}{f':{port}' if port else ''}{path}"
