"""Review a completed step: did it reduce waiting?"""

from datetime import UTC, datetime, timedelta
from functools import cache

from actions.quota.proposals import RebalanceProposal, read_proposal
from actions.quota.waiting_time import MIN_HOURS, QuotaSample, StepVerdict, compare_waiting
from fallow.action_models import Action, Reason
from fallow.protocols import Views
from warehouse.steps import compose_query

BEFORE = timedelta(days=7)
"""The window before the step for the comparison."""
MIN_AGE = timedelta(hours=MIN_HOURS + 1)
"""The earliest time after the step for a verdict."""
MAX_AGE = timedelta(days=7)
"""The latest time for a verdict of harm: after it the step is final."""


def review_step(action: Action, views: Views, now: datetime) -> StepVerdict:
    """Return whether waiting in the group increased since an action moved its quota."""
    proposal, _ = read_proposal(action.decision.parameters)
    cluster = action.intent.target.cluster
    before = read_quota_samples(views, cluster, proposal, action.at - BEFORE, action.at)
    # The hour of the step itself is neither before nor after.
    first = action.at.replace(minute=0, second=0, microsecond=0)
    later = read_quota_samples(views, cluster, proposal, first + timedelta(hours=1), now)
    return compare_waiting([sample for sample in before if sample.hour < first], later)


def find_harm(action: Action, views: Views, now: datetime) -> tuple[Reason, ...] | None:
    """Return why a step is to be undone; () = it is final; None = too early."""
    if now - action.at < MIN_AGE:
        return None
    step_verdict = review_step(action, views, now)
    if step_verdict.worse:
        return (Reason("worsened", step_verdict.why),)
    return () if step_verdict.worse is False and now - action.at >= MAX_AGE else None


def read_quota_samples(
    views: Views, cluster: str, proposal: RebalanceProposal, since: datetime, until: datetime
) -> list[QuotaSample]:
    """Return the hourly samples of the proposal's quotas."""
    resource = proposal.resource + (f"@{proposal.flavor}" if proposal.flavor else "")
    parameters = {
        "cluster": cluster,
        "kind": proposal.kind,
        "resource": resource,
        "since": since.astimezone(UTC).replace(tzinfo=None),
        "until": until.astimezone(UTC).replace(tzinfo=None),
    }
    keys = {move.key for move in proposal.moves}
    samples = [
        QuotaSample(
            row["hour"].replace(tzinfo=UTC),
            f"{row['namespace']}/{row['name']}" if row["namespace"] else row["name"],
            float(row["nominal"]),
            float(row["used"] or 0.0),
            None if row["used"] is None else row["waiting"],
        )
        for row in views.query(_load_sql(), parameters).to_pylist()
    ]
    return [sample for sample in samples if sample.key in keys]


@cache
def _load_sql() -> str:
    lives = tuple(f"warehouse:inventory/{step}" for step in ("last_lists", "value_eras", "lives"))
    return compose_query((*lives, "quota_samples"), "actions.quota")
