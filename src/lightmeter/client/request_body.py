"""Builds the JSON bodies of a run's requests. All bodies have the same options, which are encoded only once. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from lightmeter.errors import UsageError
from lightmeter.wire.request import AnalyzeRequest


class RequestBodyBuilder:
    """Builder of bodies of POST /api/fetch that differ only in their images and videos.

    Args:
        shared: A request with the options that all bodies share; its URLs and files are ignored.
    """

    def __init__(self, shared: AnalyzeRequest) -> None:
        wire = shared.to_wire()
        for name in ("url", "file", "file_name"):
            wire.pop(name, None)
        self._tail = b"," + encode_json(wire)[1:] if wire else b"}"

    def for_urls(self, urls: Sequence[str]) -> bytes:
        """Return the JSON body of a request for the images and videos at `urls`; there must be at least one URL.

        Raises:
            UsageError: a URL holds half a surrogate pair, which JSON cannot represent.
        """
        return b'{"url":' + _one_or_list(urls) + self._tail

    def for_files(self, contents: Sequence[str], names: Sequence[str]) -> bytes:
        """Return the JSON body of a request that contains files; there must be at least one.

        `contents` are the contents of the files in base64; `names` are their names, in the order of `contents`.

        Raises:
            UsageError: a name holds half a surrogate pair, which JSON cannot represent.
        """
        return b'{"file":' + _one_or_list(contents) + b',"file_name":' + _one_or_list(names) + self._tail


def _one_or_list(texts: Sequence[str]) -> bytes:
    return encode_json(texts[0] if len(texts) == 1 else list(texts))


def encode_json(value: object) -> bytes:
    """Return a value as JSON in UTF-8.

    Raises:
        UsageError: a text in the value holds half a surrogate pair, as some invalid file names do.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise UsageError(f"The request cannot be written as JSON: {error}.") from error
