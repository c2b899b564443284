"""Manifests in an object store: files and folders of Parquet, read through Arrow from a server on loopback."""

from __future__ import annotations

import gzip
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from lightmeter.errors import ManifestError
from lightmeter.manifest.byte_sources import Location
from lightmeter.manifest.readers import ManifestReader, digest_of

URLS = [f"https://example.com/{n}.jpg" for n in range(4)]


@pytest.fixture(scope="module")
def bucket():
    """Return a function that makes URIs of names in a bucket, which holds manifests of several kinds."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    there = fs.S3FileSystem(access_key="k", secret_key="SECRET", endpoint_override=address, allow_bucket_creation=True)
    there.create_dir("manifests")
    for name, content in (("m.csv", "url\n"), ("m.csv.gz", "url\n"), ("pictures/a.jpg", "x")):
        data = (content + "\n".join(URLS)).encode()
        with there.open_output_stream(f"manifests/{name}", compression=None) as file:
            file.write(gzip.compress(data) if name.endswith(".gz") else data)
    for part, urls in (("day=1/a", URLS[:2]), ("day=2/b", URLS[2:])):
        pq.write_table(pa.table({"url": urls}), f"manifests/set/{part}.parquet", filesystem=there)
    where = f"scheme=http&endpoint_override={quote(address.removeprefix('http://'), safe='')}&region=us-east-1"
    yield lambda name: f"s3://k:SECRET@manifests/{name}?{where}"
    server.stop()


@pytest.mark.parametrize("name", ["m.csv", "m.csv.gz", "set", "set/"])
def test_files_and_folders_of_parquet_are_read(bucket, name):
    """A file, packed or not, and a folder of Parquet files with partitions are manifests wherever they are."""
    reader = ManifestReader(bucket(name))
    items = list(reader)
    assert [item.url for item in items] == URLS
    assert [item.extra.get("day") for item in items] == ([1, 1, 2, 2] if name.startswith("set") else [None] * 4)
    assert reader.sha256 == digest_of(bucket(name))
    assert Location(bucket(name)).absolute == bucket(name).replace("k:SECRET@", "")


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.csv", "no such file"), ("pictures", "from this machine alone"), ("", "one or the other")],
)
def test_what_is_no_manifest_there_is_an_error_without_the_key(bucket, name, message):
    """A missing object and remote media are errors without credentials."""
    with pytest.raises(ManifestError, match=message) as raised:
        list(ManifestReader(bucket(name)))
    assert str(raised.value).startswith("s3://manifests/")
    assert "SECRET" not in str(raised.value) + raised.value.hint
