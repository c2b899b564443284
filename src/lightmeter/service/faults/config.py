"""Settings of the faults that the service injects on purpose, and their parser for TOML and JSON.

The key `seed` sets the seed of all random choices. Every other key is the name of a fault (see `FAULT_KINDS`). Its
value is one of:

- a table of settings,
- a list of tables, to set the fault several times,
- a single value, which sets the main setting of the fault,
- `true`, to use the defaults of all settings.

Example::

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
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from lightmeter.errors import SettingsError
from lightmeter.paths import local_path


class RequestType(StrEnum):
    """Type of an API request. The operator can limit a fault to some types.

    `SUBMIT` sends images and videos, `POLL` asks for the result, and `CREDITS` reads the balance.
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


def _as_request_types(value: object) -> object:
    if value == "all":
        return list(RequestType)
    return [value] if isinstance(value, str) else value


def _as_range(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value, value)


RequestTypes: TypeAlias = Annotated[frozenset[RequestType], BeforeValidator(_as_request_types), Field(min_length=1)]
Rate: TypeAlias = Annotated[float, Field(strict=True, ge=0.001, le=100_000)]
Count: TypeAlias = Annotated[float, Field(strict=True, ge=1, le=100_000)]
Seconds: TypeAlias = Annotated[float, Field(strict=True, ge=0, le=3600)]

SUBMIT: Final = frozenset({RequestType.SUBMIT})
POLL: Final = frozenset({RequestType.POLL})
RESULTS: Final = SUBMIT | POLL


class Fault(BaseModel):
    """A fault that the service makes on purpose, with its settings.

    Each kind of fault uses only some of these settings; `FAULT_KINDS` lists them. The fault `429` is a rate limit, and
    has exactly one of `bucket`, `window` and `cap`.

    Attributes:
        name: Name of the fault in fault files, logs and counts, such as `drop-after`.
        on: Types of requests that the fault affects: `submit`, `poll`, `credits`.
        chance: Probability, from 0 to 1, that the fault happens to a request. For the fault `missing`: probability that
            an image or video is left out of the answer.
        seconds: Shortest and longest delay in seconds. Each delay is drawn at random from this range.
        factor: For the fault `prices`: factor by which all charges are multiplied.
        per_second: For the fault `queue`: maximum requests that start in a second; further requests wait.
        bucket: For the fault `429` with a token bucket: requests that it allows per second on average. None: no bucket.
        burst: For the fault `429` with a token bucket: requests that a full bucket allows at once.
        window: For the fault `429` with fixed periods: the maximum number of requests in a period, then the length of a
            period in seconds. None: no such limit.
        cap: For the fault `429` as a concurrency limit: maximum requests that run at once. None: no such limit.
        retry_after: For the fault `429`: header Retry-After of a refused request. "no": no header. "yes": the seconds
            until a request is allowed. "date": the time when a request is allowed. A number: always these seconds.
        status: HTTP status of the answer. None: status 429 for the fault `429`, and one of 500, 502, 503 and 504 at
            random for the fault `5xx`.
        when: For the fault `5xx`. "before": the error page is sent, and the request is not processed. "after": the
            request is processed and charged, and then the error page is sent.
        names: For the fault `shuffle`: new names of the images and videos in the answer. "temporary": random file
            paths. "redirect": random URLs. "none": no names. "keep": the names do not change.
        kind: For the fault `odd-value`: way to break the JSON, one of `ODD_VALUES`. None: a random one each time.
    """

    model_config = ConfigDict(frozen=True, alias_generator=lambda setting: setting.replace("_", "-"))

    name: FaultName
    on: RequestTypes
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
        settings: Names of the fault's settings, separated by spaces. The first one is the main setting: a single value,
            such as `0.05` in `drop-after = 0.05`, sets it. If the first name is `-`, the fault has no main setting.
        request_types: Types of requests (submit, poll, credits) that the fault affects by default.
        example: A valid value of the fault, as JSON. It is `true` if all settings have defaults.
        help: Description of the fault for the command-line help.
    """

    settings: str
    request_types: frozenset[RequestType]
    example: str
    help: str


FAULT_KINDS: Final[Mapping[FaultName, FaultKind]] = {
    "429": FaultKind(
        "- bucket burst window cap retry-after status on", SUBMIT, '{"bucket": 10}',
        'A hidden limit for each key: "bucket": requests a second (with "burst"), "window": [requests, seconds], or '
        '"cap": requests at once. "retry-after" is "no" (default), "yes", "date" or seconds; "status" is 429 or 503.',
    ),
    "queue": FaultKind("per-second on", SUBMIT, "5", "This many requests start each second; the others wait."),
    "drop-before": FaultKind("chance on", SUBMIT, "0.05", "The connection closes before any work is done."),
    "drop-after": FaultKind("chance on", SUBMIT, "0.05", "The connection closes after the work is done and charged."),
    "5xx": FaultKind(
        "chance status when on", SUBMIT, "0.02",
        'An HTML page with status 500, 502, 503 or 504; "status" selects one, "when": "after" is after the charge.',
    ),
    "truncate": FaultKind("chance on", RESULTS, "0.02", "The connection closes after half of the answer."),
    "slow": FaultKind("seconds on", frozenset(RequestType), "[0.2, 1.5]", "Each answer comes this many seconds later."),
    "late": FaultKind("seconds", POLL, "[3, 300]", "For this time after the acknowledgment, polls say processing."),
    "unknown": FaultKind("seconds", POLL, "2", "For this time after the acknowledgment, polls say 404."),
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
        "seconds", SUBMIT, "[2, 5]", "The balance shows the charge of a synchronous answer this many seconds later."
    ),
    "prices": FaultKind(
        "factor", frozenset(RequestType), "2", "Each charge is the price of the table times this factor."
    ),
    "forgetful": FaultKind("-", SUBMIT, "true", "The Idempotency-Key header is ignored."),
}  # fmt: skip
"""Name of each fault that the service can make → its description, in the order of the command-line help."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that a service makes on purpose, as the operator set them.

    Attributes:
        entries: The faults with their settings. Several faults may have the same name.
        seed: Seed of all random choices. If two runs have the same seed, and the same requests in the same order, the
            same faults happen.
        text: All settings as JSON, for log lines.
    """

    entries: tuple[Fault, ...] = ()
    seed: int = 0
    text: str = "{}"

    def __bool__(self) -> bool:
        return bool(self.entries)

    def active(self, name: FaultName, request_type: RequestType | None = None) -> list[Fault]:
        """Return the configured faults that are called `name` and affect requests of the given type, such as polls.

        If `request_type` is None, return all configured faults called `name`.
        """
        return [
            each for each in self.entries if each.name == name and (request_type is None or request_type in each.on)
        ]

    @property
    def price_factor(self) -> float:
        """Factor by which the service multiplies all charges: the product of the factors of all faults `prices`.

        It is 1 if no fault `prices` is configured.
        """
        return prod(fault.factor for fault in self.active("prices"))

    @classmethod
    def read(cls, source: str) -> Faults:
        """Return the faults in `source`: an inline JSON object, or the path of a TOML or JSON file.

        Raises:
            SettingsError: the file cannot be read, or its content is not a valid set of faults.
        """
        try:
            is_inline = source.lstrip().startswith("{")
            text = source if is_inline else local_path(source).read_text(encoding="utf-8")
            settings = json.loads(text) if is_inline or source.endswith(".json") else tomllib.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            hint = "Give a TOML or JSON file, or inline JSON such as '{\"drop-after\": 0.05}'."
            raise SettingsError(f"--faults {source[:200]}: cannot be read: {error}.", hint=hint) from error
        return cls.parse(settings)

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> Faults:
        """Return the faults that `settings` describes: fault name → its settings, such as `{"drop-after": 0.05}`.

        Raises:
            SettingsError: a name or a setting is not valid. The message says which one, and what is allowed.
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
        return Fault.model_validate({"name": name, "on": kind.request_types, **table})
    except ValidationError as error:
        details = [
            ": ".join([*map(str, each["loc"][:1]), f"{each['msg']}, not {each['input']!r:.100}"])
            for each in error.errors()
        ]
        raise _invalid_fault(name, "; ".join(details)) from error


def _invalid_fault(name: str, reason: str) -> SettingsError:
    return SettingsError(f"Fault {name}: {reason}.", hint="See `lightmeter serve --help` for all faults.")
