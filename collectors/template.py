"""Remember what stays the same in a target's exposition, so that only values are parsed.

A template stores the text around every value. It cuts the next body at the same positions, removes
the stored text from each piece, and returns what is left, one value per line. If anything but a
value has changed, the result is None: then the target is parsed in full again.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import msgspec

from collectors.exposition import ExpositionText


class Template(msgspec.Struct, frozen=True):
    """How to cut a body, and the text beside each value."""

    mark: bytes
    pieces: int
    pick: Any
    """Selects the pieces that have a value."""
    strip: Callable[[bytes, bytes], bytes]
    beside: tuple[bytes, ...]
    """The text of each of these pieces that is not its value."""
    rest: Any
    """Selects the other pieces: comments, or the text before the first value."""
    rest_text: bytes
    """These pieces, joined."""
    fixed: int
    """Bytes of a body that are not values."""
    values: int
    stamped: bool = False
    """A timestamp follows each value."""
    returns: bool = False
    """Lines end in carriage return and newline."""

    def tails(self, body: bytes) -> bytes | None:
        """Return the values' text, each after a space and before a newline; None = changed.

        Of a stamped template: value, space, timestamp, newline.
        """
        cuts = _cut(body, self.mark, returns=self.returns)
        if len(cuts) != self.pieces:
            return None
        # A piece whose text has changed stays whole, which its length shows. More or fewer values
        # in a piece show in the number of newlines.
        tails = b"\n".join(map(self.strip, self.pick(cuts), self.beside))
        if len(body) - len(tails) != self.fixed or tails.count(b"\n") != self.values:
            return None
        if not self.stamped and (tails[:1] != b" " or tails.count(b"\n ") != self.values - 1):
            return None
        return tails if b"\n".join(self.rest(cuts)) == self.rest_text else None


def learn(text: ExpositionText, body: bytes) -> Template | None:
    """Return a body's template, or None where its lines are not all of one plain kind."""
    stamped = {line.timestamp_us is not None for line in text.lines}
    if text.rejected or len(stamped) != 1 or not all(line.plain for line in text.lines):
        return None
    returns = b"\r\n" in body
    if not returns and stamped == {False}:
        return _parse_between_braces(text, body) or _parse_lines(
            text, body, stamped=False, returns=False
        )
    return _parse_lines(text, body, stamped=stamped == {True}, returns=returns)


def _parse_between_braces(text: ExpositionText, body: bytes) -> Template | None:
    """Cut after the labels: this gives the fewest pieces, and comments are inside them.

    Works where each sample has labels and no label holds a brace, as dcgm-exporter prints.
    """
    cuts = body.split(b"}")
    if len(cuts) != len(text.lines) + 1:
        return None
    values, newlines, beside = zip(*(piece.partition(b"\n") for piece in cuts[1:]), strict=True)
    # A value begins after one space; braces in other places would give other beginnings.
    if any(value[:1] != b" " or value[1:2] in {b" ", b""} for value in values):
        return None
    after = [newline + rest for newline, rest in zip(newlines, beside, strict=True)]
    # The last newline belongs to the result, which then ends in one.
    after[-1] = after[-1][1:]
    return _check_template(
        Template(
            mark=b"}",
            pieces=len(cuts),
            pick=itemgetter(slice(1, None)),
            strip=bytes.removesuffix,
            beside=tuple(after),
            rest=itemgetter(slice(0, 1)),
            rest_text=cuts[0],
            fixed=0,
            values=len(text.lines),
        ),
        body,
    )


def _parse_lines(
    text: ExpositionText, body: bytes, *, stamped: bool, returns: bool
) -> Template | None:
    """Cut into lines: for samples without labels, timestamps and carriage returns."""
    cuts = _cut(body, b"\n", returns=returns)
    numbers = [line.number for line in text.lines]
    skip = 0 if stamped else 1
    beside = tuple(cuts[line.number][: line.start - skip] for line in text.lines)
    if not stamped and any(
        cuts[line.number][line.start - 1 : line.start] != b" " for line in text.lines
    ):
        return None
    line_set = set(numbers)
    rest = itemgetter(*(n for n in range(len(cuts)) if n not in line_set), -1)
    return _check_template(
        Template(
            mark=b"\n",
            pieces=len(cuts),
            # The last piece is empty: with it, the result ends in a newline, and itemgetter always
            # has more than one index (with one index it would not return a tuple).
            pick=itemgetter(*numbers, -1),
            strip=bytes.removeprefix,
            beside=(*beside, b""),
            rest=rest,
            rest_text=b"\n".join(rest(cuts)),
            fixed=0,
            values=len(numbers),
            stamped=stamped,
            returns=returns,
        ),
        body,
    )


def _check_template(template: Template, body: bytes) -> Template | None:
    """Return the template with its own body's length, if it parses that body."""
    cuts = _cut(body, template.mark, returns=template.returns)
    tails = b"\n".join(map(template.strip, template.pick(cuts), template.beside))
    whole = msgspec.structs.replace(template, fixed=len(body) - len(tails))
    return whole if whole.tails(body) is not None else None


def _cut(body: bytes, mark: bytes, *, returns: bool) -> list[bytes]:
    return (body.replace(b"\r\n", b"\n") if returns else body).split(mark)
