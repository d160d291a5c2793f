"""Read this folder's tables (`*.csv`)."""

import csv
from importlib.resources import files


def table(name: str) -> list[dict[str, str]]:
    """Return the rows of one table in the order of the file."""
    text = files("collectors.kube").joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
