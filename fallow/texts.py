"""Escape and cut a text of unknown content, so that it can be stored, logged and printed."""

import re

CUT = 100
"""Bytes of a name that is only listed: enough to find the object by."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL_IN_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


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
