"""The words of a notice: what, why, what happens when, and the two ways out."""

from datetime import timedelta
from zoneinfo import ZoneInfo

from actions.loop.seams import Notice
from actions.policy.matching import any_of
from actions.policy.model import Policy, Recurring
from actions.policy.schedule import opens
from actions.recommend import verbs
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
        *_lost(policy, decision),
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
    if act is None or policy.mode != "enforce" or not any_of(act.verbs, decision.verb):
        return "nothing by itself; please look after it."
    wait = rung.wait if rung is not None else timedelta(0)
    undone = "it can be undone with one command"
    if policy.act_window is not None:
        return (
            f"{_announced(policy.act_window, decision, wait)}, by policy {policy.name}; {undone}."
        )
    when = f"{format_duration(wait.total_seconds())} from now" if wait else "next"
    return f"{decision.verb}, {when}, by policy {policy.name}; {undone}."


def _announced(window: Recurring, decision: Decision, wait: timedelta) -> str:
    """Return the verb and the moment from which on the window and the grace allow it."""
    zone = ZoneInfo(window.timezone)
    first = opens(window, decision.at + wait)
    when = "never" if first is None else f"{first.astimezone(zone):%A %Y-%m-%d at %H:%M}"
    return f"announced {decision.verb} on {when} {window.timezone} unless it is at work by then"


def _lost(policy: Policy, decision: Decision) -> list[str]:
    """Say what a stop of such a kind loses: whoever is told can still save it."""
    verb = verbs().get(decision.subject[1])
    acts = policy.mode == "enforce" and policy.rung("act") is not None
    if not acts or verb is None or verb.verb != decision.verb or not verb.lost:
        return []
    return [f"What is lost: {verb.lost}."]


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
