"""Table of the providers whose language models describe pictures: defaults and environment variables.

Default models are the providers' small, current vision models as documented in November 2026. Reasoning is switched off
or low: a description needs none, and providers charge for it as output. The operator can set any other model. Other
endpoints are not in the table: the operator's settings name the kind `openai-compatible`, a base URL and a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from lightmeter.service.backends.providers.provider import Provider

_PACKAGE: Final = "lightmeter.service.backends.providers.description"

OPENAI_COMPATIBLE_ADAPTER: Final = f"{_PACKAGE}.openai_compatible:OpenAICompatible"
"""Adapter class for every endpoint with OpenAI's chat completions API: vLLM, llama.cpp, LM Studio, OpenRouter, …"""

_DESCRIPTIONS: Final = frozenset({"descriptions"})
_openai_row = partial(
    Provider, adapter=OPENAI_COMPATIBLE_ADAPTER, features=_DESCRIPTIONS, extra="openai", package="openai"
)
_ollama_row = partial(
    _openai_row,
    adapter=f"{_PACKAGE}.openai_compatible:Ollama",
    base_url=None,
    base_url_variable="OLLAMA_HOST",
    options={"max_tokens": "1024"},
)

_ROWS: Final = (
    _openai_row(
        name="openai",
        model="gpt-6-luna",
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        options={"max_completion_tokens": "2048", "reasoning_effort": "none"},
    ),
    _openai_row(
        name="grok",
        model="grok-4.3",
        base_url="https://api.x.ai/v1",
        base_url_variable="XAI_BASE_URL",
        key_variable="XAI_API_KEY",
        options={"max_completion_tokens": "2048", "reasoning_effort": "none"},
    ),
    _openai_row(
        name="gemini",
        model="gemini-3.5-flash-lite",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        base_url_variable="GEMINI_BASE_URL",
        key_variable="GEMINI_API_KEY",
        options={"max_tokens": "2048", "reasoning_effort": "minimal"},
    ),
    Provider(
        name="claude",
        adapter=f"{_PACKAGE}.claude:Claude",
        features=_DESCRIPTIONS,
        model="claude-haiku-5-5",
        base_url="https://api.anthropic.com",
        base_url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        extra="claude",
        package="anthropic",
        options={"max_tokens": "2048", "thinking": '{"type": "disabled"}'},
    ),
    _openai_row(
        name="jinaai",
        model="jina-vlm",
        base_url="https://api-beta-vlm.jina.ai/v1",
        base_url_variable="JINA_BASE_URL",
        key_variable="JINA_API_KEY",
        options={"max_tokens": "1024"},
    ),
    _ollama_row(name="llava", model="llava"),
    _ollama_row(name="bakllava", model="bakllava"),
)

DESCRIPTION_PROVIDERS: Final[Mapping[str, Provider]] = {row.name: row for row in _ROWS}
"""Name → provider of a language model that describes pictures."""

OPENAI_COMPATIBLE: Final = _openai_row(name="openai-compatible", model=None, base_url=None)
"""Provider entry for any other endpoint with OpenAI's protocol. The operator's settings must give its address and
model."""
