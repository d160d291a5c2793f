"""Read policies from YAML: every error names the file, the line, the key and the legal values.

file ─► tree (lines) ─► keys (shapes) ─► Policy ─► rules (what must hold between keys)
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from actions.policy import keys, rules
from actions.policy.capabilities import Capabilities, installed_capabilities
from actions.policy.model import (
    ActionBudget,
    Allow,
    Approvals,
    Blackout,
    Match,
    Policy,
    RecurringWindow,
    ReversalLimit,
    Stage,
)
from actions.policy.tree import Location, Node, PolicyProblem, get_line, read_documents
from fallow.errors import UsageError

TURN_INTERVAL = timedelta(seconds=60)
"""Time between two evaluations where no settings are read: the default of the service."""
SUFFIXES = (".yaml", ".yml")


def read_policies(
    paths: Iterable[Path],
    *,
    capabilities: Capabilities | None = None,
    interval: timedelta = TURN_INTERVAL,
) -> tuple[Policy, ...]:
    """Return the policies of files and folders, by file and in their order in the file.

    `can`: what executors can do; None = those installed. `look`: time between two evaluations.

    Raises:
        UsageError: a file cannot be read, or contains an illegal value.
    """
    policies, problems = parse_policies(paths, capabilities=capabilities, interval=interval)
    if problems:
        others = f"{len(problems) - 1} more; " if len(problems) > 1 else ""
        raise UsageError(str(problems[0]), hint=f"{others}fallow policy check lists all")
    return policies


def parse_policies(
    paths: Iterable[Path],
    *,
    capabilities: Capabilities | None = None,
    interval: timedelta = TURN_INTERVAL,
) -> tuple[tuple[Policy, ...], list[PolicyProblem]]:
    """Return the policies of files and folders, and everything that is wrong in them."""
    problems: list[PolicyProblem] = []
    policies: dict[str, Policy] = {}
    for path in _files(paths, problems):
        location = Location(str(path), problems)
        nodes = read_documents(path, location)
        if not nodes and not any(p.file == str(path) for p in problems):
            location.report(0, "holds no policy")
        for node in nodes:
            policy = _policy(
                node,
                location,
                installed_capabilities() if capabilities is None else capabilities,
                interval,
            )
            if policy is None:
                continue
            if policy.name in policies:
                source = policies[policy.name].source
                location.at("name").report(
                    node, f"{policy.name} is the name of another, at {source}"
                )
            else:
                policies[policy.name] = policy
    return tuple(policies.values()), problems


def _files(paths: Iterable[Path], problems: list[PolicyProblem]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        policy_files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
        if not policy_files:
            Location(str(path), problems).report(
                0, f"is a folder without {' or '.join(SUFFIXES)} files"
            )
        yield from policy_files


def _policy(
    node: Node, location: Location, capabilities: Capabilities, interval: timedelta
) -> Policy | None:
    before = len(location.problems)
    values = keys.POLICY.read(node, location)
    if values is None or len(location.problems) > before:
        return None
    defaults = Policy(values["name"])
    policy = Policy(
        name=values["name"],
        description=values.get("description", ""),
        mode=values.get("mode", "notify"),
        match=Match(**_match(values.get("match", {}))),
        allow=Allow(**values.get("allow", {})),
        stages=tuple(_stage(name, value, capabilities) for _, name, value in values["stages"]),
        budgets=tuple(_budget(value) for _, value in values.get("budgets", ())),
        concurrent=int(values.get("concurrent", defaults.concurrent)),
        blackouts=tuple(_blackout(value) for _, value in values.get("blackouts", ())),
        act_window=_window(values.get("act_window", {})),
        approvals=_approvals(values.get("approvals")),
        on_pressure=values.get("on_pressure", False),
        on_benefit=values.get("on_benefit", False),
        min_age=values.get("min_age", defaults.min_age),
        cool_down=values.get("cool_down", defaults.cool_down),
        reversals=_reversal_limit(values.get("reversals", {})),
        max_resources=values.get("max_resources", defaults.max_resources),
        source=f"{location.file}:{get_line(node)}",
    )
    rules.check(policy, rules.PolicyText(node, values, location), capabilities, interval)
    return policy if len(location.problems) == before else None


def _match(values: Mapping[str, Any]) -> dict[str, Any]:
    floats = {"confidence", "gpus", "gpu_hours", "gpu_hours_per_day"}
    return {name: float(value) if name in floats else value for name, value in values.items()}


def _stage(name: Any, value: Any, capabilities: Capabilities) -> Stage:
    if name == "grace":
        return Stage("grace", wait=value)
    if name == "snapshot":
        values = value or {}
        return Stage(
            "snapshot",
            what=values.get("what", ("manifest",)),
            required=values.get("required", True),
        )
    if name == "act":
        do = value["do"]
        return Stage("act", do=do, verbs=capabilities.verbs(do), parameters=value.get("with", {}))
    return Stage(name)


def _budget(values: Mapping[str, Any]) -> ActionBudget:
    amounts = {
        name: values[name] for name in values if name not in RecurringWindow.__struct_fields__
    }
    return ActionBudget(**amounts, window=_window(values))


def _window(values: Mapping[str, Any]) -> RecurringWindow | None:
    if "schedule" not in values or "duration" not in values:
        return None
    return RecurringWindow(values["schedule"], values["duration"], values.get("timezone", "UTC"))


def _blackout(values: Mapping[str, Any]) -> Blackout:
    zone = ZoneInfo(values.get("timezone", "UTC"))
    start, end = values.get("from"), values.get("to")
    return Blackout(
        name=values["name"],
        start=_to_utc(start, zone, fold=0),
        end=_to_utc(end, zone, fold=1),
        window=_window(values),
    )


def _to_utc(timestamp: datetime | None, zone: ZoneInfo, *, fold: int) -> datetime | None:
    """Return a time in UTC.

    A local time that occurs twice is read as the one that lengthens the blackout.
    """
    if timestamp is None or timestamp.tzinfo is not None:
        return timestamp and timestamp.astimezone(UTC)
    return timestamp.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _approvals(values: Mapping[str, Any] | None) -> Approvals:
    if values is None:
        return Approvals()
    when, first = values["when"]
    return Approvals(when, first, values.get("four_eyes", False))


def _reversal_limit(values: Mapping[str, Any]) -> ReversalLimit:
    rate = float(values["rate"]) if "rate" in values else ReversalLimit().rate
    return ReversalLimit(rate, values.get("within", ReversalLimit().within))
