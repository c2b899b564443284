"""The keyword arguments of `check`, `plan`, `run` and `resume`, for editors and type checkers.

Written by `python -m lightmeter.option_types` from the models in `lightmeter.options`: do not edit it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from lightmeter.ask.question import Ask
from lightmeter.options import Executor
from lightmeter.pricing.rates import OwnPrices


class CheckArguments(TypedDict, total=False):
    """Keyword arguments of `lightmeter.check`.

    An option for names takes a sequence, or a text with commas, such as "tags,nsfw"; None means none.

    Attributes:
        url_column: Column of the manifest with URLs or paths; by default `url`, else `path`.
        id_column: Column of the manifest with unique ids; by default `id`.
        kind_column: Column of the manifest with the kind, image or video; by default `kind`.
        lenient: Read a CSV record with a broken quote, and all lines after it, as one bad row, not as an error.
        capture_interval: Whole seconds between captured frames of a video.
        max_frames: Maximum number of frames of a video; 0 means no limit.
        video: `whole` sends videos as they are. `frames` sends only the frames that differ, as images: of the frames
            that the service would capture, the near-identical ones are left out. It needs the pre-checks.
        max_distinct_frames: Maximum number of frames of a video that is sent as frames, those that differ most; 0 means
            no limit other than `max_frames`.
        skip: Findings of the checks that keep a row from being sent and paid for. Rows with an error are never sent.
            Choose from blank, dark, light, low_information, blurry, odd_aspect_ratio, tiny, animated, grayscale,
            rotated, frozen, odd_size, robots, reach, type, size, decode, pixels, frames, distinct_frames.
        duplicates: Rows that share the answer of an earlier row: those with the same URL, path or content (`exact`),
            also images that look the same (`near`), or none (`off`).
        reuse: Use answers of earlier runs in the output folder, and if the settings name a folder for cached answers,
            those of all runs. Also use the checks of an earlier plan or check that are at most three days old.
        executor: What works on shards of rows: this machine alone (local), or the workers of a Dask or Ray cluster.
        shard_rows: Rows in one shard, which one worker works on. Use thousands: a shard has a fixed cost.
        shard_dir: Folder or URI, such as s3://bucket/prefix, that this machine and all workers reach, for the files of
            the shards; by default a folder in the cache folder, which is right for one machine.
    """

    url_column: str | None
    id_column: str | None
    kind_column: str | None
    lenient: bool
    capture_interval: int
    max_frames: int
    video: Literal["whole", "frames"]
    max_distinct_frames: int
    skip: Sequence[str] | str | None
    duplicates: Literal["exact", "near", "off"]
    reuse: bool
    executor: Executor | object
    shard_rows: int
    shard_dir: str | PathLike[str] | None


class ResumeArguments(TypedDict, total=False):
    """Keyword arguments of `lightmeter.resume`.

    An option for names takes a sequence, or a text with commas, such as "tags,nsfw"; None means none.

    Attributes:
        precheck: Check each row before a request is sent for it.
        reuse: Use answers of earlier runs in the output folder, and if the settings name a folder for cached answers,
            those of all runs. Also use the checks of an earlier plan or check that are at most three days old.
        budget: Hard cap: the run never spends more. By default there is none.
        max_at_risk: Maximum credits in requests without an answer, which a power cut could lose. By default there is no
            limit.
        batch_size: Images in one request; auto sends single images unless larger batches are faster or cheaper.
        max_concurrency: Maximum number of requests in flight; the rate limiter may allow fewer.
        upload: Download pictures here and send their bytes: never, as a fallback for those that the service cannot
            fetch, or always.
        careful: Send one request at a time: if its answer is lost, the balance shows whether it was charged.
        sole_spender: Nobody else spends from this account during the run. The balance then also proves which requests
            were charged.
        base_url: URL of the service (or LIGHTMETER_BASE_URL); by default the embedded service.
        table_format: Format of the tables; delta and iceberg are written beside Parquet, at the end of the run.
    """

    precheck: bool
    reuse: bool
    budget: int | None
    max_at_risk: int | None
    batch_size: int | Literal["auto"]
    max_concurrency: int
    upload: Literal["never", "fallback", "always"]
    careful: bool
    sole_spender: bool
    base_url: str | None
    table_format: Literal["parquet", "delta", "iceberg"]


class RunArguments(ResumeArguments, total=False):
    """Keyword arguments of `lightmeter.run`.

    An option for names takes a sequence, or a text with commas, such as "tags,nsfw"; None means none.

    Attributes:
        url_column: Column of the manifest with URLs or paths; by default `url`, else `path`.
        id_column: Column of the manifest with unique ids; by default `id`.
        kind_column: Column of the manifest with the kind, image or video; by default `kind`.
        lenient: Read a CSV record with a broken quote, and all lines after it, as one bad row, not as an error.
        capture_interval: Whole seconds between captured frames of a video.
        max_frames: Maximum number of frames of a video; 0 means no limit.
        video: `whole` sends videos as they are. `frames` sends only the frames that differ, as images: of the frames
            that the service would capture, the near-identical ones are left out. It needs the pre-checks.
        max_distinct_frames: Maximum number of frames of a video that is sent as frames, those that differ most; 0 means
            no limit other than `max_frames`.
        skip: Findings of the checks that keep a row from being sent and paid for. Rows with an error are never sent.
            Choose from blank, dark, light, low_information, blurry, odd_aspect_ratio, tiny, animated, grayscale,
            rotated, frozen, odd_size, robots, reach, type, size, decode, pixels, frames, distinct_frames.
        duplicates: Rows that share the answer of an earlier row: those with the same URL, path or content (`exact`),
            also images that look the same (`near`), or none (`off`).
        ask: The user's own question with a JSON schema. It is sent as the prompt; the answers become a typed table.
        features: Features to request; by default all but embeddings. Choose from brands, colors, descriptions, faces,
            nsfw, tags, texts, embeddings.
        backends: Back ends to use; by default those of the service.
        role: Persona that writes descriptions.
        language: Language of descriptions, by its English name, such as German.
        prompt: The user's own prompt for descriptions, instead of the role's.
        tag_score: Minimum tag score. It is sent with each request and never applied again.
        prices: The user's own prices, in JSON or TOML, which override the included table; by default those in the
            settings. The embedded service charges them from a play account; demo charges its own price table. Without
            prices, its local back ends are free.
        screen: Local back ends that analyze all rows first, on this machine and for free; only rows that match
            `screen_rule` are paid for. Of a video, they see the frames that `max_frames` and `capture_interval` select,
            at most 3 without a limit; and tags of all scores, whatever `tag_score` is.
        screen_rule: SQL condition over the tables that `screen` fills, such as 'nsfw.severity BETWEEN .1 AND .9',
            "tags.name = 'dog' AND tags.score > .95" or 'NOT EXISTS (SELECT 1 FROM faces WHERE faces.item_id =
            assets.item_id)'.
        screen_audit: Size of a random sample of the rows that do not match, as a share of them, rounded up to whole
            rows. The sample is paid for all the same: the report estimates from it what the screen misses. 0 means no
            sample.
        screen_positive: SQL condition over the paid answers that says which rows of this sample the screen missed; by
            default `screen_rule`.
        sample: Rows that `budget` pays for if it is too small for all: order (the first of the manifest), random,
            stratified:COLUMN (each value of a column of the manifest by its share), or diverse (pictures that differ
            most by perceptual hash). A raised budget only adds rows.
        sample_seed: Number that selects the random order; the same number selects the same rows.
    """

    url_column: str | None
    id_column: str | None
    kind_column: str | None
    lenient: bool
    capture_interval: int
    max_frames: int
    video: Literal["whole", "frames"]
    max_distinct_frames: int
    skip: Sequence[str] | str | None
    duplicates: Literal["exact", "near", "off"]
    ask: Ask | Mapping[str, Any] | PathLike[str] | str | None
    features: Sequence[str] | str | None
    backends: Sequence[str] | str | None
    role: str
    language: str
    prompt: str | None
    tag_score: float
    prices: OwnPrices | Mapping[str, Any] | PathLike[str] | str | None
    screen: Sequence[str] | str | None
    screen_rule: str | None
    screen_audit: float
    screen_positive: str | None
    sample: str
    sample_seed: int


class PlanArguments(RunArguments, total=False):
    """Keyword arguments of `lightmeter.plan`.

    An option for names takes a sequence, or a text with commas, such as "tags,nsfw"; None means none.

    Attributes:
        executor: What works on shards of rows: this machine alone (local), or the workers of a Dask or Ray cluster.
        shard_rows: Rows in one shard, which one worker works on. Use thousands: a shard has a fixed cost.
        shard_dir: Folder or URI, such as s3://bucket/prefix, that this machine and all workers reach, for the files of
            the shards; by default a folder in the cache folder, which is right for one machine.
    """

    executor: Executor | object
    shard_rows: int
    shard_dir: str | PathLike[str] | None
