"""Tables and texts that lie beside the code, read in one way."""

import csv
from importlib.resources import files


def read_text(package: str, name: str) -> str:
    """Return the text of a file of a package, such as ("fallow", "xids.csv")."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def read_table(package: str, name: str) -> list[dict[str, str]]:
    """Return the rows of a package's CSV file in their order, by the names of its header."""
    return list(csv.DictReader(read_text(package, name).splitlines()))
