"""Loads a block that the user stored in Prefect, by its name."""

from __future__ import annotations

from typing import Final, TypeVar

from prefect.blocks.core import Block
from prefect.exceptions import ObjectNotFound
from pydantic import HttpUrl

from lightmeter.errors import SettingsError

BLOCKS_PAGE: Final = HttpUrl("https://docs.prefect.io/v3/concepts/blocks")
"""Address of Prefect's documentation of blocks, to which Prefect's web page links."""

BlockT = TypeVar("BlockT", bound=Block)


async def load_block(kind: type[BlockT], name: str) -> BlockT:
    """Return the block of the class `kind` that Prefect stores under `name`.

    Raises:
        SettingsError: Prefect has no such block, or its values are not allowed.
    """
    try:
        return await kind.aload(name)
    except ValueError as error:
        if isinstance(error.__cause__, ObjectNotFound):
            message = f"Prefect has no block {name!r} of the type {kind.get_block_type_slug()}."
        else:
            message = f"The block {name!r} of the type {kind.get_block_type_slug()} holds a value that is not allowed."
        raise SettingsError(message, hint="Edit it on Prefect's page Blocks, or leave the parameter empty.") from error
