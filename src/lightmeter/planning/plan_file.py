"""The plan as a file: `plan.json` for people, with its rows inside while they are few, else in a file beside it.

The rows are JSON, one a line. Up to `MAX_INLINE_ROWS` of them stand in `plan.json` itself under `listed`; more of them
in `<name>.rows.jsonl.gz` beside it, which `plan.json` names with its SHA-256. Either way the digest of the rows is
checked before any of them is believed: a plan is what was agreed to, and is done exactly or not at all.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from lightmeter.atomic import atomic_replace, write_text
from lightmeter.errors import PlanChanged, SettingsError
from lightmeter.journal.plan_rows import PlannedFinding, PlannedRow

__all__ = [
    "MAX_INLINE_ROWS",
    "PLAN_VERSION",
    "PlanFile",
    "PlanFileRow",
    "is_plan_file",
    "read_plan_file",
    "write_plan_file",
]

PLAN_VERSION: Final = 2
"""Raised when a reader of the older form would misread the newer one."""

MAX_INLINE_ROWS: Final = 500
"""Rows that stand inside plan.json: few enough to scroll through, and a single file to hand on."""

GZIP_LEVEL: Final = 3
"""As fast as the rows are made; half a percent larger than the default on URLs."""

PlanFileRow = tuple[PlannedRow, tuple[int, str | None, str] | None]
"""A row, and the (asset, name, sha256) of the earlier answer that it is answered with, if any."""

_PLAIN: Final = (
    *("path", "identity", "kind", "reason", "error", "duplicate_of", "width", "height", "duration_s"),
    "content_sha256",
)
"""Fields that stand in the file under their own names, where they are not null."""


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan file that was read.

    Attributes:
        path: The file.
        head: Everything in it but the rows, as plain JSON values.
        rows: How many rows there are.
        listed: The rows as lines of JSON, where they stand in the file itself.
        rows_path: Where they stand otherwise.
    """

    path: Path
    head: dict[str, Any]
    rows: int
    listed: tuple[bytes, ...]
    rows_path: Path | None

    def read_rows(self) -> Iterator[PlanFileRow]:
        """The rows in order.

        Raises:
            PlanChanged: they are not those that were saved.
        """
        if self.rows_path is None:
            yield from map(_row_of, self.listed)
            return
        with _opened(self.rows_path) as file:
            _must_be(self.head["rows_file"]["sha256"], hashlib.file_digest(file, "sha256").hexdigest(), self.rows_path)
        with gzip.open(self.rows_path, "rb") as lines:
            yield from map(_row_of, lines)


def is_plan_file(name: str) -> bool:
    """Whether a name is that of a plan file: it ends in `.json`, and no JSON array is in it, which is a manifest."""
    if not name.lower().endswith(".json") or "://" in name:
        return False
    try:
        with Path(name).open("rb") as file:
            return not file.read(64).lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith(b"[")
    except OSError:
        return True  # whoever reads it says what is wrong with it


def write_plan_file(path: Path, head: dict[str, Any], rows: Iterable[PlanFileRow]) -> None:
    """Write a plan: whole or not at all, and `plan.json` last, so that what it names is there."""
    lines = (_line_of(*row) for row in rows)
    first = list(islice(lines, MAX_INLINE_ROWS + 1))
    beside = path.with_name(f"{path.stem}.rows.jsonl.gz")
    if len(first) <= MAX_INLINE_ROWS:
        digest = hashlib.sha256(b"".join(first)).hexdigest()
        body = ",\n    ".join(line.decode().rstrip() for line in first)
        text = json.dumps({**head, "listed_sha256": digest}, indent=2, ensure_ascii=False)
        write_text(path, f'{text[:-2]},\n  "listed": [\n    {body}\n  ]\n}}\n')
        beside.unlink(missing_ok=True)  # of a longer plan that was saved here before
        return
    with atomic_replace(beside) as temporary:
        # Without a name and a time in its header, so that equal rows make equal files.
        with temporary.open("wb") as raw, gzip.GzipFile("", "wb", GZIP_LEVEL, raw, mtime=0) as packed:
            for line in first:
                packed.write(line)
            for line in lines:
                packed.write(line)
        with temporary.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
    rows_file = {"name": beside.name, "sha256": digest, "bytes": beside.stat().st_size}
    write_text(path, json.dumps({**head, "rows_file": rows_file}, indent=2, ensure_ascii=False) + "\n")


def read_plan_file(path: Path) -> PlanFile:
    """Read a plan file; its rows are read when they are asked for.

    Raises:
        SettingsError: it is no plan file of this version.
        PlanChanged: the rows inside are not those that were saved.
    """
    try:
        head: dict[str, Any] = json.loads(path.read_bytes())
        version, rows, listed = head["plan_version"], head["rows"], head.pop("listed", None)
        beside = None if listed is not None or version != PLAN_VERSION else path.with_name(head["rows_file"]["name"])
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{path} is no plan file: {error!r}.", hint="Make one: lightmeter plan MANIFEST --save FILE"
        ) from error
    if version != PLAN_VERSION:
        raise SettingsError(f"{path} has plan version {version}, this lightmeter reads version {PLAN_VERSION}.")
    lines = tuple(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in listed or ())
    if beside is None:
        _must_be(head.get("listed_sha256"), hashlib.sha256(b"".join(lines)).hexdigest(), path)
    return PlanFile(path, head, rows, lines, beside)


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise PlanChanged(
            f"The rows of the plan cannot be read: {path}: {error.strerror or error}.",
            hint="The plan is two files: keep them side by side.",
        ) from error


def _must_be(saved: str | None, found: str, path: Path) -> None:
    if saved != found:
        raise PlanChanged(
            f"The rows in {path} are not those that were planned.",
            hint="Plan again: lightmeter plan MANIFEST --save FILE",
        )


def _line_of(row: PlannedRow, answer: tuple[int, str | None, str] | None) -> bytes:
    """A row as a person and a program read it: what is null is left out."""
    told: dict[str, Any] = {"row": row.seq, "id": row.item_id, "url": row.url, "status": row.status}
    told.update((name, value) for name in _PLAIN if (value := getattr(row, name)) is not None)
    told["pictures"] = [row.frames_low, row.frames_high]
    if row.extra != "{}":
        told["columns"] = orjson.Fragment(row.extra)
    if row.findings:
        told["findings"] = [_finding(found) for found in row.findings]
    if answer is not None:
        told["answer"] = {"asset": answer[0], "name": answer[1], "sha256": answer[2]}
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


def _finding(found: PlannedFinding) -> dict[str, Any]:
    told = {"check": found.name, "severity": found.severity, "message": found.message, "value": found.value}
    return {**told, "facts": orjson.Fragment(found.facts)}


def _row_of(line: bytes) -> PlanFileRow:
    told = orjson.loads(line)
    (low, high), answer = told["pictures"], told.get("answer")
    row = PlannedRow(
        seq=told["row"],
        item_id=told["id"],
        url=told["url"],
        own_id=False,  # which ids repeat was settled when it was planned
        extra=orjson.dumps(told.get("columns", {})).decode(),
        status=told["status"],
        frames_low=low,
        frames_high=high,
        findings=tuple(_finding_of(found) for found in told.get("findings", ())),
        **{name: told.get(name) for name in _PLAIN},
    )
    return row, None if answer is None else (answer["asset"], answer["name"], answer["sha256"])


def _finding_of(told: dict[str, Any]) -> PlannedFinding:
    facts = orjson.dumps(told["facts"]).decode()
    return PlannedFinding(told["check"], told["severity"], told["message"], told["value"], facts)
