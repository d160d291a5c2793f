"""Close the loop: policies act on the findings of a world through the world's own API.

    world ─► rows, with quirks ─► warehouse ─► findings ─► policies ─► the actor's loop
      ▲                                                                      │
      └── controllers ◄── Kubernetes API over HTTP ◄── writes, as anywhere ──┘

The rows are read without HTTP; no truth enters the warehouse. The people of a site are simulated:
every notice is delivered; the admin lists every namespace, approves pending actions, and ends a
freeze when its cause is over; owners start their workloads again when they need them.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from actions.cluster.client import KubeClient
from actions.journal import Journal, JournalState, event_types
from actions.journal.trust import trust_by_hand
from actions.loop.actor import approve
from actions.loop.other_clusters import CatalogActors
from actions.loop.protocols import NoticeProof
from fallow.action_models import Facts
from fallow.kube.api import connect_without_credentials
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.experiments.simulation.turns import ActorTurn, read_turn
from runtime.experiments.world_inventory import Inventory
from runtime.operations.accounting import pipeline
from runtime.operations.acting.live_actor import build_actor
from runtime.operations.acting.live_evidence import LiveEvidence
from runtime.operations.analysis import findings
from simulator.blocks import join_blocks, thin_block
from simulator.exporters.device_rows import build_rows
from simulator.exporters.host_spans import build_host_spans
from simulator.exporters.quirks import Quirks
from simulator.kube.exec import Machine
from simulator.kube.paths import parse_path
from simulator.kube.request import ApiRequest
from simulator.kube.server import KubeServer
from simulator.models import TICK_S, Block
from simulator.restore import record_requests
from simulator.work.behaviours import Script
from simulator.world import World
from warehouse import signals
from warehouse.allocation import write_allocations
from warehouse.maintenance import compact_warehouse
from warehouse.rollup import roll_up

if TYPE_CHECKING:
    from actions.loop.actor import Actor
    from actions.policy.model import Policy
    from warehouse.lake import Warehouse

HOUR_S = 3600.0
OVERLAP_S = HOUR_S
"""Allocations are written again for this much time before the last turn, as in the service."""
ACCOUNTED_S = 2 * HOUR_S
"""Each pass accounts for this much time before now, as in the service: later rows change it."""
IDLE = ("idle",)
TURNS_PER_COMPACTION = 8
"""Turns between compactions: every turn writes a file per table, and every query opens them all."""
ADMIN, SIMULATE, INSTALLER = "admin", "simulate", "helm"
NAMESPACES = "/api/v1/namespaces"
OWN_POLICIES = Path(__file__).parent / "policies"


class SimulatedAdmin(msgspec.Struct):
    """The actions of the simulated admin."""

    namespaces: int = 0
    """Policies in which the admin listed every namespace."""
    trusted: list[str] = []
    """Policies that the admin trusts by hand."""
    approved: int = 0
    """Actions that the admin approved, each at the turn after its request."""
    thawed: int = 0
    """Freezes that the admin ended when their cause was over."""


class SimulatedChannels:
    """A simulated channel that always delivers."""

    def tell(self, notices: Sequence[Any], now: datetime) -> list[Any]:
        """Return that each notice was delivered."""
        del now
        return [NoticeProof(notice, delivered=("simulated",)) for notice in notices]


class WorldEvidence(LiveEvidence):
    """Idle work of one world; a fresh evaluation advances the world to its next scrape."""

    def __init__(self, enforcer: "Enforcer") -> None:
        super().__init__(enforcer.warehouse, enforcer.settings, lambda _now: None, enforcer.now)
        self._enforcer = enforcer
        self._cached: tuple[datetime, list[Facts]] | None = None

    def cases(self, now: datetime) -> Sequence[Facts]:
        """Return the facts of the workloads that are idle by the rows that are stored."""
        now = min(now, datetime.fromtimestamp(self._enforcer.stored_s, UTC))
        if self._cached is None or self._cached[0] != now:
            self._forget()
            self._cached = now, self._facts(now, self._enforcer.analyzers)
        return self._cached[1]

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        """Advance the world by one scrape, once per turn for all actions, and judge again."""
        now = self._sampled_at = self._enforcer.refresh(now)
        key = _build_key(facts)
        same = (f for f in self.cases(now) if f.finding.kind == facts.finding.kind)
        cases = [f for f in same if _build_key(f) == key]
        mine = facts.finding.id
        return max(cases, key=lambda f: (f.finding.id == mine, f.finding.window.end), default=None)


class Enforcer:
    """Collects one world and lets policies act in it. Starts its API server; close it after use."""

    identity = SIMULATE
    """Who acts, for the journal."""

    def __init__(
        self,
        warehouse: "Warehouse",
        world: World,
        quirks: Quirks,
        settings: Settings,
        policies: "Sequence[Policy]",
        *,
        sample_every_s: float,
        warm_up_s: float = 0.0,
        analyzers: Sequence[str] = IDLE,
        inventory: Inventory | None = None,
    ) -> None:
        self.warehouse, self.world, self.quirks = warehouse, world, quirks
        self.settings, self.sample_every_s = settings, sample_every_s
        self.analyzers = tuple(analyzers)
        self.policies = tuple(_add_namespaces(policy) for policy in policies)
        self.blocks: list[Block] = []
        self.turns: list[ActorTurn] = []
        """The decisions about every case, turn by turn."""
        self.admin = SimulatedAdmin(namespaces=sum(not p.allow.namespaces for p in policies))
        self._number = 0
        self._inventory = inventory or Inventory(world, settings.cluster)
        self._start_s = world.now_s
        self._acts_s = world.now_s + warm_up_s
        self._fresh_s = world.now_s
        self.stored_s = world.now_s
        """The rows until this time are stored."""
        self._unstored: list[Block] = []
        self.scripts: dict[str, Script] = {}
        """The scripts of all pods so far."""
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        server = self._stack.enter_context(self._build_server())
        record_requests(self.world, server)
        self._create_namespace(server)
        home = self.settings.home / "container"
        (home / "home" / "jovyan").mkdir(parents=True, exist_ok=True)
        server.containers.default = Machine(home)
        path = self.settings.home / "journal.sqlite"
        journal = self._stack.enter_context(Journal.open(path, self.now, actor=self.identity))
        self.record: JournalState = JournalState(journal).catch_up()
        self._trust()
        evidence = WorldEvidence(self)
        self.actor: Actor = build_actor(
            self.settings,
            self.record,
            evidence,
            cluster=KubeClient(connect_without_credentials(server.url), self.settings.cluster),
            policies=self.policies,
            clock=self.now,
            identity=self.identity,
            notifier=SimulatedChannels(),
            others=CatalogActors(self.warehouse, self.settings, lambda: None),
        )
        self.evidence = evidence
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _build_server(self) -> KubeServer:
        return KubeServer(self.world.store)

    def _create_namespace(self, server: KubeServer) -> None:
        """Create the namespace of the lease, as the installation of a site does."""
        name = self.settings.actions.lease.namespace
        if self.world.store.get("Namespace", name) is None:
            body = msgspec.json.encode({"metadata": {"name": name}})
            request = ApiRequest("POST", NAMESPACES, {}, {"user-agent": INSTALLER}, body)
            server.handle(request, parse_path(self.world.store.catalog, NAMESPACES))

    def now(self) -> datetime:
        """Return the world's time."""
        return datetime.fromtimestamp(self.world.now_s, UTC)

    def turn(self, until_s: float, end_s: float) -> list[Block]:
        """Advance the world, store its rows, and run the actor once before the end."""
        self.blocks = []
        self._advance(until_s)
        least = self.settings.idle.min_duration.total_seconds()
        if self.world.now_s - self._start_s > least and until_s < end_s:
            if self.world.now_s >= self._acts_s:
                self._act()
            self._store_findings()
        self._number += 1
        if self._number % TURNS_PER_COMPACTION == 0:
            compact_warehouse(self.warehouse, is_shared=False)
        return self.blocks

    def refresh(self, now: datetime) -> datetime:
        """Advance the world to its next scrape, once per turn; return the time reached."""
        if self._fresh_s < 0 or now.timestamp() - self._fresh_s > self.sample_every_s:
            self._advance((now.timestamp() // self.sample_every_s + 1) * self.sample_every_s)
            self._fresh_s = self.world.now_s
            pipeline.ingest(self.warehouse, self._latest())
        return self.now()

    def _act(self) -> None:
        self._fresh_s = -1.0
        self._play_admin()
        self.turns.append(read_turn(self.actor.turn(dry_run=False)))

    def _trust(self) -> None:
        """Act as the admin: trust every acting policy by hand, as `fallow policy trust` does."""
        for policy in self.policies:
            if policy.mode == "enforce":
                trust_by_hand(self.record, policy, ADMIN, "simulated")
                self.admin.trusted.append(policy.name)

    def _play_admin(self) -> None:
        """Act as the admin: approve pending actions, and end freezes whose cause is over."""
        self.record.catch_up()
        if self.record.frozen is not None and self.evidence.incident(self.now()) is None:
            self.admin.thawed += 1
            self.record.append(event_types.THAWED, event_types.FLEET, {}, actor=ADMIN)
        for key, request in list(self.record.approval_requests.items()):
            if not self.record.approvals(request.policy, request.finding):
                approve(self.record, key, ADMIN)
                self.admin.approved += 1

    def _store_findings(self) -> None:
        """Store idle findings: predictions depend on how long such stretches last."""
        facts = self.evidence.cases(self.now())
        idle_findings = [f.finding for f in facts]
        if idle_findings:
            self.warehouse.ingest([findings.build_rows(idle_findings, found_at=self.now())])

    def _advance(self, until_s: float, *, store: bool = True) -> None:
        """Advance the world and store its rows, or leave them to the next call."""
        block = self.world.advance(until_s)
        self.blocks.append(block)
        self._unstored.append(block)
        self.scripts.update(self.world.cast.scripts)
        if store:
            self._store()

    def _store(self) -> None:
        """Store and account for what the world did since `stored_s`."""
        since_s, until_s = self.stored_s, self.world.now_s
        pipeline.ingest(self.warehouse, self._rows(self.take_unstored(), since_s, until_s))
        self.stored_s = until_s
        self._account(since_s)

    def take_unstored(self) -> Block:
        """Return what the world did since `stored_s`, which the caller stores."""
        block = join_blocks(self._unstored)
        self._unstored = []
        return block

    def _account(self, since_s: float) -> None:
        begin_s = max(since_s - OVERLAP_S, self._start_s)
        roll_up(self.warehouse)
        write_allocations(self.warehouse, Window(datetime.fromtimestamp(begin_s, UTC), self.now()))
        # Verdicts use the signals of past hours, as in the service.
        first_s = min(self.world.now_s - ACCOUNTED_S, since_s)
        first_s = max(first_s, self._start_s) // HOUR_S * HOUR_S
        last_s = self.world.now_s // HOUR_S * HOUR_S
        if first_s < last_s:
            hours = Window(*(datetime.fromtimestamp(s, UTC) for s in (first_s, last_s)))
            signals.write_signals(self.warehouse, hours)

    def _rows(self, block: Block, since_s: float, until_s: float) -> Iterator[Batch]:
        scripts = self.scripts
        allocations = [
            t for t in self.world.list_allocations(since_s, until_s) if t.holder.uid in scripts
        ]
        yield from self._inventory.batches(until_s)
        thinned = thin_block(block, self.sample_every_s)
        shared = [t for t in allocations if t.share < 1]
        yield from build_rows(
            thinned, self.quirks, cluster=self.settings.cluster, allocations=shared
        )
        yield from build_host_spans(
            allocations,
            scripts,
            np.arange(
                np.ceil(since_s / self.sample_every_s) * self.sample_every_s,
                until_s,
                self.sample_every_s,
            ),
            cluster=self.settings.cluster,
            quirks=self.quirks,
            node_of={t.holder.uid: block.devices[t.devices[0]].node for t in allocations},
        )

    def _latest(self) -> Iterator[Batch]:
        """Read every source now: the last values of exporters, hosts and notebooks."""
        block, scripts = self.blocks[-1], self.world.cast.scripts
        last_s, ticks = float(block.ticks[-1]), len(block.ticks)
        allocations = [
            t
            for t in self.world.list_allocations(last_s, self.world.now_s)
            if t.holder.uid in scripts
        ]
        shared = [t for t in allocations if t.share < 1]
        last_block = msgspec.structs.replace(block, every_s=self.sample_every_s)
        yield from build_rows(
            last_block,
            self.quirks,
            cluster=self.settings.cluster,
            allocations=shared,
            first=ticks - 1,
            last=ticks,
        )
        yield from build_host_spans(
            allocations,
            scripts,
            np.array([last_s - 2 * TICK_S, last_s]),
            cluster=self.settings.cluster,
            quirks=self.quirks,
            node_of={t.holder.uid: block.devices[t.devices[0]].node for t in allocations},
        )


def _add_namespaces(policy: "Policy") -> "Policy":
    """Return a policy with every namespace listed if it lists none, as an admin would do."""
    if policy.allow.namespaces:
        return policy
    allow = msgspec.structs.replace(policy.allow, namespaces=("*",))
    return msgspec.structs.replace(policy, allow=allow)


def _build_key(facts: Facts) -> tuple[str, ...]:
    subject = facts.finding.subject
    return subject.cluster, subject.namespace, subject.workload_kind, subject.workload
