"""The page at `/`: one file of HTML, style and script, that asks nothing of any other place."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from lightmeter.models.response import Backends

__all__ = ["IndexPage", "index", "page"]

BLOCK: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)

LISTED: Final = ("name", "model", "licence", "default", "available", "reason", "alias_of")
"""What the page shows of each back end beside its prices."""


@dataclass(frozen=True, slots=True)
class IndexPage:
    """The page as it is sent.

    Attributes:
        body: HTML in UTF-8.
        headers: Among them the policy that lets the page run its own script and style, and no others.
    """

    body: bytes
    headers: Mapping[str, str]


@cache
def page() -> IndexPage:
    """The page, read once."""
    body = files("lightmeter.service.http").joinpath("page.html").read_bytes()
    allowed: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in BLOCK.findall(body):
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        allowed[kind.decode()].append(f"'sha256-{digest}'")
    policy = (
        "default-src 'none'",
        f"script-src {' '.join(allowed['script'])}",
        f"style-src {' '.join(allowed['style'])}",
        "connect-src 'self'",
        # A picture that is named by URL is shown beside its results; the visitor has named it.
        "img-src data: blob: http: https:",
        "media-src blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    headers = {
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return IndexPage(body, headers)


def index(offers: Backends) -> dict[str, Any]:
    """What a program gets at `/`: the endpoints, and the back ends with the price in credits of each feature.

    Args:
        offers: As GET /api/backends lists them.
    """
    return {
        "service": "lightmeter",
        "analyze": "POST /api/fetch with X-API-Key: Token KEY",
        "results": "GET /api/response/<request_id>",
        "balance": "GET /api/credits",
        "prices": "GET /api/backends",
        "openapi": "GET /openapi.json",
        "metrics": "GET /metrics",
        "backends": {offer.name: offer.features for offer in offers.backends if offer.available},
        "models": [offer.model_dump(mode="json", include=set(LISTED)) for offer in offers.backends],
    }
