"""Settings of the faults that the service injects on purpose, and their parser for TOML and JSON.

Each key names a fault of `FAULT_KINDS`. Its value is a table of settings, or a single value for its main setting, or
`true` for the defaults. A list of tables sets the same fault several times::

    seed = 7
    drop-after = 0.05
    slow = { seconds = [0.2, 1.5], on = "poll" }

    [429]
    bucket = 10
    retry-after = "yes"
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from lightmeter.errors import SettingsError


class Lane(StrEnum):
    """Type of an API request: submission of images and videos, poll for the result, or reading the balance.

    A fault may be limited to some of these types.
    """

    SUBMIT = "submit"
    POLL = "poll"
    CREDITS = "credits"


FaultName: TypeAlias = Literal[
    "429", "queue", "drop-before", "drop-after", "5xx", "truncate", "slow", "late", "unknown", "shuffle", "missing",
    "extra", "assets-object", "text-credits", "no-credits", "fail-charged", "odd-value", "charge-late", "prices",
    "forgetful",
]  # fmt: skip
OddValue: TypeAlias = Literal["nan", "infinity", "digits", "surrogate", "byte", "duplicate", "bom", "trailing"]
ODD_VALUES: Final[tuple[OddValue, ...]] = get_args(OddValue)
"""Values of the setting `kind` of the fault `odd-value`: the ways to break the JSON of an answer."""


def _as_lanes(value: object) -> object:
    if value == "all":
        return list(Lane)
    return [value] if isinstance(value, str) else value


def _as_range(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value, value)


Lanes: TypeAlias = Annotated[frozenset[Lane], BeforeValidator(_as_lanes), Field(min_length=1)]
Rate: TypeAlias = Annotated[float, Field(strict=True, ge=0.001, le=100_000)]
Count: TypeAlias = Annotated[float, Field(strict=True, ge=1, le=100_000)]
Seconds: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=3600)]

SUBMIT: Final = frozenset({Lane.SUBMIT})
POLL: Final = frozenset({Lane.POLL})
RESULTS: Final = SUBMIT | POLL


class Fault(BaseModel):
    """A fault that the service makes on purpose, with its settings. Each fault uses some of them (`FAULT_KINDS`).

    Attributes:
        name: Name of the fault in fault files, logs and counts, such as `drop-after`.
        on: Types of requests that the fault affects: `submit`, `poll`, `credits`.
        chance: Probability, 0 to 1, that the fault affects a request; with the fault `missing`, an image or video.
        seconds: Shortest and longest delay in seconds; drawn at random for each request.
        factor: Multiplier of all charges, for the fault `prices`.
        per_second: Requests a second that the fault `queue` lets through.
        bucket: For a token-bucket limit: requests a second; None: no such limit.
        burst: Size of the token bucket: how many requests it lets through at once.
        window: For a limit of requests in each period: (maximum number of requests, seconds of a period); None: no such
            limit.
        cap: For a concurrency limit: maximum requests at once; None: no such limit.
        retry_after: Retry-After header of a refusal: "no" for none, "yes" for the true seconds, "date" for a date, or
            a fixed number of seconds.
        status: HTTP status; None: 429 for a limit, one of 500, 502, 503 and 504 at random for an error.
        when: Whether an error answer is sent before or after the request is processed and charged.
        names: For the fault `shuffle`: what replaces the name (URL or file name) of each image and video in the answer:
            a random file path ("temporary") or URL ("redirect"), no name ("none"), or nothing ("keep").
        kind: Way to break the JSON, one of `ODD_VALUES`; None: at random.
    """

    model_config = ConfigDict(frozen=True, alias_generator=lambda setting: setting.replace("_", "-"))

    name: FaultName
    on: Lanes
    chance: float = Field(1.0, strict=True, ge=0, le=1)
    seconds: Annotated[tuple[Seconds, Seconds], BeforeValidator(_as_range)] = (0.0, 0.0)
    factor: float = Field(1.0, strict=True, ge=0.001, le=1000)
    per_second: Rate = 1.0
    bucket: Rate | None = None
    burst: Count = 1.0
    window: tuple[Count, Annotated[Seconds, Field(ge=0.001)]] | None = None
    cap: Count | None = None
    retry_after: Literal["no", "yes", "date"] | Seconds = "no"
    status: Literal[429, 500, 502, 503, 504] | None = None
    when: Literal["before", "after"] = "before"
    names: Literal["temporary", "keep", "redirect", "none"] = "temporary"
    kind: OddValue | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.seconds[0] > self.seconds[1]:
            raise ValueError("the first number of seconds must not be larger than the second one")
        if self.name == "429":
            if sum(each is not None for each in (self.bucket, self.window, self.cap)) != 1:
                raise ValueError("set exactly one of bucket, window and cap")
            if self.bucket is None and "burst" in self.model_fields_set:
                raise ValueError("only a bucket has a burst")
        if self.status is not None and self.status not in ((429, 503) if self.name == "429" else (500, 502, 503, 504)):
            raise ValueError("status must be 429 or 503 for a limit, and 500, 502, 503 or 504 for an error")
        return self


@dataclass(frozen=True, slots=True)
class FaultKind:
    """Description of a fault that the service can make on purpose, such as `slow`.

    Attributes:
        settings: Names of the fault's settings, separated by spaces. A single value, such as `0.05` in
            `drop-after = 0.05`, sets the first setting; if the first name is `-`, the fault needs a table of settings.
        lanes: Types of requests (submit, poll, credits) that the fault affects by default.
        example: A valid value of the fault, as JSON; `true` if all settings have defaults.
        help: Description of the fault for the command-line help.
    """

    settings: str
    lanes: frozenset[Lane]
    example: str
    help: str


FAULT_KINDS: Final[Mapping[FaultName, FaultKind]] = {
    "429": FaultKind(
        "- bucket burst window cap retry-after status on", SUBMIT, '{"bucket": 10}',
        'A hidden limit for each key: "bucket": requests a second (with "burst"), "window": [requests, seconds], or '
        '"cap": requests at once. "retry-after" is "no" (default), "yes", "date" or seconds; "status" is 429 or 503.',
    ),
    "queue": FaultKind("per-second on", SUBMIT, "5", "So many requests a second are admitted; the others wait."),
    "drop-before": FaultKind("chance on", SUBMIT, "0.05", "The connection closes before any work is done."),
    "drop-after": FaultKind("chance on", SUBMIT, "0.05", "The connection closes after the work is done and charged."),
    "5xx": FaultKind(
        "chance status when on", SUBMIT, "0.02",
        'An HTML page with status 500, 502, 503 or 504; "status" selects one, "when": "after" is after the charge.',
    ),
    "truncate": FaultKind("chance on", RESULTS, "0.02", "The connection closes after half of the answer."),
    "slow": FaultKind("seconds on", frozenset(Lane), "[0.2, 1.5]", "Each answer comes so many seconds later."),
    "late": FaultKind("seconds", POLL, "[3, 300]", "Polls say processing for so long after the acknowledgment."),
    "unknown": FaultKind("seconds", POLL, "2", "Polls say 404 for so long after the acknowledgment."),
    "shuffle": FaultKind(
        "chance names", RESULTS, "true",
        'Assets in another order, under temporary names; "names" may be "keep", "redirect" (other URLs) or "none".',
    ),
    "missing": FaultKind("chance", RESULTS, "0.1", "An asset is charged, and is not in the answer."),
    "extra": FaultKind("chance on", RESULTS, "0.1", "An asset that nobody requested is in the answer."),
    "assets-object": FaultKind("chance on", RESULTS, "true", "Assets are an object keyed by name."),
    "text-credits": FaultKind("chance on", RESULTS, "true", "credits_paid and credits are strings."),
    "no-credits": FaultKind("chance on", RESULTS, "true", "The answer has neither credits_paid nor credits."),
    "fail-charged": FaultKind("chance on", POLL, "0.1", "A charged job answers failed, without credits_paid."),
    "odd-value": FaultKind(
        "chance kind on", RESULTS, "0.1",
        'The answer is not valid JSON for most readers; "kind" is "nan", "infinity", "digits", "surrogate", "byte", '
        '"duplicate", "bom" or "trailing", one of them at random by default.',
    ),
    "charge-late": FaultKind(
        "seconds", SUBMIT, "[2, 5]", "The balance shows the charge of a synchronous answer so many seconds later."
    ),
    "prices": FaultKind("factor", frozenset(Lane), "2", "Charges are those of the price table times so many."),
    "forgetful": FaultKind("-", SUBMIT, "true", "The Idempotency-Key header is ignored."),
}  # fmt: skip
"""All kinds of faults, in the order of the command-line help."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that a service makes on purpose, as the operator set them.

    Attributes:
        entries: The faults with their settings; a name may occur several times.
        seed: Seed of all random choices: the same requests in the same order get the same faults.
        text: The settings as JSON, for log lines.
    """

    entries: tuple[Fault, ...] = ()
    seed: int = 0
    text: str = "{}"

    def __bool__(self) -> bool:
        return bool(self.entries)

    def active(self, name: FaultName, lane: Lane | None = None) -> list[Fault]:
        """Return the faults called `name` that affect requests of type `lane`, such as polls; None: any type."""
        return [each for each in self.entries if each.name == name and (lane is None or lane in each.on)]

    @property
    def price_factor(self) -> float:
        """Factor by which the service multiplies all charges: the product of all faults `prices`, 1 without any."""
        return prod(fault.factor for fault in self.active("prices"))

    @classmethod
    def read(cls, source: str) -> Faults:
        """Return the faults in `source`: an inline JSON object, or the path of a TOML or JSON file.

        Raises:
            SettingsError: the file cannot be read, or its content is not a valid set of faults.
        """
        try:
            is_inline = source.lstrip().startswith("{")
            text = source if is_inline else Path(source).read_text(encoding="utf-8")
            settings = json.loads(text) if is_inline or source.endswith(".json") else tomllib.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            hint = "Give a TOML or JSON file, or inline JSON such as '{\"drop-after\": 0.05}'."
            raise SettingsError(f"--faults {source[:200]}: cannot be read: {error}.", hint=hint) from error
        return cls.parse(settings)

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> Faults:
        """Convert a mapping from fault names to settings, such as `{"drop-after": 0.05}`, to faults.

        Raises:
            SettingsError: a name or a setting is not valid; the message names it and what is allowed.
        """
        if not isinstance(settings, Mapping):
            raise _invalid_fault("(file)", "must be an object that maps names of faults to their settings")
        seed = settings.get("seed", 0)
        if type(seed) is not int or not 0 <= seed <= 2**63:
            raise _invalid_fault("seed", f"must be an integer from 0 to 2^63, not {seed!r}")
        entries = []
        for name, value in settings.items():
            if name not in {*FAULT_KINDS, "seed"}:
                raise _invalid_fault(name, f"unknown; the names are {', '.join(FAULT_KINDS)} and seed")
            if name != "seed":
                is_list = isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value)
                entries += [_parse_fault(name, each) for each in (value if is_list else [value])]
        return cls(tuple(entries), seed, json.dumps(settings, default=str))


NO_FAULTS: Final = Faults()


def _parse_fault(name: str, value: Any) -> Fault:
    kind = FAULT_KINDS[cast("FaultName", name)]
    main, *others = kind.settings.split()
    allowed = {main, *others} - {"-"}
    table = value if isinstance(value, Mapping) else {} if value is True else {main: value}
    unknown = set(table) - allowed
    if unknown or (main in allowed and main not in table and kind.example != "true"):
        what = f"{min(unknown)} is not a setting" if unknown else f"{main} is missing"
        raise _invalid_fault(
            name, f"{what}; write it like {kind.example}, settings: {', '.join(sorted(allowed)) or 'none'}"
        )
    try:
        return Fault.model_validate({"name": name, "on": kind.lanes, **table})
    except ValidationError as error:
        details = [
            ": ".join([*map(str, each["loc"][:1]), f"{each['msg']}, not {each['input']!r:.100}"])
            for each in error.errors()
        ]
        raise _invalid_fault(name, "; ".join(details)) from error


def _invalid_fault(name: str, reason: str) -> SettingsError:
    return SettingsError(f"Fault {name}: {reason}.", hint="See `lightmeter serve --help` for all faults.")
