"""Let a policy act in the demo's fleet: through the journal, the executors and the fleet's API.

a day of rows ─► turn: notices ─► turn: requests ─► the admin approves ─► turn: acts
                                                                            │
back-test, savings, plan  ◄── the week's end: outcomes ◄── an owner undoes one ◄┘
"""

import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from actions.journal import Journal, JournalState
from actions.loop.actor import approve
from actions.policy.shipped import get_folder
from actions.savings.storage import store_savings
from fallow.models import Finding
from fallow.settings import Settings
from fallow.window import Window
from runtime.experiments.simulation.enforcer import ADMIN, HOUR_S, Enforcer
from runtime.operations.acting import plans
from runtime.operations.acting.plan_rows import PlanWriter
from simulator.models import Block

if TYPE_CHECKING:
    from actions.backtest import Backtest
    from warehouse.lake import Warehouse

POLICIES = Path(__file__).parent / "demo_policies"
OWNER = "ann"
BEFORE_S = 26 * HOUR_S
"""After a day of rows, because services are judged by a whole day; few rows make turns quick."""
NOTICE_S = 2 * HOUR_S
"""From the notices to the requests for approval."""
CHECK_S = 3.5 * HOUR_S
"""When the outcomes of the actions are known, and an owner takes one back."""
LEAST_S = 48 * HOUR_S
"""A shorter demo has no actions: nothing could be measured after them."""
APPROVED = 4
"""So many requests are approved; the others go on waiting."""


class ActingFleet(Enforcer):
    """The demo's fleet with a policy that acts in its first days."""

    identity = "fallow"
    _at_s: float | None = None
    """The time of a turn before the end of the stored rows."""

    def now(self) -> datetime:
        """Return the time of the turn."""
        return datetime.fromtimestamp(self._at_s or self.world.now_s, UTC)

    def begin(self) -> None:
        """Advance by a day, and to the second turn.

        A notice changes nothing in the cluster: the rows until the next turn are stored with those
        before it, because every step of storing costs about two seconds.
        """
        first_s = self.world.now_s + BEFORE_S
        self._advance(first_s + NOTICE_S)
        self._at_s = first_s

    def act(self) -> Iterator[Block]:
        """Advance by hours in which the policy acts and an action is undone.

        The rows after the last turn are left to the caller: see `take_unstored`.
        """
        first_s = self.world.now_s - NOTICE_S
        self._act()
        self._store_findings()
        self._at_s = None
        self._act()
        self._store_findings()
        self._approve()
        self._advance(self.world.now_s + self.sample_every_s, store=False)
        self._act()
        self._store_findings()
        self._advance(first_s + CHECK_S, store=False)
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
    backtests: "Sequence[Backtest]",
    findings: Sequence[Finding],
) -> None:
    """Record the back-tests, measure what actions saved, and write the plan of the end."""
    for result in backtests:
        plans.record_backtest(settings, result, window.end, actor=ADMIN)
    with Journal.open(plans.get_journal_path(settings), lambda: window.end, actor=ADMIN) as journal:
        record = JournalState(journal).catch_up()
        store_savings(warehouse, record, settings.cluster, settings.actions.watch, window.end)
    PlanWriter(warehouse, settings).write_preview(findings, window.end)
