"""Every key of a policy: its values and its meaning.

The parser, the reference in `docs/policies.md` and the JSON schema for editors are built from this.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args, get_origin
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationInfo,
    WrapValidator,
    field_serializer,
    model_serializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails

from actions.policy import values
from actions.policy.model import Counts, Mode, RecurringWindow, Scope
from actions.policy.section import Entries, Section, complete, describe_values, report
from actions.policy.tree import Node, describe_node, is_null
from actions.policy.values import Legal, suggest_word
from fallow.action_models import Step
from fallow.models import Evidence

STAGES: tuple[str, ...] = get_args(Step)


def define_key(meaning: str, default: str = "unset", **field: Any) -> Any:
    """Return a key that may be left out: its meaning, and in words what holds without it."""
    return Field(None, description=meaning, json_schema_extra={"unset": default}, **field)


class MatchKeys(Section):
    """Which findings a policy is about."""

    analyzer: values.Globs = define_key(
        "analyzer of the finding: `fallow plugins list` names them", "any"
    )
    kind: values.Globs = define_key("kind of finding, such as `idle_notebook`", "any")
    verb: values.Globs = define_key("recommended verb, such as `stop`", "any")
    workload_kind: values.Globs = define_key(
        "kind of the workload's top owner, such as `Notebook`", "any"
    )
    cluster: values.Globs = define_key("cluster as named in `fallow.yaml`", "any")
    namespaces: values.Globs = define_key("namespaces that match", "any")
    not_namespaces: values.Globs = define_key("namespaces that do not match", "none")
    queue: values.Globs = define_key("queue of the workload; an unknown one matches nothing", "any")
    owner: values.Globs = define_key("team, or who else is notified", "any")
    gpu_model: values.Globs = define_key("every GPU model of the workload has to match", "any")
    labels: values.Labels = define_key("labels of the workload; each one has to match", "any")
    namespace_labels: values.Labels = define_key(
        "labels of its namespace; each one has to match", "any"
    )
    over_quota: values.Flag = define_key(
        "only work in a queue or namespace with more GPUs than its nominal quota; where that is "
        "unknown it does not match",
        "`false`",
    )
    evidence: Annotated[Evidence, values.WORD] = define_key("the minimum evidence", "`suspected`")
    confidence: values.Ratio = define_key("the minimum confidence", "`0`")
    gpus: values.Number = define_key("the minimum of GPUs that the workload has", "`0`")
    min_duration: values.UpTo90Days = define_key(
        "the shortest time for which it has been idle without a break, such as `8h`; a finding "
        "that is not about idleness does not match",
        "any",
    )
    gpu_hours: values.Number = define_key("the minimum of GPU-hours wasted so far", "`0`")
    gpu_hours_per_day: values.Number = define_key(
        "the minimum of GPU-hours a day that the act would free", "`0`"
    )
    usd_per_day: values.Dollars = define_key(
        "the minimum of dollars a day; a finding without a price does not match", "`0`"
    )


class AllowKeys(Section):
    """Where a policy may act."""

    namespaces: values.GlobsOrNone = define_key(
        "where it may act: enforcing needs this list, which may be empty", "nowhere"
    )
    kinds: values.Globs = define_key(
        "kinds of workloads it may act upon; kinds that serve (Deployment, InferenceService and "
        "the like) have to be named here",
        "all that match and do not serve",
    )
    production: values.Flag = define_key(
        "may it act on production, by namespace, label or priority class", "`false`"
    )
    held_by: values.GlobsOrNone = define_key(
        "what it stops although it is held: disruption budgets that allow fewer pods to go "
        "(`ml/vllm`), labels of a standby (`role=standby`), containers that elect a leader "
        "(`leader-elector`)",
        "nothing",
    )
    cluster_objects: values.Flag = define_key(
        "may it act on objects without a namespace: nodes, pools, groups of quotas", "`false`"
    )


class SnapshotKeys(Section):
    """What is kept before the act."""

    what: values.Parts = define_key("what is kept", "`[manifest]`")
    required: values.Flag = define_key("without a verified one, nothing is stopped", "`true`")


class ActKeys(Section):
    """What is done in the end."""

    do: values.Words = Field(
        description="capabilities of executors (`suspend`) or verbs of recommendations"
    )
    parameters: values.PlainMapping = define_key(
        "what the executor gets besides the recommendation's own figures", "`{}`", alias="with"
    )


_WORDS: TypeAdapter[tuple[str, ...]] = TypeAdapter(values.Words)


def _act(node: Node, handler: Callable[[Node], ActKeys]) -> ActKeys:
    if isinstance(node, yaml.MappingNode):
        return handler(node)
    return ActKeys.model_construct(do=_WORDS.validate_python(node))


def _accept_nothing(node: Node, info: ValidationInfo) -> None:
    if not is_null(node):
        raise complete(f"takes nothing: write {info.field_name}")


_Nothing = Annotated[None, BeforeValidator(_accept_nothing)]


class StageKeys(Section):
    """A stage: its word, or a mapping of its word alone."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})
    observe: _Nothing = None
    notify: _Nothing = None
    grace: values.Grace = define_key("time from a proved notice to the act", "needed")
    snapshot: SnapshotKeys = define_key("what is kept before the act")
    act: Annotated[
        ActKeys,
        WrapValidator(_act, json_schema_input_type=values.Words | ActKeys),
        Legal("a capability or verb, or a list of them"),
    ] = define_key("what is done in the end")

    @model_serializer(mode="wrap")
    def _write_step(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        ((step, options),) = handler(self).items()
        if step == "grace":
            return {"step": step, "wait": options}
        defaults = {"what": ("manifest",), "required": True} if step == "snapshot" else {}
        return {"step": step, **defaults, **(options or {})}

    @classmethod
    def entries(cls, node: Node) -> tuple[Entries, list[InitErrorDetails]]:
        """Return the word of a stage with its options; none where the node is no stage."""
        entries: Entries = {}
        errors: list[InitErrorDetails] = []
        if isinstance(node, yaml.ScalarNode):
            entries[node.value] = (node, _build_empty(node, "null"))
        elif isinstance(node, yaml.MappingNode):
            entries, errors = super().entries(node)
        if len(entries) != 1:
            text = f"is {describe_node(node)} of {len(entries)}; legal: {_STAGES.words}"
            return {}, [*errors, report(text, node)]
        (name,) = entries
        if name not in STAGES:
            text = f"no such stage{suggest_word(name, STAGES)}; legal: {', '.join(STAGES)}"
            return {}, [*errors, report(text, node)]
        return entries, errors

    @classmethod
    def fill_empty(cls, name: str, node: Node) -> Node:
        """Return an empty mapping for a snapshot, which needs no options."""
        if name in {"grace", "act"}:
            words = describe_values(cls.model_fields[name])
            raise complete(f"says nothing; legal: {name}: {words}")
        return _build_empty(node, "map") if name == "snapshot" else node


_STAGES = Legal("a list of observe, notify, grace: 24h, snapshot, act: suspend, in this order")
_StageItems = Annotated[
    list[Literal["observe", "notify", "snapshot"] | StageKeys], Field(min_length=1)
]


def _build_empty(node: Node, kind: Literal["null", "map"]) -> Node:
    """Return an empty node in the place of another."""
    make, value = (yaml.ScalarNode, "") if kind == "null" else (yaml.MappingNode, [])
    return make(f"tag:yaml.org,2002:{kind}", value, node.start_mark, node.end_mark)


class RecurringKeys(Section):
    """A section that may have a recurring window among its keys."""

    @model_serializer(mode="wrap")
    def _write_window(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        names = RecurringWindow.__struct_fields__
        window = {name: fields.pop(name) for name in names if name in fields}
        is_whole = "schedule" in window and "duration" in window
        return fields | ({"window": window} if is_whole else {})


_OPENS = "when it opens, as crontab(5) has it: 0 and 7 are Sunday"
_LASTS = "how long it stays open; needed where there is a schedule"
_CLOCK = "the time zone of the schedule"


class BudgetKeys(RecurringKeys):
    """The most that may be done."""

    workloads: values.WholeAmount = define_key(
        "most workloads; a percentage is rounded up", "any number"
    )
    gpus: values.Amount = define_key(
        "most GPUs; a percentage above 0 is never less than one node, where nodes are acted upon, "
        "or than the GPUs of the largest node",
        "any number",
    )
    owners: values.WholeAmount = define_key(
        "most different owners; a percentage is rounded up", "any number"
    )
    usd_per_hour: values.Amount = define_key(
        "most dollars an hour; an act without a price does not fit; a percentage as of GPUs",
        "any number",
    )
    per: values.UpTo31Days = define_key("in any stretch of this length", "`1d`")
    each: Annotated[Literal["namespace", "owner", "cluster"], values.WORD] = define_key(
        "counted apart for each of these; not with percentages", "together"
    )
    counts: Annotated[Counts, values.WORD] = define_key(
        "actions of this policy, or of all policies", "`policy`"
    )
    scope: Annotated[Scope, values.WORD] = define_key(
        "actions in this cluster, or in all clusters of the catalog", "`cluster`"
    )
    schedule: values.Schedule = define_key(_OPENS)
    duration: values.UpTo31Days = define_key(_LASTS)
    timezone: values.TimeZone = define_key(_CLOCK, "`UTC`")


class ActWindowKeys(Section):
    """When a policy acts."""

    schedule: values.Schedule = Field(
        description="when it begins, as crontab(5) has it: 0 and 7 are Sunday"
    )
    duration: values.UpTo31Days = Field(description="how long it stays open")
    timezone: values.TimeZone = define_key(_CLOCK, "`UTC`")


class BlackoutKeys(RecurringKeys):
    """When nothing is done."""

    name: values.Line = Field(description="text for people while it is in force")
    start: values.Timestamp = define_key("first day, or the time it begins", alias="from")
    end: values.LastTimestamp = define_key(
        "last day (the whole of it), or the time it ends", "open", alias="to"
    )
    schedule: values.Schedule = define_key(_OPENS)
    duration: values.UpTo31Days = define_key(_LASTS)
    timezone: values.TimeZone = define_key(_CLOCK, "`UTC`")

    @field_serializer("start", "end")
    def _write_utc(self, local: datetime, info: FieldSerializationInfo) -> datetime:
        """Return a time in UTC.

        A local time that occurs twice is read as the one that lengthens the blackout.
        """
        if local.tzinfo is None:
            zone = ZoneInfo(self.timezone or "UTC")
            local = local.replace(tzinfo=zone, fold=int(info.field_name == "end"))
        return local.astimezone(UTC)


class ApprovalKeys(Section):
    """Whether people have to agree."""

    when: values.Approval = Field(description="which actions need a person's `fallow approve`")
    four_eyes: values.Flag = define_key("two different people have to approve", "`false`")

    @model_serializer(mode="wrap")
    def _write_number(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return fields | dict(zip(("when", "first"), self.when, strict=True))


class ReversalKeys(Section):
    """How often owners may take back what was stopped."""

    rate: values.Percentage = define_key(
        "more of its stops reversed than this: the back-test fails, and in service it demotes "
        "itself to notify",
        "`5%`",
    )
    within: values.UpTo30Days = define_key(
        "what its owner undoes within this time counts as a reversal", "`24h`"
    )


class PolicyKeys(Section):
    """A policy."""

    name: values.Name = Field(description="its name, unique among all policies")
    description: values.Line = define_key("one line for people", "none")
    mode: Annotated[Mode, values.WORD] = define_key(
        "`notify` never goes further than a notice; `enforce` may take all stages", "`notify`"
    )
    match: MatchKeys = define_key(
        "which findings it is about: every condition has to be true", "all"
    )
    allow: AllowKeys = define_key("where it may act", "nowhere")
    stages: Annotated[
        list[StageKeys],
        BeforeValidator(values.list_items, json_schema_input_type=_StageItems),
        _STAGES,
    ] = Field(description="how far it goes, stage by stage")
    budgets: Annotated[list[BudgetKeys], values.ITEMS] = define_key(
        "the most that may be done; all budgets in force count", "none"
    )
    concurrent: values.Count = define_key("open actions at once, of all policies", "`2`")
    blackouts: Annotated[list[BlackoutKeys], values.ITEMS] = define_key(
        "when nothing is done", "none"
    )
    act_window: ActWindowKeys = define_key(
        "it acts only while this window is open; its notices announce the time of the stop, and "
        "owners may keep what they need",
        "always open",
    )
    approvals: ApprovalKeys = define_key("whether people have to agree", "none needed")
    on_pressure: values.Flag = define_key(
        "only if a workload waits that the freed GPUs really admit", "`false`"
    )
    on_benefit: values.Flag = define_key(
        "only if so, or if a node would be empty and could be removed: freed GPUs without demand "
        "save nothing",
        "`false`",
    )
    min_age: values.UpTo90DaysOrNone = define_key("younger workloads are left alone", "`1h`")
    checkpoint_age: values.UpTo90Days = define_key(
        "a stop may lose at most so much work since a checkpoint that was seen being written; a "
        "`restart` needs it",
        "not asked",
    )
    cool_down: values.UpTo90Days = define_key(
        "pause between two actions on one object; doubles with each reversal by its owner", "`6h`"
    )
    reversals: ReversalKeys = define_key(
        "how often owners may take back what was stopped", "5% within 24h"
    )
    max_resources: values.WholeAmount = define_key(
        "more cases ready to be acted upon in one run than this abort the whole run",
        "`20%` of the workloads",
    )


def list_keys(
    section: type[Section] = PolicyKeys, prefix: str = ""
) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key that has a meaning with its dotted name, a section before its keys."""
    for name, field in section.keys().items():
        if not field.description:
            continue
        yield f"{prefix}{name}", field
        kind: Any = field.annotation
        if get_origin(kind) is list:
            yield from list_keys(get_args(kind)[0], f"{prefix}{name}[].")
        elif isinstance(kind, type) and issubclass(kind, Section):
            yield from list_keys(kind, f"{prefix}{name}.")


def describe_default(field: FieldInfo) -> str:
    """Return in words what holds where a key is left out."""
    extra: Any = field.json_schema_extra
    return "needed" if field.is_required() else str(extra["unset"])


def render_table() -> str:
    """Return the reference of all keys as Markdown."""
    lines = ["| key | may hold | default | meaning |", "|---|---|---|---|"]
    for name, field in list_keys():
        words = describe_values(field).replace("|", "\\|")
        lines.append(f"| `{name}` | {words} | {describe_default(field)} | {field.description} |")
    return "\n".join(lines) + "\n"


def build_schema() -> dict[str, Any]:
    """Return a JSON schema of one policy, for editors."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Fallow policy"}
    whole = PolicyKeys.model_json_schema()
    return {**head, **_put_in_place(whole, whole.pop("$defs"))}


def _put_in_place(part: Any, sections: dict[str, Any]) -> Any:
    """Return a schema with each section where it is used, without what pydantic adds for itself."""
    if isinstance(part, list):
        return [_put_in_place(item, sections) for item in part]
    if not isinstance(part, dict):
        return part
    section = sections[part["$ref"].rpartition("/")[2]] if "$ref" in part else {}
    return {
        name: _put_in_place(value, sections)
        for name, value in {**section, **part}.items()
        if name not in {"$ref", "title", "default", "unset"}
    }
