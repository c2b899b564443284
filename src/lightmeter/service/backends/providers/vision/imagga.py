"""Adapter for Imagga; it makes one REST call for each requested feature.

Source: https://docs.imagga.com
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from lightmeter.service.backends.providers.failures import CallFailed, FailureKind
from lightmeter.service.backends.providers.http_client import RestClient, decode_json
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.service.backends.providers.vision.adapter import (
    EncodedPicture,
    VisionAdapter,
    key_pair,
    to_score,
    to_tags,
)
from lightmeter.wire.response import Entries, Nsfw

SFW_NAMES: Final = {"safe": "sfw"}
"""Imagga's label → label in our answers. Readers of answers count the severity of `sfw` as 1 - score."""

_PER_CENT: Final = 100.0
_LANGUAGE: Final = "en"
_SUCCESS: Final = "success"
_TAGS: Final = "tags"
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


class Imagga(VisionAdapter):
    """Back end `imagga`: features nsfw, tags.

    `tags` are the best fifty, in English. `nsfw` comes from the categorizer `nsfw_beta`; its category `safe` becomes
    the label `sfw`, and the others (nsfw, underwear) keep their names. The adapter makes one call for each requested
    feature, one after the other, and sends the picture with each.

    The terms of Imagga's API apply; pictures are sent to Imagga.

    Args:
        settings: `api_key` and `api_secret` are the two halves of the account's key.

    Raises:
        SettingsError: the key is missing, or the address is invalid.
    """

    supported_features = frozenset({"nsfw", "tags"})

    def __init__(self, settings: ProviderSettings) -> None:
        pair = key_pair(settings, "IMAGGA_API_KEY", "IMAGGA_API_SECRET")
        basic = base64.b64encode(":".join(pair).encode()).decode("ascii")
        super().__init__(settings, secrets=(basic,))
        self._rest = RestClient(settings, {"Authorization": f"Basic {basic}"})

    @property
    def model(self) -> str:
        """Names of the tagger and the categorizer."""
        return f"tags v2, {_CATEGORIZER}"

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()

    def _entries(self, picture: EncodedPicture, features: frozenset[str]) -> Entries:
        entries = Entries()
        if "nsfw" in features:
            entries.nsfw = self.call(_CATEGORIZER, lambda timeout_s: self._nsfw(picture, timeout_s), picture)
        if "tags" in features:
            entries.tags = self.call(_TAGS, lambda timeout_s: self._tags(picture, timeout_s), picture)
        return entries

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
