"""Opens the file systems of URIs: `s3://`, `gs://`, `az://`, `hf://` and the others that Arrow knows.

A URI may hold a secret key: show it only through `lightmeter.redaction.mask_credentials`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from lightmeter.extras import import_extra
from lightmeter.redaction import mask_credentials

_RAW_SCHEMES = ("az", "hf")
"""Schemes whose paths are used as written. In the paths of all other schemes, Arrow decodes escapes such as `%20`."""


def open_file_system(uri: str) -> tuple[Any, str]:
    """Return the `pyarrow.fs` file system of a URI, and the path on it.

    `s3://`, `gs://`, `abfs://`, `file://` and others are Arrow's own, with Arrow's options such as
    `?endpoint_override=HOST%3APORT&scheme=http`. `az://CONTAINER/PATH` takes these two options too, and opens a
    container of the account in AZURE_STORAGE_ACCOUNT_NAME, with the key in AZURE_STORAGE_ACCOUNT_KEY or the login of
    this machine. `hf://datasets/USER/NAME/PATH` is a repository or a bucket of the Hugging Face hub, with the token in
    HF_TOKEN or of `hf auth login`.

    Raises:
        OSError, ValueError: the scheme is unknown, or a variable is missing. The message holds no key.
        SettingsError: a package that the scheme needs is not installed.
    """
    from pyarrow import fs  # noqa: PLC0415 (a third of a second, which local files do not need)

    scheme, _, path = uri.partition("://")
    path, _, query = path.partition("?")
    match scheme.lower():
        case "az":
            return _azure(fs, dict(parse_qsl(query))), path
        case "hf":
            return _hub(fs), path
    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError; its message quotes the URI
        raise type(error)(mask_credentials(str(error))) from None
    return found


def _azure(fs: Any, options: dict[str, str]) -> Any:
    if not hasattr(fs, "AzureFileSystem"):
        raise ValueError("this pyarrow knows no Azure: pip install --upgrade pyarrow")
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise ValueError("set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY where a key is needed")
    arguments: dict[str, Any] = {"account_key": os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")}
    if host := options.get("endpoint_override"):
        arguments |= {f"{service}_storage_authority": host for service in ("blob", "dfs")}
    if scheme := options.get("scheme"):
        arguments |= {f"{service}_storage_scheme": scheme for service in ("blob", "dfs")}
    return fs.AzureFileSystem(account, **arguments)


def _hub(fs: Any) -> Any:
    hub = import_extra("huggingface_hub", "hf", "hf://")
    # A file system that is shared within the process would remember old lists of files.
    return fs.PyFileSystem(fs.FSSpecHandler(_HubCalls(hub.HfFileSystem(skip_instance_cache=True))))


class _HubCalls:
    """Wraps the file system of the Hugging Face hub, or an open file on it; turns its HTTP errors into OSError."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._wrapped, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                result = found(*arguments, **named)
            except Exception as error:
                if type(error).__module__.startswith("httpx"):
                    raise OSError(f"the Hugging Face hub cannot be reached: {error}") from error
                raise
            return _HubCalls(result) if name == "open" else result

        return call


def child_uri(folder: str, name: str) -> str:
    """Return the URI of the file `name` below the URI of a folder, with the folder's options (`?region=…`)."""
    path, question, options = folder.partition("?")
    escaped = name if path.partition("://")[0].lower() in _RAW_SCHEMES else quote(name)
    return f"{path.rstrip('/')}/{escaped}{question}{options}"


def upload_to_hub(filesystem: Any, source: Path, target: str) -> bool:
    """If `filesystem` is the Hugging Face hub, write a local file to it as one commit; return whether it is the hub.

    The commit replaces an older file of the same path in one step. On another file system, nothing is written.

    Args:
        filesystem: A file system as `open_file_system` returns it.
        source: The local file.
        target: Path of the file on the hub.

    Raises:
        OSError: the hub refuses the file, or cannot be reached.
    """
    hub = getattr(getattr(filesystem, "handler", None), "fs", None)
    if not isinstance(hub, _HubCalls):
        return False
    try:
        hub.put_file(str(source), target)
    except (RuntimeError, ValueError) as error:  # what the hub's client raises if an upload fails
        raise OSError(f"{error} {error.__cause__ or ''}".strip()) from error
    return True
