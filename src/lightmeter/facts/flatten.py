"""Raw answers to facts: read many at a time, whatever their shape, and packed column by column. Pure.

Nothing that an answer can hold raises. A value of the wrong type becomes null; what is not understood stays in the
`raw` column where the table has one, and whole in the journal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from lightmeter.facts.assets import listed_assets
from lightmeter.facts.buffers import Buffer, Key, PackedTable, packed_keys
from lightmeter.facts.columns import FACT_TABLES
from lightmeter.facts.extract import extract
from lightmeter.facts.fast_decode import FastFeatures, decode_answer_fast
from lightmeter.facts.lenient_decode import decode_answer_lenient, json_text, read_entries
from lightmeter.facts.packed import Pieces

__all__ = ["Answer", "AnswerContext", "Flattener", "ItemRef", "Packed"]

_MAX_FRAME: Final = 2**31 - 1
_TOGETHER: Final = 24
"""Pictures whose entries become values at once: enough for what is done once, and few enough for the processor's own
memory."""


class ItemRef(NamedTuple):
    """A row of the manifest, and which asset of an answer is its.

    Attributes:
        item_id: The row's id.
        url: The row's text, URL or path.
        asset: Position in `all.assets`; None when the answer has nothing for it.
    """

    item_id: str
    url: str
    asset: int | None


class AnswerContext(NamedTuple):
    """What an answer does not say about itself, or may say otherwise.

    Attributes:
        run_id: The run.
        request_id: The service's id of the request; None: as the answer says.
        role: Persona asked for; None: as the answer says.
        language: Language asked for; None: as the answer says.
    """

    run_id: str
    request_id: str | None
    role: str | None
    language: str | None


_Asked: TypeAlias = tuple[str | None, str | None]
"""Role and language that descriptions were asked for in."""


class _Echo(NamedTuple):
    """What an answer repeats of its request, as far as errors need it."""

    request_id: Any
    backends: Any


Answer: TypeAlias = tuple[bytes, Sequence[ItemRef], AnswerContext]
"""An answer as it came, and whose it is: what `Flattener.add_answer` takes."""


class Packed(NamedTuple):
    """Facts and errors of some answers.

    Attributes:
        keys: What each key says, column by column.
        tables: The rows of each table that has any.
    """

    keys: dict[str, Pieces]
    tables: dict[str, PackedTable]


class Flattener:
    """Collects facts and errors of answers until they are taken, packed."""

    def __init__(self) -> None:
        self._buffers = {table: Buffer(table) for table in (*FACT_TABLES, "errors")}
        self._pictures: list[FastFeatures] = []  # of usual answers, and the places of their keys:
        self._picture_keys: list[int] = []
        self._keys: list[Key] = []

    def add_answer(self, raw: bytes, items: Sequence[ItemRef], context: AnswerContext) -> None:
        """Add the facts and errors of one answer, as it came.

        Items that share an asset get a copy of its facts each. Entries of `frames` get the frame's number. An
        answer that is no JSON object adds nothing.
        """
        usual = decode_answer_fast(raw)
        if usual is None:
            self._add_unusual(decode_answer_lenient(raw), items, context)
            return
        results, assets = usual.all, usual.all.assets
        asked = _asked(context, usual.role, usual.language)
        for item in items:
            if item.asset is not None and 0 <= item.asset < len(assets):
                asset = assets[item.asset]
                self._add_features(asset, (item.item_id, item.url, None, context.run_id, *asked))
                for place, frame in enumerate(asset.frames or ()):
                    self._add_features(frame, _frame_key(item, frame.index, place, context, asked))
        if results.errors:
            self._add_errors(_Echo(usual.request_id, usual.backends), results.errors, items, context)

    def _add_unusual(self, answer: Mapping[str, Any], items: Sequence[ItemRef], context: AnswerContext) -> None:
        results = answer.get("all")
        if not isinstance(results, dict):
            return
        asked = _asked(context, answer.get("role"), answer.get("language"))
        assets = listed_assets(results)
        for item in items:
            if item.asset is None or not 0 <= item.asset < len(assets):
                continue
            found = assets[item.asset]
            if isinstance(found, dict):
                self._add_asset(found, item, context, asked)
        echo = _Echo(answer.get("request_id"), answer.get("backends"))
        self._add_errors(echo, results.get("errors"), items, context)

    def packed(self, answers: Iterable[Answer] = ()) -> Packed:
        """These answers and all that was added, packed; nothing is kept."""
        for raw, items, context in answers:
            self.add_answer(raw, items, context)
        self._read_pictures()
        keys, self._keys = self._keys, []
        taken = {table: buffer.taken() for table, buffer in self._buffers.items()}
        return Packed(packed_keys(keys), {table: rows for table, rows in taken.items() if rows.rows})

    def _place_of(self, key: Key) -> int:
        self._keys.append(key)
        return len(self._keys) - 1

    def _add_features(self, found: FastFeatures, key: Key) -> None:
        self._pictures.append(found)
        self._picture_keys.append(self._place_of(key))
        if len(self._pictures) >= _TOGETHER:
            self._read_pictures()

    def _read_pictures(self) -> None:
        """Make values of what waits; the pictures are let go of."""
        pictures, self._pictures = self._pictures, []
        keys, self._picture_keys = self._picture_keys, []
        for table in FACT_TABLES:
            self._buffers[table].add_features(keys, [getattr(picture, table) for picture in pictures])

    def _add_asset(self, found: Mapping[str, Any], item: ItemRef, context: AnswerContext, asked: _Asked) -> None:
        self._add_facts(found, (item.item_id, item.url, None, context.run_id, *asked))
        frames = found.get("frames")
        for place, frame in enumerate(frames if isinstance(frames, list) else ()):
            if isinstance(frame, dict):
                self._add_facts(frame, _frame_key(item, frame.get("index"), place, context, asked))

    def _add_facts(self, found: Mapping[str, Any], key: Key) -> None:
        self._read_pictures()  # rows keep the order of their answers
        place = self._place_of(key)
        for table in FACT_TABLES:
            if value := found.get(table):
                told = read_entries(table, value)
                if rows := len(told.fields):
                    self._buffers[table].add_columns(place, extract(table, told), rows)

    def _add_errors(self, echo: _Echo, errors: Any, items: Sequence[ItemRef], context: AnswerContext) -> None:
        """Errors are texts, usually without a URL: they belong to a row where it is alone, or is named."""
        request_id = context.request_id if context.request_id is not None else echo.request_id
        for error in errors if isinstance(errors, list) else ([errors] if errors else ()):
            fields = error if isinstance(error, dict) else {}
            message = next((fields[name] for name in ("message", "error") if isinstance(fields.get(name), str)), None)
            if message is None:
                message = error if isinstance(error, str) else json_text(error)
            backend = fields.get("backend") or fields.get("source") or _backend_named(message, echo.backends)
            item = _item_named(fields.get("url") or message, items)
            key = (item and item.item_id, item and item.url, None, context.run_id, None, None)
            columns = {"request_id": [request_id], "backend": [backend], "message": [message]}
            self._buffers["errors"].add_columns(self._place_of(key), columns, 1)


def _asked(context: AnswerContext, role: Any, language: Any) -> _Asked:
    return (
        context.role if context.role is not None else role if isinstance(role, str) else None,
        context.language if context.language is not None else language if isinstance(language, str) else None,
    )


def _frame_key(item: ItemRef, index: Any, place: int, context: AnswerContext, asked: _Asked) -> Key:
    """The key of a frame: its own number where it has a usable one, else its place."""
    known = type(index) is int and 0 <= index <= _MAX_FRAME
    return item.item_id, item.url, index if known else place, context.run_id, *asked


def _backend_named(message: str, backends: Any) -> str | None:
    """The one back end of the request that the message names; None for none or several.

    A request that left the choice to the service echoes no names: then a message `name: text` names its own.
    """
    if not backends:
        own = re.match(r"([a-z][a-z0-9]*): ", message)
        return own[1] if own else None
    words = set(re.findall(r"\w+", message.casefold()))
    asked = [name for name in backends if isinstance(name, str)] if isinstance(backends, list) else []
    named = [name for name in asked if name.casefold() in words]
    return named[0] if len(named) == 1 else None


def _item_named(message: Any, items: Sequence[ItemRef]) -> ItemRef | None:
    """The item that an error is about: the only one, or the only one whose URL stands in the message."""
    if len(items) == 1:
        return items[0]
    named = [item for item in items if item.url and isinstance(message, str) and item.url in message]
    return named[0] if len(named) == 1 else None
