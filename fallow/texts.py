"""Escape and cut a text of unknown content, so that it can be stored, logged and printed."""

CUT = 100
"""Characters of an escaped text: enough to find the object by."""


def escape_text(text: str, limit: int = CUT) -> str:
    r"""Return a text without control characters and lone surrogates, of at most `limit` characters.

    Each of these characters becomes its Python escape, such as `\x00`; a text that was cut ends
    with an ellipsis. A printable text that is short enough stays as it is.
    """
    if len(text) <= limit and text.isprintable():
        return text
    head = text[:limit]
    escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in head)
    return escaped if len(escaped) <= limit and head == text else f"{escaped[: limit - 1]}…"
