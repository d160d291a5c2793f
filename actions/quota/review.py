"""Look back at a step that was made: did it do what it was for?"""

from datetime import UTC, datetime, timedelta
from functools import cache

from actions.quota.proposals import Proposal, read
from actions.quota.waiting import LEAST_HOURS, Judged, Look, worsened
from fallow.acting import Action, Reason
from fallow.seams import Views
from warehouse.steps import compose

BEFORE = timedelta(days=7)
"""What a step is held against."""
SOON = timedelta(hours=LEAST_HOURS + 1)
"""Nothing can be said earlier."""
OVER = timedelta(days=7)
"""So long it may still turn out to be harm: then the step stands for good."""


def review(action: Action, views: Views, now: datetime) -> Judged:
    """Return whether waiting worsened in the group since an action moved its quota."""
    proposal, _ = read(action.decision.parameters)
    cluster = action.intent.target.cluster
    before = looks(views, cluster, proposal, action.at - BEFORE, action.at)
    # The hour in which it was done is neither before nor after.
    first = action.at.replace(minute=0, second=0, microsecond=0)
    later = looks(views, cluster, proposal, first + timedelta(hours=1), now)
    return worsened([one for one in before if one.hour < first], later)


def verdict(action: Action, views: Views, now: datetime) -> tuple[Reason, ...] | None:
    """Return why a step is to be taken back; () = it stands for good; None = too early to say."""
    if now - action.at < SOON:
        return None
    said = review(action, views, now)
    if said.worse:
        return (Reason("worsened", said.why),)
    return () if said.worse is False and now - action.at >= OVER else None


def looks(
    views: Views, cluster: str, proposal: Proposal, since: datetime, until: datetime
) -> list[Look]:
    """Return what the proposal's quotas said by the hour."""
    resource = proposal.resource + (f"@{proposal.flavor}" if proposal.flavor else "")
    asked = {
        "cluster": cluster,
        "kind": proposal.kind,
        "resource": resource,
        "since": since.astimezone(UTC).replace(tzinfo=None),
        "until": until.astimezone(UTC).replace(tzinfo=None),
    }
    keys = {move.key for move in proposal.moves}
    found = [
        Look(
            row["hour"].replace(tzinfo=UTC),
            f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"],
            float(row["nominal"]),
            float(row["used"] or 0.0),
            None if row["used"] is None else row["waiting"],
        )
        for row in views.query(_sql(), asked).to_pylist()
    ]
    return [one for one in found if one.key in keys]


@cache
def _sql() -> str:
    lives = ("warehouse:inventory/looked", "warehouse:inventory/lives")
    return compose((*lives, "looks"), "actions.quota")
