"""Descriptions from Anthropic's Claude, natively: its OpenAI-compatible layer is documented as not for production."""

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
    clean_description,
    request_fields,
    token_count,
)
from lightmeter.service.backends.providers.description.token_prices import TokenCounts
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind, provider_message
from lightmeter.service.backends.providers.http_client import timeouts
from lightmeter.service.backends.providers.provider import ProviderSettings

__all__ = ["Claude"]

_NO_KEY = "none"
"""With no key the SDK would search the environment and the disk for one; this one is not sent."""


class Claude(DescriptionAdapter):
    """Descriptions by a Claude model over the Messages API.

    Model: any Claude model that sees pictures. Terms: Anthropic's commercial terms. It cannot identify people by their
    faces and does not try to; it may decline a picture, which is an error here. It cannot tell whether a description is
    true.

    The key goes out in the header `x-api-key`, which the documentation of API version 2026-10-21 names; the SDK would
    send it as a bearer token, which older proxies do not read.
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
        """Send one request, without retries; the body of the answer is not read yet."""
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

    def text_of(self, body: Mapping[str, Any]) -> str:
        """The text blocks, joined; blocks of other kinds, such as the model's thinking, are left out.

        Raises:
            CallFailed: there is none, or the model refused.
        """
        blocks, stop = body.get("content"), body.get("stop_reason")
        if stop == "refusal":
            reason = _explanation(body.get("stop_details"))
            raise CallFailed(FailureKind.REFUSED, f"the model refused{': ' + reason if reason else '.'}")
        if not isinstance(blocks, list):
            message = provider_message(body.get("error"))
            raise CallFailed(FailureKind.MALFORMED, f"it has no content{': ' + message if message else '.'}")
        texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
        written = "".join(text for text in texts if isinstance(text, str))
        return clean_description(written, is_cut=stop == "max_tokens")

    def tokens_of(self, usage: object) -> TokenCounts:
        """Input tokens are the sum of those read anew, written to the cache and read from it."""
        fresh = token_count(usage, "input_tokens")
        cached = token_count(usage, "cache_read_input_tokens") or 0
        written = token_count(usage, "cache_creation_input_tokens") or 0
        total = None if fresh is None else fresh + cached + written
        return TokenCounts(total, token_count(usage, "output_tokens"), cached)


def _explanation(details: object) -> str:
    explanation = details.get("explanation") if isinstance(details, dict) else None
    return explanation if isinstance(explanation, str) else ""
