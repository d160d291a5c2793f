"""Read a dump's JSON with its long texts cut, a part of the file at a time.

A pod may have 256 KiB of annotations, and of nearly all of them nothing is read: the memory of an
import must not grow with their bytes.
"""

import re
from functools import cache
from pathlib import Path

from collectors.kube.table import parse_table
from fallow.errors import UsageError
from fallow.protections import read_annotations, read_notes
from fallow.system.input_files import UTF_16, open_input

LONGEST = 4096
"""Bytes of a text that stays; protections and names are shorter."""
_READ_WHOLE = b'"hami.io/'
"""Keys whose texts are lists of devices: whole, or unknown."""
MOST_WHOLE = 64 << 20
"""Bytes of such texts over `LONGEST` in a dump; one of 16 devices has 1 KiB."""
MOST_BYTES = 4 << 30
"""Bytes of a dump: pods of 250 kB of annotations, 16,000 of them."""
MOST_OF_OBJECT, LEAST_OF_OBJECT = 16 << 10, 1 << 10
"""Bytes of the annotations of one object that stay: of keys that are read, then the shortest."""
MOST_OF_DUMP = 16 << 20
"""Bytes of the annotations of a dump from which on the lesser of these bounds holds."""
_BLOCK = 1 << 20
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:(")|\\?\Z)', re.DOTALL)
"""A text, or its beginning where the block ends inside it: what follows would be misread."""
_OPENING = re.compile(rb'"annotations"\s*+:\s*+\{')
_PAIRS = re.compile(rb'(?:[\s,:]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_PAIR = re.compile(
    rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*+:\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+")', re.DOTALL
)
_OPENING_BYTES = 64


def read_cut(path: Path) -> bytes:
    """Return a file's JSON; each text that is too long became its number of bytes.

    Raises:
        UsageError: the file cannot be read.
    """
    parts: list[bytes] = []
    rest, key, whole, noted = b"", b"", 0, 0
    with open_input(path, most=MOST_BYTES) as file:
        first = file.read(2)
        file.seek(0)
        if first in UTF_16:  # a file of PowerShell's `>`
            return file.read()
        block = b" "
        while block:
            block = file.read(max(_BLOCK, len(rest)))
            most = MOST_OF_OBJECT if noted < MOST_OF_DUMP else LEAST_OF_OBJECT
            text, tail, size = _prune_annotations(
                rest + block, _OPENING_BYTES if block else 0, most
            )
            noted += size
            begin = end = 0
            marks = text.replace(rb"\\", b"  ").replace(rb"\"", b"  ") if b"\\" in text else text
            texts = marks.split(b'"')
            if max(map(len, texts)) <= LONGEST - 2:
                # Of an odd number of quotation marks the last begins a text of the next block.
                end = marks.rfind(b'"') + len(texts) % 2 if len(texts) > 1 else 0
                parts.append(text[:end])
                rest = text[end:] + tail
                continue
            for match in _STRING.finditer(text):
                if not match[1]:
                    break
                start, end = match.span()
                if end - start > LONGEST:
                    whole += end - start if key.startswith(_READ_WHOLE) else 0
                    if not key.startswith(_READ_WHOLE) or whole > MOST_WHOLE:
                        parts += text[begin:start], _describe_size(match[0])
                        begin = end
                key = text[start : min(end, start + len(_READ_WHOLE))]
            parts.append(text[begin:end])
            rest = text[end:] + tail
            if len(rest) > MOST_WHOLE:
                raise UsageError(f"{path} is no JSON: {MOST_WHOLE >> 20} MiB without a text")
    return b"".join([*parts, rest])


def _describe_size(text: bytes) -> bytes:
    return f'"… ({len(text):,} bytes)"'.encode()


def _prune_annotations(block: bytes, least: int, most: int) -> tuple[bytes, bytes, int]:
    """Return a block with at most so many bytes of each object's annotations, its end, and theirs.

    The end, at least `least` bytes, may be the beginning of an object's annotations.
    """
    parts: list[bytes] = []
    begin, limit, size = 0, len(block) - least, 0
    for opening in _OPENING.finditer(block):
        start = opening.end()
        pairs = _PAIRS.match(block, start)
        end = pairs.end() if pairs else start
        if block[end : end + 1] in {b"", b'"'}:  # they go on in the next block
            limit = min(limit, opening.start())
            break
        if end - start > most:
            parts += block[begin:start], _prune(block[start:end], most)
            begin = end
        size += min(end - start, most)
    limit = max(begin, limit)
    return b"".join([*parts, block[begin:limit]]), block[limit:], size


@cache
def _list_prefixes() -> tuple[bytes, ...]:
    names = [row["prefix"] for row in parse_table("pod_annotations")]
    return tuple(f'"{name}'.encode() for name in (*names, *read_annotations(), *read_notes()))


def _prune(pairs: bytes, most: int) -> bytes:
    """Return the annotations that stay."""
    texts = [
        (key, text if len(text) <= LONGEST or key.startswith(_READ_WHOLE) else _describe_size(text))
        for key, text in _PAIR.findall(pairs)
    ]
    pairs_read, size = [], 0
    read = _list_prefixes()
    texts.sort(key=lambda pair: (not pair[0].startswith(read), len(pair[0]) + len(pair[1])))
    for key, text in texts:
        size += len(key) + len(text) if len(text) <= LONGEST else 0
        if size <= most:
            pairs_read.append(key + b":" + text)
    return b",".join(pairs_read)
