"""The analyzers' SQL and facts: one statement or table per file, beside the module that uses it."""

import csv
from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> str:
    """Return the text of `<name>.sql`."""
    return files("analyzers").joinpath(f"{name}.sql").read_text(encoding="utf-8").strip()


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of `<name>.csv`."""
    text = files("analyzers").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
