"""Limits of stalled jobs: rows of `limits.csv`, and of the one table of what a spin is."""

from collections.abc import Mapping
from functools import cache

from analyzers import limits
from warehouse.signals import SPIN


@cache
def read_limits() -> Mapping[str, float]:
    """Return every limit by its name: `limits.csv`, and `warehouse/signals/spin.csv`."""
    return {**SPIN, **limits.read_limits("stalled")}
