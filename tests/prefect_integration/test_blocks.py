"""The Prefect blocks: Prefect's own standard tests, settings and URIs from them, and no key in any text."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from prefect.blocks.core import Block
from prefect.plugins import safe_load_entrypoints
from prefect.testing.standard_test_suites import BlockStandardTestSuite
from prefect.utilities.dispatch import lookup_type
from pydantic import ValidationError

from lightmeter.prefect_integration import CredentialsBlock, TableStorageBlock

KEY = "KeyOfATest/plus+"
ROOT = Path(__file__).resolve().parents[2]


class TestStandard(BlockStandardTestSuite):
    """Prefect's tests of a block; the blocks have no logo, because its file would have to lie on the internet."""

    @pytest.fixture(params=[CredentialsBlock, TableStorageBlock], ids=lambda block: block.__name__)
    def block(self, request):
        return request.param

    test_has_a_valid_image = None


def test_the_entry_point_registers_the_blocks():
    """Prefect finds both blocks through the entry point group `prefect.collections` of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group = "prefect.collections"
    points = EntryPoints(EntryPoint(name, value, group) for name, value in project["entry-points"][group].items())
    loaded = safe_load_entrypoints(points)
    assert [module.__name__ for module in loaded.values()] == ["lightmeter.prefect_integration"]
    assert lookup_type(Block, "lightmeter-credentials") is CredentialsBlock
    assert lookup_type(Block, "lightmeter-table-storage") is TableStorageBlock


def test_credentials_override_the_environment(monkeypatch):
    """The key and address of a block replace those of the environment; other settings, and no address, are kept."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "other")
    monkeypatch.setenv("LIGHTMETER_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "7")
    settings = CredentialsBlock(api_key=KEY).settings()
    assert (settings.api_key.get_secret_value(), settings.base_url) == (KEY, "http://127.0.0.1:1")
    assert settings.key_budget == 7
    assert CredentialsBlock(api_key=KEY, base_url="http://127.0.0.1:2").settings().base_url == "http://127.0.0.1:2"


def test_no_text_of_a_block_holds_the_key():
    """The repr, the text and the JSON of a block mask its key."""
    credentials = CredentialsBlock(api_key=KEY)
    storage = TableStorageBlock(location="s3://lake/photos", access_key_id=KEY, secret_access_key=KEY)
    for value in (credentials, storage, storage.uri(), credentials.settings()):
        assert "KeyOfATest" not in f"{value!r} {value}"
    assert "KeyOfATest" not in credentials.model_dump_json() + storage.model_dump_json()


@pytest.mark.parametrize(
    "make",
    [
        lambda: CredentialsBlock(api_key="key", base_url=f"http://user:{KEY}@127.0.0.1"),
        lambda: CredentialsBlock(api_key=""),
        lambda: TableStorageBlock(location=f"s3://id:{KEY}@lake/photos"),
        lambda: TableStorageBlock(location="s3://lake", endpoint_url=f"http://id:{KEY}@127.0.0.1"),
        lambda: TableStorageBlock(location="s3://lake", access_key_id=KEY),
        lambda: TableStorageBlock(location="/lake", access_key_id=KEY, secret_access_key=KEY),
    ],
)
def test_values_that_a_block_refuses(make):
    """An address with credentials, an empty key and half a key are errors, which do not repeat the value."""
    with pytest.raises(ValidationError) as raised:
        make()
    assert "KeyOfATest" not in str(raised.value)


def test_the_uri_of_a_store_holds_keys_and_options():
    """The URI has the keys in escaped form, and region, scheme and endpoint as Arrow names them."""
    storage = TableStorageBlock(
        location="s3://lake/photos",
        access_key_id="id",
        secret_access_key=KEY,
        region="eu-central-1",
        endpoint_url="http://127.0.0.1:9000",
    )
    assert storage.uri().get_secret_value() == (
        "s3://id:KeyOfATest%2Fplus%2B@lake/photos?region=eu-central-1&scheme=http&endpoint_override=127.0.0.1%3A9000"
    )


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
async def test_tables_are_copied_to_the_location(try_out, tmp_path, table_format):
    """`publish` copies all tables of an output folder to a folder, as Parquet files or as Delta tables."""
    run, _ = await try_out(lambda number, body: "ok")
    (tmp_path / "lake").mkdir()
    storage = TableStorageBlock(location=str(tmp_path / "lake"), table_format=table_format)
    assert {"assets", "tags"} <= {*storage.publish(run.folder)}
    folder = tmp_path / "lake" / ("tables/assets" if table_format == "parquet" else "assets")
    assert sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet")) == len(run.assets) == 6
