"""The user's settings for all runs, from environment variables LIGHTMETER_* and a settings file.

The file is `settings.toml` in the user's configuration folder for lightmeter, or the path in `LIGHTMETER_SETTINGS`. The
variables override the file. A variable or entry that is empty or white space counts as not set. The API key comes only
from here, never from an argument.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from platformdirs import user_cache_path, user_config_path, user_state_path
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from lightmeter.errors import SettingsError
from lightmeter.paths import LocalPath, local_path
from lightmeter.redaction import check_no_credentials
from lightmeter.suggestions import did_you_mean
from lightmeter.telemetry import find_wrong_endpoint

log = logging.getLogger("lightmeter")

_PREFIX: Final = "LIGHTMETER_"
_OTHER_VARIABLES: Final = ("LIGHTMETER_SETTINGS", "LIGHTMETER_DATABASE")
"""Variables that are no settings. Only these must be in upper case."""

_MAY_LIMIT_MONEY: Final = re.compile(r"BUDGET|CREDIT|SPEND|COST|PRICE|USD|LIMIT|CAP|MAX|SETTING|CONFIG|STATE")
_KUBERNETES: Final = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_\d+_|$)")
"""Variables that Kubernetes sets for a service that is called `lightmeter`."""

_PATHS: Final = ("cache_dir", "answers_dir", "state_dir", "logos_dir", "prices")


def settings_file() -> Path:
    """Return the path of the settings file, which is TOML.

    It is the path in `LIGHTMETER_SETTINGS`, and must exist. Otherwise it is `settings.toml` in the user's configuration
    folder for lightmeter.
    """
    path = os.environ.get("LIGHTMETER_SETTINGS", "").strip()
    return local_path(path) if path else user_config_path("lightmeter") / "settings.toml"


class QualityThresholds(BaseModel):
    """Thresholds of the quality checks of images, such as `dark`; an image below a threshold is reported.

    The fields `dark` to `odd_size` have the defaults of CleanVision 0.3.7 (cleanvision/issue_managers). The measures
    are described in `lightmeter.media.image_quality`. A threshold of 0 turns its check off. `odd_size` is different: it
    reports images whose size is further from the middle half of all sizes than this many interquartile ranges, so 0
    reports the most.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    blank: float = Field(default=0.001, ge=0, description="Share of points that differ from the median color.")
    dark: float = Field(default=0.32, ge=0, description="99th percentile of brightness, 0 to 1.")
    light: float = Field(default=0.05, ge=0, description="1 minus the 5th percentile of brightness.")
    low_information: float = Field(default=0.3, ge=0, description="Entropy of the histogram in bits, divided by 10.")
    blurry: float = Field(default=0.29, ge=0, description="Strength of edges, 0 to 1.")
    odd_aspect_ratio: float = Field(default=0.35, ge=0, description="Shorter side divided by the longer one.")
    odd_size: float = Field(
        default=3.0,
        ge=0,
        description=(
            "Interquartile ranges that the side, the square root of width x height, may be below the first or above "
            "the third quartile of all images; a larger number means fewer findings."
        ),
    )
    tiny: int = Field(default=16, ge=0, description="Shorter side in pixels.")
    grayscale: int = Field(default=8, ge=0, description="Largest difference between two channels, 0 to 255.")


DEFAULT_THRESHOLDS: Final = QualityThresholds()
"""The thresholds without settings."""


def _check_webhook(url: SecretStr | None) -> SecretStr | None:
    try:
        parts = urlsplit("" if url is None else url.get_secret_value().strip())
        is_http = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        is_http = False
    if url is not None and not is_http:  # (it may hold a secret: it is not shown)
        raise ValueError("it is no address that starts with https:// or http:// and a host without a user name")
    return url


def _check_thresholds(text: str) -> str:
    for part in text.split(","):
        if re.fullmatch(r"\s*\d{1,15}(\.\d{1,3})?\s*%?\s*", part, re.ASCII) is None:
            raise ValueError(f"{part!r} is neither a percentage of the budget (80%) nor a number of credits (500)")
    return text


def _read_file() -> dict[str, Any]:
    """Return the entries of the settings file. Relative paths in it become paths in the folder of the file.

    Raises:
        SettingsError: `LIGHTMETER_SETTINGS` names no file, the file cannot be read, or it holds an unknown entry.
        ValueError: the file is not TOML.
    """
    path = settings_file()
    if not os.path.lexists(path) and not os.environ.get("LIGHTMETER_SETTINGS", "").strip():
        return {}
    if not (path.is_file() or path.is_char_device()):  # (a pipe could be read only once)
        near = did_you_mean(path.name, (entry.name for entry in path.parent.glob("*")))
        raise SettingsError(f"There is no settings file {path}.", hint=near)
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.") from error
    for name in values:
        if name not in Settings.model_fields:
            plain = name.lower().removeprefix(_PREFIX.lower()).replace("-", "_")
            hint = did_you_mean(plain, Settings.model_fields)
            raise SettingsError(f"{path}: there is no setting {name!r}.", hint=hint)
    for name in _PATHS:
        if isinstance(values.get(name), str) and values[name].strip():
            values[name] = local_path(values[name], path.parent)
    return values


def _check_variables() -> None:
    """Raise SettingsError if a variable looks like a setting, but is none: without it, a run could lack its limit.

    Other unknown variables that begin with `LIGHTMETER_` are logged, as they may belong to another program.
    """
    known = [*_OTHER_VARIABLES, *(f"{_PREFIX}{name.upper()}" for name in Settings.model_fields)]
    for name, value in os.environ.items():
        upper = name.upper()
        if name in known or not value.strip() or not upper.startswith("LIG") or _KUBERNETES.search(upper):
            continue
        if upper in known and upper not in _OTHER_VARIABLES:
            if os.environ.get(upper, "").strip():
                raise SettingsError(f"{upper} and {name} are the same setting.", hint="Unset one of them.")
            continue
        has_prefix = upper.startswith(_PREFIX)
        near = did_you_mean(upper, known, likeness=0.94)  # (all have the prefix in common)
        if near or (has_prefix and _MAY_LIMIT_MONEY.search(upper)):
            raise SettingsError(f"{name} is no setting of lightmeter.", hint=near or "Correct its name, or unset it.")
        if has_prefix:
            _warn_of_variable(name)


@cache
def _warn_of_variable(name: str) -> None:
    log.warning("The variable %s is no setting of lightmeter and has no effect.", name)


class _Variables(EnvSettingsSource):
    """The settings in environment variables. Variables that are empty or white space are left out."""

    def __call__(self) -> dict[str, Any]:
        return _without_empty(super().__call__())


def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict; raise ValueError if a name stands twice in them."""
    if len(values := dict(pairs)) < len(pairs):
        raise ValueError("a name is given twice")
    return values


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if not (isinstance(value, str) and not value.strip())}


class Settings(BaseSettings):
    """The user's settings for all runs, such as key, service and folders.

    The environment variable `LIGHTMETER_<NAME>` sets the field `<name>`. Without it, the entry `<name>` of the TOML
    file at `settings_file()` does. A variable or entry that is empty or white space counts as not
    set.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    api_key: SecretStr | None = Field(default=None, description="Key of the account at the service.")
    base_url: Annotated[str | None, AfterValidator(check_no_credentials)] = Field(
        default=None, description="Address of the service; without one, a run starts the embedded service."
    )
    cache_dir: LocalPath = Field(
        default_factory=lambda: user_cache_path("lightmeter"),
        validate_default=True,
        description="Folder for converted models, results of checks and other files that can be created again.",
    )
    answers_dir: LocalPath | None = Field(
        default=None,
        description="Folder where answers are cached for later runs; without one, each run pays for all its answers.",
    )
    answers_days: float = Field(
        default=30,
        gt=0,
        description="Days for which a cached answer is used; pictures at a URL may change.",
    )
    keep_runs: int = Field(
        default=3,
        ge=1,
        description=(
            "Number of earlier runs of an output folder whose journals are kept whole. Of the journals of older runs, "
            "only the credits of each item are kept, and the rows that later manifests lack, with their answers. A run "
            "whose next run has other options for its requests, such as other features, is always kept whole."
        ),
    )
    state_dir: LocalPath = Field(
        default_factory=lambda: user_state_path("lightmeter"),
        validate_default=True,
        description=(
            "Folder for files that must not be lost: the ledger of a key's budget, the progress of each run's journal, "
            "the rate limit that processes share."
        ),
    )
    key_budget: int | None = Field(
        default=None,
        ge=0,
        le=2**53 - 1,
        description="Most credits that all runs of one key on this machine may spend in a period.",
    )
    key_budget_period: Literal["day", "week", "month"] = Field(
        default="month", description="The period of the key's budget, in UTC."
    )
    alert_webhook: Annotated[SecretStr | None, AfterValidator(_check_webhook)] = Field(
        default=None, description="Address that gets a JSON POST when a run reaches a threshold of credits."
    )
    alert_thresholds: Annotated[str, AfterValidator(_check_thresholds)] = Field(
        default="80%,100%",
        description=(
            "Thresholds of alerts, in percent of the run's budget or in credits. Each is compared with the credits "
            "spent and with those that the run is expected to spend."
        ),
    )
    alert_allow_private: bool = Field(
        default=False, description="Whether the webhook may be on this machine or in a private network."
    )
    logos_dir: LocalPath | None = Field(
        default=None,
        description=(
            "Folder with your own logos, for the back end `logos`: `Brand.png`, or a folder `Brand` with several "
            "pictures; without it, there is no such back end."
        ),
    )
    prices: Literal["demo"] | LocalPath | None = Field(
        default=None,
        description=(
            "A file of your own prices, JSON or TOML, which override those that lightmeter ships; or demo: play money."
        ),
    )
    backends: Annotated[dict[str, Any], NoDecode] = Field(
        default_factory=dict,
        description=(
            "Back ends of the service, by name: a table of settings for each one that you add or change, or the name "
            "of another back end that replaces it."
        ),
    )
    charges_final_s: float = Field(
        default=200.0,
        ge=0,
        description=(
            "Seconds after sending during which a request without an answer may still be charged. Only a balance that "
            "is read later proves that it was not."
        ),
    )
    max_checks: int = Field(
        default=256, ge=1, description="Most rows of a manifest that `plan` and `run` check at the same time."
    )
    max_checks_per_host: int = Field(
        default=64,
        ge=1,
        description="Most of these checks at the same time for one host; fewer if it gets slow or refuses them.",
    )
    max_image_bytes: int = Field(
        default=20 * 1024 * 1024,
        ge=0,
        description=(
            "Size of the largest image at a URL that the checks download and decode. Of a larger image, only the first "
            "64 KiB are read; 0 means of every image."
        ),
    )
    quality: Annotated[QualityThresholds, NoDecode] = Field(
        default=DEFAULT_THRESHOLDS,
        description="Thresholds of the checks of image quality: a table, or JSON in the variable.",
    )
    thumbnail_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=0,
        description=(
            "Most bytes of the file `thumbnails.sqlite` in an output folder, which keeps small pictures of the checked "
            "rows for the report and the gallery; the oldest are removed. 0 keeps none."
        ),
    )
    robots: Literal["ignore", "warn", "respect"] = Field(
        default="warn",
        description=(
            "What follows if a host opts out of analysis by AI (`X-Robots-Tag: noai`, or robots.txt): nothing, a "
            "warning, or an error, so that the row is skipped."
        ),
    )
    robots_txt: bool = Field(
        default=False, description="Whether checks also read the robots.txt of each host, once in a run."
    )
    proxy: str | None = Field(
        default=None,
        repr=False,  # it may hold a password
        description=(
            "Proxy for requests to the service: `http://host:port`, or `environment` for the variables HTTPS_PROXY, "
            "HTTP_PROXY and NO_PROXY. Without it no proxy is used, whatever the environment says."
        ),
    )

    @field_validator("state_dir", mode="before")
    @classmethod
    def _is_the_same_everywhere(cls, path: str | Path) -> str | Path:
        if not os.path.isabs(os.path.expanduser(path)):  # noqa: PTH111, PTH117 (as in `paths.local_path`)
            raise ValueError(f"{str(path)!r} would be another folder, with another key budget, in each working folder")
        return path

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, values: dict[str, Any]) -> dict[str, Any]:
        present = _without_empty(values)
        for name in ("backends", "quality"):
            if isinstance(present.get(name), str):  # the variable holds JSON
                try:
                    present[name] = json.loads(present[name], object_pairs_hook=refuse_duplicates)
                except ValueError as error:
                    raise ValueError(f"LIGHTMETER_{name.upper()} is not JSON: {error}") from error
        return present

    @classmethod
    def settings_customise_sources(  # noqa: D102 (pydantic's own hook)
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (`_Variables` takes its place)
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (the hook's signature; .env files are not read)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (likewise)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Variables(settings_cls), InitSettingsSource(settings_cls, _read_file())


def read_settings(**given: Any) -> Settings:
    """Return the user's settings from the environment and the settings file; those in `given` override both.

    Raises:
        SettingsError: a variable or the file holds a value that is not allowed.
    """
    if (name := find_wrong_endpoint()) is not None:
        raise SettingsError(f"{name}: it is no address that starts with http:// or https:// and a host.")
    _check_variables()
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name, *inside = (str(part) for part in first["loc"] or ("settings",))
        name = ", ".join([f"LIGHTMETER_{name.upper()}", *inside])
        text = first["msg"].removeprefix("Value error, ")
        near = did_you_mean(inside[-1], QualityThresholds.model_fields) if first["type"] == "extra_forbidden" else ""
        raise SettingsError(f"{name}: {text}.", hint=near or f"Set it anew, or edit {settings_file()}.") from error
    except ValueError as error:  # not TOML
        raise SettingsError(f"{settings_file()}: {error}.") from error
    except RuntimeError as error:  # of platformdirs: HOME is not set, and the user has no entry in the user database
        raise SettingsError(
            "The home folder of this user is not known.",
            hint="Set HOME; or LIGHTMETER_SETTINGS, LIGHTMETER_CACHE_DIR and LIGHTMETER_STATE_DIR.",
        ) from error
