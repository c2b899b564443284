"""Decoding of answers of any shape, from bytes to rows of the fact tables such as `tags`. Pure.

No answer raises an error. A value of the wrong type becomes null. Unknown fields remain in the column `raw`, if the
table has one, and in the journal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from lightmeter.facts.answer_assets import frame_number, listed_assets
from lightmeter.facts.columns import FACT_TABLES
from lightmeter.facts.extract import extract
from lightmeter.facts.fact_columns import FactColumns, FactRows, RowKey
from lightmeter.facts.fast_columns import fast_entry_columns
from lightmeter.facts.fast_decode import KEYED_TABLES, FastFeatures, decode_answer_fast
from lightmeter.facts.lenient_decode import decode_answer_lenient, json_text, read_entries
from lightmeter.facts.lenient_json import loads_lenient


class ItemRef(NamedTuple):
    """A manifest row, and which image or video in the answer to its request belongs to it.

    Attributes:
        item_id: The row's id.
        url: The row's URL or path, as in the manifest.
        asset: Position of the row's image or video in `all.assets` of the answer; None if the answer lacks it.
        frame: Number of the captured frame, from 0, that was sent in place of the row's video; None if the image or the
            whole video was sent.
    """

    item_id: str
    url: str
    asset: int | None
    frame: int | None = None


class AnswerContext(NamedTuple):
    """What is known about the request of an answer, to be stored with the answer's rows.

    Attributes:
        run_id: Id of the run that sent the request.
        request_id: The service's id of the request. If None, the id that the answer states is stored.
        role: Persona, such as `critic`, that the request named as the author of descriptions. If None, the one that the
            answer states is stored.
        language: Language that the request asked for in descriptions. If None, the one that the answer states is
            stored.
    """

    run_id: str
    request_id: str | None
    role: str | None
    language: str | None


_CACHED_PICTURES: Final = 32
"""Number of images and frames whose decoded answers are kept before they become columns.

Their objects (about 1 MB) fit into the second-level cache of a processor core. With 400 of them, an export by two
processes takes a fifth more processor time, because both wait for memory. One process on a quiet machine takes as long.
"""

_BATCH_BYTES: Final = 2**21
"""Answers are collected until they have this number of bytes in all, and then their rows are passed on together.

That makes the fixed cost of an array small. The part of an answer that several manifest rows share counts for each of
them, because each gets a copy of its facts.
"""

_RoleAndLanguage: TypeAlias = tuple[str | None, str | None]


class Flattener:
    """Decodes the service's answers into rows of the fact tables (such as `tags`) and the table `errors`.

    Args:
        write: Function that gets the collected rows whenever they are a full batch, also in the middle of an answer.
            None means to keep the rows of all answers until `take` is called.
    """

    def __init__(self, write: Callable[[FactRows], None] | None = None) -> None:
        self._write = write
        self._batch_bytes = 0  # of the answers whose rows are collected
        self._rows = {table: FactColumns(table) for table in (*FACT_TABLES, "errors")}
        self._pictures: list[FastFeatures] = []  # of answers with the usual shape: not yet columns
        self._picture_keys: list[int] = []
        self._keys: list[RowKey] = []

    def add_answer(self, raw: bytes, items: Sequence[ItemRef], context: AnswerContext) -> None:
        """Add rows for the facts and errors in one answer.

        If several manifest rows share an image or video, each of them gets a copy of its facts. Facts about a video
        frame get the frame's number. An answer that is not a JSON object adds nothing.

        Args:
            raw: The bytes of the answer.
            items: The manifest rows of the request.
            context: What is known about the request.
        """
        answer = decode_answer_fast(raw)
        if answer is None:
            self._add_lenient(raw, items, context)
            return
        assets = answer.all.assets
        bytes_each = len(raw) // max(1, len(assets))
        request = _role_and_language(context, answer.role, answer.language)
        for item in items:
            if item.asset is not None and 0 <= item.asset < len(assets):
                asset = assets[item.asset]
                self._add_picture(asset, (item.item_id, item.url, item.frame, context.run_id, *request))
                for position, frame in enumerate(asset.frames or ()):
                    self._add_picture(frame, _frame_key(item, frame.index, position, context, request))
                if len(self._pictures) >= _CACHED_PICTURES:
                    self._flush_pictures()
                self._count(bytes_each)
        if answer.all.errors:
            self._add_errors((answer.request_id, answer.backends), answer.all.errors, items, context)
            self._count(bytes_each)

    def take(self) -> FactRows:
        """Return the rows of all answers that were added since the last call of `take`, and forget them."""
        self._flush_pictures()
        self._batch_bytes = 0
        rows, self._rows = self._rows, {table: FactColumns(table) for table in self._rows}
        keys, self._keys = self._keys, []
        return FactRows(keys, {table: columns for table, columns in rows.items() if columns.keys})

    def _count(self, size_bytes: int) -> None:
        """Count bytes of an answer whose rows are now collected. Pass the rows on if they are a full batch."""
        self._batch_bytes += size_bytes
        if self._batch_bytes >= _BATCH_BYTES and self._write is not None:
            self._write(self.take())

    def _add_key(self, key: RowKey) -> int:
        self._keys.append(key)
        return len(self._keys) - 1

    def _add_picture(self, features: FastFeatures, key: RowKey) -> None:
        self._pictures.append(features)
        self._picture_keys.append(self._add_key(key))

    def _flush_pictures(self) -> None:
        pictures, self._pictures = self._pictures, []
        keys, self._picture_keys = self._picture_keys, []
        for table in FACT_TABLES if pictures else ():
            features = [
                (key, feature) for key, one in zip(keys, pictures, strict=True) if (feature := getattr(one, table))
            ]
            if features:
                self._add_features(table, *zip(*features, strict=True))

    def _add_features(self, table: str, keys: Sequence[int], features: Sequence[Any]) -> None:
        """Add the rows of one fact table, such as `tags`, about many images and video frames (pictures).

        Args:
            table: Name of the table and of its feature.
            keys: For each picture, the position of its `RowKey` in `FactRows.keys`.
            features: For each picture, the feature in its answer, as `FastFeatures` holds it.
        """
        entries, counts = _all_entries(features, keyed=table in KEYED_TABLES)
        columns = fast_entry_columns(table, entries, counts) if entries else {}
        if columns:
            self._rows[table].extend(keys, counts, columns)
        elif columns is None and len(keys) > 1:
            for key, feature in zip(keys, features, strict=True):
                self._add_features(table, [key], [feature])
        elif columns is None:
            found = read_entries(table, [loads_lenient(bytes(entry)) for entry in entries])
            self._rows[table].extend_coerced(keys[0], extract(table, found), len(found.fields))

    def _add_lenient(self, raw: bytes, items: Sequence[ItemRef], context: AnswerContext) -> None:
        answer = decode_answer_lenient(raw)
        results = answer.get("all")
        if not isinstance(results, dict):
            return
        self._flush_pictures()  # rows keep the order of their answers
        request = _role_and_language(context, answer.get("role"), answer.get("language"))
        assets = listed_assets(results)
        bytes_each = len(raw) // max(1, len(assets))
        for item in items:
            asset = assets[item.asset] if item.asset is not None and 0 <= item.asset < len(assets) else None
            if not isinstance(asset, dict):
                continue
            self._add_asset(asset, (item.item_id, item.url, item.frame, context.run_id, *request))
            frames = asset.get("frames")
            for position, frame in enumerate(frames if isinstance(frames, list) else ()):
                if isinstance(frame, dict):
                    self._add_asset(frame, _frame_key(item, frame.get("index"), position, context, request))
            self._count(bytes_each)
        if errors := results.get("errors"):
            self._add_errors((answer.get("request_id"), answer.get("backends")), errors, items, context)
            self._count(bytes_each)

    def _add_asset(self, asset: Mapping[str, Any], row_key: RowKey) -> None:
        key = self._add_key(row_key)
        for table in FACT_TABLES:
            if value := asset.get(table):
                found = read_entries(table, value)
                if found.fields:
                    self._rows[table].extend_coerced(key, extract(table, found), len(found.fields))

    def _add_errors(
        self, request: tuple[Any, Any], errors: Any, items: Sequence[ItemRef], context: AnswerContext
    ) -> None:
        """Add a row to the table `errors` for each error in an answer.

        Args:
            request: What the answer states about its request: the request id, and the names of the back ends.
            errors: The value of `all.errors` in the answer, of any type.
            items: The manifest rows of the request.
            context: What is known about the request.
        """
        answered_id, backends = request
        request_id = context.request_id if context.request_id is not None else answered_id
        for error in errors if isinstance(errors, list) else ([errors] if errors else ()):
            fields = error if isinstance(error, dict) else {}
            message = next((fields[name] for name in ("message", "error") if isinstance(fields.get(name), str)), None)
            if message is None:
                message = error if isinstance(error, str) else json_text(error)
            backend = fields.get("backend") or fields.get("source") or _backend_in(message, backends)
            item = _item_in(fields.get("url") or message, items)
            key = (item and item.item_id, item and item.url, None, context.run_id, None, None)
            columns = {"request_id": [request_id], "backend": [backend], "message": [message]}
            self._rows["errors"].extend_coerced(self._add_key(key), columns, 1)


def _all_entries(features: Sequence[Any], *, keyed: bool) -> tuple[list[Any], list[int]]:
    """Return all entries of one feature (such as tags) of many pictures, and the number of entries of each picture.

    If `keyed` is true, each item of `features` is a dict of lists of entries, otherwise a list of entries.
    """
    if not keyed:
        return list(chain.from_iterable(features)), list(map(len, features))
    groups = list(chain.from_iterable(map(dict.values, features)))
    entries = list(chain.from_iterable(groups))
    if len(entries) == len(groups) and all(groups):  # one entry under each key, as usual
        return entries, list(map(len, features))
    return entries, [sum(map(len, feature.values())) for feature in features]


def _role_and_language(context: AnswerContext, role: Any, language: Any) -> _RoleAndLanguage:
    return (
        context.role if context.role is not None else role if isinstance(role, str) else None,
        context.language if context.language is not None else language if isinstance(language, str) else None,
    )


def _frame_key(item: ItemRef, index: Any, position: int, context: AnswerContext, request: _RoleAndLanguage) -> RowKey:
    return item.item_id, item.url, frame_number(index, position), context.run_id, *request


def _backend_in(message: str, backends: Any) -> str | None:
    """Return the back end that an error message names; None if it names none or several of `backends`.

    `backends` are the back ends of the request. If they are unknown, a message of the form `name: text` names the back
    end `name`.
    """
    if not backends:
        prefix = re.match(r"([a-z][a-z0-9]*): ", message)
        return prefix[1] if prefix else None
    words = set(re.findall(r"\w+", message.casefold()))
    requested = [name for name in backends if isinstance(name, str)] if isinstance(backends, list) else []
    named = [name for name in requested if name.casefold() in words]
    return named[0] if len(named) == 1 else None


def _item_in(message: Any, items: Sequence[ItemRef]) -> ItemRef | None:
    """Return the manifest row that an error is about; None if that is unknown.

    `items` are the manifest rows of the request. If there is only one, it is the result. Otherwise, the result is the
    row whose URL is in the message, unless there are several such rows.
    """
    if len(items) == 1:
        return items[0]
    named = [item for item in items if item.url and isinstance(message, str) and item.url in message]
    return named[0] if len(named) == 1 else None
