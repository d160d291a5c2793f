"""Limits of stalled jobs: rows of `limits.csv`, and of the one table of what a spin is."""

from functools import cache

from analyzers.queries import load_rows
from warehouse.signals import SPIN


@cache
def read_limits() -> dict[str, float]:
    """Return every limit by its name: `limits.csv`, and `warehouse/signals/spin.csv`."""
    return {**SPIN, **{row["name"]: float(row["value"]) for row in load_rows("stalled/limits")}}
