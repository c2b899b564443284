"""Typed decoding, by msgspec, of answers that follow the wire contract (the specification of the service's JSON). Pure.

Nearly all answers follow it. The decoder refuses an answer with a value of another type, such as a text instead of a
number, a list instead of an object, or a null instead of an entry. Such an answer is decoded by `lenient_decode`, which
accepts everything. Both decoders lead to the same rows.

`decode_entries` decodes entries for the tables with a column `raw`, those of many answers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import orjson

from lightmeter.facts.lenient_decode import MAX_FLOAT32

KEYED_TABLES: Final = ("tags", "colors")
"""Features whose value in an answer is an object with a list of entries under each key; for others, it is a list."""

RAW_TABLES: Final = ("texts", "brands", "faces")
"""Tables with a column `raw`, which holds each entry as JSON.

`decode_answer_fast` leaves their entries as JSON; `decode_entries` decodes them in a second step.
"""

_Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]
_Single = Annotated[float, msgspec.Meta(ge=-MAX_FLOAT32, le=MAX_FLOAT32)]


class FastTag(msgspec.Struct, gc=False):
    """A tag in an answer: an entry of the feature `tags`, with the types of the wire contract."""

    name: str
    score: float | None = None
    source: str | None = None


class FastColor(msgspec.Struct, gc=False):
    """A color in an answer: an entry of the feature `colors`, with the types of the wire contract."""

    hex: str
    score: float | None = None
    pixel_fraction: float | None = None
    red: _Byte | None = None
    green: _Byte | None = None
    blue: _Byte | None = None
    source: str | None = None


class FastNsfw(msgspec.Struct, gc=False):
    """An NSFW rating of an image or frame: an entry of the feature `nsfw` in an answer.

    Attributes:
        label: What the rating is about, in the back end's words, such as `adult`.
        score: Probability from 0 to 1; None if the back end gives a likelihood.
        likelihood: A word for the probability, such as `VERY_LIKELY`; None if the back end gives a score.
        source: The back end that gave the rating.
    """

    label: str | None = None
    score: float | None = None
    likelihood: str | None = None
    source: str | None = None


class FastDescription(msgspec.Struct, gc=False):
    """A description in an answer, a text about an image or frame: an entry of the feature `descriptions`."""

    description: str | None = None
    source: str | None = None


class FastEmbedding(msgspec.Struct, gc=False):
    """An embedding in an answer, a vector of numbers with its model: an entry of the feature `embeddings`."""

    vector: Annotated[list[_Single], msgspec.Meta(min_length=1)]
    model: str | None = None
    source: str | None = None


class _Corner(msgspec.Struct, gc=False):
    # A coordinate that is missing is 0.
    x: float = 0.0
    y: float = 0.0


class _Outline(msgspec.Struct, gc=False):
    vertices: list[_Corner] | None = None


class _Scored(msgspec.Struct, gc=False):
    """Common fields of texts and brands in an answer.

    An entry may have its corners in `boundingPoly` instead of `bounding_poly`. This class refuses such an entry, so
    that `lenient_decode` reads it.
    """

    score: float | None = None
    confidence: float | None = None
    bounding_poly: _Outline | None = None
    boundingPoly: None = None  # noqa: N815 (as it is written)
    source: str | None = None


class FastText(_Scored, gc=False):
    """A text found in an image: an entry of the feature `texts` in an answer, with the types of the wire contract.

    `is_full_text` is true if the entry joins all texts of the image, and false if it is one of them, such as a word.
    """

    text: str | None = None
    is_full_text: bool | None = None


class FastBrand(_Scored, gc=False):
    """A brand found in an image: an entry of the feature `brands` in an answer, with the types of the wire contract."""

    name: str | None = None


class _FaceOutline(msgspec.Struct, gc=False):
    vertices: Annotated[list[_Corner], msgspec.Meta(min_length=1)]


_Likelihood: TypeAlias = str | msgspec.UnsetType
_NOT_READ: Final = msgspec.Raw()


class FastFace(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A face in an answer of Google Vision: its corners, the likelihoods of its emotions, and fields that are not read.

    The unread fields are declared, because a face with any other field is refused. The column `raw` has them.
    """

    bounding_poly: _FaceOutline
    source: str | None = None
    joy_likelihood: _Likelihood = msgspec.UNSET
    sorrow_likelihood: _Likelihood = msgspec.UNSET
    anger_likelihood: _Likelihood = msgspec.UNSET
    surprise_likelihood: _Likelihood = msgspec.UNSET
    blurred_likelihood: msgspec.Raw = _NOT_READ
    headwear_likelihood: msgspec.Raw = _NOT_READ
    under_exposed_likelihood: msgspec.Raw = _NOT_READ
    detection_confidence: msgspec.Raw = _NOT_READ
    landmarking_confidence: msgspec.Raw = _NOT_READ
    fd_bounding_poly: msgspec.Raw = _NOT_READ
    landmarks: msgspec.Raw = _NOT_READ
    pan_angle: msgspec.Raw = _NOT_READ
    roll_angle: msgspec.Raw = _NOT_READ
    tilt_angle: msgspec.Raw = _NOT_READ


class FastFeatures(msgspec.Struct, gc=False):
    """What an answer says about one image, video or frame.

    Each attribute is a feature; None means that the answer lacks it. The keys of `tags` are names of tags, and those of
    `colors` are hex strings; each value has an entry for each back end that found the tag or color. Other features are
    lists of the entries of all back ends. The entries of `faces`, `texts` and `brands` are JSON that is not decoded
    yet.
    """

    tags: dict[str, list[FastTag]] | None = None
    colors: dict[str, list[FastColor]] | None = None
    nsfw: list[FastNsfw] | None = None
    descriptions: list[FastDescription] | None = None
    faces: list[msgspec.Raw] | None = None
    texts: list[msgspec.Raw] | None = None
    brands: list[msgspec.Raw] | None = None
    embeddings: list[FastEmbedding] | None = None


class _Frame(FastFeatures, gc=False):
    index: Any = None


class _Asset(FastFeatures, gc=False):
    frames: list[_Frame] | None = None


class _Results(msgspec.Struct, gc=False):
    assets: list[_Asset]
    errors: Any = None


class FastAnswer(msgspec.Struct, gc=False):
    """An answer of the service in its usual form.

    `role`, `language` and `backends` are fields of the request that the service repeats in the answer.
    """

    all: _Results
    request_id: Any = None
    role: Any = None
    language: Any = None
    backends: Any = None


def decode_answer_fast(raw: bytes) -> FastAnswer | None:
    """Return the answer `raw` as typed objects; None if it is invalid JSON or has an unexpected type. Never raises."""
    try:
        return _ANSWER.decode(raw.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def decode_entries(table: str, pieces: Sequence[msgspec.Raw]) -> list[Any] | None:
    """Decode entries of the feature `table` (`texts`, `brands` or `faces`) from JSON to typed objects. Never raises.

    `pieces` is the JSON of each entry. If one face does not fit into a `FastFace`, all faces become dicts. Return None
    if an entry has an unusual type or is not UTF-8.
    """
    joined = b"[" + b",".join(pieces) + b"]"
    try:
        if not joined.isascii():
            joined.decode()
        decoded: list[Any] = _ENTRIES[table].decode(joined)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if table != "faces":
            return None
    else:
        return decoded
    try:
        decoded = orjson.loads(joined)
    except orjson.JSONDecodeError:
        return None
    return decoded if set(map(type, decoded)) <= {dict} else None


_ANSWER: Final = msgspec.json.Decoder(FastAnswer)
_ENTRIES: Final[dict[str, Any]] = {
    "texts": msgspec.json.Decoder(list[FastText]),
    "brands": msgspec.json.Decoder(list[FastBrand]),
    "faces": msgspec.json.Decoder(list[FastFace]),
}
