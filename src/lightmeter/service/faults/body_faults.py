"""Pure functions that put faults into the JSON body of an answer, on purpose, so that users can test their clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, TypeAlias

from lightmeter.service.faults.config import Fault, FaultName, OddValue
from lightmeter.wire.constants import REQUEST_FAILED

Body: TypeAlias = dict[str, Any]

_RESULT_FIELDS: Final = ("all", "credits", "credits_paid", "error")
"""Fields that an answer has only after its request has ended."""

_CREDIT_FIELDS: Final = ("credits_paid", "credits")


def as_unfinished(body: Body) -> Body:
    """Return the JSON body of an answer, changed as if the request still ran.

    The status becomes `processing`. The fields with results, charge, balance and error are removed.
    """
    return {name: value for name, value in body.items() if name not in _RESULT_FIELDS} | {"status": "processing"}


def _with_assets(body: Body, assets: Any) -> Body:
    return {**body, "all": {**body["all"], "assets": assets}}


def _drop_assets(body: Body, random: Random, fault: Fault) -> Body:
    """Return the body of an answer without some of its images and videos.

    A random draw decides for each image or video: it is left out with the probability `fault.chance`.
    """
    return _with_assets(body, [asset for asset in body["all"]["assets"] if random.random() >= fault.chance])


def _shuffle_assets(body: Body, random: Random, fault: Fault) -> Body:
    assets = list(body["all"]["assets"])
    random.shuffle(assets)
    return _with_assets(body, [_rename_asset(asset, random, fault.names) for asset in assets])


def _rename_asset(asset: Body, random: Random, names: str) -> Body:
    if names == "keep":
        return asset
    if names == "none":
        return {field: value for field, value in asset.items() if field != "name"}
    token = f"{random.getrandbits(64):016x}"
    if names == "redirect":
        return {**asset, "name": f"https://cdn.example/{token}?signature={token[::-1]}"}
    suffix = str(asset["name"]).rpartition(".")[2]
    extension = f".{suffix}" if suffix.isalnum() and len(suffix) <= 4 else ""  # noqa: PLR2004 (.jpeg, .webm)
    return {**asset, "name": f"/tmp/uploads/{token}{extension}"}  # noqa: S108 (a name in an answer, no file)


def _add_asset(body: Body, random: Random, _: Fault) -> Body:
    assets = list(body["all"]["assets"])
    if not assets:
        return body
    extra = {**random.choice(assets), "name": f"https://elsewhere.example/{random.getrandbits(64):016x}.jpg"}
    assets.insert(random.randrange(len(assets) + 1), extra)
    return _with_assets(body, assets)


def _key_assets_by_name(body: Body, _: Random, __: Fault) -> Body:
    """Return the body of an answer with the list `assets` (images and videos) replaced by an object: name → asset.

    If an asset has no name, or the name of an earlier asset, its key is its index in the list, counted from 0.
    """
    keyed: Body = {}
    for index, asset in enumerate(body["all"]["assets"]):
        name = asset.get("name")
        keyed[str(index) if name is None or name in keyed else name] = asset
    return _with_assets(body, keyed)


def _write_credits_as_text(body: Body, _: Random, __: Fault) -> Body:
    return {**body, **{name: str(body[name]) for name in _CREDIT_FIELDS if name in body}}


def _omit_credits(body: Body, _: Random, __: Fault) -> Body:
    return {name: value for name, value in body.items() if name not in _CREDIT_FIELDS}


def _fail_after_charge(body: Body, _: Random, __: Fault) -> Body:
    rest = {name: value for name, value in body.items() if name not in _RESULT_FIELDS}
    return {**rest, "status": "failed", "error": f"{REQUEST_FAILED}: the job broke."}


BODY_FAULTS: Final[Mapping[FaultName, Callable[[Body, Random, Fault], Body]]] = {
    "missing": _drop_assets,
    "extra": _add_asset,
    "shuffle": _shuffle_assets,
    "assets-object": _key_assets_by_name,
    "text-credits": _write_credits_as_text,
    "no-credits": _omit_credits,
    "fail-charged": _fail_after_charge,
}
"""Name of a fault → function that puts this fault into the body of an answer. The faults are applied in this order.

Each function is called for an answer with the probability `Fault.chance`. Only the function of `missing` is always
called: it draws a random number for each image and video.
"""


def encode_malformed(body: Body, kind: OddValue) -> bytes:
    """Encode the body of an answer as JSON with one error. `kind` selects the error.

    - `nan`, `infinity`, `digits`: NaN, -Infinity or 400 digits replace the number in the first field `score`. If the
      body has no `score`, the new field `elapsed` has this value.
    - `surrogate`, `byte`: an invalid character or byte follows the text in the first field `source`. If the body has no
      `source`, the new field `note` has this text.
    - `duplicate`: the JSON object begins with wrong values of two fields, which occur again later.
    - `bom`: a byte order mark precedes the JSON.
    - `trailing`: other text follows the JSON.
    """
    if kind in _ODD_NUMBERS:
        changed = _replace_first(body, "score", lambda _: _PLACEHOLDER)
        return _encode(changed or {**body, "elapsed": _PLACEHOLDER}).replace(
            f'"{_PLACEHOLDER}"'.encode(), _ODD_NUMBERS[kind]
        )
    if kind in _ODD_TEXTS:
        changed = _replace_first(body, "source", lambda source: f"{source}{_PLACEHOLDER}")
        return _encode(changed or {**body, "note": _PLACEHOLDER}).replace(_PLACEHOLDER.encode(), _ODD_TEXTS[kind])
    if kind == "duplicate":
        return b'{"credits_paid":0,"status":"processing",' + _encode(body)[1:]
    return b"\xef\xbb\xbf" + _encode(body) if kind == "bom" else _encode(body) + b"<!-- odd -->"


_PLACEHOLDER: Final = "lightmeter-odd-value"
_ODD_NUMBERS: Final = {"nan": b"NaN", "infinity": b"-Infinity", "digits": b"9" * 400}
_ODD_TEXTS: Final = {"surrogate": rb"\ud800", "byte": b"\xff"}


def _encode(body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _replace_first(value: Any, field: str, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a JSON value in which `change` has replaced the value of the first field called `field`.

    The first field is the one that comes first in the JSON text, at any depth. Return None if there is no such field.
    """
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        changed = change(inner) if key == field else _replace_first(inner, field, change)
        if changed is not None:
            copy = value.copy()
            copy[key] = changed
            return copy
    return None
