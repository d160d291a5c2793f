"""Escape and cut a text of unknown content, so that it can be stored, logged and printed."""

import json
import re

CUT = 100
"""Bytes of a name that is only listed: enough to find the object by."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL_IN_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSHOWN = (
    r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\uf8ff\ufff0-\ufffb\ufffe\uffff"
    r"\U000e0000-\U0010ffff"
)
"""Controls of C1, of direction and of lines, lone surrogates, private and invisible characters."""
_UNSHOWN_IN_LINE = re.compile(rf"[\x00-\x1f{_UNSHOWN}]")
_UNSHOWN_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_UNSHOWN}]")
_MARKUP = re.compile(r"([\\`*_{}\[\]#|~<>&!$])")
_LINKED = re.compile(r"(?i):(?=//)|@(?=\w)|\bwww(?=\.)")


def spell_out(text: str, *, in_lines: bool = False) -> str:
    r"""Return a text that neither controls a terminal nor turns the direction of its line.

    Each such character is spelled out as JSON does, such as `\u001b`: JSON stays equal. `in_lines`:
    newline and tab stay.
    """
    unshown = _UNSHOWN_IN_LINES if in_lines else _UNSHOWN_IN_LINE
    return unshown.sub(lambda match: json.dumps(match[0])[1:-1], text)


def make_printable(text: str, mark: str = " ", *, also: str = "") -> str:
    """Return a text with a mark for each character that could control a terminal; `also` stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in also else mark for c in text)


def escape_markdown(text: str) -> str:
    """Return a text so that Markdown shows its characters: no markup, no HTML and no link.

    An invisible joiner parts an address: links are found after escapes are removed.
    """
    return _LINKED.sub("\\g<0>\u2060", _MARKUP.sub(r"\\\1", spell_out(text)))


def escape_text(text: str, limit: int = CUT, *, in_lines: bool = False) -> str:
    r"""Return a text of at most `limit` bytes without control characters and lone surrogates.

    Each of these becomes its Python escape, such as `\x00`; `in_lines`: but newline and tab stay. A
    text that was cut ends with the number of its characters. A clean text is returned as it is.
    """
    control = _CONTROL_IN_LINES if in_lines else _CONTROL
    escaped = control.sub(lambda match: ascii(match[0])[1:-1], text[: limit + 1]).encode()
    if len(escaped) <= limit:
        return escaped.decode()
    mark = f"… ({len(text):,} characters)"
    return escaped[: limit - len(mark.encode())].decode("utf-8", "ignore") + mark
