"""Shared places by their URI, such as `s3://bucket/prefix?region=eu-central-1`: one way to write them for all of us.

They are written as Arrow reads them; Delta's writer has other words for the same. What a URI leaves out comes from the
environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …). A URI may hold a key, so it is never shown whole.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pyarrow import fs

from lightmeter.errors import UsageError

__all__ = ["delta_place", "file_system", "is_uri", "redact_uri"]

_DELTA_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key")


def is_uri(where: object) -> bool:
    """Whether it is a URI, and no path of this machine."""
    return isinstance(where, str) and "://" in where


def redact_uri(place: str) -> str:
    """A URI without the key and the options that may be in it; a path as it is."""
    parts = urlsplit(place)
    if not is_uri(place):
        return place
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def file_system(place: str, filesystem: Any = None) -> tuple[fs.FileSystem, str]:
    """The file system of a place and the path on it.

    Args:
        place: A URI, or a path on `filesystem`.
        filesystem: A file system of `pyarrow.fs` or of fsspec; None: the one that the URI names.

    Raises:
        OSError, pyarrow.ArrowException: The URI is not understood.
    """
    if filesystem is None:
        there, root = fs.FileSystem.from_uri(place)
    else:
        handler: Any = fs.FSSpecHandler
        there = filesystem if isinstance(filesystem, fs.FileSystem) else fs.PyFileSystem(handler(filesystem))
        root = place
    return there, root.rstrip("/")


def delta_place(place: str) -> tuple[str, dict[str, str]]:
    """A place in the words of Delta's writer: its URI, and what it must be told beside it.

    Raises:
        UsageError: The URI has an option that Delta's writer does not know.
    """
    parts = urlsplit(place)
    if not is_uri(place) or not (parts.query or "@" in parts.netloc):
        return place.rstrip("/"), {}
    keys, _, bucket = parts.netloc.rpartition("@")
    told = {name: unquote(key) for name, key in zip(_DELTA_KEYS, keys.split(":"), strict=False) if key}
    options = dict(parse_qsl(parts.query))
    scheme = options.pop("scheme", "https")
    if scheme == "http":
        told["aws_allow_http"] = "true"
    if region := options.pop("region", None):
        told["aws_region"] = region
    if endpoint := options.pop("endpoint_override", None):
        told["aws_endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if options:
        raise UsageError(
            f"Delta's writer does not know {', '.join(sorted(options))} of {redact_uri(place)}.",
            hint="It knows the options region, scheme and endpoint_override, and the variables AWS_….",
        )
    return f"{parts.scheme}://{bucket}{parts.path.rstrip('/')}", told
