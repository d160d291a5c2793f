"""Let the fleet of a demo's home live on: its rows are stored, and the actor takes its turns.

    the home's cluster ─► turn ─► an hour of the fleet ─► turn ─► ... ─► ledger ─► the home

The service's turns are more frequent, and each costs seconds here. Nothing is approved by itself:
people do that between two runs, with the commands that they use at a real site.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from actions.journal.warehouse_copy import copy_journal
from actions.policy.matching import is_any_match
from actions.savings.storage import store_savings
from fallow import plugins
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.experiments.demo import QUIRKS
from runtime.experiments.demo_actions import ActingFleet
from runtime.experiments.demo_cluster import DemoCluster, restore_cluster
from runtime.experiments.demo_plants import add_disk_reads, hide_lost_gpu
from runtime.experiments.demo_process import load_demo_settings
from runtime.experiments.demo_rows import SAMPLE_EVERY_S
from runtime.experiments.simulation.enforcer import HOUR_S, IDLE
from runtime.operations.accounting import pipeline
from runtime.operations.acting import plans
from runtime.operations.acting.plan_rows import PlanWriter
from runtime.operations.analysis import analyzer_runs, findings
from runtime.operations.analysis.incidents import STALLED, store_incidents
from runtime.rendering.finding_tables import Progress
from simulator.exporters.quirks import Quirks
from simulator.kube.server import KubeServer
from simulator.models import Block
from simulator.restore import build_checkpoint
from warehouse.lake import Warehouse

if TYPE_CHECKING:
    from actions.loop.protocols import TurnReport
    from actions.policy.model import Policy

LONGEST = timedelta(days=1)
"""Longest time of one run: each hour costs some seconds."""


class DemoFleet(ActingFleet):
    """The fleet of a demo's home, and the actor with the home's policies."""

    def __init__(
        self,
        warehouse: Warehouse,
        cluster: DemoCluster,
        settings: Settings,
        policies: "Sequence[Policy]",
    ) -> None:
        super().__init__(
            warehouse,
            cluster.world,
            Quirks.of(QUIRKS, cluster.world.seed),
            settings,
            policies,
            sample_every_s=SAMPLE_EVERY_S,
            analyzers=list_acting_analyzers(policies),
            inventory=cluster.inventory,
        )
        self.policies = tuple(policies)
        self._server = cluster.server
        self._start_s = cluster.world.spec.start_s
        self.stored_s, self._unstored = cluster.since_s, [*cluster.unstored]
        self.scripts = cluster.scripts
        self.reports: list[TurnReport] = []

    def live(self, until_s: float, progress: Progress) -> None:
        """Take a turn at each hour before a time, and advance to that time."""
        since_s = self.world.now_s
        if self._unstored:
            self._store()
        while self.world.now_s < until_s:
            progress("letting the fleet live", (self.world.now_s - since_s) / (until_s - since_s))
            self._act()
            self._advance((self.world.now_s // HOUR_S + 1) * HOUR_S)

    def end(self) -> None:
        """Determine what became of the actions, and let the next actor begin at once."""
        self.actor.settle()
        self.actor.lease.give_up()
        shutil.rmtree(self.settings.home / "container")

    def _build_server(self) -> KubeServer:
        return self._server

    def _trust(self) -> None:
        """Trust nothing by oneself: the journal has the proofs."""

    def _act(self) -> None:
        self._fresh_s = -1.0
        self.reports.append(self.actor.turn(dry_run=False))
        self._store_findings()

    def _store_findings(self) -> None:
        """Store new cases beside those of the last analysis: a turn ends none of its findings."""
        sql = "SELECT id, analyzer, found_at FROM finding WHERE cluster = $cluster"
        stored = self.warehouse.query(sql, {"cluster": self.settings.cluster}).to_pylist()
        ids = {row["id"] for row in stored}
        facts = [f.finding for f in self.evidence.cases(self.now())]
        for analyzer in dict.fromkeys(finding.analyzer for finding in facts):
            new = [f for f in facts if f.analyzer == analyzer and f.id not in ids]
            times = [row["found_at"] for row in stored if row["analyzer"] == analyzer]
            found_at = max(times).replace(tzinfo=UTC) if times else self.now()
            self.warehouse.ingest([findings.build_rows(new, found_at=found_at)] if new else [])

    def _rows(self, block: Block, since_s: float, until_s: float) -> Iterator[Batch]:
        rows: Iterable[Batch] = super()._rows(block, since_s, until_s)
        yield from add_disk_reads(hide_lost_gpu(self.world, rows))


def continue_demo(settings: Settings, length: timedelta, progress: Progress) -> "list[TurnReport]":
    """Let the fleet of a demo's home live for whole hours, store its rows, and return the turns.

    The policies are those of the home that list namespaces: the others would only notify.

    Raises: as `restore_cluster`; as `plans.load_policies`.
    """
    settings = load_demo_settings(settings.home)
    policies = [p for p in plans.load_policies(settings) if p.allow.namespaces]
    progress("restoring the cluster", 0.0)
    with restore_cluster(settings.home) as cluster:
        world = cluster.world

        def now() -> datetime:
            return datetime.fromtimestamp(world.now_s, UTC)

        until_s, since_s = world.now_s + length.total_seconds(), cluster.since_s
        with Warehouse.open(settings, write=True, clock=now) as warehouse:
            with DemoFleet(warehouse, cluster, settings, policies) as fleet:
                fleet.live(until_s, progress)
                progress("writing the ledger", 0.8)
                first = datetime.fromtimestamp(since_s // HOUR_S * HOUR_S, UTC)
                hours = Window(first, now())
                pipeline.account(warehouse, hours)
                stalled = analyzer_runs.load_analyzers(settings, [STALLED])[STALLED]
                store_incidents(warehouse, hours, [*stalled.find(warehouse, hours)], now())
                progress("measuring actions", 0.9)
                fleet.end()
                watched = settings.actions.watch
                store_savings(warehouse, fleet.record, settings.cluster, watched, now())
                copy_journal(fleet.record.journal, warehouse, settings.cluster)
                _write_plan(warehouse, fleet)
            cluster.log.append(build_checkpoint(world))
        return fleet.reports


def list_acting_analyzers(policies: "Sequence[Policy]") -> tuple[str, ...]:
    """Return the analyzers on whose findings a policy may act; each costs seconds in every turn."""
    acting = [p.match.analyzer or ("*",) for p in policies]
    wanted = [n for n in plugins.find_installed("analyzers") for m in acting if is_any_match(m, n)]
    return tuple(dict.fromkeys([*IDLE, *wanted]))


def _write_plan(warehouse: Warehouse, fleet: DemoFleet) -> None:
    """Store the last turn's plan, for the pages."""
    last = next((r for r in reversed(fleet.reports) if r.plan is not None), None)
    if last is not None and last.plan is not None:
        writer = PlanWriter(warehouse, fleet.settings)
        writer.write(last.plan, fleet.evidence.cases(last.at), fleet.policies, last.at)
