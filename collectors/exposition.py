"""Parse the Prometheus text exposition format line by line: the complete but slower parser.

Version 0.0.4 (timestamps in milliseconds) and OpenMetrics (seconds, exemplars, `# EOF`).
A line that is neither a sample nor a comment is rejected and counted; it is never an error. Half of
a scrape is better than none, as long as the row shows that half is missing. The fast path over many
targets is `collectors.reader`, which builds its templates with this parser.

Grammar: https://prometheus.io/docs/instrumenting/exposition_formats/ and the OpenMetrics 1.0
text format. Quantifiers are possessive, so that no input makes a match backtrack.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_LINE = re.compile(
    rb"[ \t]*+([a-zA-Z_:][\w:]*+)?+[ \t]*+"
    rb"(?:\{((?:[^\"{}]++|" + _STRING + rb")*+)\})?+[ \t]*+"
    rb"([^ \t#{}]++)"  # the value
    rb"([ \t]++(-?[0-9]++(?:\.[0-9]++)?+))?+"  # its timestamp
    rb"((?:[ \t]++(?:#.*+)?+)?+)$",  # an exemplar
    re.DOTALL,
)
_LABEL = re.compile(
    rb"[ \t]*+([a-zA-Z_:][\w:]*+|" + _STRING + rb")[ \t]*+(?:=[ \t]*+(" + _STRING + rb")[ \t]*+)?+"
    rb"(?:,|$)",
    re.DOTALL,
)
_NUMBER = re.compile(
    rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+(?:[eE][+-]?+[0-9]++)?+"
    rb"|\.[0-9]++(?:[eE][+-]?+[0-9]++)?+|inf(?:inity)?+|nan)$",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r'\\([\\"n])')
_ESCAPED = {"\\": "\\", '"': '"', "n": "\n"}
LAST = 253_402_300_800_000_000  # the year 10000, in microseconds
LONGEST_CACHED = 4096  # bytes of labels; a hostile exporter's megabytes must not stay in memory
SECONDS_BELOW = 4_102_444_800  # as seconds the year 2100, as milliseconds February 1970


class ExpositionLine(msgspec.Struct, frozen=True):
    """One sample line: the text before the value, the value, its timestamp."""

    number: int
    name: str
    labels: bytes
    value: float
    timestamp_us: int | None
    start: int
    """The position in the line where the value begins."""
    plain: bool
    """After the value there is nothing, or one space and a timestamp."""


class ExpositionText(msgspec.Struct, frozen=True):
    """A whole exposition: its sample lines and what could not be read."""

    lines: list[ExpositionLine]
    total: int
    """Lines of any kind, as splitting at newlines counts them."""
    rejected: int
    cut: bool
    """The last line has no newline, so that its value may be only a part of a number."""


def read(body: bytes, *, whole: bool = False) -> ExpositionText:
    """Parse an exposition. Never raises.

    A last line without newline is refused as cut off, unless the body is known to be `whole`
    (a file): a value of 12 may have been 123.
    """
    pieces = body.split(b"\n")
    cut = bool(pieces[-1].strip()) and not whole
    lines: list[ExpositionLine] = []
    rejected = int(cut)
    for number, piece in enumerate(pieces[:-1] if cut else pieces):
        text = piece.rstrip(b"\r")
        first = text.lstrip(b" \t")[:1]
        if not first or first == b"#":
            continue
        line = _sample(number, text)
        if line is None:
            rejected += 1
        else:
            lines.append(line)
    return ExpositionText(lines, len(pieces), rejected, cut)


def _sample(number: int, text: bytes) -> ExpositionLine | None:
    match = _LINE.match(text)
    if match is None:
        return None
    name, labels, value, stamped, stamp, rest = match.groups()
    if not _NUMBER.match(value):
        return None
    if name is None:
        # Prometheus 3 writes metric names with other characters as {"name", label="value"}.
        name, labels = _parse_quoted_name(labels or b"")
        if name is None:
            return None
    try:
        parse_labels(labels or b"")
        return ExpositionLine(
            number,
            name.decode(),
            labels or b"",
            float(value),
            None if stamp is None else _convert_microseconds(stamp),
            match.start(3),
            not rest and (stamped is None or len(stamped) == len(stamp) + 1),
        )
    except ValueError:
        return None


def parse_tail(text: bytes) -> tuple[float, int | None] | None:
    """Return the value and timestamp after a line's labels; None = neither."""
    line = _sample(0, b"x " + text.rstrip(b"\r"))
    return None if line is None else (line.value, line.timestamp_us)


def _convert_microseconds(stamp: bytes) -> int:
    value = float(stamp)
    scaled = value * (1e6 if abs(value) < SECONDS_BELOW else 1e3)
    if not 0 <= scaled < LAST - 1:
        raise ValueError("no calendar has this time")
    return round(scaled)


def _parse_quoted_name(labels: bytes) -> tuple[bytes | None, bytes]:
    match = _LABEL.match(labels)
    if match is None or match[2] is not None or not match[1].startswith(b'"'):
        return None, labels
    return match[1][1:-1], labels[match.end() :]


def parse_labels(text: bytes) -> dict[str, str]:
    """Return the labels between the braces. Callers must not change the result.

    Raises:
        ValueError: the text is not a list of labels.
    """
    return _parse_cached(text) if len(text) <= LONGEST_CACHED else _parse(text)


@lru_cache(maxsize=4096)
def _parse_cached(text: bytes) -> dict[str, str]:
    return _parse(text)


def _parse(text: bytes) -> dict[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text) and text[position:].strip(b" \t"):
        match = _LABEL.match(text, position)
        if match is None or match[2] is None:
            raise ValueError("not a list of labels")
        name = match[1].decode()
        labels[_unquote(name) if name.startswith('"') else name] = _unquote(match[2].decode())
        position = match.end()
    return labels


def _unquote(text: str) -> str:
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], inner)


def parse_samples(body: bytes) -> Iterator[tuple[str, dict[str, str], float, int | None]]:
    """Yield (name, labels, value, timestamp in microseconds) of every sample of a whole text."""
    for line in read(body, whole=True).lines:
        yield line.name, dict(parse_labels(line.labels)), line.value, line.timestamp_us
