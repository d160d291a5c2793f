"""Remove passwords and tokens from texts that are stored, logged or shown.

Two ways, both in `redact`. By place: the user and password of a URL, parameters of a URL and of a
connection string that are named like a secret, and headers that carry one. By value: every secret
of the settings in force, wherever it stands (`remember_secrets`).
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from urllib.parse import quote, unquote

STARS = "***"
LEAST = 8
"""Characters of the shortest secret that is found by its value: a shorter one is also a word."""

_NAMED = r"[\w.-]*(?:token|secret|passw|pwd|passphrase|api[_-]?key|signature|credential)[\w.-]*"
SECRET_NAME = re.compile(rf"{_NAMED}|.*auth.*|.*cookie.*|sig|key|x-api-key", re.IGNORECASE)
"""Names of headers and of parameters whose values are secrets."""

_QUOTED = r"'(?:[^'\\]|\\.)*'"
_PLACES = (
    # scheme://user:password@host
    (("://", "@"), re.compile(r"(?P<keep>\w://)(?P<secret>[^\s/?#\"'<>\\]+)(?=@)")),
    # ?token=..., &sig=...
    (
        ("=",),
        re.compile(
            rf"(?P<keep>[?&;](?:{_NAMED}|sig|key|auth)=)(?P<secret>[^\s&;#\"'<>)\\]+)",
            re.IGNORECASE,
        ),
    ),
    # password=... of a connection string
    (
        ("passw", "="),
        re.compile(
            rf"(?P<keep>passw(?:or)?d\s*=\s*)(?P<secret>{_QUOTED}|[^\s&;\"',)\\]+)",
            re.IGNORECASE,
        ),
    ),
    # Authorization: Bearer ..., Cookie: a=...; b=...
    *(
        (
            (name,),
            re.compile(
                rf"(?P<keep>{name}\\?[\"']?\s*[:=]\s*\\?[\"']?(?:[A-Za-z]+\s+)?)"
                rf"(?P<secret>[^\s\"',}}\\]+{more})",
                re.IGNORECASE,
            ),
        )
        for name, more in (("authorization", ""), ("cookie", r"(?:;\s*[^\s\"',}\\]+)*"))
    ),
    # X-Api-Key: ..., X-Vault-Token: ...
    (
        ("x-",),
        re.compile(
            r"(?P<keep>\bx-[\w-]*(?:key|token|secret|auth)\\?[\"']?\s*[:=]\s*\\?[\"']?)"
            r"(?P<secret>[^\s\"',}\\]+)",
            re.IGNORECASE,
        ),
    ),
    (("bearer",), re.compile(r"(?P<keep>\bbearer\s+)(?P<secret>[\w.~+/-]{16,}=*)", re.IGNORECASE)),
    # A word in Base64 has other letters than small ones after its first.
    (
        ("basic",),
        re.compile(
            r"(?P<keep>\b[Bb](?:asic|ASIC)\s+)(?P<secret>(?=\S[a-z]*[A-Z0-9=])[\w+/-]{8,}=*)"
        ),
    ),
)
"""Where secrets stand: parts that a text has then, in lower case, and the expression.

The parts are searched first: an expression takes 0.1 s for each MB of a table without any.
"""

_values: set[str] = set()


def remember_secrets(texts: Iterable[str]) -> None:
    """Remember values that `redact` removes from now on, as they are and as a URL or JSON has them.

    Values shorter than `LEAST` characters are not remembered.
    """
    forms = {
        form
        for text in texts
        for form in (
            text,
            quote(text, safe=""),
            quote(text),
            json.dumps(text)[1:-1],
            repr(text)[1:-1],
        )
    }
    new = {form for form in forms if len(form) >= LEAST} - _values
    if new:
        _values.update(new)
        _compile_values.cache_clear()


def redact(text: str) -> str:
    """Return a text with stars in the place of every secret that is found."""
    pattern = _compile_values()
    if pattern is not None:
        text = pattern.sub(STARS, text)
    for place in _list_places(text):
        text = place.sub(_hide, text)
    return text


def find_secrets(text: str) -> Iterator[str]:
    """Yield the secrets of a URL, of a connection string or of a text that contains them."""
    # Of a whole address all before its last @: a password may have any character.
    address = text.strip().rpartition("@")[0]
    pair = re.sub(r"^[^@]*?:/+", "", address)
    secret = pair.partition(":")[2]
    if secret and not re.search(r"^mailto:|\s\w+\s*=", pair):
        yield from {secret, unquote(secret), b64encode(unquote(pair).encode()).decode()}
    for place in _list_places(text):
        for match in place.finditer(text):
            secret = match["secret"].strip("'")
            # Of a user and a password the password alone is the secret; a user alone is a token.
            part = secret.partition(":")[2] if match["keep"].endswith("://") else ""
            yield from {part or secret, unquote(part or secret)}


def _list_places(text: str) -> Iterator[re.Pattern[str]]:
    lower = text.lower()
    for parts, place in _PLACES:
        if all(part in lower for part in parts):
            yield place


def _hide(match: re.Match[str]) -> str:
    return match["keep"] + STARS


@cache
def _compile_values() -> re.Pattern[str] | None:
    # The longest first: one secret may be the beginning of another.
    listed = sorted(_values, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, listed))) if listed else None
