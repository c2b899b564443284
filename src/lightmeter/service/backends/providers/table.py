"""Providers that have an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lightmeter.service.backends.providers.provider import Provider

__all__ = ["PROVIDERS"]

PROVIDERS: Final[Mapping[str, Provider]] = {}
