"""Read a dump's JSON with its long texts cut, a part of the file at a time.

A pod may have 256 KiB of annotations, and of nearly all of them nothing is read: the memory of an
import must not grow with their bytes.
"""

import re
from pathlib import Path

from fallow.errors import UsageError
from fallow.input_files import open_input

LONGEST = 4096
"""Bytes of a text that stays; protections and names are shorter."""
_READ_WHOLE = b'"hami.io/'
"""Keys whose texts are lists of devices: whole, or unknown."""
MOST_WHOLE = 64 << 20
"""Bytes of such texts over `LONGEST` in a dump; one of 16 devices has 1 KiB."""
MOST_BYTES = 4 << 30
"""Bytes of a dump: pods of 250 kB of annotations, 16,000 of them."""
_BLOCK = 1 << 20
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""How a file of PowerShell's `>` begins; it is read as it is."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:(")|\\?\Z)', re.DOTALL)
"""A text, or its beginning where the block ends inside it: what follows would be misread."""


def read_cut(path: Path) -> bytes:
    """Return a file's JSON; each text that is too long became its number of bytes.

    Raises:
        UsageError: the file cannot be read.
    """
    parts: list[bytes] = []
    rest, key, whole = b"", b"", 0
    with open_input(path, most=MOST_BYTES) as file:
        first = file.read(2)
        file.seek(0)
        if first in UTF_16:
            return file.read()
        while block := file.read(max(_BLOCK, len(rest))):
            block = rest + block
            begin = end = 0
            if max(map(len, block.split(b"\n"))) <= LONGEST:  # no text goes over a line's end
                end = block.rfind(b"\n") + 1
                parts.append(block[:end])
                rest = block[end:]
                continue
            for match in _STRING.finditer(block):
                if not match[1]:
                    break
                start, end = match.span()
                if (size := end - start) > LONGEST:
                    whole += size if key.startswith(_READ_WHOLE) else 0
                    if not key.startswith(_READ_WHOLE) or whole > MOST_WHOLE:
                        parts += block[begin:start], f'"… ({size:,} bytes)"'.encode()
                        begin = end
                key = block[start : min(end, start + len(_READ_WHOLE))]
            parts.append(block[begin:end])
            rest = block[end:]
            if len(rest) > MOST_WHOLE:
                raise UsageError(f"{path} is no JSON: {MOST_WHOLE >> 20} MiB without a text")
    return b"".join([*parts, rest])
