"""The schemas of the tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import UsageError
from lightmeter.tables.arrow.schema import (
    ALL_TABLES,
    EXTRA_TYPES,
    MANIFEST_COLUMN,
    SCHEMA_VERSION,
    manifest_columns,
    schema,
)

SNAPSHOT = Path(__file__).parent / f"schema-{SCHEMA_VERSION}.txt"


def described() -> str:
    lines = []
    for table in ALL_TABLES:
        lines += ["", table]
        for field in schema(table):
            meta = {name.decode(): text.decode() for name, text in field.metadata.items()}
            lines.append(
                f"  {field.name}: {field.type} | {meta['description']} | {meta['unit']} | null: {meta['null']}"
            )
    return "\n".join(lines).strip() + "\n"


def test_schemas_are_those_of_this_version():
    """A change that a reader could notice comes with a new version and a new snapshot beside this file."""
    assert described() == SNAPSHOT.read_text(encoding="utf-8")


def test_every_table_has_the_key_columns_first():
    """Whatever table it is, rows are joined by the same columns, and the version stands in the schema."""
    for table in ALL_TABLES:
        fields = schema(table)
        assert fields.names[:4] == ["item_id", "url", "frame", "run_id"]
        assert fields.metadata[b"lightmeter.schema_version"] == str(SCHEMA_VERSION).encode()


def test_an_unknown_table_is_named_with_the_known_ones():
    """An unknown table raises an error that lists the known ones."""
    with pytest.raises(UsageError, match="'tag'") as raised:
        schema("tag")
    assert "tags" in raised.value.hint


def test_the_manifests_columns_end_the_assets_table_with_their_types():
    """Each known type has its Arrow type, an unknown one is text, and other tables stay as they are."""
    extra = {**{f"c_{name}": name for name in EXTRA_TYPES}, "odd": "nobody knows"}
    fields = schema("assets", extra)
    assert [fields.field(f"c_{name}").type for name in EXTRA_TYPES] == list(EXTRA_TYPES.values())
    assert fields.field("odd").type == pa.string()
    assert fields.names[-len(extra) :] == list(extra)
    assert schema("tags", extra) == schema("tags")


def test_a_taken_name_gets_a_suffix_and_remembers_what_it_was():
    """A manifest's own `status` neither hides ours nor gets lost, not even beside `RpcStatus`."""
    named = manifest_columns(dict.fromkeys(["status", "Status", "status_manifest", "free"], "string"))
    assert named == {
        "status": "status_manifest",
        "Status": "Status_manifest_2",
        "status_manifest": "status_manifest_manifest",
        "free": "free",
    }
    fields = schema("assets", dict.fromkeys(named, "string"))
    assert fields.field("Status_manifest_2").metadata[MANIFEST_COLUMN] == b"Status"


@given(names=st.lists(st.sampled_from([*schema("assets").names, "A", "a", "width_manifest", "Width", ""]), unique=True))
def test_no_two_columns_of_assets_are_called_alike(names):
    """No two columns of `assets` differ only in case, because SQL ignores it."""
    fields = schema("assets", dict.fromkeys(names, "string"))
    assert len({name.casefold() for name in fields.names}) == len(fields.names)
