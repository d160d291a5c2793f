"""Every key of a policy: its values and its meaning.

The parser, the reference in `docs/policies.md` and the JSON schema for editors are built from this.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import yaml

from actions.policy.shapes import (
    AmountShape,
    ApprovalShape,
    ChoiceShape,
    CronShape,
    DurationShape,
    FlagShape,
    KeySpec,
    LabelsShape,
    ListShape,
    MappingShape,
    NumberShape,
    PercentShape,
    PlainMappingShape,
    TextListShape,
    TextShape,
    TimestampShape,
    TimeZoneShape,
    ValueShape,
    suggest_word,
)
from actions.policy.tree import Location, Node, describe_node, is_null, read_pairs

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
MAX_GRACE = 6 * DAY
"""Findings cover the last seven days: a notice has to be within what they cover."""
SNAPSHOT_PARTS = ("manifest", "volume", "home", "environment")

_glob = TextShape("a glob such as team-*", r"\S.*")
_globs = TextListShape("a glob such as team-* or a list of them", _glob)
_none_too = TextListShape("a list of globs such as team-*; [] = nowhere", _glob, empty=True)
_line = TextShape("a text of one line", r"\S[^\r\n]{0,499}")
_words = TextListShape(
    "a capability or verb, or a list of them", TextShape("a capability or a verb", r"\S.*")
)
_parts = TextListShape(f"some of {', '.join(SNAPSHOT_PARTS)}", ChoiceShape(*SNAPSHOT_PARTS))
_whole, _any = AmountShape(whole=True), AmountShape(whole=False)
_window = {
    "schedule": KeySpec(CronShape(), "when it opens, as crontab(5) has it: 0 and 7 are Sunday"),
    "duration": KeySpec(
        DurationShape(MINUTE, 31 * DAY), "how long it stays open; needed where there is a schedule"
    ),
    "timezone": KeySpec(TimeZoneShape(), "whose clock the schedule means", "`UTC`"),
}

GRACE = DurationShape(MINUTE, MAX_GRACE)
SNAPSHOT = MappingShape(
    {
        "what": KeySpec(_parts, "what is kept", "`[manifest]`"),
        "required": KeySpec(FlagShape(), "without a verified one, nothing is stopped", "`true`"),
    }
)
ACT = MappingShape(
    {
        "do": KeySpec(
            _words,
            "capabilities of executors (`suspend`) or verbs of recommendations",
            required=True,
        ),
        "with": KeySpec(
            PlainMappingShape(),
            "what the executor is told besides the recommendation's own figures",
            "`{}`",
        ),
    }
)
STAGES = ("observe", "notify", "grace", "snapshot", "act")


class StagesShape(ValueShape[list[tuple[Node, str, Any]]]):
    """Stages: words, or mappings of one key."""

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

    def read(self, node: Node, location: Location) -> list[tuple[Node, str, Any]] | None:
        """Return each stage's node, its name and its options."""
        if not isinstance(node, yaml.SequenceNode):
            location.report(node, f"is {describe_node(node)}; legal: {self.words}")
            return None
        stages = [self._read_stage(item, location.at(n)) for n, item in enumerate(node.value)]
        return [stage for stage in stages if stage is not None]

    def _read_stage(self, node: Node, location: Location) -> tuple[Node, str, Any] | None:
        if isinstance(node, yaml.ScalarNode):
            name, value_node = str(node.value), None
        else:
            entries = read_pairs(node, location) if isinstance(node, yaml.MappingNode) else {}
            if len(entries) != 1:
                location.report(
                    node, f"is {describe_node(node)} of {len(entries)}; legal: {self.words}"
                )
                return None
            name, (_, value_node) = next(iter(entries.items()))
        if name not in STAGES:
            location.report(
                node, f"no such stage{suggest_word(name, STAGES)}; legal: {', '.join(STAGES)}"
            )
            return None
        stage_location = location.at(name)
        if value_node is None or is_null(value_node):
            if name in {"grace", "act"}:
                words = {"grace": GRACE.words, "act": _words.words}[name]
                stage_location.report(node, f"says nothing; legal: {name}: {words}")
                return None
            return node, name, None
        return node, name, self._read_value(name, value_node, stage_location)

    def _read_value(self, name: str, node: Node, location: Location) -> Any:
        if name == "grace":
            return GRACE.read(node, location)
        if name == "snapshot":
            return SNAPSHOT.read(node, location)
        if name == "act":
            mapped = isinstance(node, yaml.MappingNode)
            return ACT.read(node, location) if mapped else {"do": _words.read(node, location)}
        location.report(node, f"takes nothing: write {name}")
        return None


MATCH = MappingShape(
    {
        "analyzer": KeySpec(_globs, "who found it: `fallow plugins list` names them", "any"),
        "kind": KeySpec(_globs, "kind of finding, such as `idle_notebook`", "any"),
        "verb": KeySpec(_globs, "what is recommended, such as `stop`", "any"),
        "workload_kind": KeySpec(
            _globs, "kind of the workload's top owner, such as `Notebook`", "any"
        ),
        "cluster": KeySpec(_globs, "cluster as named in `fallow.yaml`", "any"),
        "namespaces": KeySpec(_globs, "namespaces it is about", "any"),
        "not_namespaces": KeySpec(_globs, "namespaces it is not about", "none"),
        "queue": KeySpec(_globs, "queue of the workload; an unknown one matches nothing", "any"),
        "owner": KeySpec(_globs, "team, or who else is told", "any"),
        "gpu_model": KeySpec(_globs, "every GPU model of the workload has to match", "any"),
        "labels": KeySpec(
            LabelsShape(_globs), "labels of the workload; each one has to match", "any"
        ),
        "namespace_labels": KeySpec(LabelsShape(_globs), "likewise of its namespace", "any"),
        "over_quota": KeySpec(
            FlagShape(),
            "only work whose queue or namespace holds more GPUs than it is guaranteed; where that "
            "is unknown it does not match",
            "`false`",
        ),
        "evidence": KeySpec(
            ChoiceShape("suspected", "confirmed"), "the least evidence that will do", "`suspected`"
        ),
        "confidence": KeySpec(NumberShape(0, 1), "the least confidence", "`0`"),
        "gpus": KeySpec(NumberShape(), "the fewest GPUs that the workload holds", "`0`"),
        "min_duration": KeySpec(
            DurationShape(MINUTE, 90 * DAY),
            "the shortest time for which it has been idle without a break, such as `8h`; a finding "
            "that is not about idleness does not match",
            "any",
        ),
        "gpu_hours": KeySpec(NumberShape(), "the fewest GPU-hours wasted so far", "`0`"),
        "gpu_hours_per_day": KeySpec(
            NumberShape(), "the fewest GPU-hours a day that would be freed", "`0`"
        ),
        "usd_per_day": KeySpec(
            NumberShape(), "the fewest dollars a day; what has no price does not match", "`0`"
        ),
    }
)
ALLOW = MappingShape(
    {
        "namespaces": KeySpec(
            _none_too, "where it may act: enforcing needs this list, which may be empty", "nowhere"
        ),
        "kinds": KeySpec(
            _globs,
            "kinds of workloads it may act upon; what serves (Deployment, InferenceService and "
            "the like) has to be named here",
            "all that match and do not serve",
        ),
        "production": KeySpec(
            FlagShape(),
            "may it act on what looks like production, by namespace, label or priority class",
            "`false`",
        ),
        "cluster_objects": KeySpec(
            FlagShape(),
            "may it act on what belongs to no namespace: nodes, pools, groups of quotas",
            "`false`",
        ),
    }
)
BUDGET = MappingShape(
    {
        "workloads": KeySpec(_whole, "most workloads; a percentage is rounded up", "any number"),
        "gpus": KeySpec(
            _any,
            "most GPUs; a percentage above 0 is never less than one node, where nodes are acted "
            "upon, or than the GPUs of the fleet's largest node",
            "any number",
        ),
        "owners": KeySpec(
            _whole, "most different owners; a percentage is rounded up", "any number"
        ),
        "usd_per_hour": KeySpec(
            _any,
            "most dollars an hour; what has no price does not fit; a percentage as of GPUs",
            "any number",
        ),
        "per": KeySpec(DurationShape(MINUTE, 31 * DAY), "in any stretch of this length", "`1d`"),
        "each": KeySpec(
            ChoiceShape("namespace", "owner", "cluster"),
            "counted apart for each of these; not with percentages",
            "together",
        ),
        "counts": KeySpec(
            ChoiceShape("policy", "all"), "actions of this policy, or of all policies", "`policy`"
        ),
        **_window,
    }
)
ACT_WINDOW = MappingShape(
    {
        name: KeySpec(key.shape, what, key.default, required=name != "timezone")
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
BLACKOUT = MappingShape(
    {
        "name": KeySpec(_line, "what people read when it holds", required=True),
        "from": KeySpec(TimestampShape(last=False), "first day, or the moment it begins"),
        "to": KeySpec(
            TimestampShape(last=True), "last day (the whole of it), or the moment it ends", "open"
        ),
        **_window,
    }
)
APPROVALS = MappingShape(
    {
        "when": KeySpec(
            ApprovalShape(),
            "which actions need somebody's `fallow approve`",
            "`none`",
            required=True,
        ),
        "four_eyes": KeySpec(FlagShape(), "two different people have to approve", "`false`"),
    }
)
REVERSALS = MappingShape(
    {
        "rate": KeySpec(
            PercentShape(),
            "more of its stops taken back than this: the back-test fails, and in service it "
            "demotes itself to notify",
            "`5%`",
        ),
        "within": KeySpec(
            DurationShape(MINUTE, 30 * DAY),
            "taken back within this time counts as a reversal",
            "`24h`",
        ),
    }
)
POLICY = MappingShape(
    {
        "name": KeySpec(
            TextShape(
                "lower case, digits and -, 63 at most", r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
            ),
            "its name, unique among all policies",
            required=True,
        ),
        "description": KeySpec(_line, "one line for people", "none"),
        "mode": KeySpec(
            ChoiceShape("notify", "enforce"),
            "`notify` never goes further than a notice; `enforce` may take all stages",
            "`notify`",
        ),
        "match": KeySpec(MATCH, "which findings it is about: everything asked has to hold", "all"),
        "allow": KeySpec(ALLOW, "where it may act", "nowhere"),
        "stages": KeySpec(StagesShape(), "how far it goes, stage by stage", required=True),
        "budgets": KeySpec(
            ListShape(BUDGET), "the most that may be done; all that hold at once count", "none"
        ),
        "concurrent": KeySpec(
            NumberShape(1, 1000, whole=True), "actions under way at once, of all policies", "`2`"
        ),
        "blackouts": KeySpec(ListShape(BLACKOUT), "when nothing is done", "none"),
        "act_window": KeySpec(
            ACT_WINDOW,
            "it acts only while this window is open; its notices announce the moment of the stop, "
            "and owners may keep what they need",
            "always open",
        ),
        "approvals": KeySpec(APPROVALS, "whether people have to agree", "none needed"),
        "on_pressure": KeySpec(
            FlagShape(), "only if somebody waits whom the freed GPUs really admit", "`false`"
        ),
        "on_benefit": KeySpec(
            FlagShape(),
            "only if so, or if a node would be empty and could go: freed GPUs that nobody wants "
            "save nothing",
            "`false`",
        ),
        "min_age": KeySpec(
            DurationShape(MINUTE, 90 * DAY, zero=True), "younger workloads are left alone", "`1h`"
        ),
        "cool_down": KeySpec(
            DurationShape(MINUTE, 90 * DAY),
            "rest between two actions on one object; doubles each time its owner took it back",
            "`6h`",
        ),
        "reversals": KeySpec(
            REVERSALS, "how often owners may take back what was stopped", "5% within 24h"
        ),
        "max_resources": KeySpec(
            _whole,
            "more cases ready to be acted upon in one run than this abort the whole run",
            "`20%` of the workloads",
        ),
    }
)


def list_keys(section: MappingShape = POLICY, prefix: str = "") -> Iterator[tuple[str, KeySpec]]:
    """Yield every key with its dotted name, a section before its keys."""
    for name, key in section.keys.items():
        dotted = f"{prefix}{name}"
        yield dotted, key
        inner = key.shape
        if isinstance(inner, MappingShape):
            yield from list_keys(inner, f"{dotted}.")
        elif isinstance(inner, ListShape):
            yield from list_keys(inner.item, f"{dotted}[].")
        elif isinstance(inner, StagesShape):
            yield (
                f"{dotted}[].grace",
                KeySpec(GRACE, "time from a proved notice to the act", required=True),
            )
            for stage, meaning in (
                ("snapshot", "what is kept before the act"),
                ("act", "what is done in the end"),
            ):
                inner_section = SNAPSHOT if stage == "snapshot" else ACT
                yield f"{dotted}[].{stage}", KeySpec(inner_section, meaning)
                yield from list_keys(inner_section, f"{dotted}[].{stage}.")


def table() -> str:
    """Return the reference of all keys as Markdown."""
    lines = ["| key | may hold | default | meaning |", "|---|---|---|---|"]
    for name, key in list_keys():
        words = str(key.shape.words).replace("|", "\\|")
        default = "needed" if key.required else key.default
        lines.append(f"| `{name}` | {words} | {default} | {key.what} |")
    return "\n".join(lines) + "\n"


def schema() -> dict[str, Any]:
    """Return a JSON schema of one policy, for editors."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fallow policy"}
    return {**head, **POLICY.schema}
