"""Read this folder's tables (`*.csv`)."""

from fallow.resources import read_table


def parse_table(name: str) -> list[dict[str, str]]:
    """Return the rows of one table in the order of the file."""
    return read_table("collectors.kube", f"{name}.csv")
