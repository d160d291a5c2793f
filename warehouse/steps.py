"""Compose one query from named steps, one SELECT per file, in the order they build on another."""

from collections.abc import Collection, Sequence
from functools import cache
from importlib.resources import files

POD_OWNERS = "warehouse:inventory/pod_owners"
"""Step: pods under the owner that the ledger, pages and advice name."""


@cache
def load_step(path: str, package: str = "warehouse") -> str:
    """Return the text of one step such as `ledger/spans`."""
    text = files(package).joinpath(f"{path}.sql").read_text(encoding="utf-8")
    return text.strip().removesuffix(";")


def compose_query(
    paths: Sequence[str], package: str = "warehouse", *, once: Collection[str] = ()
) -> str:
    """Return `WITH a AS (...), b AS (...) SELECT * FROM b` over the steps' files.

    A step's name is its file's name, and `package:path` is one of another package; the last
    step's rows are the answer, in their order. The query runs as one statement, so that every step
    sees one snapshot. Steps of the names `once` are worked out once, however many read them.
    """
    names, parts = [], []
    for path in paths:
        whose, _, where = path.rpartition(":")
        name = where.rpartition("/")[2]
        names.append(name)
        held = "MATERIALIZED " if name in once else ""
        parts.append(f"{name} AS {held}(\n{load_step(where, whose or package)}\n)")
    return f"WITH {', '.join(parts)}\nSELECT * FROM {names[-1]}"
