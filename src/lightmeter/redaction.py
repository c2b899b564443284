"""Removes credentials from locations and messages, before these are stored, logged or shown."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

_URI: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]{1,30}):/+(?=[^\s\"<>/])[^\s\"<>]+?(?=[\s\"<>]|$|[A-Za-z][A-Za-z0-9+.-]{1,30}://)"
)
"""A URI. It ends where another one begins, so `https://proxy.example/https://USER:PASSWORD@host/` is two URIs."""

_PARAMETER: Final = re.compile(r"(?<=[?&;#])([^=?&;#]+)=([^&;#]*)")
_SECRET_NAME: Final = re.compile(
    r"token|secret|signature|passw|credential|api_?key|access_?key|(?:^|[-_.])"
    r"(?:sig|sas|key|pwd|pass|auth|authorization|code|jwt|hmac|session|policy|hdnea|hdnts)(?:$|[-_.])",
    re.IGNORECASE,
)
"""Names of URL parameters whose values are credentials, such as `X-Amz-Signature`, `sig`, `access_key`."""

_MASK: Final = "***"
_MAX_NESTING: Final = 2
"""A parameter of a URI may hold another URI, which may have parameters too: URIs are masked to this depth."""

_CONTAINER_SCHEMES: Final = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes of Azure, whose user name is a container: `abfs://CONTAINER:PASSWORD@ACCOUNT…`."""


def mask_credentials(text: str) -> str:
    """Return a location, or a message with URIs, without user names, passwords and the values of secret parameters.

    User name and password are removed, the value of a secret parameter becomes `***`. A path and a text without URIs
    are unchanged. The result does not change if it is masked again.

        >>> mask_credentials("s3://KEY:SECRET@bucket/m.csv?region=eu-central-1")
        's3://bucket/m.csv?region=eu-central-1'
        >>> mask_credentials("GET https://cdn.example/a.jpg?w=9&X-Amz-Signature=0f3a failed")
        'GET https://cdn.example/a.jpg?w=9&X-Amz-Signature=*** failed'
    """
    return _mask_uris(text, _MAX_NESTING)


def has_credentials(location: str) -> bool:
    """Whether a location holds a user name, a password or another credential."""
    return mask_credentials(location) != location


def check_no_credentials(url: str | None) -> str | None:
    """Return a URL; raise ValueError if it holds a user name, a password or another credential."""
    if url is not None and ("@" in url or has_credentials(url)):
        raise ValueError("it holds a user name, a password or a key; the key belongs in LIGHTMETER_API_KEY alone")
    return url


def _mask_uris(text: str, nesting: int) -> str:
    return _URI.sub(lambda match: _mask_uri(match, nesting), text)


def _mask_uri(match: re.Match[str], nesting: int) -> str:
    uri, scheme = match[0], match[1].lower()
    start = match.end(1) - match.start()
    start += len(uri[start:]) - len(uri[start:].lstrip(":/"))
    end = _end_of_user(scheme, uri[start:])
    kept = _kept_user(scheme, uri[start : start + end])
    return uri[:start] + kept + _PARAMETER.sub(lambda found: _mask_parameter(found, nesting), uri[start + end :])


def _end_of_user(scheme: str, rest: str) -> int:
    """Return the length of `USER:PASSWORD@` at the start of `rest`, the text after `://`; 0 if it has none.

    A password may hold an unescaped `/`, `?` or `#`. The first of these characters counts as a part of a password that
    ends at the last `@` of `rest`, if the text before the character has the form `A:B` without `@`, does not begin with
    `[`, and B is no port. B is a port if it has only digits, and `scheme` (the text before `://`, in lower case) is
    http, https, ws or wss.
    """
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        return authority.rindex("@") + 1
    host, colon, port = authority.partition(":")
    has_port = scheme in {"http", "https", "ws", "wss"} and port.isdigit()
    return rest.rfind("@") + 1 if colon and host and not has_port and not authority.startswith("[") else 0


def _kept_user(scheme: str, user: str) -> str:
    """Return the part of a URI's user information that is no secret: `USER@`, or an empty text.

    `user` has the form `USER:PASSWORD@`. The name USER is no secret if it is `anonymous` or the container of an Azure
    URI; `scheme`, the scheme of the URI in lower case, shows the latter.
    """
    name = user.rstrip("@").partition(":")[0]
    return f"{name}@" if user and (scheme in _CONTAINER_SCHEMES or name == "anonymous") else ""


def _mask_parameter(match: re.Match[str], nesting: int) -> str:
    name, value = match[1], match[2]
    if value and _SECRET_NAME.search(unquote(name)):
        return f"{name}={_MASK}"
    plain = unquote(value) if nesting else ""
    masked = _mask_uris(plain, nesting - 1)
    return f"{name}={value if masked == plain else quote(masked, safe='')}"
