"""Table of the providers of descriptions. It imports no adapter.

Default models are the providers' small, current vision models as documented in November 2026. Reasoning is switched off
or low: a description needs none, and providers charge for it as output. The operator can set any other model. Other
endpoints need no row here: their settings name the kind `openai-compatible`, a base URL and a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lightmeter.service.backends.providers.provider import Provider

_PACKAGE: Final = "lightmeter.service.backends.providers.description"

OPENAI_COMPATIBLE_ADAPTER: Final = f"{_PACKAGE}.openai_compatible:OpenAICompatible"
"""Adapter for every endpoint with OpenAI's chat completions API: vLLM, llama.cpp, LM Studio, OpenRouter, …"""

_OLLAMA: Final = f"{_PACKAGE}.openai_compatible:Ollama"
_CLAUDE: Final = f"{_PACKAGE}.claude:Claude"
_DESCRIPTIONS: Final = frozenset({"descriptions"})

_ROWS: Final = (
    Provider(
        "openai",
        OPENAI_COMPATIBLE_ADAPTER,
        _DESCRIPTIONS,
        model="gpt-6-luna",
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        extra="openai",
        package="openai",
        options={"max_completion_tokens": "2048", "reasoning_effort": "none"},
    ),
    Provider(
        "grok",
        OPENAI_COMPATIBLE_ADAPTER,
        _DESCRIPTIONS,
        model="grok-4.3",
        base_url="https://api.x.ai/v1",
        base_url_variable="XAI_BASE_URL",
        key_variable="XAI_API_KEY",
        extra="openai",
        package="openai",
        options={"max_completion_tokens": "2048", "reasoning_effort": "none"},
    ),
    Provider(
        "gemini",
        OPENAI_COMPATIBLE_ADAPTER,
        _DESCRIPTIONS,
        model="gemini-3.5-flash-lite",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        base_url_variable="GEMINI_BASE_URL",
        key_variable="GEMINI_API_KEY",
        extra="openai",
        package="openai",
        options={"max_tokens": "2048", "reasoning_effort": "minimal"},
    ),
    Provider(
        "claude",
        _CLAUDE,
        _DESCRIPTIONS,
        model="claude-haiku-5-5",
        base_url="https://api.anthropic.com",
        base_url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        extra="claude",
        package="anthropic",
        options={"max_tokens": "2048", "thinking": '{"type": "disabled"}'},
    ),
    Provider(
        "jinaai",
        OPENAI_COMPATIBLE_ADAPTER,
        _DESCRIPTIONS,
        model="jina-vlm",
        base_url="https://api-beta-vlm.jina.ai/v1",
        base_url_variable="JINA_BASE_URL",
        key_variable="JINA_API_KEY",
        extra="openai",
        package="openai",
        options={"max_tokens": "1024"},
    ),
    Provider(
        "llava",
        _OLLAMA,
        _DESCRIPTIONS,
        model="llava",
        base_url=None,
        base_url_variable="OLLAMA_HOST",
        extra="openai",
        package="openai",
        options={"max_tokens": "1024"},
    ),
    Provider(
        "bakllava",
        _OLLAMA,
        _DESCRIPTIONS,
        model="bakllava",
        base_url=None,
        base_url_variable="OLLAMA_HOST",
        extra="openai",
        package="openai",
        options={"max_tokens": "1024"},
    ),
)

DESCRIPTION_PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType({row.name: row for row in _ROWS})
"""Name → description provider."""
