"""Count the actions of other clusters: a budget of the whole fleet is spent by several actors.

    claim the lease `fleet-budget` ─► say that this cluster acts ─► read the others' actions ─► act
    ─► copy the journal ─► say that it is copied ─► release

Each actor has its own journal; all of them are copied to the catalog that the clusters share. An
actor says in the catalog when it last copied (`actor/<cluster>`). Actions of a cluster are unknown,
and nothing fits, while its actor acts, has not copied for long, or ended in the middle of an act.
"""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from actions.journal import event_types
from actions.journal.action_state import CANARY
from actions.policy.budgets import BudgetUsage, CountedAction, count_action
from fallow.action_models import Action
from fallow.errors import FallowError, TemporaryError
from fallow.resources import read_text
from fallow.settings import Settings
from fallow.window import format_duration
from warehouse.leases import CatalogLease, claim_lease, read_leases, release_lease

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.acting")

PREFIX = "actor/"
FLEET_BUDGET = "fleet-budget"
LEASE_S = 60.0
"""How long one actor may spend from a budget of the whole fleet before another one may."""
COPY_AGE = timedelta(minutes=10)
"""A journal that was not copied for longer is unknown: ten turns at the default of one a minute."""
TURNS = 3
"""The same for an actor with longer turns, in turns."""


class ActorFacts(msgspec.Struct, frozen=True):
    """What an actor says about itself in the catalog."""

    cluster: str
    every_s: float
    """Time between two of its turns."""
    acting: bool = False
    """It may have acted since its journal was last copied."""
    ended: bool = False
    """It ended after its journal was copied, and acts no more."""


class OtherActions(msgspec.Struct, frozen=True):
    """The actions in other clusters; None = unknown, and why."""

    uses: tuple[CountedAction, ...] | None
    unknown: str = ""


class CatalogActors:
    """The actors that share a catalog, as one of them sees them.

    `copy` copies this actor's journal to the catalog. An embedded catalog has one actor: another
    cluster's actions in it are unknown.
    """

    def __init__(
        self, warehouse: "Warehouse", settings: Settings, copy: Callable[[], object]
    ) -> None:
        self._warehouse, self._settings, self._copy = warehouse, settings, copy
        where = f"{socket.gethostname()} process {os.getpid()}"
        self._holder = f"the actor of {settings.cluster} ({where})"
        self._has_reported = False

    def add_usage(self, usage: BudgetUsage, since: datetime) -> BudgetUsage:
        """Return the usage with the actions in other clusters since then, or why they are unknown.

        Raises:
            TemporaryError: the catalog is not reachable.
        """
        return add_other_actions(usage, self._warehouse, self._settings, since)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other cluster spend from a budget of the whole fleet meanwhile.

        Raises:
            TemporaryError: another cluster's actor does so now, or the catalog is not reachable.
        """
        if self._warehouse.place.embedded:
            yield
            return
        lease = claim_lease(self._warehouse, FLEET_BUDGET, self._holder, "{}", seconds=LEASE_S)
        if lease.holder != self._holder:
            raise TemporaryError(
                f"{lease.holder} spends from a budget of the whole fleet now",
                hint="the next turn tries again",
            )
        self._report(acting=True)
        try:
            yield
        finally:
            # The act is done. Where it cannot be said, the others wait for the next copy.
            try:
                self.copied()
            except FallowError as error:
                log.warning("other clusters wait for the journal", extra={"why": error.message})
            with suppress(FallowError):  # it expires in any case
                release_lease(self._warehouse, FLEET_BUDGET, self._holder)

    def copied(self, *, ended: bool = False) -> None:
        """Copy the journal, and say so in the catalog; `ended`: this actor acts no more.

        Raises: as `add_usage`.
        """
        self._copy()
        if not self._warehouse.place.embedded:
            self._report(ended=ended)

    def end(self) -> None:
        """Copy the journal for the last time, if this process is the one that acted."""
        if self._has_reported:
            self.copied(ended=True)

    def _report(self, *, acting: bool = False, ended: bool = False) -> None:
        acts = self._settings.actions
        facts = ActorFacts(self._settings.cluster, acts.every.total_seconds(), acting, ended)
        name = f"{PREFIX}{facts.cluster}"
        document = msgspec.json.encode(facts).decode()
        # Only the actor of a cluster writes its row: its lease in the cluster sees to that.
        claim_lease(self._warehouse, name, name, document, seconds=LEASE_S)
        self._has_reported = True


def add_other_actions(
    usage: BudgetUsage, warehouse: "Warehouse", settings: Settings, since: datetime
) -> BudgetUsage:
    """Return the usage with the actions in other clusters since then, or why they are unknown.

    Raises:
        TemporaryError: the catalog is not reachable.
    """
    others = read_other_actions(warehouse, settings, since)
    return msgspec.structs.replace(usage, elsewhere=others.uses, elsewhere_unknown=others.unknown)


def read_other_actions(warehouse: "Warehouse", settings: Settings, since: datetime) -> OtherActions:
    """Return what other clusters' actors did since then, from the copies of their journals.

    Raises:
        TemporaryError: the catalog is not reachable.
    """
    # The actors before the rows: what one of them copies meanwhile is then in the rows.
    actors = {lease.name: lease for lease in read_leases(warehouse, PREFIX)}
    rows = warehouse.query(
        read_text("actions.loop", "other_clusters.sql"),
        {"cluster": settings.cluster, "since": since, "kind": event_types.INTENT},
    ).to_pylist()
    clusters = {row["cluster"] for row in rows}
    clusters |= {name.removeprefix(PREFIX) for name in actors}
    retired = {settings.cluster, *settings.actions.retired_clusters}
    problems = [
        f"{cluster} {problem}"
        for cluster in sorted(clusters - retired)
        if (problem := explain_unknown(actors.get(f"{PREFIX}{cluster}")))
    ]
    if problems:
        return OtherActions(None, "; ".join(problems))
    actions = [_read_action(row["document"]) for row in rows if row["document"] is not None]
    # Whether an action wrote anything may be copied later than its intent: each of them counts.
    return OtherActions(
        tuple(
            count_action(action.decision, action.at)
            for action in actions
            if action.decision.finding != CANARY and action.at >= since
        )
    )


def explain_unknown(lease: CatalogLease | None) -> str:
    """Return why the actions of a cluster's actor are unknown; empty = its copy has them all."""
    if lease is None:
        return "has a journal, and no actor that says when it was copied"
    facts = msgspec.json.decode(lease.facts, type=ActorFacts)
    age = format_duration(max(lease.age_s, 0.0))
    if facts.acting:
        return f"began to act {age} ago, and its journal is not copied yet"
    longest_s = max(COPY_AGE.total_seconds(), TURNS * facts.every_s)
    if not facts.ended and lease.age_s > longest_s:
        return f"copied its journal {age} ago"
    return ""


def _read_action(document: str) -> Action:
    return msgspec.convert(msgspec.json.decode(document)["action"], Action, strict=False)
