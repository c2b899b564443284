"""Parses what a host tells robots and AI: the header `X-Robots-Tag` and the file robots.txt (RFC 9309). No I/O.

The standard library's `urllib.robotparser` is not used: it takes the first rule that matches and knows no wildcards,
while RFC 9309 asks for the longest rule that matches. Patterns are matched without regular expressions, because a
hostile file could make their time exponential.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit

RobotsMode: TypeAlias = Literal["ignore", "warn", "respect"]
"""What follows if a host opts out of use by AI.

`ignore`: nothing. `warn`: a finding with severity `warning`. `respect`: an `error`, so that a run skips the row.
"""

USER_AGENT: Final = "lightmeter"
"""Name under which hosts address lightmeter in robots.txt and in `X-Robots-Tag`."""

MAX_RULES: Final = 5000
"""Most rules of a robots.txt that are used; if there are more, the longest ones."""

_MAX_WILDCARDS: Final = 16
"""A rule with more `*` than this is ignored."""

_OPT_OUTS: Final = frozenset({"noai", "noimageai"})
_DIRECTIVES_WITH_VALUE: Final = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
)
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9._~-]")
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_TOKEN: Final = re.compile(r"[A-Za-z_-]+|\*")
_ASCII: Final = "".join(map(chr, range(33, 127)))


@dataclass(frozen=True, slots=True)
class RobotsPolicy:
    """How the pre-checks treat hosts that opt out of use by AI or robots.

    Attributes:
        mode: Whether an opt-out is ignored, a warning, or an error because of which a run skips the row.
        reads_robots_txt: Whether each host's robots.txt is read, in addition to the header `X-Robots-Tag`. It is never
            read in mode `ignore`.
    """

    mode: RobotsMode = "warn"
    reads_robots_txt: bool = False


DEFAULT_POLICY: Final = RobotsPolicy()


def opt_out_directive(headers: Iterable[str]) -> str | None:
    """Return the directive in `X-Robots-Tag` headers that denies use by AI, such as `noai`; None if there is none.

    `headers` are the values of these headers. A directive after the name of another robot (`otherbot: noai`) does not
    count.
    """
    for value in headers:
        is_meant = True
        for part in value.lower().split(","):
            name, colon, rest = part.partition(":")
            directive = part.strip()
            if colon and name.strip() not in _DIRECTIVES_WITH_VALUE:
                is_meant, directive = name.strip() in {USER_AGENT, "*"}, rest.strip()
            if is_meant and directive in _OPT_OUTS:
                return directive
    return None


class RobotsRules:
    """The rules of a robots.txt that apply to lightmeter: those for its name, or if it is not named, those for `*`.

    Args:
        text: Content of the file.
    """

    def __init__(self, text: str) -> None:
        groups: dict[str, list[tuple[str, bool]]] = {}
        agents: list[str] = []
        is_named = False  # whether the last line named a robot, so that the next name joins the same group
        for field, value in _lines(text):
            if field == "user-agent":
                token = _TOKEN.match(value)
                agents = [*(agents if is_named else ()), token[0].lower() if token else ""]
                groups.setdefault(agents[-1], [])
                is_named = True
            elif field in {"allow", "disallow"}:
                is_named = False
                if value and value.count("*") <= _MAX_WILDCARDS:
                    rule = (_normalized(value), field == "allow")
                    for agent in agents:
                        groups[agent].append(rule)
        rules = groups.get(USER_AGENT, groups.get("*", []))
        # The longest rule counts; of equal ones, the one that allows.
        self._rules = sorted(set(rules), key=lambda rule: (-len(rule[0]), not rule[1]))[:MAX_RULES]

    def blocking_rule(self, url: str) -> str | None:
        """Return the path pattern of the rule that disallows a URL; None if the URL is allowed."""
        parts = urlsplit(url)
        path = _normalized((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        for pattern, is_allowed in self._rules:
            if _matches(pattern, path):
                return None if is_allowed else pattern
        return None


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield name (in lower case) and value of each line of a robots.txt of the form `name: value`, without comments."""
    for line in re.split(r"[\r\n]+", text.removeprefix("\ufeff")):
        name, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield name.strip().lower(), value.strip()


def _normalized(path: str) -> str:
    """Return a path or pattern in a spelling in which equal ones compare equal (RFC 9309, section 2.2.2).

    Spaces and non-ASCII characters become escapes such as `%C3`. Escapes of letters, digits and `-._~` become these
    characters. All other escapes get capital hexadecimal digits.
    """

    def respell(escape: re.Match[str]) -> str:
        character = chr(int(escape[1], 16))
        return character if _UNRESERVED.fullmatch(character) else escape[0].upper()

    return _ESCAPE.sub(respell, quote(path, safe=_ASCII, errors="replace"))


def _matches(pattern: str, path: str) -> bool:
    """Whether a path starts with `pattern`, where `*` stands for any text and a final `$` for the end of the path."""
    is_anchored = pattern.endswith("$")
    first, *middle = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    if not middle:
        return not is_anchored or at == len(path)
    last = middle.pop() if is_anchored else ""
    for text in middle:
        at = path.find(text, at)
        if at < 0:
            return False
        at += len(text)
    return path.endswith(last) and len(path) - len(last) >= at
