"""Builds the two answers at `/`: an HTML page for browsers, and a JSON index of the API for programs."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any, Final

from lightmeter.wire.response import Backends

BLOCK: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)

LISTED_FIELDS: Final = ("name", "model", "licence", "default", "available", "reason", "alias_of")
"""Fields of each back end in the list `models` of the JSON index."""


@cache
def page() -> tuple[bytes, dict[str, str]]:
    """Return the index page as HTML in UTF-8, and its HTTP headers.

    The header Content-Security-Policy allows only the page's own script and style. The HTML file is read only once.
    """
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
        # The page shows pictures from URLs that the visitor enters.
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
    return body, headers


def index(offers: Backends) -> dict[str, Any]:
    """Return the JSON index at `/`: the endpoints, and two entries for the back ends.

    `backends` is name → feature → price in credits, for available back ends. `models` is a list of all back ends, with
    the fields in `LISTED_FIELDS`. `offers` is the body of GET /api/backends.
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
        "models": [offer.model_dump(mode="json", include=set(LISTED_FIELDS)) for offer in offers.backends],
    }
