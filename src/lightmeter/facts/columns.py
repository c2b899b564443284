"""Specification of every column of every table: its type, meaning, unit, and when it is null. No Arrow.

A change of a column's name, type or meaning must increase `SCHEMA_VERSION` in `tables/arrow/schema.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CSS_NAME: Final = "css_name"
"""The column of `colors` that is computed from other columns of the table; no other fact table has such a column."""

FACT_TABLES: Final = ("tags", "colors", "nsfw", "descriptions", "faces", "texts", "brands", "embeddings")
"""The tables whose rows come from the assets of answers; each has the name of its feature in the answer."""

OPTIONAL_TABLES: Final = ("embeddings",)
"""Tables that exist only if a run requests the feature with the same name, or if an answer contains that feature."""

ITEMS: Final = "items"
"""The table with one row for each row of `assets`, which sums up the other tables. It is made from them."""

REVIEWS: Final = "reviews"
"""The table of the decisions that people made in a review. It exists only after the first decision.

Its rows are not in any journal.
"""

_STRING: Final = "string"
_DOUBLE: Final = "double"
_INT: Final = "int32"

_SHARE: Final = "0 to 1"
_MISSING: Final = "not answered"
_NO_ANSWER: Final = "not asked for, or no answer"
_FACE_UNIT: Final = "as answered: pixels, or shares of the picture's side where all are at most 1"


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """Specification of one column of an output table.

    Attributes:
        name: Name in the files and in SQL.
        kind: Type of its values, a key of `tables.arrow.schema.ARROW_TYPES` such as `int32`.
        description: What the column holds.
        null: When the column is null, in words.
        unit: Unit of its values; `-` if there is none.
    """

    name: str
    kind: str
    description: str
    null: str = "never"
    unit: str = "-"


KEY_COLUMNS: Final = (
    ColumnSpec("item_id", _STRING, "The row of the manifest this belongs to.", "known for no single row"),
    ColumnSpec("url", _STRING, "URL or path as in the manifest.", "known for no single row"),
    ColumnSpec("frame", _INT, "Captured frame of a video, counted from 0.", "an image, or a whole video", "frames"),
    ColumnSpec("run_id", _STRING, "The run that made this row."),
)
"""The columns that every table has; they are its first ones."""

_SOURCE: Final = ColumnSpec("source", _STRING, "The back end that says so.", _MISSING)
_RAW: Final = ColumnSpec("raw", _STRING, "The entry as it was answered, as JSON.")
_SCORE: Final = ColumnSpec("score", _DOUBLE, "How sure the back end is.", _MISSING, _SHARE)
_POLYGON: Final = ColumnSpec("polygon", "polygon", "Corners around it.", _MISSING, "pixels")

_STATUS: Final = ColumnSpec("status", _STRING, "ok, failed, skipped, duplicate, in_doubt, over_budget or pending.")
_REASON: Final = ColumnSpec("reason", _STRING, "Why it has this status; gone if no longer in the manifest.", "it is ok")
_FILE: Final = ColumnSpec("file", _STRING, "Absolute path of the file.", "a URL, or a file in an archive")
_KIND: Final = ColumnSpec("kind", _STRING, "image or video.", "not known")
_DUPLICATE_OF: Final = ColumnSpec("duplicate_of", _STRING, "The item_id whose answer it shares.", "it is no duplicate")
_CREDITS: Final = ColumnSpec(
    "credits", _DOUBLE, "This item's share of what its request cost.", "not known", "credits (US cents)"
)

TABLE_COLUMNS: Final = {
    "assets": (
        _STATUS,
        _REASON,
        ColumnSpec("error", _STRING, "The error's own text.", "there was none"),
        _FILE,
        _KIND,
        ColumnSpec("name", _STRING, "What the answer calls it; it may be a path on the service's side.", "no answer"),
        ColumnSpec("request_id", _STRING, "The request that answered it.", "none was made, or it has no id"),
        _DUPLICATE_OF,
        _CREDITS,
        ColumnSpec("features", "names", "Features asked for.", "no request"),
        ColumnSpec("backends", "names", "Back ends asked for.", "no request"),
        ColumnSpec("width", _INT, "Width as it is shown, EXIF orientation applied.", "not measured", "pixels"),
        ColumnSpec("height", _INT, "Height as it is shown, EXIF orientation applied.", "not measured", "pixels"),
        ColumnSpec("duration_s", _DOUBLE, "Length of a video.", "an image, or not measured", "seconds"),
        ColumnSpec("content_bytes", "int64", "Size of the file; of a URL, as its server says.", "not known", "bytes"),
        ColumnSpec("size_bytes", "int64", "Length of the file that the pre-checks looked at.", "not known", "bytes"),
        ColumnSpec("content_sha256", _STRING, "SHA-256 of the file's bytes, in hex.", "the bytes were not read"),
        ColumnSpec(
            "perceptual_hash",
            _STRING,
            "64 bits as 16 hex digits; few of them differ between pictures that look similar.",
            "the picture was not decoded",
        ),
        ColumnSpec(
            "duplicate_distance",
            _INT,
            "Bits in which perceptual_hash differs from that of duplicate_of.",
            "it is no near-duplicate",
            "bits",
        ),
        ColumnSpec("answered_at", "moment", "When its answer came.", "no answer", "UTC, microseconds"),
    ),
    ITEMS: (
        _FILE,
        _STATUS,
        _REASON,
        _KIND,
        ColumnSpec(
            "tags",
            "names",
            "Tags with a score of at least 0.5, or without a score; each once, best first. A video has those of its "
            "frames where no back end sums them up.",
            _NO_ANSWER,
        ),
        ColumnSpec("top_tag", _STRING, "The first of tags.", "it has no such tag"),
        ColumnSpec("top_score", _DOUBLE, "The score of top_tag.", "it has no such tag", _SHARE),
        ColumnSpec(
            "color",
            _STRING,
            "The color that covers most of the picture, as #rrggbb, by the first back end in the order asked for.",
            _MISSING,
        ),
        ColumnSpec("color_name", _STRING, "The CSS color name nearest to color.", _MISSING),
        ColumnSpec(
            "nsfw",
            _DOUBLE,
            "The highest severity in the table nsfw; of a video, the highest of any frame where no back end sums them "
            "up.",
            _MISSING,
            "0 (harmless) to 1",
        ),
        ColumnSpec(
            "faces",
            _INT,
            "Number of faces, by the back end that found the most; of a video, in one frame.",
            _NO_ANSWER,
            "faces",
        ),
        ColumnSpec("people", _INT, "Number of people: of faces.", _NO_ANSWER, "people"),
        ColumnSpec("text", _STRING, "All text read by the first back end in the order asked for.", "none is read"),
        ColumnSpec("brands", "names", "The brands; each once, best first.", _NO_ANSWER),
        ColumnSpec("description", _STRING, "By the first back end in the order asked for.", _MISSING),
        _CREDITS,
        ColumnSpec("usd", _DOUBLE, "Dollars that a provider charged for it.", "not known", "US dollars"),
        _DUPLICATE_OF,
    ),
    "tags": (
        ColumnSpec("name", _STRING, "What is seen; upper and lower case differ.", _MISSING),
        _SCORE,
        _SOURCE,
    ),
    "colors": (
        ColumnSpec("hex", _STRING, "The colour as #rrggbb.", _MISSING),
        ColumnSpec("score", _DOUBLE, "Its prominence.", _MISSING, _SHARE),
        ColumnSpec("pixel_fraction", _DOUBLE, "Its share of the picture.", _MISSING, _SHARE),
        ColumnSpec("red", "uint8", "Red.", _MISSING, "0 to 255"),
        ColumnSpec("green", "uint8", "Green.", _MISSING, "0 to 255"),
        ColumnSpec("blue", "uint8", "Blue.", _MISSING, "0 to 255"),
        _SOURCE,
        ColumnSpec(
            CSS_NAME, _STRING, "The CSS colour name nearest to red, green and blue, in Oklab.", "a channel is null"
        ),
    ),
    "nsfw": (
        ColumnSpec("label", _STRING, "What is scored: sfw, nsfw, adult, violence, …", _MISSING),
        ColumnSpec("score", _DOUBLE, "How sure the back end is of the label.", "likelihood form", _SHARE),
        ColumnSpec("likelihood", _STRING, "VERY_UNLIKELY to VERY_LIKELY, or UNKNOWN.", "numeric form"),
        ColumnSpec(
            "severity",
            _DOUBLE,
            "How unsafe, both forms on one scale: the score, or the likelihood as 0, 0.25, 0.5, 0.75, 1; "
            "for the label sfw, one minus that.",
            "neither score nor a known likelihood",
            "0 (harmless) to 1",
        ),
        _SOURCE,
    ),
    "descriptions": (
        ColumnSpec("description", _STRING, "The description.", _MISSING),
        _SOURCE,
        ColumnSpec("role", _STRING, "The persona asked for.", "not known"),
        ColumnSpec("language", _STRING, "The language asked for; the answer may be English all the same.", "not known"),
    ),
    "faces": (
        ColumnSpec("face", _INT, "Position among the faces of this picture, counted from 0."),
        ColumnSpec("left", _DOUBLE, "Left edge of the face.", _MISSING, _FACE_UNIT),
        ColumnSpec("top", _DOUBLE, "Top edge of the face.", _MISSING, _FACE_UNIT),
        ColumnSpec("width", _DOUBLE, "Width of the face.", _MISSING, _FACE_UNIT),
        ColumnSpec("height", _DOUBLE, "Height of the face.", _MISSING, _FACE_UNIT),
        ColumnSpec("age_low", _DOUBLE, "Lower end of the estimated age.", _MISSING, "years"),
        ColumnSpec("age_high", _DOUBLE, "Upper end of the estimated age.", _MISSING, "years"),
        ColumnSpec("gender", _STRING, "Estimated gender, as answered.", _MISSING),
        ColumnSpec("gender_score", _DOUBLE, "How sure of the gender; per cent are divided by 100.", _MISSING, _SHARE),
        ColumnSpec(
            "emotions",
            "emotions",
            "Emotion to how sure; per cent are divided by 100, likelihoods are 0, 0.25, 0.5, 0.75, 1.",
            _MISSING,
            _SHARE,
        ),
        _RAW,
        _SOURCE,
    ),
    "texts": (
        ColumnSpec("text", _STRING, "What is read.", _MISSING),
        _SCORE,
        ColumnSpec(
            "is_full_text",
            "bool",
            "Whether this is the whole text and the others of its source are parts of it.",
            "the only entry of its source",
        ),
        _POLYGON,
        _RAW,
        _SOURCE,
    ),
    "brands": (
        ColumnSpec("name", _STRING, "The brand.", _MISSING),
        _SCORE,
        _POLYGON,
        _RAW,
        _SOURCE,
    ),
    "embeddings": (
        ColumnSpec(
            "model", _STRING, "The model, with its version; vectors of different models cannot be compared.", _MISSING
        ),
        ColumnSpec(
            "vector",
            "vector",
            "The picture as a point, of unit length as the service makes it; near points are similar pictures.",
        ),
        _SOURCE,
    ),
    "errors": (
        ColumnSpec("request_id", _STRING, "The request that reports it.", "it has no id"),
        ColumnSpec("backend", _STRING, "The back end that failed.", "not known"),
        ColumnSpec("message", _STRING, "The text of the error."),
    ),
    "requests": (
        ColumnSpec("request_id", _STRING, "The service's id of the request.", "none was given"),
        ColumnSpec("state", _STRING, "Where its life cycle stands."),
        ColumnSpec("sent_at", "moment", "When it was sent.", "not sent", "UTC, microseconds"),
        ColumnSpec("answered_at", "moment", "When its results came.", "no results", "UTC, microseconds"),
        ColumnSpec("assets", _INT, "Images and videos in it.", unit="assets"),
        ColumnSpec("credits_paid", _INT, "What it cost.", "not known", "credits (US cents)"),
        ColumnSpec("credits_remaining", _INT, "Balance after it.", "not known", "credits (US cents)"),
        ColumnSpec("http_status", _INT, "Status of the last HTTP answer.", "no answer"),
        ColumnSpec("attempts", _INT, "How often it was sent.", unit="sends"),
        ColumnSpec("polls", _INT, "How often its result was asked for.", unit="polls"),
    ),
    "prechecks": (
        ColumnSpec("finding", _STRING, "What was looked at."),
        ColumnSpec("severity", _STRING, "info, warning or error; an error keeps the row from being paid for."),
        ColumnSpec("message", _STRING, "What was found, as a sentence."),
        ColumnSpec("value", _DOUBLE, "The figure behind it.", "it has none", "that of the finding"),
        ColumnSpec("facts", _STRING, "All facts found, as JSON.", "none were found"),
    ),
    REVIEWS: (
        ColumnSpec("decision", _STRING, "What a person decided: keep, reject or unsure."),
        ColumnSpec("reviewer", _STRING, "Who decided, as typed in."),
        ColumnSpec("decided_at", "moment", "When it was decided.", unit="UTC, microseconds"),
        ColumnSpec("note", _STRING, "What that person noted.", "nothing was noted"),
    ),
}
"""Table → its columns after `KEY_COLUMNS`."""
