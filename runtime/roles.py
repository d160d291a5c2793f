"""Who does which job: `fallow up --role` splits the service over machines.

One process does everything over an embedded warehouse. With a PostgreSQL catalog each role may run
on a machine of its own; actors keep a Lease, so that one of them acts however many run.
"""

from collections.abc import Callable, Collection
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple


class Role(StrEnum):
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


PARTS = frozenset(Role) - {Role.all}
WRITERS = PARTS - {Role.dashboard}
"""Roles that write to the warehouse."""


class Job(NamedTuple):
    """What runs on a schedule, how often, and in which role's process."""

    name: str
    every: timedelta
    run: Callable[[], object]
    role: Role
    apart: bool = False
    """It only reads the warehouse, so it has a thread of its own and holds nobody up."""


def parts(roles: Collection[Role]) -> frozenset[Role]:
    """Return the roles that a process has; none named, or `all`, is every one."""
    return frozenset(roles) if roles and Role.all not in roles else PARTS
