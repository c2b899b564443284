"""Read and write plan files: `plan.json`, and for many rows a second file beside it.

The thumbnails of a saved plan are beside it too, in `<name>.thumbnails.sqlite`. A run does not need that file.

Each row is one line of JSON. Up to `MAX_INLINE_ROWS` rows are in `plan.json` itself, under `listed`. More rows are in
`<name>.rows.jsonl.gz` beside it; `plan.json` holds its name. `plan.json` also holds the SHA-256 of the rows, which is
checked before the rows are used, because a plan is run exactly as the user agreed to it, or not at all.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from lightmeter.atomic import atomic_replace, write_text
from lightmeter.errors import PlanChanged, SettingsError
from lightmeter.journal.commands.plan_rows import PlannedFinding, PlannedRow
from lightmeter.journal.thumbnails import THUMBNAILS_NAME
from lightmeter.paths import local_path

PLAN_VERSION: Final = 2
"""Version of the file format. Increase it when an older lightmeter would misread a new file."""

MAX_INLINE_ROWS: Final = 500
"""If a plan has more rows than this, they are written to a second file instead of `plan.json`.

A user can scroll through this number of rows, and one file is easier to pass on than two.
"""

GZIP_LEVEL: Final = 3
"""Level of gzip for the file of rows: it compresses as fast as rows are produced.

The file is half a percent larger than at gzip's default level.
"""

PlanFileRow = tuple[PlannedRow, tuple[int, str | None, str] | None]
"""A row of a plan, and (asset, name, sha256) of its cached answer; None in place of these if it has none.

`asset` is the position of the row's image or video in the answer, `name` its name there, `sha256` the answer's hash.
"""

_COPIED_FIELDS: Final = (
    *("path", "identity", "kind", "reason", "error", "duplicate_of", "width", "height", "duration_s"),
    *("content_sha256", "size_bytes", "perceptual_hash", "duplicate_distance"),
)
"""Fields of `PlannedRow` that a plan file stores under the same names; null values are left out."""


@dataclass(frozen=True, slots=True)
class PlanFile:
    """The content of a plan file.

    Attributes:
        path: The file.
        plan_values: Everything in the file except the rows, as plain JSON values; `plan_as_json` shows most keys.
        rows: Number of rows.
        inline_rows: The rows as lines of JSON if they are in the plan file itself; otherwise empty.
        rows_path: The file `<name>.rows.jsonl.gz` with the rows; None if they are in the plan file itself.
    """

    path: Path
    plan_values: dict[str, Any]
    rows: int
    inline_rows: tuple[bytes, ...]
    rows_path: Path | None

    def read_rows(self) -> Iterator[PlanFileRow]:
        """Yield the rows, in the order of the manifest, each with its cached answer or None.

        Raises:
            PlanChanged: the file `rows_path` was changed after the plan was saved, or cannot be read.
        """
        if self.rows_path is None:
            yield from map(_parse_row, self.inline_rows)
            return
        try:
            with self.rows_path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise PlanChanged(
                f"The rows of the plan cannot be read: {self.rows_path}: {error.strerror or error}.",
                hint="The plan is two files: keep them side by side.",
            ) from error
        _check_digest(self.plan_values["rows_file"]["sha256"], digest, self.rows_path)
        with gzip.open(self.rows_path, "rb") as lines:
            yield from map(_parse_row, lines)


def is_plan_file(name: str) -> bool:
    """Return whether a file that the user names is a plan file and not a manifest.

    A plan file is a local file whose name ends in `.json`. A file that starts with `[` is not a plan file, but a JSON
    manifest. A `.json` file that cannot be opened counts as a plan file.
    """
    if not name.lower().endswith(".json") or "://" in name:
        return False
    try:
        with local_path(name).open("rb") as file:
            return not file.read(64).lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith(b"[")
    except OSError:
        return True  # reading it raises the right error


def thumbnails_beside(path: Path) -> Path:
    """Return the path of the thumbnails file that belongs to the plan file `path`; that file need not exist."""
    return path.with_name(f"{path.stem}.{THUMBNAILS_NAME}")


def write_plan_file(path: Path, plan_values: dict[str, Any], rows: Iterable[PlanFileRow]) -> None:
    """Write a plan file atomically.

    If there are more than `MAX_INLINE_ROWS` rows, write them first, to the file `<name>.rows.jsonl.gz` beside it.

    Args:
        path: Path of `plan.json`.
        plan_values: Everything except the rows, as plain JSON values: `plan_as_json` and what `Plan.save` adds.
        rows: The rows, in the order of the manifest, each with its cached answer or None.
    """
    lines = (_format_row(*row) for row in rows)
    first = list(islice(lines, MAX_INLINE_ROWS + 1))
    beside = path.with_name(f"{path.stem}.rows.jsonl.gz")
    if len(first) <= MAX_INLINE_ROWS:
        digest = hashlib.sha256(b"".join(first)).hexdigest()
        body = ",\n    ".join(line.decode().rstrip() for line in first)
        text = json.dumps({**plan_values, "listed_sha256": digest}, indent=2, ensure_ascii=False)
        write_text(path, f'{text[:-2]},\n  "listed": [\n    {body}\n  ]\n}}\n')
        beside.unlink(missing_ok=True)  # left by a longer plan that was saved here before
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
    write_text(path, json.dumps({**plan_values, "rows_file": rows_file}, indent=2, ensure_ascii=False) + "\n")


def read_plan_without_rows(path: Path) -> dict[str, Any] | None:
    """Return the content of a plan file of version 1, which holds no rows; None for any other file."""
    try:
        plan_values = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return plan_values if isinstance(plan_values, dict) and plan_values.get("plan_version") == 1 else None


def read_plan_file(path: Path) -> PlanFile:
    """Read a plan file. `PlanFile.read_rows` of the result then yields its rows.

    Raises:
        SettingsError: the file cannot be read, or is not a plan file of the version `PLAN_VERSION`.
        PlanChanged: the rows in `path` itself were changed after the plan was saved.
    """
    try:
        plan_values: dict[str, Any] = json.loads(path.read_bytes())
        version, rows, listed = plan_values["plan_version"], plan_values["rows"], plan_values.pop("listed", None)
        beside = (
            None if listed is not None or version != PLAN_VERSION else path.with_name(plan_values["rows_file"]["name"])
        )
    except OSError as error:
        raise SettingsError(f"The plan file {path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{path} is not a plan file.", hint="Make one: lightmeter plan MANIFEST --save FILE"
        ) from error
    if version != PLAN_VERSION:
        raise SettingsError(
            f"{path} has plan version {version}; this lightmeter reads version {PLAN_VERSION}.",
            hint="Plan again: lightmeter plan MANIFEST --save FILE",
        )
    lines = tuple(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in listed or ())
    if beside is None:
        _check_digest(plan_values.get("listed_sha256"), hashlib.sha256(b"".join(lines)).hexdigest(), path)
    return PlanFile(path, plan_values, rows, lines, beside)


def _check_digest(saved: str | None, found: str, path: Path) -> None:
    if saved != found:
        raise PlanChanged(
            f"The rows in {path} were changed after the plan was saved.",
            hint="Plan again: lightmeter plan MANIFEST --save FILE",
        )


def _format_row(row: PlannedRow, answer: tuple[int, str | None, str] | None) -> bytes:
    """Return a row of a plan, with its cached answer if it has one, as a line of JSON without null fields.

    `answer` is (position of the row's image or video in the cached answer, its name there, SHA-256 of that answer).
    """
    fields: dict[str, Any] = {"row": row.seq, "id": row.item_id, "url": row.url, "status": row.status}
    fields.update((name, value) for name in _COPIED_FIELDS if (value := getattr(row, name)) is not None)
    fields["pictures"] = [row.frames_low, row.frames_high]
    if row.extra != "{}":
        fields["columns"] = orjson.Fragment(row.extra)
    if row.findings:
        fields["findings"] = [
            {
                "check": found.name,
                "severity": found.severity,
                "message": found.message,
                "value": found.value,
                "facts": orjson.Fragment(found.facts),
            }
            for found in row.findings
        ]
    if answer is not None:
        fields["answer"] = {"asset": answer[0], "name": answer[1], "sha256": answer[2]}
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def _parse_row(line: bytes) -> PlanFileRow:
    fields = orjson.loads(line)
    (low, high), answer = fields["pictures"], fields.get("answer")
    row = PlannedRow(
        seq=fields["row"],
        item_id=fields["id"],
        url=fields["url"],
        own_id=False,  # repeated ids were resolved when the plan was made
        extra=orjson.dumps(fields.get("columns", {})).decode(),
        status=fields["status"],
        frames_low=low,
        frames_high=high,
        findings=tuple(
            PlannedFinding(
                one["check"], one["severity"], one["message"], one["value"], orjson.dumps(one["facts"]).decode()
            )
            for one in fields.get("findings", ())
        ),
        **{name: fields.get(name) for name in _COPIED_FIELDS},
    )
    return row, None if answer is None else (answer["asset"], answer["name"], answer["sha256"])
