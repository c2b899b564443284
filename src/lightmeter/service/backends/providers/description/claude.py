"""Description adapter for Claude's own API.

Anthropic also has an API that is compatible with OpenAI's, but calls it unfit for production.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
from anthropic import Anthropic

from lightmeter.service.backends.providers.description.adapter import (
    MAX_TOKENS,
    DescriptionAdapter,
    TokenCounts,
    clean_description,
    join_text_parts,
    request_fields,
    token_count,
)
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind
from lightmeter.service.backends.providers.http_client import timeouts
from lightmeter.service.backends.providers.provider import ProviderSettings

_NO_KEY = "none"
"""Placeholder that the SDK gets if no key is set; it is not sent. Without a placeholder, the SDK would search the
environment and the disk for a key."""


class Claude(DescriptionAdapter):
    """Back end that describes pictures with a Claude model through the Messages API.

    Model: any Claude model with vision. Terms: Anthropic's commercial terms. The model does not identify people by
    their faces. If the model refuses to describe a picture, the picture gets an error instead of a description.
    Descriptions are not checked for truth.

    The key is sent in the header `x-api-key`, as the documentation of API version 2026-10-21 says. Anthropic's SDK
    would send a bearer token, which older proxies do not accept.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        super().__init__(settings, {"x-api-key": key} if key else {})
        self._api = Anthropic(
            api_key=key or _NO_KEY,
            base_url=settings.base_url,
            max_retries=0,
            http_client=self.client,
            open_telemetry=False,
        )
        fields = request_fields(settings.options)
        limit = fields.pop("max_tokens", MAX_TOKENS)
        self._max_tokens = limit if isinstance(limit, int) else MAX_TOKENS
        self._fields = fields

    @contextmanager
    def send(self, jpeg: bytes, prompt: str, timeout_s: float) -> Iterator[httpx2.Response]:
        """Ask the model with `prompt` to describe the picture `jpeg`; yield the answer before its body is read.

        The call is not repeated. `timeout_s` is the limit, in seconds, for each step of the call, such as connecting or
        a single read.
        """
        with self._api.messages.with_streaming_response.create(
            model=self.model,
            max_tokens=self._max_tokens,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/jpeg", "data": b64encode(jpeg).decode()},
                        },
                        {"type": "text", "text": prompt},
                    ],
                }
            ],
            extra_body=self._fields,
            timeout=timeouts(timeout_s),
        ) as response:
            yield response.http_response

    def extract_text(self, body: Mapping[str, Any]) -> str:
        """Return the text in an answer's body: its text blocks, joined.

        Blocks of other types, such as the model's thinking, are ignored.

        Raises:
            CallFailed: there is no text, or the model refused.
        """
        blocks, stop = body.get("content"), body.get("stop_reason")
        if stop == "refusal":
            details = body.get("stop_details")
            reason = details.get("explanation") if isinstance(details, dict) else None
            suffix = f": {reason}" if isinstance(reason, str) and reason else "."
            raise CallFailed(FailureKind.REFUSED, f"the model refused{suffix}")
        if not isinstance(blocks, list):
            raise CallFailed(FailureKind.MALFORMED, "it has no content")
        return clean_description(join_text_parts(blocks), is_cut=stop == "max_tokens")

    def extract_tokens(self, usage: object) -> TokenCounts:
        """Return the token counts in `usage`, a field of the answer.

        The input count is the sum of three counts: uncached tokens, tokens written to the cache, tokens read from the
        cache.
        """
        uncached = token_count(usage, "input_tokens")
        cached = token_count(usage, "cache_read_input_tokens") or 0
        cache_written = token_count(usage, "cache_creation_input_tokens") or 0
        total = None if uncached is None else uncached + cached + cache_written
        return TokenCounts(total, token_count(usage, "output_tokens"), cached)
