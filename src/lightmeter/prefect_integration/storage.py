"""The Prefect block that names the location to which flows copy the tables of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import quote, urlencode, urlsplit

from prefect.blocks.core import Block
from pydantic import AfterValidator, ConfigDict, Field, HttpUrl, SecretStr, model_validator

from lightmeter.paths import local_path
from lightmeter.prefect_integration.stored_block import BLOCKS_PAGE, load_block
from lightmeter.redaction import has_credentials
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.remote.delta import write_delta
from lightmeter.tables.remote.uris import is_uri
from lightmeter.tables.remote.write import publish


def _check_location(location: str) -> str:
    if has_credentials(location):
        raise ValueError("it holds a user name, a password or a key; keys belong in fields of their own")
    return location


class TableStorageBlock(Block):
    """A folder, or a place in an object store, to which flows copy the tables of a run.

    Attributes:
        location: A folder, or a URI such as `s3://bucket/prefix`.
        table_format: Parquet files or Delta Lake tables.
        access_key_id: The id of an S3 key; None means the key in the worker's environment.
        secret_access_key: The S3 key. Prefect encrypts it. None if `access_key_id` is None.
        region: The region of an S3 bucket; None lets the S3 library choose it.
        endpoint_url: The address of a store that speaks the S3 protocol; None means Amazon S3.

    Example:
        Copy the tables in an output folder:
        ```python
        from pathlib import Path

        from lightmeter.prefect_integration import TableStorageBlock

        storage = TableStorageBlock.load("BLOCK_NAME")
        storage.publish(Path("out/nightly"))
        ```
    """

    _block_type_name: ClassVar[str | None] = "Lightmeter Table Storage"
    _block_type_slug: ClassVar[str | None] = "lightmeter-table-storage"
    _documentation_url: ClassVar[HttpUrl | None] = BLOCKS_PAGE
    model_config = ConfigDict(hide_input_in_errors=True)

    location: Annotated[str, AfterValidator(_check_location)] = Field(
        description="Folder, or URI such as s3://bucket/prefix, without keys.", min_length=1
    )
    table_format: Literal["parquet", "delta"] = Field(default="parquet", description="Format of the tables.")
    access_key_id: SecretStr | None = Field(
        default=None, description="Id of the key of an s3:// location. Empty means the worker's environment."
    )
    secret_access_key: SecretStr | None = Field(
        default=None, description="Key of an s3:// location. Empty means the worker's environment."
    )
    region: str | None = Field(default=None, description="Region of an s3:// location.")
    endpoint_url: Annotated[str | None, AfterValidator(lambda url: url and _check_location(url))] = Field(
        default=None, description="Address of a store other than Amazon's for an s3:// location."
    )

    @model_validator(mode="after")
    def _check_s3(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key belong together")
        if not self.location.startswith("s3://") and any((self.access_key_id, self.region, self.endpoint_url)):
            raise ValueError("keys, region and endpoint_url are for locations that start with s3://")
        return self

    def uri(self) -> SecretStr:
        """Return the location with its keys and options, as Arrow and `lightmeter rebuild --to` read it."""
        if not is_uri(self.location):
            return SecretStr(str(local_path(self.location)))
        parts, options = urlsplit(self.location), {}
        if self.region:
            options["region"] = self.region
        if self.endpoint_url:
            endpoint = urlsplit(self.endpoint_url if is_uri(self.endpoint_url) else f"https://{self.endpoint_url}")
            options |= {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc}
        keys = ""
        if self.access_key_id and self.secret_access_key:
            pair = (self.access_key_id, self.secret_access_key)
            keys = ":".join(quote(key.get_secret_value(), safe="") for key in pair) + "@"
        query = "&".join(filter(None, (parts.query, urlencode(options))))
        return SecretStr(parts._replace(netloc=f"{keys}{parts.netloc}", query=query).geturl())

    def publish(self, out: Path) -> list[str]:
        """Copy all tables of an output folder to the location; return the names of the tables.

        Raises:
            UsageError: The location cannot be written, or holds files of another program.
        """
        write = write_delta if self.table_format == "delta" else publish
        return list(write(Dataset(out), self.uri().get_secret_value()))


async def load_storage(name: str | None) -> TableStorageBlock | None:
    """Return the table storage block `name`; None if `name` is None.

    Raises:
        SettingsError: Prefect has no such block.
    """
    return None if name is None else await load_block(TableStorageBlock, name)
