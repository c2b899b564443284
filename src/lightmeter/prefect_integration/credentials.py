"""The Prefect block that holds the API key of an analysis service, and the settings that flows build from it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from prefect.blocks.core import Block
from pydantic import AfterValidator, ConfigDict, Field, HttpUrl, SecretStr

from lightmeter.prefect_integration.stored_block import BLOCKS_PAGE, load_block
from lightmeter.redaction import check_no_credentials
from lightmeter.settings import Settings, read_settings


class CredentialsBlock(Block):
    """The API key and the address of an analysis service.

    Attributes:
        api_key: The key of the account. Prefect encrypts it.
        base_url: The address of the service; None means the one in the settings of the machine that runs the flow.

    Example:
        Load the stored credentials:
        ```python
        from lightmeter.prefect_integration import CredentialsBlock

        credentials = CredentialsBlock.load("BLOCK_NAME")
        settings = credentials.settings()
        ```
    """

    _block_type_name: ClassVar[str | None] = "Lightmeter Credentials"
    _block_type_slug: ClassVar[str | None] = "lightmeter-credentials"
    _documentation_url: ClassVar[HttpUrl | None] = BLOCKS_PAGE
    model_config = ConfigDict(hide_input_in_errors=True)

    api_key: SecretStr = Field(description="Key of the account at the service.", min_length=1)
    base_url: Annotated[str | None, AfterValidator(check_no_credentials)] = Field(
        default=None,
        description="Address of the service, without the key. Empty means the one in the worker's settings.",
    )

    def settings(self) -> Settings:
        """Return the settings of this machine with the key and the address of this block.

        Raises:
            SettingsError: A variable or the settings file of this machine holds a value that is not allowed.
        """
        address = {"base_url": self.base_url} if self.base_url else {}
        return read_settings(api_key=self.api_key, **address)


async def load_settings(name: str | None) -> Settings:
    """Return the settings with the key and address in the credentials block `name`.

    None returns the settings of this machine alone.

    Raises:
        SettingsError: Prefect has no such block, or a setting of this machine holds a value that is not allowed.
    """
    return read_settings() if name is None else (await load_block(CredentialsBlock, name)).settings()
