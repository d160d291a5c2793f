"""Compare what the subject of an action cost before and after it."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec

from dashboards.figures import policy_actions, timeline
from dashboards.figures.query import Filters
from dashboards.figures.timeline import TimelineSubject, TimelineTotals
from fallow.protocols import Views
from fallow.window import Window

SPAN = timedelta(days=3)
"""Most time before an action, and after it."""
_DAY_S = 86400.0


class ActionRow(msgspec.Struct, frozen=True):
    """An action of the journal; times are naive UTC, dollars and GPU-hours as measured so far."""

    id: str
    cluster: str
    at: datetime
    subject: str
    verb: str
    result: str | None
    policy: str | None
    actor: str | None
    why: str | None
    restored_by: str | None
    restored_at: datetime | None
    saved_usd: Decimal | None
    saved_gpu_hours: float | None
    finding: str | None

    @property
    def time(self) -> datetime:
        """Return when it was done, with the time zone."""
        return self.at.replace(tzinfo=UTC)

    @property
    def timeline_subject(self) -> TimelineSubject:
        """Return its workload, or its node."""
        kind, _, name = self.subject.partition("/")
        if kind == "Node":
            return TimelineSubject(node=name)
        return TimelineSubject(workload=self.subject)


class ActionEffect(msgspec.Struct, frozen=True):
    """The whole hours before and after an action's hour; None = there is no ledger of them.

    The hour of the action is in neither.
    """

    before: Window | None
    after: Window | None
    totals_before: TimelineTotals | None
    totals_after: TimelineTotals | None


def list_actions(views: Views, window: Window, filters: Filters) -> tuple[ActionRow, ...]:
    """Return the actions of a window and the open ones, the newest first."""
    rows = policy_actions.read_actions_done(views, window, filters).to_pylist()
    names = ActionRow.__struct_fields__
    return tuple(ActionRow(**{name: row[name] for name in names}) for row in rows)


def measure(views: Views, accounted: Window, filters: Filters, row: ActionRow) -> ActionEffect:
    """Return what the action's subject cost up to `SPAN` before it and after it.

    `accounted`: the time that the ledger covers.
    """
    hour = Window(row.time, row.time + timedelta(microseconds=1)).whole()
    before = _build_window(max(accounted.start, hour.start - SPAN), min(hour.start, accounted.end))
    after = _build_window(max(accounted.start, hour.end), min(hour.end + SPAN, accounted.end))
    only = msgspec.structs.replace(filters, cluster=row.cluster)

    def total(window: Window | None) -> TimelineTotals | None:
        if window is None:
            return None
        return timeline.read_totals(views, window, only, row.timeline_subject)

    return ActionEffect(before, after, total(before), total(after))


def read_per_day(window: Window, totals: TimelineTotals) -> Decimal | None:
    """Return dollars per day; None = no part has a price, 0 = it held nothing."""
    if not totals.gpu_hours:
        return Decimal()
    return None if totals.usd is None else totals.usd * Decimal(_DAY_S / window.seconds)


def read_mean_gpus(window: Window, totals: TimelineTotals) -> float:
    """Return how many GPUs it held, on the mean of a window."""
    return totals.gpu_hours * 3600 / window.seconds


def _build_window(start: datetime, end: datetime) -> Window | None:
    return Window(start, end) if start < end else None
