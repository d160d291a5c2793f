"""What no honest source writes: texts, numbers, times, sizes and shapes, for every field."""

from typing import Any

DEEP = "\x01DEEP"
"""Written as lists in lists, 2,000 deep."""
RAW = "\x01RAW"
"""What follows is written without quotes: JSON that no Python value has."""

TEXTS: tuple[Any, ...] = (
    "", " ", "x", "\0", "a\0b", "\x1b[2J", "\x7f", "\x85", "\u202e", "\u2028", "\ufeff", "\ud800", "a\nb",  # noqa: E501
    "a\r\nb", "a\tb", '"', "\\", "'; DROP TABLE pod; --", "=1+1", "<script>", "%00", "\\u0000",
    "{{x}}", "a/b", "../../x", "NULL", "None", "\u0663", "\u00b2", "\U0001f4a9",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 5, 1.5, 2**31, 2**63, 10**30, "-1", "9E", "8Ei", "1e308", "1e999", "0x10", "1_000", "NaN",  # noqa: E501
    "Infinity", "-Infinity", "9" * 5000, "1e-400", f"{RAW}1e308", f"{RAW}1e999", f"{RAW}NaN",
    f"{RAW}-Infinity", f"{RAW}{'9' * 5000}",
)  # fmt: skip
TIMES: tuple[Any, ...] = (
    "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "2098-01-01T00:00:00Z",  # noqa: E501
    "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z", "2026-11-20T08:00:00", "2026-11-20", "25:00",  # noqa: E501
    "99999-01-01T00:00:00Z",
)  # fmt: skip
SIZES: tuple[Any, ...] = (
    "x" * 254,
    "x" * 5000,
    "x" * 300_000,
    ["x"] * 1000,
    {f"k{n}": "v" for n in range(1000)},
)
SHAPES: tuple[Any, ...] = (
    None, True, [], [5], ["x"], {}, {"x": 5}, {"x": {"x": []}}, {"": ""}, [[]], [None], DEEP,
    {"a\0b": "c"}, {"x": "\0"}, ["a\0b"],
)  # fmt: skip
VALUES = (*TEXTS, *NUMBERS, *TIMES, *SIZES, *SHAPES)
