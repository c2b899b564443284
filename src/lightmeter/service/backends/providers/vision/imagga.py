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
"""Imagga's label → label in our answers. Readers of answers count the severity of `sfw` as 1 - score."""

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


class _TagResult(msgspec.Struct, frozen=True):
    tags: tuple[_Tag, ...]


class _CategoryResult(msgspec.Struct, frozen=True):
    categories: tuple[_Category, ...]


class _TagAnswer(msgspec.Struct, frozen=True):
    result: _TagResult


class _CategoryAnswer(msgspec.Struct, frozen=True):
    result: _CategoryResult


class _StatusAnswer(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class Imagga(OneCallPerFeature):
    """Back end `imagga`: features nsfw, tags.

    `tags` are the best fifty, in English. `nsfw` comes from the categorizer `nsfw_beta`; its category `safe` becomes
    the label `sfw`, and the others (nsfw, underwear) keep their names.

    The terms of Imagga's API apply; pictures are sent to Imagga.

    Args:
        settings: `api_key` and `api_secret` are the two halves of the account's key.

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
        return self._tags(picture, timeout_s) if feature == "tags" else self._nsfw(picture, timeout_s)

    def _tags(self, picture: EncodedPicture, timeout_s: float) -> Any:
        found = decode_json(self._post("/v2/tags", picture, timeout_s), _TagAnswer).result.tags
        scored_names = ((tag.tag.get(_LANGUAGE, ""), to_score(tag.confidence, _PER_CENT)) for tag in found)
        return to_tags(scored_names, self.name)

    def _nsfw(self, picture: EncodedPicture, timeout_s: float) -> list[Nsfw]:
        answer = decode_json(self._post(f"/v2/categories/{_CATEGORIZER}", picture, timeout_s), _CategoryAnswer)
        found = []
        for category in answer.result.categories:
            label = category.name.get(_LANGUAGE, "")
            score = to_score(category.confidence, _PER_CENT)
            found.append(Nsfw(label=SFW_NAMES.get(label, label), score=score, source=self.name))
        if not found:
            raise CallFailed(FailureKind.MALFORMED, "it has no categories")
        return found

    def _post(self, path: str, picture: EncodedPicture, timeout_s: float) -> bytes:
        body = self._rest.post(path, timeout_s, files={"image": ("picture.jpg", picture.jpeg, "image/jpeg")})
        status = decode_json(body, _StatusAnswer).status
        if status.type not in {"", _SUCCESS}:
            raise CallFailed(FailureKind.REFUSED, status.text or status.type)
        return body
