"""Let a policy act in the demo's fleet: through the journal, the executors and the fleet's API.

a day of rows ─► turn: notices ─► turn: requests ─► the admin approves ─► turn: acts
                                                                            │
back-test, savings, plan  ◄── the week's end: outcomes ◄── an owner undoes one ◄┘
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from actions.journal import Journal, JournalState
from actions.loop.actor import approve
from actions.policy.shipped import get_folder
from actions.savings.storage import store_savings
from fallow.models import Finding
from fallow.settings import Settings
from fallow.window import Window, format_duration
from runtime.experiments.simulation.enforcer import ADMIN, HOUR_S, Enforcer
from runtime.operations import plans
from runtime.operations.plan_rows import PlanWriter
from simulator.models import Block

if TYPE_CHECKING:
    from actions.policy.model import Policy
    from warehouse.lake import Warehouse

POLICIES = Path(__file__).parent / "demo_policies"
OWNER = "ann"
BEFORE_S = 26 * HOUR_S
"""After a day of rows, because services are judged by a whole day; few rows make turns quick."""
TURNS_S = (0.0, 2 * HOUR_S)
"""The turns of notices and of requests for approval, after the first one."""
CHECK_S = 3.5 * HOUR_S
"""When the outcomes of the actions are known, and an owner takes one back."""
LEAST_S = 48 * HOUR_S
"""A shorter demo has no actions: nothing could be measured after them."""
APPROVED = 4
"""So many requests are approved; the others go on waiting."""


class ActingFleet(Enforcer):
    """The demo's fleet with a policy that acts in its first days."""

    identity = "fallow"

    def act(self) -> Iterator[Block]:
        """Advance by a day, and by hours in which the policy acts and an action is undone."""
        first_s = self.world.now_s + BEFORE_S
        for after_s in TURNS_S:
            yield from self.turn(first_s + after_s, float("inf"))
        self._approve()
        yield from self.turn(self.world.now_s + self.sample_every_s, float("inf"))
        self.blocks = []
        self._advance(first_s + CHECK_S)
        yield from self.blocks
        self.actor.settle()
        closed_actions = [state for state in self.record.actions.values() if not state.is_open]
        if closed_actions:
            self.actor.undo(closed_actions[-1].action.id, OWNER)

    def finish(self) -> None:
        """Determine what became of the actions at the end."""
        self.actor.settle()
        shutil.rmtree(self.settings.home / "container")

    def _play_admin(self) -> None:
        """Approve nothing by oneself: see `act`."""

    def _approve(self) -> None:
        self.record.catch_up()
        for key in sorted(self.record.approval_requests)[:APPROVED]:
            approve(self.record, key, ADMIN)


def write_policies(folder: Path) -> None:
    """Write the shipped policies, none of which acts as it stands, and the one that acts."""
    folder.mkdir()
    for path in (*sorted(get_folder().glob("*.yaml")), *sorted(POLICIES.glob("*.yaml"))):
        (folder / path.name).write_bytes(path.read_bytes())


def store_actions(
    warehouse: "Warehouse",
    settings: Settings,
    window: Window,
    rules: "Sequence[Policy]",
    findings: Sequence[Finding],
) -> None:
    """Back-test the policies, measure what their actions saved, and write the plan of the end."""
    for rule in rules:
        result = plans.run_backtest(
            warehouse,
            settings,
            rule,
            since=format_duration(window.seconds),
            step=None,
            within=None,
            now=window.end,
            cluster=settings.cluster,
        )
        plans.record_backtest(settings, result, window.end, actor=ADMIN)
    if not rules:
        return
    with Journal.open(plans.get_journal_path(settings), lambda: window.end, actor=ADMIN) as journal:
        record = JournalState(journal).catch_up()
        store_savings(warehouse, record, settings.cluster, settings.actions.watch, window.end)
    PlanWriter(warehouse, settings).write_preview(findings, window.end)
