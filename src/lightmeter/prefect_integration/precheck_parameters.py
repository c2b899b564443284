"""The parameters of the flow `precheck` that decide how a manifest is read and checked."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lightmeter.option_arguments import DEFAULT_SHARD_ROWS, DuplicateRule, Executor
from lightmeter.options import SKIPPABLE
from lightmeter.wire.constants import DEFAULT_CAPTURE_INTERVAL_S, DEFAULT_MAX_FRAMES

Finding = StrEnum("Finding", {name.upper(): name for name in SKIPPABLE})  # type: ignore[misc]  # (names known at run time)
Finding.__doc__ = "A finding of the pre-checks for which rows can be skipped."


def _split(names: object) -> object:
    """Return `names` as a list: split a text at commas, keep a list, and turn None into an empty list."""
    return [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else names or []


class CheckParameters(BaseModel):
    """How a manifest is read and checked; `lightmeter.option_arguments.CheckArguments` describes the fields in full."""

    model_config = ConfigDict(extra="forbid", use_enum_values=True)

    url_column: str | None = Field(
        default=None, min_length=1, description="Column of URLs and paths; else url or path."
    )
    id_column: str | None = Field(default=None, min_length=1, description="Column of ids; else id.")
    kind_column: str | None = Field(default=None, min_length=1, description="Column of image or video; else kind.")
    lenient: bool = Field(
        default=False, description="Whether a CSV record with a broken quote, and all after it, is a bad row only."
    )
    video: Literal["whole", "frames"] = Field(
        default="whole", description="Whether videos are sent whole, or as the frames that differ."
    )
    capture_interval: int = Field(
        default=DEFAULT_CAPTURE_INTERVAL_S, ge=1, description="Seconds between captured frames of a video."
    )
    max_frames: int = Field(default=DEFAULT_MAX_FRAMES, ge=0, description="Most frames of a video; 0: no limit.")
    max_distinct_frames: int = Field(
        default=0, ge=0, description="Most frames of a video that is sent as frames; 0: no limit but max_frames."
    )
    skip: Annotated[list[Finding], BeforeValidator(_split)] = Field(
        default_factory=list, description="Findings that keep a row from being sent."
    )
    duplicates: DuplicateRule = Field(
        default="exact", description="Rows that share an earlier answer: same content, same look too, or none."
    )
    executor: Executor = Field(
        default="local", description="What checks the rows: this worker, or a Dask or Ray cluster in shards."
    )
    shard_rows: int = Field(default=DEFAULT_SHARD_ROWS, ge=1, description="Rows in one shard of a cluster.")
    shard_dir: str | None = Field(
        default=None, description="Folder or s3:// prefix that all workers of the cluster reach; else the cache folder."
    )

    def to_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `lightmeter.check`."""
        return self.model_dump()
