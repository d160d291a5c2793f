"""Assign jobs to processes: `fallow up --role` splits the service over machines.

One process does everything over an embedded warehouse. With a PostgreSQL catalog each role may run
on its own machine. Actors use a Lease, so that one of them acts however many run.
"""

from collections.abc import Callable, Collection
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple


class ServiceRole(StrEnum):
    """What a process of the service does."""

    collector = "collector"
    """inventory, telemetry, rollups, ledger, audits, tiers: all that keeps the warehouse"""
    analyzer = "analyzer"
    """findings and what acting saved; the reports that are due"""
    actor = "actor"
    """policies, the journal, what people approve, keep, snooze and undo"""
    dashboard = "dashboard"
    """the pages"""
    all = "all"
    """everything in one process"""


PARTS = frozenset(ServiceRole) - {ServiceRole.all}
WRITERS = PARTS - {ServiceRole.dashboard}
"""Roles that write to the warehouse."""


class Lane(StrEnum):
    """Which threads run a job."""

    write = "write"
    """the one thread that writes to the warehouse: it runs one job after the other"""
    source = "source"
    """threads that wait for sources; the rows go to the writing thread"""
    act = "act"
    """one thread that acts: it waits for sources too, and its rows go to the writing thread"""
    report = "report"
    """one thread that only reads the warehouse"""


class ServiceJob(NamedTuple):
    """A job on a schedule, its interval, and the role that runs it."""

    name: str
    every: timedelta
    run: Callable[[], object]
    role: ServiceRole
    lane: Lane = Lane.write


def expand_roles(roles: Collection[ServiceRole]) -> frozenset[ServiceRole]:
    """Return the roles of a process; none named, or `all`, is every role."""
    return frozenset(roles) if roles and ServiceRole.all not in roles else PARTS
