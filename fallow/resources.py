"""Tables and texts that lie beside the code, read in one way."""

import csv
from functools import cache
from importlib.resources import files
from typing import TypeVar

import msgspec

Record = TypeVar("Record")


def read_text(package: str, name: str) -> str:
    """Return the text of a file of a package, such as ("fallow", "xids.csv")."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def read_table(package: str, name: str) -> list[dict[str, str]]:
    """Return the rows of a package's CSV file in their order, by the names of its header."""
    return list(csv.DictReader(read_text(package, name).splitlines()))


@cache
def read_groups(package: str, name: str, record: type[Record]) -> dict[str, tuple[Record, ...]]:
    """Return the rows of a package's CSV file as records in their order, by its column `table`."""
    groups: dict[str, list[Record]] = {}
    for row in read_table(package, name):
        groups.setdefault(row["table"], []).append(msgspec.convert(row, record, strict=False))
    return {table: tuple(records) for table, records in groups.items()}
