"""Back end `template`: one English sentence composed from the results of other local back ends, without a model.

The sentence lists what was found and says nothing about relations between things. Role, prompt and language are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from lightmeter.errors import BackendError
from lightmeter.media.oklab import srgb_to_oklab
from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.wire.response import Description, Entries

MIN_TAG_SCORE: Final = 0.5
"""Tags with a lower score are not mentioned, because they are more often wrong than right."""
MAX_TAGS: Final = 3
"""Maximum number of tags in a sentence."""
MAX_COLORS: Final = 2
"""Maximum number of colors in a sentence."""
MAX_TEXT_CHARS: Final = 80
"""Maximum length of quoted text in a sentence, in characters; a longer text is cut."""

COLOR_WORDS: Final = {
    "black": "101010",
    "dark grey": "444444",
    "grey": "808080",
    "light grey": "bfbfbf",
    "white": "f8f8f8",
    "red": "c81e1e",
    "dark red": "6e1010",
    "orange": "f08a24",
    "brown": "7a4a22",
    "beige": "d9c3a0",
    "yellow": "f2d92e",
    "olive": "78782a",
    "green": "2f9e3a",
    "dark green": "1c4a22",
    "light green": "9ad48f",
    "teal": "1f8a8a",
    "blue": "2a5fc4",
    "dark blue": "16295c",
    "light blue": "9cc6ea",
    "purple": "7a3fa0",
    "pink": "ee9dbb",
    "magenta": "c42a86",
}
"""Color word → typical sRGB color of this word, in hexadecimal digits. The colors were chosen for this project."""

NUMBER_WORDS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Template:
    """Back end `template`: feature `descriptions`, a sentence composed from tags, faces, texts and colors.

    Other local back ends find the tags, faces, texts and colors; their mistakes appear in the sentence, too.
    """

    name = "template"
    features = frozenset({"descriptions"})
    builds_on: Mapping[str, frozenset[str]] = {
        "imagenet": frozenset({"tags"}),
        "centerface": frozenset({"faces"}),
        "rapidocr": frozenset({"texts"}),
        "palette": frozenset({"colors"}),
    }

    def compose(self, found: Mapping[str, Entries], options: AnalysisOptions) -> Entries:  # noqa: ARG002 (no option changes the sentence)
        """Return a description of one picture: a sentence that lists its tags, faces, texts and colors.

        Args:
            found: Name of another back end → its results for the picture; back ends that failed are absent.
            options: Ignored.

        Raises:
            BackendError: `found` is empty.
        """
        if not found:
            raise BackendError("has nothing to describe: no other local back end answered")
        return Entries(descriptions=[Description(description=compose_sentence(list(found.values())), source=self.name)])


def compose_sentence(found: Sequence[Entries]) -> str:
    """Return a sentence that lists faces, tags, colors and texts in `found`, the results of back ends for a picture."""
    people = _people(found)
    tags = [name for name in _tags(found) if not (people and name.lower() in {"person", "people"})][:MAX_TAGS]
    subject = f"A picture of {people}" if people else "A picture"
    if tags:
        subject += f"{',' if people else ''} tagged {_join(tags)}"
    colors, text = _colors(found), _text(found)
    details = [f"with the text “{text}”"] if text else []
    if colors:
        details.insert(0, f"{'mostly' if people or tags else 'mainly in'} {_join(colors)}")
    if not people and not tags and not details:
        return "A picture in which nothing was recognised."
    return (", " if people or tags else " ").join([subject, *details]) + "."


def _people(found: Sequence[Entries]) -> str:
    faces = sum(len(entries.faces or []) for entries in found)
    if faces:
        count = NUMBER_WORDS[faces] if faces < len(NUMBER_WORDS) else str(faces)
        return f"{count} {'person' if faces == 1 else 'people'}"
    return ""


def _tags(found: Sequence[Entries]) -> list[str]:
    """Return the names of all tags in `found` that score at least `MIN_TAG_SCORE`, highest score first.

    A name occurs only once, even if several back ends found the tag.
    """
    best: dict[str, float] = {}
    for entries in found:
        for name, tags in entries.tags.items():
            score = max((tag.score or 0.0 for tag in tags), default=0.0)
            if score >= MIN_TAG_SCORE:
                best[name] = max(score, best.get(name, 0.0))
    return sorted(best, key=lambda name: -best[name])


def _colors(found: Sequence[Entries]) -> list[str]:
    """Return words, such as `dark blue`, for the colors in `found` that cover the most pixels.

    There are at most `MAX_COLORS` words, all different.
    """
    entries: list[Any] = [color for each in found for colors in each.colors.values() for color in colors]
    entries.sort(key=lambda color: -(color.pixel_fraction or 0.0))
    return list(dict.fromkeys(color_word(color.hex) for color in entries))[:MAX_COLORS]


def _text(found: Sequence[Entries]) -> str:
    texts = [text for each in found for text in each.texts or [] if text.text]
    whole = [text for text in texts if getattr(text, "is_full_text", False)]
    words = " ".join(text.text or "" for text in whole or texts)
    shown = " ".join(words.split())
    return shown if len(shown) <= MAX_TEXT_CHARS else shown[:MAX_TEXT_CHARS].rsplit(" ", 1)[0] + "…"


def _join(words: Sequence[str]) -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    if len(words) < 2:  # noqa: PLR2004 (a list needs two)
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def color_word(code: str) -> str:
    """Return the color word, such as `dark blue`, that is nearest to the color `code` (`#rrggbb`) in Oklab."""
    lab = srgb_to_oklab(np.array([list(bytes.fromhex(code.removeprefix("#")))]) / 255.0)
    return _WORDS[int(((_LABS - lab) ** 2).sum(axis=1).argmin())]


_WORDS: Final = tuple(COLOR_WORDS)
_LABS: Final = srgb_to_oklab(np.array([list(bytes.fromhex(code)) for code in COLOR_WORDS.values()]) / 255.0)
