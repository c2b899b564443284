"""Opens, translates and masks URIs of object stores, such as `s3://bucket/prefix?region=eu-central-1`.

A URI has the form that Arrow reads; `delta_place` translates it for Delta's writer. Options that the URI lacks come
from environment variables (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …). A URI may hold a secret key: print it only
through `uri_name`.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pyarrow import fs

from lightmeter.errors import UsageError
from lightmeter.redaction import mask_credentials
from lightmeter.remote_files import open_file_system

_DELTA_KEYS: Final = ("aws_access_key_id", "aws_secret_access_key")


def is_uri(where: object) -> bool:
    """Return whether a value is a URI and not a local path."""
    return isinstance(where, str) and "://" in where


def uri_name(place: str) -> str:
    """Return the URI `place` without its credentials and its options, for messages; return a path unchanged."""
    return mask_credentials(place).partition("?")[0] if is_uri(place) else place


def file_system(place: str, filesystem: Any = None) -> tuple[fs.FileSystem, str]:
    """Return the file system of a remote folder, and the path on it.

    Args:
        place: A URI, or a path on `filesystem`.
        filesystem: A file system of `pyarrow.fs` or of fsspec; None means the one that the URI names.

    Raises:
        OSError, ValueError: The URI is invalid, or a variable that it needs is missing.
        SettingsError: A package that the URI needs is not installed.
    """
    if filesystem is None:
        remote, root = open_file_system(place)
    else:
        handler: Any = fs.FSSpecHandler
        remote = filesystem if isinstance(filesystem, fs.FileSystem) else fs.PyFileSystem(handler(filesystem))
        root = place
    return remote, root.rstrip("/")


def delta_place(place: str) -> tuple[str, dict[str, str]]:
    """Return the URI or path `place` in the form that Delta's writer needs: a place and a dict.

    The place is without options and credentials. The dict has both, under the names that Delta's writer uses.

    Raises:
        UsageError: Delta's writer does not support an option of the URI.
    """
    parts = urlsplit(place)
    if not is_uri(place) or not (parts.query or "@" in parts.netloc):
        return place.rstrip("/"), {}
    keys, _, bucket = parts.netloc.rpartition("@")
    storage = {name: unquote(key) for name, key in zip(_DELTA_KEYS, keys.split(":"), strict=False) if key}
    options = dict(parse_qsl(parts.query))
    scheme = options.pop("scheme", "https")
    if scheme == "http":
        storage["aws_allow_http"] = "true"
    if region := options.pop("region", None):
        storage["aws_region"] = region
    if endpoint := options.pop("endpoint_override", None):
        storage["aws_endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if options:
        raise UsageError(
            f"Delta's writer does not know {', '.join(sorted(options))} of {uri_name(place)}.",
            hint="It knows the options region, scheme and endpoint_override, and the variables AWS_….",
        )
    return f"{parts.scheme}://{bucket}{parts.path.rstrip('/')}", storage
