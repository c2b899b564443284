"""Answers that are spoilt on purpose: JSON objects in, JSON objects or bytes out. Pure; chances come from outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, TypeAlias

from lightmeter.models.vocabulary import REQUEST_FAILED, not_found
from lightmeter.service.faults.kinds import Fault, FaultKind

__all__ = ["BODY_FAULTS", "not_done", "odd", "unknown", "without"]

Body: TypeAlias = dict[str, Any]

_LATER: Final = ("all", "credits", "credits_paid", "error")
"""Fields that an answer has only when it is the last one."""

_MONEY: Final = ("credits_paid", "credits")


def not_done(body: Body) -> Body:
    """A result, as if it were not there yet."""
    return {name: value for name, value in body.items() if name not in _LATER} | {"status": "processing"}


def unknown(request_id: str) -> Body:
    """What is said of an id that nobody knows."""
    return {"error": not_found(request_id), "status": "failed"}


def without(body: Body, chances: Random, chance: float) -> Body:
    """A result in which each asset is missing with a chance; nothing is said about it."""
    return _with_assets(body, [asset for asset in body["all"]["assets"] if chances.random() >= chance])


def _shuffled(body: Body, chances: Random, fault: Fault) -> Body:
    """A result with its assets in another order, and under other names, or none."""
    assets = list(body["all"]["assets"])
    chances.shuffle(assets)
    return _with_assets(body, [_renamed(asset, chances, fault.names) for asset in assets])


def _renamed(asset: Body, chances: Random, names: str) -> Body:
    if names == "keep":
        return asset
    if names == "none":
        return {field: value for field, value in asset.items() if field != "name"}
    suffix = str(asset["name"]).rpartition(".")[2]
    kept = f".{suffix}" if suffix.isalnum() and len(suffix) <= 4 else ""  # noqa: PLR2004 (.jpeg, .webm)
    token = f"{chances.getrandbits(64):016x}"
    if names == "redirect":
        return {**asset, "name": f"https://cdn.example/{token}?signature={token[::-1]}"}
    return {**asset, "name": f"/tmp/uploads/{token}{kept}"}  # noqa: S108 (a name in an answer, no file)


def _extra(body: Body, chances: Random, fault: Fault) -> Body:  # noqa: ARG001 (as all of them)
    """A result with one asset more, that was never asked for."""
    assets = list(body["all"]["assets"])
    if not assets:
        return body
    more = {**chances.choice(assets), "name": f"https://elsewhere.example/{chances.getrandbits(64):016x}.jpg"}
    assets.insert(chances.randrange(len(assets) + 1), more)
    return _with_assets(body, assets)


def _assets_object(body: Body, chances: Random, fault: Fault) -> Body:  # noqa: ARG001 (as all of them)
    """A result whose assets are an object: by name, or by number where one has no name or the name is taken."""
    keyed: Body = {}
    for index, asset in enumerate(body["all"]["assets"]):
        name = asset.get("name")
        keyed[str(index) if name is None or name in keyed else name] = asset
    return _with_assets(body, keyed)


def _with_assets(body: Body, assets: Any) -> Body:
    return {**body, "all": {**body["all"], "assets": assets}}


def _text_credits(body: Body, chances: Random, fault: Fault) -> Body:  # noqa: ARG001 (as all of them)
    """An answer whose money is written as texts."""
    return {**body, **{name: str(body[name]) for name in _MONEY if name in body}}


def _no_credits(body: Body, chances: Random, fault: Fault) -> Body:  # noqa: ARG001 (as all of them)
    """An answer that says nothing of money."""
    return {name: value for name, value in body.items() if name not in _MONEY}


def _fail_charged(body: Body, chances: Random, fault: Fault) -> Body:  # noqa: ARG001 (as all of them)
    """A job that was charged, and says that it failed."""
    kept = {name: value for name, value in body.items() if name not in _LATER}
    return {**kept, "status": "failed", "error": f"{REQUEST_FAILED}: the job broke."}


BODY_FAULTS: Final[Mapping[FaultKind, Callable[[Body, Random, Fault], Body]]] = {
    FaultKind.EXTRA: _extra,
    FaultKind.SHUFFLE: _shuffled,
    FaultKind.ASSETS_OBJECT: _assets_object,
    FaultKind.TEXT_CREDITS: _text_credits,
    FaultKind.NO_CREDITS: _no_credits,
    FaultKind.FAIL_CHARGED: _fail_charged,
}
"""What is done to a result, in this order, where its fault happens."""


def odd(body: Body, kind: str) -> bytes:
    """A result as bytes that break JSON, UTF-8 or what most readers expect; `kind` is one of `ODD_VALUES`.

    Numbers take the place of the first score, or of a field that nobody knows; texts are added to the first source.
    """
    if kind in _ODD_NUMBERS:
        changed = _replaced(body, "score", lambda _: _MARK)
        return _dumped(changed or {**body, "elapsed": _MARK}).replace(f'"{_MARK}"'.encode(), _ODD_NUMBERS[kind])
    if kind in _ODD_TEXTS:
        changed = _replaced(body, "source", lambda source: f"{source}{_MARK}")
        return _dumped(changed or {**body, "note": _MARK}).replace(_MARK.encode(), _ODD_TEXTS[kind])
    if kind == "duplicate":
        return b'{"credits_paid":0,"status":"processing",' + _dumped(body)[1:]
    return b"\xef\xbb\xbf" + _dumped(body) if kind == "bom" else _dumped(body) + b"<!-- odd -->"


_MARK: Final = "lightmeter-odd-value"
_ODD_NUMBERS: Final = {"nan": b"NaN", "infinity": b"-Infinity", "digits": b"9" * 400}
_ODD_TEXTS: Final = {"surrogate": rb"\ud800", "byte": b"\xff"}


def _dumped(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _replaced(part: Any, field: str, change: Callable[[Any], Any]) -> Any:
    """A copy in which the first field of that name is changed; None if there is none."""
    pairs = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in pairs:
        changed = change(value) if key == field else _replaced(value, field, change)
        if changed is not None:
            copy = part.copy()
            copy[key] = changed
            return copy
    return None
