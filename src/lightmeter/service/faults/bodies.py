"""Answers that are spoilt on purpose: JSON objects in, JSON objects out. Pure; chances come from outside."""

from __future__ import annotations

from random import Random
from typing import Any

from lightmeter.models.vocabulary import not_found

__all__ = ["not_done", "shuffled", "unknown", "without"]

_LATER = ("all", "credits", "credits_paid", "error")
"""Fields that an answer has only when it is the last one."""


def not_done(body: dict[str, Any]) -> dict[str, Any]:
    """A result, as if it were not there yet."""
    return {name: value for name, value in body.items() if name not in _LATER} | {"status": "processing"}


def unknown(request_id: str) -> dict[str, Any]:
    """What is said of an id that nobody knows."""
    return {"error": not_found(request_id), "status": "failed"}


def shuffled(body: dict[str, Any], chances: Random, *, keep_names: bool) -> dict[str, Any]:
    """A result with its assets in another order, and under names of a server's temporary files."""
    assets = list(body["all"]["assets"])
    chances.shuffle(assets)
    if not keep_names:
        assets = [{**asset, "name": _temporary(str(asset["name"]), chances)} for asset in assets]
    return {**body, "all": {**body["all"], "assets": assets}}


def _temporary(name: str, chances: Random) -> str:
    suffix = name.rpartition(".")[2]
    kept = f".{suffix}" if suffix.isalnum() and len(suffix) <= 4 else ""  # noqa: PLR2004 (.jpeg, .webm)
    return f"/tmp/uploads/{chances.getrandbits(64):016x}{kept}"  # noqa: S108 (a name in an answer, no file)


def without(body: dict[str, Any], chances: Random, chance: float) -> dict[str, Any]:
    """A result in which each asset is missing with a chance; nothing is said about it."""
    assets = [asset for asset in body["all"]["assets"] if chances.random() >= chance]
    return {**body, "all": {**body["all"], "assets": assets}}
