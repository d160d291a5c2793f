"""Every key of a policy: what it may hold and what it means.

The reader, the reference in `docs/policies.md` and the JSON schema for editors are made of this.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import yaml

from actions.policy.shapes import (
    AmountShape,
    Anything,
    Choice,
    Cron,
    Flag,
    Items,
    Key,
    Labels,
    Moment,
    Number,
    Section,
    Shape,
    Share,
    Span,
    Text,
    When,
    Words,
    Zone,
    did_you_mean,
)
from actions.policy.tree import Node, Where, kind, null, pairs

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
MOST_GRACE = 6 * DAY
"""Findings are of the last seven days: a notice has to lie within what they are about."""
WHAT = ("manifest", "volume", "home", "environment")

_glob = Text("a glob such as team-*", r"\S.*")
_globs = Words("a glob such as team-* or a list of them", _glob)
_none_too = Words("a list of globs such as team-*; [] = nowhere", _glob, empty=True)
_line = Text("a text of one line", r"\S[^\r\n]{0,499}")
_words = Words("a capability or verb, or a list of them", Text("a capability or a verb", r"\S.*"))
_parts = Words(f"some of {', '.join(WHAT)}", Choice(*WHAT))
_whole, _any = AmountShape(whole=True), AmountShape(whole=False)
_window = {
    "schedule": Key(Cron(), "when it opens, as crontab(5) has it: 0 and 7 are Sunday"),
    "duration": Key(
        Span(MINUTE, 31 * DAY), "how long it stays open; needed where there is a schedule"
    ),
    "timezone": Key(Zone(), "whose clock the schedule means", "`UTC`"),
}

GRACE = Span(MINUTE, MOST_GRACE)
SNAPSHOT = Section(
    {
        "what": Key(_parts, "what is kept", "`[manifest]`"),
        "required": Key(Flag(), "without a verified one, nothing is stopped", "`true`"),
    }
)
ACT = Section(
    {
        "do": Key(
            _words,
            "capabilities of executors (`suspend`) or verbs of recommendations",
            required=True,
        ),
        "with": Key(
            Anything(),
            "what the executor is told besides the recommendation's own figures",
            "`{}`",
        ),
    }
)
RUNGS = ("observe", "notify", "grace", "snapshot", "act")


class Rungs(Shape[list[tuple[Node, str, Any]]]):
    """The ladder: words, or mappings of one key."""

    words = "a list of observe, notify, grace: 24h, snapshot, act: suspend, in this order"
    schema: Mapping[str, Any] = {
        "type": "array",
        "minItems": 1,
        "items": {
            "anyOf": [
                {"enum": ["observe", "notify", "snapshot"]},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "minProperties": 1,
                    "maxProperties": 1,
                    "properties": {
                        "grace": GRACE.schema,
                        "snapshot": SNAPSHOT.schema,
                        "act": {"anyOf": [_words.schema, ACT.schema]},
                    },
                },
            ]
        },
    }

    def read(self, node: Node, where: Where) -> list[tuple[Node, str, Any]] | None:
        """Return each rung's node, its name and what stands with it."""
        if not isinstance(node, yaml.SequenceNode):
            where.wrong(node, f"is {kind(node)}; legal: {self.words}")
            return None
        found = [self._rung(item, where.at(n)) for n, item in enumerate(node.value)]
        return [rung for rung in found if rung is not None]

    def _rung(self, node: Node, where: Where) -> tuple[Node, str, Any] | None:
        if isinstance(node, yaml.ScalarNode):
            name, said = str(node.value), None
        else:
            told = pairs(node, where) if isinstance(node, yaml.MappingNode) else {}
            if len(told) != 1:
                where.wrong(node, f"is {kind(node)} of {len(told)}; legal: {self.words}")
                return None
            name, (_, said) = next(iter(told.items()))
        if name not in RUNGS:
            where.wrong(node, f"no such rung{did_you_mean(name, RUNGS)}; legal: {', '.join(RUNGS)}")
            return None
        here = where.at(name)
        if said is None or null(said):
            if name in {"grace", "act"}:
                need = {"grace": GRACE.words, "act": _words.words}[name]
                here.wrong(node, f"says nothing; legal: {name}: {need}")
                return None
            return node, name, None
        return node, name, self._said(name, said, here)

    def _said(self, name: str, said: Node, here: Where) -> Any:
        if name == "grace":
            return GRACE.read(said, here)
        if name == "snapshot":
            return SNAPSHOT.read(said, here)
        if name == "act":
            mapped = isinstance(said, yaml.MappingNode)
            return ACT.read(said, here) if mapped else {"do": _words.read(said, here)}
        here.wrong(said, f"takes nothing: write {name}")
        return None


MATCH = Section(
    {
        "analyzer": Key(_globs, "who found it: `fallow plugins list` names them", "any"),
        "kind": Key(_globs, "kind of finding, such as `idle_notebook`", "any"),
        "verb": Key(_globs, "what is recommended, such as `stop`", "any"),
        "workload_kind": Key(_globs, "kind of the workload's top owner, such as `Notebook`", "any"),
        "cluster": Key(_globs, "cluster as named in `fallow.yaml`", "any"),
        "namespaces": Key(_globs, "namespaces it is about", "any"),
        "not_namespaces": Key(_globs, "namespaces it is not about", "none"),
        "queue": Key(_globs, "queue of the workload; an unknown one matches nothing", "any"),
        "owner": Key(_globs, "team, or who else is told", "any"),
        "gpu_model": Key(_globs, "every GPU model of the workload has to match", "any"),
        "labels": Key(Labels(_globs), "labels of the workload; each one has to match", "any"),
        "namespace_labels": Key(Labels(_globs), "likewise of its namespace", "any"),
        "over_quota": Key(
            Flag(),
            "only work whose queue or namespace holds more GPUs than it is guaranteed; where that "
            "is unknown it does not match",
            "`false`",
        ),
        "evidence": Key(
            Choice("suspected", "confirmed"), "the least evidence that will do", "`suspected`"
        ),
        "confidence": Key(Number(0, 1), "the least confidence", "`0`"),
        "gpus": Key(Number(), "the fewest GPUs that the workload holds", "`0`"),
        "min_duration": Key(
            Span(MINUTE, 90 * DAY),
            "the shortest time for which it has been idle without a break, such as `8h`; a finding "
            "that is not about idleness does not match",
            "any",
        ),
        "gpu_hours": Key(Number(), "the fewest GPU-hours wasted so far", "`0`"),
        "gpu_hours_per_day": Key(Number(), "the fewest GPU-hours a day that would be freed", "`0`"),
        "usd_per_day": Key(
            Number(), "the fewest dollars a day; what has no price does not match", "`0`"
        ),
    }
)
ALLOW = Section(
    {
        "namespaces": Key(
            _none_too, "where it may act: enforcing needs this list, which may be empty", "nowhere"
        ),
        "kinds": Key(
            _globs,
            "kinds of workloads it may act upon; what serves (Deployment, InferenceService and "
            "the like) has to be named here",
            "all that match and do not serve",
        ),
        "production": Key(
            Flag(),
            "may it act on what looks like production, by namespace, label or priority class",
            "`false`",
        ),
        "cluster_objects": Key(
            Flag(),
            "may it act on what belongs to no namespace: nodes, pools, groups of quotas",
            "`false`",
        ),
    }
)
BUDGET = Section(
    {
        "workloads": Key(_whole, "most workloads; a percentage is rounded up", "any number"),
        "gpus": Key(
            _any,
            "most GPUs; a percentage above 0 is never less than one node, where nodes are acted "
            "upon, or than the GPUs of the fleet's largest node",
            "any number",
        ),
        "owners": Key(_whole, "most different owners; a percentage is rounded up", "any number"),
        "usd_per_hour": Key(
            _any,
            "most dollars an hour; what has no price does not fit; a percentage as of GPUs",
            "any number",
        ),
        "per": Key(Span(MINUTE, 31 * DAY), "in any stretch of this length", "`1d`"),
        "each": Key(
            Choice("namespace", "owner", "cluster"),
            "counted apart for each of these; not with percentages",
            "together",
        ),
        "counts": Key(
            Choice("policy", "all"), "actions of this policy, or of all policies", "`policy`"
        ),
        **_window,
    }
)
ACT_WINDOW = Section(
    {
        name: Key(key.shape, what, key.default, required=name != "timezone")
        for (name, key), what in zip(
            _window.items(),
            (
                "when it begins, as crontab(5) has it: 0 and 7 are Sunday",
                "how long it stays open",
                "whose clock the schedule means",
            ),
            strict=True,
        )
    }
)
BLACKOUT = Section(
    {
        "name": Key(_line, "what people read when it holds", required=True),
        "from": Key(Moment(last=False), "first day, or the moment it begins"),
        "to": Key(Moment(last=True), "last day (the whole of it), or the moment it ends", "open"),
        **_window,
    }
)
APPROVALS = Section(
    {
        "when": Key(
            When(), "which actions need somebody's `fallow approve`", "`none`", required=True
        ),
        "four_eyes": Key(Flag(), "two different people have to approve", "`false`"),
    }
)
REGRET = Section(
    {
        "rate": Key(
            Share(),
            "more of its stops taken back than this: the back-test fails, and in service it "
            "demotes itself to notify",
            "`5%`",
        ),
        "within": Key(Span(MINUTE, 30 * DAY), "taken back within this time is regret", "`24h`"),
    }
)
POLICY = Section(
    {
        "name": Key(
            Text("lower case, digits and -, 63 at most", r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"),
            "its name, unique among all policies",
            required=True,
        ),
        "description": Key(_line, "one line for people", "none"),
        "mode": Key(
            Choice("notify", "enforce"),
            "`notify` never goes further than a notice; `enforce` may climb the whole ladder",
            "`notify`",
        ),
        "match": Key(MATCH, "which findings it is about: everything asked has to hold", "all"),
        "allow": Key(ALLOW, "where it may act", "nowhere"),
        "ladder": Key(Rungs(), "how far it goes, rung by rung", required=True),
        "budgets": Key(
            Items(BUDGET), "the most that may be done; all that hold at once count", "none"
        ),
        "concurrent": Key(
            Number(1, 1000, whole=True), "actions under way at once, of all policies", "`2`"
        ),
        "blackouts": Key(Items(BLACKOUT), "when nothing is done", "none"),
        "act_window": Key(
            ACT_WINDOW,
            "it acts only while this window is open; its notices announce the moment of the stop, "
            "and owners may keep what they need",
            "always open",
        ),
        "approvals": Key(APPROVALS, "whether people have to agree", "none needed"),
        "on_pressure": Key(
            Flag(), "only if somebody waits whom the freed GPUs really admit", "`false`"
        ),
        "on_benefit": Key(
            Flag(),
            "only if so, or if a node would be empty and could go: freed GPUs that nobody wants "
            "save nothing",
            "`false`",
        ),
        "min_age": Key(
            Span(MINUTE, 90 * DAY, zero=True), "younger workloads are left alone", "`1h`"
        ),
        "cool_down": Key(
            Span(MINUTE, 90 * DAY),
            "rest between two actions on one object; doubles each time its owner took it back",
            "`6h`",
        ),
        "regret": Key(REGRET, "how often owners may take back what was stopped", "5% within 24h"),
        "max_resources": Key(
            _whole,
            "more cases ready to be acted upon in one run than this abort the whole run",
            "`20%` of the workloads",
        ),
    }
)


def every(section: Section = POLICY, prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Yield every key with its dotted name, sections before what is in them."""
    for name, key in section.keys.items():
        dotted = f"{prefix}{name}"
        yield dotted, key
        inner = key.shape
        if isinstance(inner, Section):
            yield from every(inner, f"{dotted}.")
        elif isinstance(inner, Items):
            yield from every(inner.item, f"{dotted}[].")
        elif isinstance(inner, Rungs):
            yield (
                f"{dotted}[].grace",
                Key(GRACE, "time from a proved notice to the act", required=True),
            )
            for rung, what in (
                ("snapshot", "what is kept before the act"),
                ("act", "what is done in the end"),
            ):
                held = SNAPSHOT if rung == "snapshot" else ACT
                yield f"{dotted}[].{rung}", Key(held, what)
                yield from every(held, f"{dotted}[].{rung}.")


def table() -> str:
    """Return the reference of all keys as Markdown."""
    lines = ["| key | may hold | default | meaning |", "|---|---|---|---|"]
    for name, key in every():
        words = str(key.shape.words).replace("|", "\\|")
        default = "needed" if key.required else key.default
        lines.append(f"| `{name}` | {words} | {default} | {key.what} |")
    return "\n".join(lines) + "\n"


def schema() -> dict[str, Any]:
    """Return a JSON schema of one policy, for editors."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fallow policy"}
    return {**head, **POLICY.schema}
