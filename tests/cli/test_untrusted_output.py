"""Texts of others on stdout, on stderr and in the log: no control of a terminal, no markup."""

import csv
import io
import json
import logging
import sys
from pathlib import Path

import pytest

from fallow.texts import escape_markdown
from runtime.cli import logs
from tests.cli.conftest import Fallow

ODD = {
    27: "\\u001b", 8: "\\b", 13: "\\r", 7: "\\u0007", 127: "\\u007f", 155: "\\u009b",
    8206: "\\u200e", 8238: "\\u202e", 8297: "\\u2069", 8232: "\\u2028", 917569: "\\udb40\\udc41",
}  # fmt: skip
"""Code points that a terminal or a reader would act upon, and how they are spelled out."""


@pytest.mark.parametrize("output", ["table", "csv", "md", "json"])
def test_no_row_controls_a_terminal(fallow: Fallow, demo_home: Path, output: str) -> None:
    sql = " || ".join(f"'{n}:' || chr({n})" for n in ODD)
    ran = fallow("warehouse", "query", f"SELECT {sql} AS t", "--home", demo_home, "-o", output)
    assert ran.code == 0, ran.err
    assert all(c.isprintable() or c == "\n" for c in ran.out), ascii(ran.out)
    whole = "".join(f"{n}:{chr(n)}" for n in ODD)
    if output == "json":
        assert json.loads(ran.out)["rows"] == [{"t": whole}], "JSON is exact"
    if output == "csv":
        (row,) = csv.DictReader(io.StringIO(ran.out))
        assert row["t"] == "".join(f"{n}:{text}" for n, text in ODD.items())


@pytest.mark.parametrize(
    ("sql", "cell"),
    [
        ("'<img src=x onerror=y>'", "\\<img src=x onerror=y\\>"),
        ("'[a](http://evil.example)'", "\\[a\\](http:\u2060//evil.example)"),
        ("'https://evil.example'", "https:\u2060//evil.example"),
        ("'WWW.evil.example'", "WWW\u2060.evil.example"),
        ("'me@evil.example'", "me@\u2060evil.example"),
        ("'&lt;b&gt; *b* _i_ ~s~ `c` a|b $x$'",
         "\\&lt;b\\&gt; \\*b\\* \\_i\\_ \\~s\\~ \\`c\\` a\\|b \\$x\\$"),
        ("'a\\|b'", "a\\\\\\|b"),
        ("'one\n\n# two'", "one  \\# two"),
    ],
)  # fmt: skip
def test_a_cell_of_markdown_is_only_text(
    fallow: Fallow, demo_home: Path, sql: str, cell: str
) -> None:
    ran = fallow("warehouse", "query", f"SELECT {sql} AS t", "--home", demo_home, "-o", "md")
    assert ran.out == f"| t |\n|---|\n| {cell} |\n"


@pytest.mark.parametrize(
    ("sql", "cell"),
    [
        ("'=1+1'", "'=1+1"),
        ("'@SUM(A1)'", "'@SUM(A1)"),
        ("'-1'", "'-1"),
        ("-1", "-1"),
        ("CAST(-1.50 AS DECIMAL(9,2))", "-1.50"),
        ("-1e-9", "-1e-09"),
    ],
)
def test_a_cell_of_csv_is_no_formula_and_numbers_stay(
    fallow: Fallow, demo_home: Path, sql: str, cell: str
) -> None:
    ran = fallow("warehouse", "query", f"SELECT {sql} AS t", "--home", demo_home, "-o", "csv")
    assert ran.out == f"t\n{cell}\n"


def test_an_explanation_in_markdown_is_code(fallow: Fallow, demo_home: Path) -> None:
    found = fallow("analyze", "idle", "--home", demo_home, "-o", "json")
    finding = json.loads(found.out)["findings"][0]["id"]
    ran = fallow("explain", finding, "--home", demo_home, "-o", "md")
    assert ran.code == 0, ran.err
    assert all(line.startswith("    ") for line in ran.out.splitlines() if line)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [_Terminal(), io.StringIO()], ids=["terminal", "pipe"])
def test_no_event_of_the_log_controls_a_terminal(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    handler = logs._Lazy()
    odd = "".join(map(chr, ODD))
    for exc_info in (None, (ValueError, ValueError(odd), None)):
        record = logging.LogRecord("fallow", logging.ERROR, "", 0, f"pod {odd}", None, exc_info)
        record.pod = odd
        handler.emit(record)
    said = stream.getvalue()
    assert said.count("\\u202e") >= 3
    left = {c for c in said if not c.isprintable() and c != "\n"}
    assert left <= ({"\x1b"} if stream.isatty() else set()), "colours are Fallow's own"
    assert "\x1b[2J" not in said
    assert odd[:2] not in said


def test_a_text_of_markdown_is_as_it_was_without_its_signs() -> None:
    assert escape_markdown("team-a/web.v2 (3 of 4): ok") == "team-a/web.v2 (3 of 4): ok"
