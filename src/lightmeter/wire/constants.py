"""Constants of the service's HTTP API: names of features and roles, defaults, limits, file suffixes, error texts.

Source: the service's specification, and the public clients that use the API.
"""

from __future__ import annotations

from typing import Final

FEATURES: Final = ("brands", "colors", "descriptions", "faces", "nsfw", "tags", "texts")
"""Features in the service's specification: what an image or video can be analyzed for."""
EXTRA_FEATURES: Final = ("embeddings",)
"""Features that the specification lacks. Requests get them only by name; "all features" does not include them."""
ROLES: Final = (
    "general",
    "alttext",
    "artist",
    "caption",
    "comedian",
    "critic",
    "ecommerce",
    "inspector",
    "promoter",
    "prompt",
    "realtor",
    "tweet",
)
DEFAULT_ROLE: Final = "general"
"""Role (persona or purpose of descriptions) that the service uses if a request names none."""

LIKELIHOOD_SEVERITY: Final = {
    "VERY_UNLIKELY": 0.0,
    "UNLIKELY": 0.25,
    "POSSIBLE": 0.5,
    "LIKELY": 0.75,
    "VERY_LIKELY": 1.0,
}
"""Likelihood of an NSFW label → its severity, 0 to 1, in five even steps. UNKNOWN has no severity."""

AUTH_HEADER: Final = "X-API-Key"
DEFAULT_TAG_SCORE: Final = 0.9
"""Lowest score, 0 to 1, of the tags in an answer, if the request does not set it."""
DEFAULT_CAPTURE_INTERVAL_S: Final = 1
DEFAULT_MAX_FRAMES: Final = 3
MAX_FILE_BYTES: Final = 20 * 1024 * 1024
MAX_QUERY_CHARS: Final = 2048
RESULT_LIFETIME_S: Final = 24 * 3600
"""Seconds for which the service keeps the results of a request."""
VIDEO_SUFFIXES: Final = (".mp4", ".webm", ".mov", ".mkv", ".avi")
IMAGE_SUFFIXES: Final = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".gif", ".webp", ".bmp", ".avif", ".avifs"),
    *(".heic", ".heics", ".heif", ".heifs", ".hif", ".tif", ".tiff"),
)
MORE_VIDEO_SUFFIXES: Final = (".m4v", ".qt")
"""Further file suffixes of MP4 and QuickTime videos, in addition to `VIDEO_SUFFIXES`."""

MAX_CREDITS: Final = 2**53 - 1
"""Greatest balance or budget, in credits: every JSON reader holds it exactly, and it fits the databases' integers."""

ACCESS_DENIED: Final = "Access denied."
PARAMS_REQUIRED: Final = "File/URL params are required."
INVALID_FORMAT: Final = "Invalid request format."
INVALID_URLS: Final = "Invalid URLs detected."
FILE_TOO_LARGE: Final = "File too large. Max 20MB."
QUERY_TOO_LONG: Final = "Max request length exceeded."
NO_CREDITS: Final = "No credits."
INSUFFICIENT_CREDITS: Final = "Insufficient credits."
REQUEST_FAILED: Final = "Request failed"


def not_found(request_id: str) -> str:
    """Return the error text for a request id that is unknown, has expired, or belongs to another account."""
    return f"Request ID {request_id} not found."
