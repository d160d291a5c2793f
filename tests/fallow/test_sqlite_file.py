"""Copies of several SQLite files are of one moment, beside the processes that write them."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from fallow.system.sqlite_file import SqliteFile, copy_together

_WRITER = """
import sqlite3, sys
files = [sqlite3.connect(p, isolation_level=None, timeout=60) for p in sys.argv[1:]]
number = 0
while True:
    number += 1
    for file in files:
        file.execute("INSERT INTO row VALUES (?)", (number,))
    if number == 20:
        print("writing", flush=True)
"""


def test_a_copy_of_two_files_is_of_one_moment_beside_a_writer(tmp_path: Path) -> None:
    sources = [tmp_path / "first", tmp_path / "second"]
    for source in sources:
        with SqliteFile(source, "file", write=True) as file:
            file.execute("CREATE TABLE row (number INTEGER)")
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, *map(str, sources)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        for copy in range(10):
            targets = [tmp_path / f"{source.name}.{copy}" for source in sources]
            copy_together(dict(zip(sources, targets, strict=True)))
            first, second = map(_last, targets)
            # The writer writes the first file first, so the second may lack one row, never more.
            assert first - second in (0, 1)
            assert first >= 20
    finally:
        writer.kill()
        writer.communicate()


def _last(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        [(last, rows)] = file.execute("SELECT max(number), count(*) FROM row").fetchall()
        assert last == rows
        return int(last)
