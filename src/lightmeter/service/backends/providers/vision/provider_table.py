"""Table of the providers of vision APIs: their defaults and environment variables.

The adapters, the classes that call the providers, are named as strings and not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lightmeter.service.backends.providers.provider import Provider

_PACKAGE: Final = "lightmeter.service.backends.providers.vision"

_ROWS: Final = (
    Provider(
        name="clarifai",
        adapter=f"{_PACKAGE}.clarifai:Clarifai",
        features=frozenset({"nsfw", "tags"}),
        model="general-image-recognition",
        base_url="https://api.clarifai.com",
        key_variable="CLARIFAI_PAT",
        extra="clarifai",
        package="clarifai_grpc",
    ),
    Provider(
        name="googlevision",
        adapter=f"{_PACKAGE}.googlevision:GoogleVision",
        features=frozenset({"brands", "colors", "faces", "nsfw", "tags", "texts"}),
        model="builtin/stable",
        base_url="https://vision.googleapis.com",
        key_variable="GOOGLE_API_KEY",
        option_variables={"credentials_file": "GOOGLE_APPLICATION_CREDENTIALS"},
        key_option="credentials_file",
    ),
    Provider(
        name="imagga",
        adapter=f"{_PACKAGE}.imagga:Imagga",
        features=frozenset({"nsfw", "tags"}),
        model="",
        base_url="https://api.imagga.com",
        key_variable="IMAGGA_API_KEY",
        secret_variable="IMAGGA_API_SECRET",  # noqa: S106 (the name of a variable)
    ),
    Provider(
        name="rekognition",
        adapter=f"{_PACKAGE}.rekognition:Rekognition",
        features=frozenset({"faces", "nsfw", "tags"}),
        model="",
        base_url="https://rekognition.{region}.amazonaws.com",
        key_variable="AWS_ACCESS_KEY_ID",
        secret_variable="AWS_SECRET_ACCESS_KEY",  # noqa: S106 (the name of a variable)
        extra="rekognition",
        package="botocore",
        option_variables={"region": "AWS_REGION", "session_token": "AWS_SESSION_TOKEN"},
    ),
)

VISION_PROVIDERS: Final[Mapping[str, Provider]] = {row.name: row for row in _ROWS}
"""Name → vision provider, sorted by name. An empty `model` means that the provider has no choice of models."""
