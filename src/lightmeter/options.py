"""The options of a run: the same for Python, the command line and the Prefect flow; stored in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

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

from lightmeter.ask.question import Ask, coerce_ask
from lightmeter.errors import SettingsError, UsageError
from lightmeter.manifest.row_parser import ReadOptions
from lightmeter.option_arguments import DuplicateRule, TableFormat
from lightmeter.pricing.rates import OwnPrices, read_own_prices
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

REQUEST_OPTIONS: Final = (
    *("features", "backends", "role", "language", "prompt", "ask"),
    *("tag_score", "capture_interval", "max_frames"),
)
"""Options that decide the content and the price of an answer."""

SKIPPABLE: Final = (
    *("blank", "dark", "light", "low_information", "blurry", "odd_aspect_ratio", "tiny", "animated", "grayscale"),
    *("rotated", "frozen", "odd_size", "robots", "reach", "type", "size", "decode", "pixels", "frames"),
    "distinct_frames",
)
"""Findings of the pre-checks that the option `skip` may name. All findings with severity `error` skip rows anyway."""

VIDEO_OPTIONS: Final = ("video", "max_distinct_frames")
"""Options that decide whether videos are sent whole, or which of their frames are sent; fixed once a run is planned."""

SCREEN_OPTIONS: Final = ("screen", "screen_rule", "screen_audit")
"""Options that decide which rows of a plan are paid for, after local back ends have looked at all of them."""

SCREENED_WITH: Final = ("capture_interval", "max_frames")
"""Options of the paid request that also apply to a screen. The option `tag_score` does not: a screen sees all tags."""

READ_OPTIONS: Final = ("url_column", "id_column", "kind_column", "lenient")
"""Options that decide how the rows of a manifest are read."""

SAMPLE_OPTIONS: Final = ("sample", "sample_seed")
"""Options that decide in which order rows are sent, and so which rows a small budget pays for."""

STRATIFIED: Final = "stratified:"
"""Prefix of the value of `sample` that names a column of the manifest."""

DEFAULT_SCREEN_AUDIT: Final = 0.02
"""Share, 0 to 1, of the rows that a screen rejects: so many of them, chosen at random, are sent to the paid service."""


def _names(value: Any) -> Any:
    """Convert `"a,b"` or a sequence to a tuple of names in lower case and the same order, each once; None to ()."""
    if value is None:
        return ()
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(str(part).strip().lower() for part in parts if str(part).strip()))


def _whole_seconds(value: Any) -> Any:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"whole seconds are needed, 1 or more, not {value:g}")
    return value


DESCRIPTIONS: Final = "descriptions"
"""The feature whose results are the answers to a prompt."""

Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class Options(BaseModel):
    """All options of a run, validated. `lightmeter.option_arguments.PlanOptions` describes the fields.

    The fields `ask` (the user's own question) and `prices` (the user's own prices) may be given as the path of a file.
    They hold the content that the file had at that time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    ask: Annotated[
        InstanceOf[Ask] | None, BeforeValidator(coerce_ask), PlainSerializer(lambda ask: ask and ask.to_dict())
    ] = None
    features: Names = ()
    backends: Names = ()
    role: str = DEFAULT_ROLE
    language: str = "English"
    prompt: str | None = None
    tag_score: float = Field(default=DEFAULT_TAG_SCORE, ge=0, le=1)
    capture_interval: Annotated[int, BeforeValidator(_whole_seconds)] = Field(default=DEFAULT_CAPTURE_INTERVAL_S, ge=1)
    max_frames: int = Field(default=DEFAULT_MAX_FRAMES, ge=0)
    sample: str = "order"
    sample_seed: int = Field(default=0, ge=0, lt=1 << 63)
    budget: int | None = Field(default=None, ge=0, le=MAX_CREDITS)
    max_at_risk: int | None = Field(default=None, ge=1, le=MAX_CREDITS)
    batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    max_concurrency: int = Field(default=64, ge=1, le=1024)
    precheck: bool = True
    skip: Names = ()
    upload: Literal["never", "fallback", "always"] = "never"
    reuse: bool = True
    careful: bool = False
    sole_spender: bool = False
    table_format: TableFormat = "parquet"
    base_url: Annotated[str | None, AfterValidator(check_no_credentials)] = None
    url_column: str | None = Field(default=None, min_length=1)
    id_column: str | None = Field(default=None, min_length=1)
    kind_column: str | None = Field(default=None, min_length=1)
    lenient: bool = False
    prices: Annotated[OwnPrices | None, BeforeValidator(read_own_prices)] = None
    video: Literal["whole", "frames"] = "whole"
    max_distinct_frames: int = Field(default=0, ge=0)
    screen: Names = ()
    screen_rule: str | None = Field(default=None, min_length=1, validate_default=True)
    screen_audit: float = Field(default=DEFAULT_SCREEN_AUDIT, ge=0, le=1)
    screen_positive: str | None = Field(default=None, min_length=1)
    duplicates: DuplicateRule = "exact"

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

    @field_validator("skip")
    @classmethod
    def _check_skip(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if value and not info.data.get("precheck", True):
            raise ValueError("rows are skipped for what the checks find: do not turn the checks off")
        return _check_names(value, SKIPPABLE, "finding")

    @field_validator("video")
    @classmethod
    def _check_video(cls, value: str, info: ValidationInfo) -> str:
        if value == "frames" and info.data.get("precheck") is False:
            raise ValueError("frames needs the pre-checks, which decode the videos")
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
        return ReadOptions(**{name: getattr(self, name) for name in READ_OPTIONS})

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


def _check_names(value: tuple[str, ...], known: tuple[str, ...], what: str) -> tuple[str, ...]:
    if unknown := [name for name in value if name not in known]:
        raise ValueError(f"there is no {what} {unknown[0]!r}; choose from {', '.join(known)}")
    return value


NEEDED_OPTIONS: Final = (
    ("sample", "budget", "--budget CREDITS"),
    ("sample_seed", "sample", "--sample random"),
    ("max_distinct_frames", "video", "--video frames"),
    *((name, "screen", "--screen BACKEND") for name in ("screen_rule", "screen_audit", "screen_positive")),
)
"""(option, another option without which it has no effect, how the command line sets that other option)."""


def make_options(**fields: Any) -> Options:
    """Return validated options from the keyword arguments that a user gives.

    Raises:
        SettingsError: an option is unknown, its value is not allowed, or it has no effect; the message names it.
    """
    options = parse_options(**fields)
    changed = {name for name, field in Options.model_fields.items() if getattr(options, name) != field.default}
    for name, needed, how in NEEDED_OPTIONS:
        if name in changed and needed not in changed:
            raise SettingsError(f"{name.replace('_', '-')}: it has no effect without {how}.", hint=f"Add {how}.")
    return options


def parse_options(**fields: Any) -> Options:
    """Return validated options from keyword arguments; `NEEDED_OPTIONS`, unlike in `make_options`, is not checked.

    Raises:
        SettingsError: an option is unknown or its value is not allowed; the message names it.
    """
    try:
        return Options(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        text = first["msg"].removeprefix("Value error, ")
        near = did_you_mean(str(first["loc"][0]), Options.model_fields) if first["type"] == "extra_forbidden" else ""
        raise SettingsError(f"{name}: {text}.", hint=near) from None
