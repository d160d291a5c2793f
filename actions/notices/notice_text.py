"""The text of a notice: what, why, what happens when, and how to undo or opt out."""

from datetime import timedelta
from zoneinfo import ZoneInfo

from actions.loop.protocols import Notice
from actions.policy.matching import is_any_match
from actions.policy.model import Policy, RecurringWindow
from actions.policy.schedule import get_opening
from actions.recommend import ELSEWHERE, RESTART, choose_restart, read_verbs
from fallow.action_models import Decision, Facts
from fallow.window import format_duration

CHANNEL = "fallow.dev/channel"
"""Label or annotation that names channels of the settings; never an address."""


def build_notice(decision: Decision, facts: Facts, policy: Policy, link: str = "") -> Notice:
    """Return the text of an owner's notice about a case."""
    act_stage = policy.stage("act")
    facts = choose_restart(facts, act_stage.verbs if act_stage else ())
    finding = facts.finding
    subject = "/".join(filter(None, decision.subject[1:]))
    cost = "" if decision.usd_per_day is None else f", ${decision.usd_per_day:,.2f} a day"
    gpus = f"{facts.gpus:g} GPU" + ("" if facts.gpus == 1 else "s")
    since = finding.window.start
    lines = [
        f"{subject}: {gpus} {finding.verdict} since {since:%Y-%m-%d %H:%M} UTC{cost}.",
        f"Why: {facts.recommendation.why}.",
        f"What happens: {_describe_next(policy, decision)}",
        *_describe_loss(policy, decision),
        f"Keep it: fallow keep {subject} 24h",
    ]
    if link:
        lines.append(link.replace("{finding}", finding.id))
    return Notice(
        key=finding.id,
        policy=policy.name,
        text="\n".join(lines),
        owner=decision.owner,
        channels=_list_channels(facts),
    )


def _describe_next(policy: Policy, decision: Decision) -> str:
    grace, act_stage = policy.stage("grace"), policy.stage("act")
    if (
        act_stage is None
        or policy.mode != "enforce"
        or not is_any_match(act_stage.verbs, decision.verb)
    ):
        return "nothing by itself; please check it."
    wait = grace.wait if grace is not None else timedelta(0)
    undone = "it can be undone with one command"
    if decision.verb in {RESTART, ELSEWHERE}:
        undone = "it cannot be undone: it goes on from its last checkpoint"
    if policy.act_window is not None:
        window = _describe_window(policy.act_window, decision, wait)
        return f"{window}, by policy {policy.name}; {undone}."
    when = f"{format_duration(wait.total_seconds())} from now" if wait else "next"
    return f"{decision.verb}, {when}, by policy {policy.name}; {undone}."


def _describe_window(window: RecurringWindow, decision: Decision, wait: timedelta) -> str:
    """Return the verb and the time from which the window and the grace period permit it."""
    zone = ZoneInfo(window.timezone)
    first = get_opening(window, decision.at + wait)
    when = "never" if first is None else f"{first.astimezone(zone):%A %Y-%m-%d at %H:%M}"
    return f"announced {decision.verb} on {when} {window.timezone} unless it is at work by then"


def _describe_loss(policy: Policy, decision: Decision) -> list[str]:
    """Return what a stop of this kind loses: a notified owner can still save it."""
    verb = read_verbs().get(decision.subject[1])
    acts = policy.mode == "enforce" and policy.stage("act") is not None
    if (
        not acts
        or verb is None
        or decision.verb not in {verb.verb, RESTART, ELSEWHERE}
        or not verb.lost
    ):
        return []
    return [f"What is lost: {verb.lost}."]


def _list_channels(facts: Facts) -> tuple[str, ...]:
    for marks in (
        facts.annotations,
        facts.labels,
        facts.namespace_annotations,
        facts.namespace_labels,
    ):
        if channels := marks.get(CHANNEL):
            # Labels allow no comma: a dot would be part of a name.
            return tuple(filter(None, (part.strip() for part in channels.split(","))))
    return ()
