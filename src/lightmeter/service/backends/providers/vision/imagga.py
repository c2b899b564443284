"""Adapter for Imagga; it makes REST calls.

Source: https://docs.imagga.com
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lightmeter.service.backends.providers.failures import CallFailed, FailureKind
from lightmeter.service.backends.providers.http_client import RestClient, decode_json
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.vision.adapter import (
    EncodedPicture,
    OneCallPerFeature,
    key_pair,
    to_score,
    to_tags,
)
from lightmeter.wire.response import Nsfw

SFW_NAMES: Final = {"safe": "sfw"}
"""Imagga's label → label that the back end returns. Harmless pictures must have the label `sfw`, because lightmeter
computes the severity of this label as 1 - score."""

_PER_CENT: Final = 100.0
_LANGUAGE: Final = "en"
_SUCCESS: Final = "success"
_CATEGORIZER: Final = "nsfw_beta"


class _Tag(msgspec.Struct, frozen=True):
    confidence: float
    tag: dict[str, str]


class _Category(msgspec.Struct, frozen=True):
    confidence: float
    name: dict[str, str]


class _Status(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class _Result(msgspec.Struct, frozen=True):
    tags: tuple[_Tag, ...] | None = None
    categories: tuple[_Category, ...] | None = None


class _Answer(msgspec.Struct, frozen=True):
    result: _Result | None = None
    status: _Status = _Status()


class Imagga(OneCallPerFeature):
    """Back end `imagga`: features nsfw, tags.

    `tags` are the fifty tags with the highest scores, in English. `nsfw` comes from the categorizer `nsfw_beta`. Its
    category `safe` becomes the label `sfw`; its other categories (nsfw, underwear) keep their names.

    The terms of Imagga's API apply; pictures are sent to Imagga.

    Args:
        settings: `api_key` and `api_secret` are the two parts of the account's key.

    Raises:
        SettingsError: the key is missing, or the address is invalid.
    """

    operations: Mapping[str, str] = {"nsfw": _CATEGORIZER, "tags": "tags"}
    supported_features = frozenset(operations)

    def __init__(self, settings: ProviderSettings) -> None:
        pair = key_pair(settings, "IMAGGA_API_KEY", "IMAGGA_API_SECRET")
        basic = base64.b64encode(":".join(pair).encode()).decode("ascii")
        super().__init__(settings, secrets=(basic,))
        self._rest = RestClient(settings, {"Authorization": f"Basic {basic}"})
        self.connections.callback(self._rest.close)

    def _request(self, feature: str, picture: EncodedPicture, timeout_s: float) -> Any:
        path = "/v2/tags" if feature == "tags" else f"/v2/categories/{_CATEGORIZER}"
        body = self._rest.post(path, timeout_s, files={"image": ("picture.jpg", picture.jpeg, "image/jpeg")})
        answer = decode_json(body, _Answer)
        if answer.status.type not in {"", _SUCCESS}:
            raise CallFailed(FailureKind.REFUSED, answer.status.text or answer.status.type)
        result = answer.result or _Result()
        if feature == "tags" and result.tags is not None:
            scored_names = ((tag.tag.get(_LANGUAGE, ""), to_score(tag.confidence, _PER_CENT)) for tag in result.tags)
            return to_tags(scored_names, self.name)
        if feature == "nsfw" and result.categories:
            return [self._nsfw(category) for category in result.categories]
        raise CallFailed(FailureKind.MALFORMED, f"it has no {feature}")

    def _nsfw(self, category: _Category) -> Nsfw:
        label = category.name.get(_LANGUAGE, "")
        score = to_score(category.confidence, _PER_CENT)
        return Nsfw(label=SFW_NAMES.get(label, label), score=score, source=self.name)
