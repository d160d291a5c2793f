"""The roof's own questions to the warehouse's views, one `.sql` file each."""

from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> str:
    """Return the text of `<name>.sql`."""
    return files("runtime.queries").joinpath(f"{name}.sql").read_text(encoding="utf-8")
