"""Compose one query from named steps, one SELECT per file, each built on the steps before it."""

from collections.abc import Collection, Sequence
from functools import cache

from fallow.resources import read_text

ACTIVE_SAMPLE = "warehouse:signals/active_sample"
"""Step: device samples with their activity (0-1)."""
SERVING_LOAD = "warehouse:signals/serving_load"
"""Step: host samples with what model servers are asked for."""
NOTEBOOK_ACTIVITY = "warehouse:signals/notebook_activity"
"""Step: rows of notebook servers, and whether their activity is unknown."""
PAYING_TEAMS = ("inventory/value_eras", "inventory/paying_teams")
"""Steps: values of pods and devices over time; which team pays for each pod from when to when."""
VALUE_ERAS = "warehouse:inventory/value_eras"
"""Step: values of pods and devices over time."""
POD_OWNERS = "warehouse:inventory/pod_owners"
"""Step: pods under the owner that ledger, pages and advice show."""


@cache
def load_step(path: str, package: str = "warehouse") -> str:
    """Return the text of one step such as `ledger/spans`."""
    text = read_text(package, f"{path}.sql")
    return text.strip().removesuffix(";")


def compose_query(
    paths: Sequence[str], package: str = "warehouse", *, once: Collection[str] = ()
) -> str:
    """Return `WITH a AS (...), b AS (...) SELECT * FROM b` over the steps' files.

    A step's name is its file's name, and `package:path` is a file of another package; the last
    step's rows are the result, in their order. The query runs as one statement, so that every step
    sees one snapshot. A step named in `once` is computed once, even if several steps read it.
    """
    names, parts = [], []
    for path in paths:
        step_package, _, where = path.rpartition(":")
        name = where.rpartition("/")[2]
        names.append(name)
        materialized = "MATERIALIZED " if name in once else ""
        parts.append(f"{name} AS {materialized}(\n{load_step(where, step_package or package)}\n)")
    return f"WITH {', '.join(parts)}\nSELECT * FROM {names[-1]}"
