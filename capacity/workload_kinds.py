"""Classify kinds of workloads: ranks of one job, sessions of people, services."""

from collections.abc import Mapping
from functools import cache

from fallow.resources import read_table


def is_gang(workload_kind: str) -> bool:
    """Return whether a kind's pods are ranks of one job: replicas of a service do not wait."""
    return read_idle_kinds().get(workload_kind) == "idle_job"


def is_interactive(workload_kind: str) -> bool:
    """Return whether a person works with it, who reads and types between two kernels."""
    return read_idle_kinds().get(workload_kind) == "idle_notebook"


def list_gang_kinds() -> tuple[str, ...]:
    """Return the kinds whose pods are ranks of one job."""
    return tuple(name for name in read_idle_kinds() if is_gang(name))


@cache
def read_idle_kinds() -> Mapping[str, str]:
    """Return the kind of an idle finding (`idle_job`) by the kind of its workload."""
    rows = read_table("capacity", "workload_kinds.csv")
    return {row["workload_kind"]: row["kind"] for row in rows}
