"""Queries of the application over the warehouse's views, one `.sql` file each."""

from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> str:
    """Return the text of `<name>.sql`."""
    return files("runtime.operations.queries").joinpath(f"{name}.sql").read_text(encoding="utf-8")
