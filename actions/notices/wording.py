"""The words of a notice: what, why, what happens when, and the two ways out."""

from datetime import timedelta

from actions.loop.seams import Notice
from actions.policy.model import Policy
from fallow.acting import Decision, Facts
from fallow.window import format_duration

CHANNEL = "fallow.dev/channel"
"""Label or annotation that names channels of the settings; never an address."""


def notice(decision: Decision, facts: Facts, policy: Policy, link: str = "") -> Notice:
    """Return what a workload's owner is told about a case."""
    finding = facts.finding
    whom = "/".join(filter(None, decision.subject[1:]))
    cost = "" if decision.usd_per_day is None else f", ${decision.usd_per_day:,.2f} a day"
    gpus = f"{facts.gpus:g} GPU" + ("" if facts.gpus == 1 else "s")
    since = finding.window.start
    lines = [
        f"{whom}: {gpus} {finding.verdict} since {since:%Y-%m-%d %H:%M} UTC{cost}.",
        f"Why: {facts.recommendation.why}.",
        f"What happens: {_next(policy, decision)}",
        f"Keep it: fallow keep {whom} 24h",
    ]
    if link:
        lines.append(link.replace("{finding}", finding.id))
    return Notice(
        key=finding.id,
        policy=policy.name,
        text="\n".join(lines),
        owner=decision.owner,
        channels=_channels(facts),
    )


def _next(policy: Policy, decision: Decision) -> str:
    rung, act = policy.rung("grace"), policy.rung("act")
    if act is None or policy.mode != "enforce":
        return "nothing by itself; please look after it."
    wait = rung.wait if rung is not None else timedelta(0)
    when = f"{format_duration(wait.total_seconds())} from now" if wait else "next"
    undone = "it can be undone with one command"
    return f"{decision.verb}, {when}, by policy {policy.name}; {undone}."


def _channels(facts: Facts) -> tuple[str, ...]:
    for said in (
        facts.annotations,
        facts.labels,
        facts.namespace_annotations,
        facts.namespace_labels,
    ):
        if named := said.get(CHANNEL):
            # Labels take no comma: a dot would be part of a name.
            return tuple(filter(None, (part.strip() for part in named.split(","))))
    return ()
