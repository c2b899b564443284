"""A real S3 server on loopback, and small tables to put there."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyarrow import fs

from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from tests.tables.replace_table import replace_tables

TAGS = schema("tags")


@dataclass(frozen=True)
class Lake:
    """An S3 server with a bucket `lake`.

    Attributes:
        there: A file system on it.
        options: What a URI must say to reach it.
        environment: What the environment must say instead.
    """

    there: fs.FileSystem
    options: str
    environment: dict[str, str]

    def uri(self, folder: str) -> str:
        return f"s3://k:k@lake/{folder}?{self.options}"


@pytest.fixture(scope="session")
def s3():
    """Start an S3 server in this process."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    there = fs.S3FileSystem(access_key="k", secret_key="k", endpoint_override=address, allow_bucket_creation=True)
    there.create_dir("lake")
    named = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "k", "AWS_REGION": "us-east-1"}
    named |= {"AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true"}
    yield Lake(there, f"scheme=http&endpoint_override={host}%3A{port}&region=us-east-1", named)
    server.stop()


@pytest.fixture
def add():
    """Return a function that adds a part with tags of a run to the tables of a folder; the run id is the tag name."""

    def put(out, run: str, rows: int) -> Dataset:
        columns = {field.name: pa.nulls(rows, field.type) for field in TAGS}
        dataset = Dataset(out)
        with replace_tables(dataset, {"tags": TAGS}, {"runs": {run: ""}}, keep_others=True) as writers:
            writers["tags"].write(pa.table({**columns, "name": pa.array([run] * rows, pa.string())}, schema=TAGS))
        return dataset

    return put
