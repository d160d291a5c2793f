"""Compose one query from named steps, one SELECT per file, in the order they build on another."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files


@cache
def step(path: str) -> str:
    """Return the text of one step such as `ledger/spans`."""
    text = files("warehouse").joinpath(f"{path}.sql").read_text(encoding="utf-8")
    return text.strip().removesuffix(";")


def compose(paths: Sequence[str]) -> str:
    """Return `WITH a AS (...), b AS (...) SELECT * FROM b` over the steps' files.

    A step's name is its file's name; the last step's rows are the answer. The query runs as one
    statement, so that every step sees one snapshot.
    """
    parts = [f"{path.rpartition('/')[2]} AS (\n{step(path)}\n)" for path in paths]
    return f"WITH {', '.join(parts)}\nSELECT * FROM {paths[-1].rpartition('/')[2]}"
