"""Queries of the application over the warehouse's views, one `.sql` file each."""

from functools import cache

from fallow.resources import read_text


@cache
def load_sql(name: str) -> str:
    """Return the text of `<name>.sql`."""
    return read_text("runtime.operations.queries", f"{name}.sql")
