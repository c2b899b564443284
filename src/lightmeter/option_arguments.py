"""The keyword arguments of `plan`, `run`, `resume` and `check`, as types for editors and type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, Literal, TypeAlias, TypedDict, get_args

from lightmeter.ask.question import Ask
from lightmeter.pricing.rates import OwnPrices

DuplicateRule: TypeAlias = Literal["exact", "near", "off"]
"""Which rows share the answer of an earlier row; `CheckOptions` describes the values."""


TableFormat: TypeAlias = Literal["parquet", "delta", "iceberg"]
TABLE_FORMATS: Final[tuple[TableFormat, ...]] = get_args(TableFormat)


class ResumeOptions(TypedDict, total=False):
    """Keyword arguments of `resume`: the options that may change between two starts of a run.

    Attributes:
        budget: Most credits that the run may spend; None means no cap.
        max_at_risk: Most credits in flight without an answer, which a power cut could lose. None means no cap.
        batch_size: Images in one request; "auto" sends single images unless larger batches are faster or cheaper.
        max_concurrency: Most requests in flight; the rate limiter may allow fewer.
        precheck: Check each row before a request is sent for it.
        upload: Whether pictures by URL are fetched here and sent as bytes: never, as a fallback for those that the
            service cannot fetch, or always.
        reuse: Use answers of earlier runs in the output folder, and if the settings name a folder for cached answers
            (`answers_dir`), answers of all earlier runs. Also use the results of pre-checks of an earlier plan or
            `check`.
        careful: Send one request at a time: if its answer is lost, the balance proves whether it was charged.
        sole_spender: Nobody else spends from this account during the run. The balance then also proves which requests
            were charged.
        table_format: Format of the tables; "delta" and "iceberg" are written beside Parquet, at the end of the run.
        base_url: The service; None means the embedded one.
    """

    budget: int | None
    max_at_risk: int | None
    batch_size: int | Literal["auto"]
    max_concurrency: int
    precheck: bool
    upload: Literal["never", "fallback", "always"]
    reuse: bool
    careful: bool
    sole_spender: bool
    table_format: TableFormat
    base_url: str | None


Executor: TypeAlias = Literal["local", "dask", "ray"]
"""What runs shards of rows: this machine alone, or the workers of a Dask or Ray cluster."""

EXECUTORS: Final[tuple[Executor, ...]] = get_args(Executor)

DEFAULT_SHARD_ROWS: Final = 2000
"""Rows of a manifest in one shard, if the user names no number."""


class ScaleOutOptions(TypedDict, total=False):
    """Keyword arguments of `check` and `plan` that distribute their work over worker processes or machines.

    The work is the pre-checks and the screen, a free analysis by local models that selects the rows to pay for. Rows
    go to the workers and back in files.

    Attributes:
        executor: What checks the rows, and analyzes those of a screen: "local", "dask", "ray" or a
            `distributed.Client`. See `lightmeter.scale_out.executors.open_executor`.
        shard_rows: Rows of one shard, which one worker checks. Use thousands: a shard has a fixed cost.
        shard_dir: Folder or URI, such as `s3://bucket/prefix`, that this machine and all workers reach; it holds files
            only until the call ends. None means a folder in the cache folder, which is right for one machine.
    """

    executor: Executor | object
    shard_rows: int
    shard_dir: str | PathLike[str] | None


class CheckOptions(TypedDict, total=False):
    """Keyword arguments of `check`: the options that decide how a manifest is read and checked.

    An option for several names takes a sequence, or a text with commas such as "blank,blurry". None means no names.

    Attributes:
        capture_interval: Seconds between captured frames of a video.
        max_frames: Most frames of a video; 0 means no limit.
        video: `whole` sends videos as they are. `frames` sends only the frames that differ, as images: of the frames
            that the service would capture, the near-identical ones are left out. It needs the pre-checks.
        max_distinct_frames: Most frames of a video to send with `video="frames"`, those that differ most; 0 means no
            limit other than `max_frames`.
        url_column: The manifest's column of URLs and paths; None means `url`, else `path`.
        id_column: The manifest's column of ids; None means `id`.
        kind_column: The manifest's column of media types (image or video); None means `kind`.
        lenient: Read a CSV record with a broken quote, and all lines after it, as one bad row. By default it is an
            error.
        skip: Names of findings of the pre-checks, such as `blank`, that keep a row from being sent: those in
            `lightmeter.options.SKIPPABLE`. Rows with an error are never sent.
        duplicates: Which rows share the answer of an earlier row: those with the same URL, path or content (`exact`),
            also images that look the same (`near`), or none (`off`).
    """

    capture_interval: int
    max_frames: int
    video: Literal["whole", "frames"]
    max_distinct_frames: int
    duplicates: DuplicateRule
    skip: Sequence[str] | str | None
    url_column: str | None
    id_column: str | None
    kind_column: str | None
    lenient: bool


class CheckArguments(CheckOptions, ScaleOutOptions, total=False):
    """All keyword arguments of `lightmeter.check`, which checks the rows of a manifest for free."""


class PlanOptions(ResumeOptions, CheckOptions, total=False):
    """Keyword arguments of `plan`: those of `ResumeOptions` and `CheckOptions`, and those that a plan fixes.

    An option for several names takes a sequence, or a text with commas such as "tags,nsfw". None means no names.

    Attributes:
        features: Features to analyze; empty means all but `embeddings`. With `ask`, `descriptions` is among them.
        backends: Back ends to use; empty means the defaults of the service.
        role: Persona that writes descriptions, such as `critic`.
        language: Language of descriptions, by its English name, such as `German`.
        prompt: The user's own prompt for descriptions.
        ask: The user's own question with a JSON schema: a file or its content. It is sent as the prompt; the answers
            become a table.
        tag_score: Least tag score, 0 to 1. It is sent with each request and never applied again.
        sample: The rows that `budget` pays for if it is too small for all: "order" (the first of the manifest),
            "random", "stratified:COLUMN" (each value of a column of the manifest by its share), or "diverse" (pictures
            that differ most by perceptual hash). A raised budget only adds rows.
        sample_seed: Number that selects the random order; the same seed selects the same rows.
        prices: The user's own prices, which override the shipped table: a file or its content. None means the
            prices in the settings, if there are any.
        screen: Local back ends that analyze every row first, on this machine and for free; only rows that match
            `screen_rule` are paid for. Empty means that all rows are paid for.
        screen_rule: SQL condition over the tables that these back ends fill, such as
            `nsfw.severity BETWEEN .1 AND .9`. See `lightmeter.tables.query.row_condition`.
        screen_audit: Size of a random sample of the rows that do not match, as a share of these rows, 0 to 1. The
            sample is sent to the paid service anyway, to show what the screen misses. The number of rows is rounded
            up; 0 means no sample.
        screen_positive: SQL condition over the tables of the paid answers. A row of that random sample that matches
            the condition was missed by the screen. None means `screen_rule`.
    """

    features: Sequence[str] | str | None
    backends: Sequence[str] | str | None
    role: str
    language: str
    prompt: str | None
    ask: Ask | Mapping[str, Any] | PathLike[str] | str | None
    tag_score: float
    sample: str
    sample_seed: int
    prices: OwnPrices | Mapping[str, Any] | PathLike[str] | str | None
    screen: Sequence[str] | str | None
    screen_rule: str | None
    screen_audit: float
    screen_positive: str | None


class PlanArguments(PlanOptions, ScaleOutOptions, total=False):
    """All keyword arguments of `lightmeter.plan`, which checks a manifest and computes the price of a run."""
