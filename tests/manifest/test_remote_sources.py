"""Manifests and tables in remote stores: globs, partitions and tars on s3, gs, az and hf servers on loopback."""

from __future__ import annotations

import io
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.errors import ManifestError, SettingsError, UsageError
from lightmeter.manifest.readers import ManifestReader, digest_of
from lightmeter.manifest.tar_members import local_file
from lightmeter.remote_files import child_uri, open_file_system
from lightmeter.tables.remote.read import read_remote_table
from lightmeter.tables.remote.write import publish
from tests.manifest.test_tars import make_tar, sample
from tests.remote_stores import serve_azure, serve_google, serve_hub

URLS = [f"https://example.com/{n}.jpg" for n in range(4)]


def parquet(urls: list[str]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"url": urls}), stream)
    return stream.getvalue()


@pytest.fixture
def contents(tmp_path):
    """Return the files of a store: a CSV file, a partitioned data set and tars."""
    files = {"m.csv": "\n".join(["url", *URLS]).encode()}
    files |= {f"set/day={day}/p.parquet": parquet(URLS[2 * day - 2 : 2 * day]) for day in (1, 2)}
    for shard in range(2):
        path = make_tar(tmp_path / f"{shard}.tar", sample(f"{shard}", b"bytes %d" % shard, shard=shard))
        files[f"tars/{shard}.tar"] = path.read_bytes()
    return files


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Serve a Hugging Face hub on loopback, and point huggingface_hub to it."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with serve_hub() as hub:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield hub


def put(uri: str, contents: dict[str, bytes]) -> None:
    """Write files below the URI of a folder with Arrow alone."""
    for name, content in contents.items():
        filesystem, path = open_file_system(child_uri(uri, name))
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with filesystem.open_output_stream(path, compression=None) as stream:
            stream.write(content)


async def must_be_read(uri: str) -> None:
    """Read every kind of manifest of `contents` below the URI of a folder."""

    def items(name):
        reader = ManifestReader(child_uri(uri, "x").replace("/x", f"/{name}"))
        found = list(reader)
        assert reader.sha256 == digest_of(child_uri(uri, "x").replace("/x", f"/{name}"))
        return found

    assert [item.url for item in items("m.csv")] == URLS
    for name in ("set", "set/*/*.parquet", "set/day={1,2}/p.parquet", "**/*.parquet"):
        assert [(item.url, item.extra["day"]) for item in items(name)] == list(zip(URLS, (1, 1, 2, 2), strict=True))
    assert [item.url for item in items("set/day=[2]/*")] == URLS[2:]
    for name in ("tars", "tars/*.tar", "tars/{0..1}.tar", "tars/0.tar"):
        found = items(name)
        assert [item.item_id for item in found] == ["0", "1"][: len(found)]
        assert [item.extra["json"] for item in found] == [{"shard": 0}, {"shard": 1}][: len(found)]
        for item in found:
            async with local_file(item.path) as file:
                assert (file.name, file.read_bytes()) == (f"{item.item_id}.jpg", f"bytes {item.item_id}".encode())
    with pytest.raises(ManifestError, match="no file matches"):
        items("nowhere/*.parquet")
    *_, missing = items("tars/{0..2}.tar")
    assert (missing.url, "cannot be read" in missing.problem) == ("2.tar", True)


def must_be_published(uri: str, tmp_path, add) -> None:
    """Copy tables to a store twice, and read the newer ones there."""
    publish(add(tmp_path, "a", 3), uri)
    publish(add(tmp_path, "b", 2), uri)
    assert read_remote_table(uri, "tags").num_rows == 5
    remote, root = open_file_system(uri)
    listed = remote.get_file_info(pa.fs.FileSelector(f"{root}/tables/tags", recursive=True))
    assert [info.base_name for info in listed if info.is_file] == ["part-00000.parquet"]


async def test_the_hugging_face_hub_holds_manifests_and_tables(hub, contents, tmp_path, add):
    """hf:// is read and written through huggingface_hub; a table is written as one commit."""
    hub.files |= contents
    await must_be_read("hf://datasets/u/n")
    must_be_published("hf://datasets/u/n/lake", tmp_path, add)
    assert hub.commits == [["lake/tables/tags/part-00000.parquet"]] * 2


@pytest.mark.parametrize(("uri", "token"), [("hf://datasets/u/other", None), ("hf://datasets/u/n", "secret")])
def test_a_hub_that_refuses_is_an_error(hub, uri, token, tmp_path, add):
    """A missing repository, or one that wants a token, is one error for the manifest and one for tables."""
    hub.token = token
    with pytest.raises(ManifestError):
        list(ManifestReader(f"{uri}/m.csv"))
    with pytest.raises(UsageError, match="cannot be written"):
        publish(add(tmp_path, "a", 1), uri)


def test_a_hub_that_cannot_be_reached_is_an_error(monkeypatch):
    """No connection to the hub is an error of one sentence."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ManifestError, match="hub cannot be reached"):
        list(ManifestReader("hf://datasets/u/n/m.csv"))


def test_tables_name_the_missing_extra(monkeypatch, tmp_path, add):
    """Without the package of the extra `hf`, writing tables there names the command that installs it."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(SettingsError, match=r"pip install 'lightmeter\[hf\]'"):
        publish(add(tmp_path, "a", 1), "hf://datasets/u/n")


@pytest.mark.sweep
async def test_s3_holds_manifests_of_every_kind(s3, contents, monkeypatch):
    """Partitions, globs and tars in a bucket are manifests, with the key in the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "k")
    uri = f"s3://lake/sources?{s3.options}"
    put(uri, contents)
    await must_be_read(uri)


async def test_globs_and_tars_in_a_bucket(s3, contents, monkeypatch):
    """A glob of Parquet files in a bucket has a key in its URI; tars need it in the environment."""
    put(s3.uri("sources"), contents)
    assert [item.url for item in ManifestReader(s3.uri("sources/set/*/*.parquet"))] == URLS
    with pytest.raises(ManifestError, match="is not stored") as raised:
        list(ManifestReader(s3.uri("sources/tars")))
    assert "AWS_ACCESS_KEY_ID" in raised.value.hint
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "k")
    found = list(ManifestReader(f"s3://lake/sources/tars/{{0..1}}.tar?{s3.options}"))
    async with local_file(found[1].path) as file:
        assert (file.name, file.read_bytes()) == ("1.jpg", b"bytes 1")


@pytest.mark.sweep
async def test_google_cloud_storage_holds_manifests_and_tables(contents, tmp_path, add):
    """gs:// is read and written by Arrow's own file system."""
    with serve_google() as options:
        put(f"gs://anonymous@lake/sources?{options}", contents)
        await must_be_read(f"gs://anonymous@lake/sources?{options}")
        must_be_published(f"gs://anonymous@lake/out?{options}", tmp_path, add)


@pytest.mark.sweep
async def test_azure_holds_manifests_and_tables(contents, tmp_path, add, monkeypatch):
    """az:// is read and written by Arrow's own file system, also where the account cannot rename files."""
    with serve_azure(tmp_path / "azurite", monkeypatch) as options:
        put(f"az://lake/sources?{options}", contents)
        await must_be_read(f"az://lake/sources?{options}")
        must_be_published(f"az://lake/out?{options}", tmp_path, add)
