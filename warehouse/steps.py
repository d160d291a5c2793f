"""Compose one query from named steps, one SELECT per file, in the order they build on another."""

from collections.abc import Collection, Sequence
from functools import cache
from importlib.resources import files


@cache
def step(path: str, package: str = "warehouse") -> str:
    """Return the text of one step such as `ledger/spans`."""
    text = files(package).joinpath(f"{path}.sql").read_text(encoding="utf-8")
    return text.strip().removesuffix(";")


def compose(paths: Sequence[str], package: str = "warehouse", *, once: Collection[str] = ()) -> str:
    """Return `WITH a AS (...), b AS (...) SELECT * FROM b` over the steps' files.

    A step's name is its file's name; the last step's rows are the answer, in their order. The query
    runs as one statement, so that every step sees one snapshot. Steps of the names `once` are
    worked out once, however many read them.
    """
    names = [path.rpartition("/")[2] for path in paths]
    parts = [
        f"{name} AS {'MATERIALIZED ' if name in once else ''}(\n{step(path, package)}\n)"
        for name, path in zip(names, paths, strict=True)
    ]
    return f"WITH {', '.join(parts)}\nSELECT * FROM {names[-1]}"
