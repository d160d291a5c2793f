"""The analyzers' SQL: one statement per file, beside the module that uses it."""

from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> str:
    """Return the text of `<name>.sql`."""
    return files("analyzers").joinpath(f"{name}.sql").read_text(encoding="utf-8").strip()
