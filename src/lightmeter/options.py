"""The options of a run: the same for Python, the command line and the Prefect flow; stored in the journal.

Each option is defined once, here, as a field of `CheckOptions`, `Options` or `ScaleOutOptions`. The command line
(`cli.options`), the forms of the flows and of the planner, and the keyword arguments for type checkers
(`option_arguments`, written by `python -m lightmeter.option_types`) are made from these fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from lightmeter.ask.question import Ask, coerce_ask
from lightmeter.errors import SettingsError, UsageError
from lightmeter.manifest.row_parser import ReadOptions
from lightmeter.pricing.rates import DEMO, OwnPrices, read_own_prices
from lightmeter.redaction import check_no_credentials
from lightmeter.suggestions import did_you_mean
from lightmeter.wire.constants import (
    DEFAULT_CAPTURE_INTERVAL_S,
    DEFAULT_MAX_FRAMES,
    DEFAULT_ROLE,
    DEFAULT_TAG_SCORE,
    EXTRA_FEATURES,
    FEATURES,
    MAX_CREDITS,
    ROLES,
)
from lightmeter.wire.request import AnalyzeRequest

M = TypeVar("M", bound=BaseModel)

Stage = Literal["read", "check", "frames", "screen", "plan", "sample", "request", "send", "tables"]
"""Step of a run: read the manifest, check its rows, choose frames of videos, let local back ends screen the rows, plan
the price, choose what a small budget pays for, what a request asks for, how requests are sent, write the tables."""

DuplicateRule = Literal["exact", "near", "off"]
"""Which rows share the answer of an earlier row; the option `duplicates` describes the values."""

TableFormat = Literal["parquet", "delta", "iceberg"]
TABLE_FORMATS: Final[tuple[TableFormat, ...]] = get_args(TableFormat)

Executor = Literal["local", "dask", "ray"]
"""What runs shards of rows: this machine alone, or the workers of a Dask or Ray cluster."""
EXECUTORS: Final[tuple[Executor, ...]] = get_args(Executor)

DEFAULT_SHARD_ROWS: Final = 2000
"""Rows of a manifest in one shard, if the user names no number."""

SKIPPABLE: Final = (
    *("blank", "dark", "light", "low_information", "blurry", "odd_aspect_ratio", "tiny", "animated", "grayscale"),
    *("rotated", "frozen", "odd_size", "robots", "reach", "type", "size", "decode", "pixels", "frames"),
    "distinct_frames",
)
"""Findings of the pre-checks that the option `skip` may name. All findings with severity `error` skip rows anyway."""

STRATIFIED: Final = "stratified:"
"""Prefix of the value of `sample` that names a column of the manifest."""

DESCRIPTIONS: Final = "descriptions"
"""The feature whose results are the answers to a prompt."""


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """What is known of an option beside its description, type, default and range.

    Attributes:
        stages: Steps of a run in which the option has an effect.
        unit: What the value is, as `--help` shows it: `CREDITS`, `FILE`, …; empty for a flag or a fixed choice.
        on_resume: Whether the option may change between two starts of a run.
        needs: The command line of another option without which this one has no effect, such as `--budget CREDITS`.
        choices: Names that the value may contain; empty means any.
        is_file: Whether the value is a file, or the content of one.
    """

    stages: tuple[Stage, ...]
    unit: str = ""
    on_resume: bool = False
    needs: str = ""
    choices: tuple[str, ...] = ()
    is_file: bool = False

    @property
    def needed_option(self) -> str:
        """The name of the option that `needs` sets; empty if there is none."""
        return self.needs.split(" ")[0].removeprefix("--").replace("-", "_")

    def __call__(self, schema: dict[str, Any]) -> None:
        """Add to the JSON schema of the field what forms show: the names in a list, and that a file has two forms."""
        if self.is_file:
            for key in ("type", "$ref"):
                schema.pop(key, None)
            schema["anyOf"] = [{"type": "object"}, {"type": "string"}, {"type": "null"}]
        elif self.choices and schema.get("type") == "array":
            schema["items"] = {"type": "string", "enum": list(self.choices)}
        elif self.choices:
            schema["enum"] = list(self.choices)


def _option(default: Any, description: str, *stages: Stage, **more: Any) -> Any:
    """Return a pydantic field; `more` are attributes of `OptionInfo`, and limits that `pydantic.Field` takes."""
    known = {name: more.pop(name) for name in OptionInfo.__slots__ if name in more}
    info = OptionInfo(stages, **known)
    return Field(default, description=description, json_schema_extra=info, **more)


def _names(value: Any) -> Any:
    """Convert `"a,b"` or a sequence to a tuple of names in lower case and the same order, each once; None to ()."""
    if value is None:
        return ()
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(str(part).strip().lower() for part in parts if str(part).strip()))


def _check_names(value: tuple[str, ...], known: tuple[str, ...], what: str) -> tuple[str, ...]:
    if unknown := [name for name in value if name not in known]:
        raise ValueError(f"there is no {what} {unknown[0]!r}; choose from {', '.join(known)}")
    return value


def _whole_seconds(value: Any) -> Any:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"whole seconds are needed, 1 or more, not {value:g}")
    return value


def _batch_size(value: Any) -> Any:
    if isinstance(value, str) and value != "auto" and not value.isdigit():
        raise ValueError(f"{value!r} is neither a whole number above 0 nor 'auto'")
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class CheckOptions(BaseModel):
    """The options that decide how a manifest is read and checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url_column: str | None = _option(
        None,
        "Column of the manifest with URLs or paths; by default `url`, else `path`.",
        "read",
        unit="NAME",
        min_length=1,
    )
    id_column: str | None = _option(
        None, "Column of the manifest with unique ids; by default `id`.", "read", unit="NAME", min_length=1
    )
    kind_column: str | None = _option(
        None,
        "Column of the manifest with the kind, image or video; by default `kind`.",
        "read",
        unit="NAME",
        min_length=1,
    )
    lenient: bool = _option(
        False, "Read a CSV record with a broken quote, and all lines after it, as one bad row, not as an error.", "read"
    )
    capture_interval: Annotated[int, BeforeValidator(_whole_seconds)] = _option(
        DEFAULT_CAPTURE_INTERVAL_S,
        "Whole seconds between captured frames of a video.",
        *("check", "screen", "request"),
        unit="SECONDS",
        ge=1,
    )
    max_frames: int = _option(
        DEFAULT_MAX_FRAMES,
        "Maximum number of frames of a video; 0 means no limit.",
        *("check", "screen", "request"),
        unit="N",
        ge=0,
    )
    video: Literal["whole", "frames"] = _option(
        "whole",
        "`whole` sends videos as they are. `frames` sends only the frames that differ, as images: of the frames that "
        "the service would capture, the near-identical ones are left out. It needs the pre-checks.",
        *("check", "frames"),
    )
    max_distinct_frames: int = _option(
        0,
        "Maximum number of frames of a video that is sent as frames, those that differ most; 0 means no limit other "
        "than `max_frames`.",
        *("check", "frames"),
        unit="N",
        ge=0,
        needs="--video frames",
    )
    skip: Names = _option(
        (),
        "Findings of the checks that keep a row from being sent and paid for. Rows with an error are never sent.",
        "check",
        unit="A,B",
        choices=SKIPPABLE,
    )
    duplicates: DuplicateRule = _option(
        "exact",
        "Rows that share the answer of an earlier row: those with the same URL, path or content (`exact`), also images "
        "that look the same (`near`), or none (`off`).",
        "check",
    )

    @field_validator("skip")
    @classmethod
    def _check_skip(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _check_names(value, SKIPPABLE, "finding")


class Options(CheckOptions):
    """All options of a run, validated.

    The fields `ask` (the user's own question) and `prices` (the user's own prices) may be given as the path of a file.
    They hold the content that the file had at that time.
    """

    ask: Annotated[
        InstanceOf[Ask] | None, BeforeValidator(coerce_ask), PlainSerializer(lambda ask: ask and ask.to_dict())
    ] = _option(
        None,
        "The user's own question with a JSON schema. It is sent as the prompt; the answers become a typed table.",
        "request",
        unit="FILE",
        is_file=True,
    )
    features: Names = _option(
        (),
        f"Features to request; by default all but {', '.join(EXTRA_FEATURES)}.",
        "request",
        unit="A,B",
        choices=(*FEATURES, *EXTRA_FEATURES),
    )
    backends: Names = _option((), "Back ends to use; by default those of the service.", "request", unit="A,B")
    role: str = _option(DEFAULT_ROLE, "Persona that writes descriptions.", "request", unit="NAME", choices=ROLES)
    language: str = _option(
        "English", "Language of descriptions, by its English name, such as German.", "request", unit="NAME"
    )
    prompt: str | None = _option(
        None, "The user's own prompt for descriptions, instead of the role's.", "request", unit="TEXT"
    )
    tag_score: float = _option(
        DEFAULT_TAG_SCORE,
        "Minimum tag score. It is sent with each request and never applied again.",
        "request",
        unit="0..1",
        ge=0,
        le=1,
    )
    prices: Annotated[OwnPrices | None, BeforeValidator(read_own_prices)] = _option(
        None,
        "The user's own prices, in JSON or TOML, which override the included table; by default those in the settings. "
        "The embedded service charges them from a play account; demo charges its own price table. Without prices, its "
        "local back ends are free.",
        "plan",
        unit="FILE|demo",
        choices=(DEMO,),
        is_file=True,
    )
    precheck: bool = _option(True, "Check each row before a request is sent for it.", "plan", on_resume=True)
    reuse: bool = _option(
        True,
        "Use answers of earlier runs in the output folder, and if the settings name a folder for cached answers, those "
        "of all runs. Also use the checks of an earlier plan or check that are at most three days old.",
        *("plan", "send"),
        on_resume=True,
    )
    screen: Names = _option(
        (),
        "Local back ends that analyze all rows first, on this machine and for free; only rows that match `screen_rule` "
        "are paid for. Of a video, they see the frames that `max_frames` and `capture_interval` select, at most 3 "
        "without a limit; and tags of all scores, whatever `tag_score` is.",
        "screen",
        unit="BACKEND",
    )
    screen_rule: str | None = _option(
        None,
        "SQL condition over the tables that `screen` fills, such as 'nsfw.severity BETWEEN .1 AND .9', \"tags.name = "
        "'dog' AND tags.score > .95\" or 'NOT EXISTS (SELECT 1 FROM faces WHERE faces.item_id = assets.item_id)'.",
        "screen",
        unit="SQL",
        needs="--screen BACKEND",
        min_length=1,
        validate_default=True,
    )
    screen_audit: float = _option(
        0.02,
        "Size of a random sample of the rows that do not match, as a share of them, rounded up to whole rows. The "
        "sample is paid for all the same: the report estimates from it what the screen misses. 0 means no sample.",
        "screen",
        unit="0..1",
        needs="--screen BACKEND",
        ge=0,
        le=1,
    )
    screen_positive: str | None = _option(
        None,
        "SQL condition over the paid answers that says which rows of this sample the screen missed; by default "
        "`screen_rule`.",
        "screen",
        unit="SQL",
        needs="--screen BACKEND",
        min_length=1,
    )
    sample: str = _option(
        "order",
        "Rows that `budget` pays for if it is too small for all: order (the first of the manifest), random, "
        "stratified:COLUMN (each value of a column of the manifest by its share), or diverse (pictures that differ "
        "most by perceptual hash). A raised budget only adds rows.",
        "sample",
        unit="RULE",
        needs="--budget CREDITS",
    )
    sample_seed: int = _option(
        0,
        "Number that selects the random order; the same number selects the same rows.",
        "sample",
        unit="N",
        needs="--sample random",
        ge=0,
        lt=1 << 63,
    )
    budget: int | None = _option(
        None,
        "Hard cap: the run never spends more. By default there is none.",
        "send",
        unit="CREDITS",
        on_resume=True,
        ge=0,
        le=MAX_CREDITS,
    )
    max_at_risk: int | None = _option(
        None,
        "Maximum credits in requests without an answer, which a power cut could lose. By default there is no limit.",
        "send",
        unit="CREDITS",
        on_resume=True,
        ge=1,
        le=MAX_CREDITS,
    )
    batch_size: Annotated[Annotated[int, Field(ge=1)] | Literal["auto"], BeforeValidator(_batch_size)] = _option(
        "auto",
        "Images in one request; auto sends single images unless larger batches are faster or cheaper.",
        "send",
        unit="N|auto",
        on_resume=True,
    )
    max_concurrency: int = _option(
        64,
        "Maximum number of requests in flight; the rate limiter may allow fewer.",
        "send",
        unit="N",
        on_resume=True,
        ge=1,
        le=1024,
    )
    upload: Literal["never", "fallback", "always"] = _option(
        "never",
        "Download pictures here and send their bytes: never, as a fallback for those that the service cannot fetch, or "
        "always.",
        "send",
        on_resume=True,
    )
    careful: bool = _option(
        False,
        "Send one request at a time: if its answer is lost, the balance shows whether it was charged.",
        "send",
        on_resume=True,
    )
    sole_spender: bool = _option(
        False,
        "Nobody else spends from this account during the run. The balance then also proves which requests were "
        "charged.",
        "send",
        on_resume=True,
    )
    base_url: Annotated[str | None, AfterValidator(check_no_credentials)] = _option(
        None,
        "URL of the service (or LIGHTMETER_BASE_URL); by default the embedded service.",
        "send",
        unit="URL",
        on_resume=True,
    )
    table_format: TableFormat = _option(
        "parquet",
        "Format of the tables; delta and iceberg are written beside Parquet, at the end of the run.",
        "tables",
        on_resume=True,
    )

    @field_validator("features")
    @classmethod
    def _check_features(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = _check_names(value, (*FEATURES, *EXTRA_FEATURES), "feature")
        has_ask = info.data.get("ask") is not None
        return (*known, DESCRIPTIONS) if has_ask and known and DESCRIPTIONS not in known else known

    @field_validator("prompt")
    @classmethod
    def _one_prompt(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value and info.data.get("ask") is not None:
            raise ValueError("a request has one prompt: give either prompt or ask")
        return value

    @field_validator("screen_rule")
    @classmethod
    def _check_screen_rule(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("screen") and value is None:
            raise ValueError("a screen needs a rule, such as 'nsfw.severity BETWEEN .1 AND .9'")
        return value

    @field_validator("role")
    @classmethod
    def _check_role(cls, value: str) -> str:
        return _check_names((value.lower(),), ROLES, "role")[0]

    @field_validator("sample")
    @classmethod
    def _check_sample(cls, value: str) -> str:
        if value in ("order", "random", "diverse") or (value.startswith(STRATIFIED) and value != STRATIFIED):
            return value
        raise ValueError(f"there is no rule {value!r}; choose from order, random, stratified:COLUMN, diverse")

    @field_validator("precheck")
    @classmethod
    def _check_precheck(cls, value: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 (pydantic passes it)
        if not value and info.data.get("skip"):
            raise ValueError("rows are skipped for what the checks find: do not turn the checks off with skip")
        if not value and info.data.get("video") == "frames":
            raise ValueError("video = frames needs the pre-checks, which decode the videos")
        return value

    def changed(self) -> dict[str, Any]:
        """Return the options that do not have their default values, as keyword arguments of `lightmeter.plan`."""
        fields = type(self).model_fields
        return {name: value for name, value in self if value != fields[name].default}

    def effective(self) -> dict[str, Any]:
        """Return those of `changed` that have an effect: a sample needs a budget, its seed a sample, and so on."""
        changed = self.changed()
        for name, field in Options.model_fields.items():
            needed = option_info(field).needed_option
            if needed and needed not in changed:
                changed.pop(name, None)
        return changed

    @property
    def is_capped(self) -> bool:
        """Whether an option limits the credits that the run may spend or put at risk."""
        return self.budget is not None or self.max_at_risk is not None

    @property
    def sample_column(self) -> str | None:
        """The manifest's column that the option `sample` names (`stratified:COLUMN`); None if it names none."""
        return self.sample.removeprefix(STRATIFIED) if self.sample.startswith(STRATIFIED) else None

    @property
    def read_options(self) -> ReadOptions:
        """The options that decide how a manifest is read, such as the names of its columns."""
        return ReadOptions(**{name: getattr(self, name) for name in options_of("read")})

    @property
    def sent_prompt(self) -> str | None:
        """The prompt in requests: the option `prompt`, or the question of `ask` with its JSON schema; None if unset."""
        return self.prompt if self.ask is None else self.ask.request_prompt

    def retry_request(self, error: str, backends: Sequence[str]) -> AnalyzeRequest:
        """Return a request, still without an image, that repeats the user's question (`--ask`) after an invalid answer.

        Args:
            error: What was wrong with the answer.
            backends: Back ends that gave that answer; empty means all of the run.

        Raises:
            UsageError: the run has no option `ask`.
        """
        if self.ask is None:
            raise UsageError("This run has no question to ask again.", hint="Give it one: --ask FILE")
        update = {"prompt": self.ask.retry_prompt(error), "feature": [DESCRIPTIONS]}
        return self.request().model_copy(update={**update, "backend": list(backends or self.backends)})

    def request(
        self, *, urls: Sequence[str] = (), files: Sequence[str] = (), names: Sequence[str] = ()
    ) -> AnalyzeRequest:
        """Return a request to the service: to analyze the given images and videos with these options.

        Args:
            urls: Images and videos by URL.
            files: Contents of images and videos, as base64 or data URI.
            names: File names of `files`, in the same order.
        """
        return AnalyzeRequest(
            url=list(urls),
            file=list(files),
            file_name=list(names),
            backend=list(self.backends),
            feature=list(self.features),
            role=self.role,
            language=self.language,
            prompt=self.sent_prompt,
            tag_score=self.tag_score,
            capture_interval=self.capture_interval,
            max_frames=self.max_frames,
        )


class ScaleOutOptions(BaseModel):
    """The options of `check` and `plan` that distribute their work over worker processes or machines.

    The work is the checks and the screen. Rows go to the workers and back in files. `executor` may also be a
    `distributed.Client`: see `lightmeter.scale_out.executors.open_executor`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    executor: Any = _option(
        "local",
        "What works on shards of rows: this machine alone (local), or the workers of a Dask or Ray cluster.",
        "check",
        choices=EXECUTORS,
    )
    shard_rows: int = _option(
        DEFAULT_SHARD_ROWS,
        "Rows in one shard, which one worker works on. Use thousands: a shard has a fixed cost.",
        "check",
        unit="N",
        ge=1,
    )
    shard_dir: Any = _option(
        None,
        "Folder or URI, such as s3://bucket/prefix, that this machine and all workers reach, for the files of the "
        "shards; by default a folder in the cache folder, which is right for one machine.",
        "check",
        unit="DIR|URI",
    )


def option_info(field: FieldInfo) -> OptionInfo:
    """Return what is known of the option that `field` of one of the models above defines."""
    info = field.json_schema_extra
    assert isinstance(info, OptionInfo)  # noqa: S101 (each field is made by `_option`)
    return info


def options_of(stage: Stage) -> tuple[str, ...]:
    """Return the names of the options that have an effect in a step of a run."""
    return tuple(name for name, field in Options.model_fields.items() if stage in option_info(field).stages)


REQUEST_OPTIONS: Final = options_of("request")
"""Options that decide the content and the price of an answer."""

SCREENED_WITH: Final = tuple(name for name in REQUEST_OPTIONS if name in options_of("screen"))
"""Options of the paid request that also apply to a screen. The option `tag_score` does not: a screen sees all tags."""

SCREEN_OPTIONS: Final = tuple(name for name in options_of("screen") if name not in REQUEST_OPTIONS)
"""Options that decide which rows of a plan are paid for, after local back ends have looked at all of them."""

RESUME_OPTIONS: Final = tuple(name for name, field in Options.model_fields.items() if option_info(field).on_resume)
"""Options that may change between two starts of a run."""


def make_options(**values: Any) -> Options:
    """Return validated options from the keyword arguments that a user gives.

    Raises:
        SettingsError: an option is unknown, its value is not allowed, or it has no effect; the message names it.
    """
    options = parse_options(**values)
    effective = options.effective()
    for name in options.changed():
        if name not in effective:
            needs = option_info(Options.model_fields[name]).needs
            raise SettingsError(f"{name.replace('_', '-')}: it has no effect without {needs}.", hint=f"Add {needs}.")
    return options


def parse_options(**values: Any) -> Options:
    """Return validated options from keyword arguments. Unlike `make_options`, accept options that have no effect.

    Raises:
        SettingsError: an option is unknown or its value is not allowed; the message names it.
    """
    return validated(Options, values)


def validated(kind: type[M], values: Mapping[str, Any]) -> M:
    """Return the options `values` as a model of the type `kind`.

    Raises:
        SettingsError: an option is unknown or its value is not allowed; the message names it.
    """
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        text = first["msg"].removeprefix("Value error, ")
        near = did_you_mean(str(first["loc"][0]), Options.model_fields) if first["type"] == "extra_forbidden" else ""
        raise SettingsError(f"{name}: {text}.", hint=near) from None
