"""Read policies from YAML: every error names the file, the line, the key and what is legal.

file ─► tree (lines) ─► keys (shapes) ─► Policy ─► rules (what must hold between keys)
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from actions.policy import keys, rules
from actions.policy.able import Able, able
from actions.policy.model import (
    Allow,
    Approvals,
    Blackout,
    Budget,
    Match,
    Policy,
    Recurring,
    Regret,
    Rung,
)
from actions.policy.tree import Node, Problem, Where, documents, line_of
from fallow.errors import UsageError

LOOK = timedelta(seconds=60)
"""Time between two looks where no settings are asked: that of the service."""
SUFFIXES = (".yaml", ".yml")


def read(
    paths: Iterable[Path], *, can: Able | None = None, look: timedelta = LOOK
) -> tuple[Policy, ...]:
    """Return the policies of files and folders, by file and in the order they stand there.

    `can`: what executors can do; None = those installed. `look`: time between two looks.

    Raises:
        UsageError: a file cannot be read, or holds what is not legal.
    """
    found, problems = look_at(paths, can=can, look=look)
    if problems:
        more = f"{len(problems) - 1} more; " if len(problems) > 1 else ""
        raise UsageError(str(problems[0]), hint=f"{more}fallow policy check lists all")
    return found


def look_at(
    paths: Iterable[Path], *, can: Able | None = None, look: timedelta = LOOK
) -> tuple[tuple[Policy, ...], list[Problem]]:
    """Return the policies of files and folders, and everything that is wrong in them."""
    problems: list[Problem] = []
    found: dict[str, Policy] = {}
    for path in _files(paths, problems):
        where = Where(str(path), problems)
        nodes = documents(path, where)
        if not nodes and not any(p.file == str(path) for p in problems):
            where.wrong(0, "holds no policy")
        for node in nodes:
            policy = _policy(node, where, able() if can is None else can, look)
            if policy is None:
                continue
            if policy.name in found:
                first = found[policy.name].source
                where.at("name").wrong(node, f"{policy.name} is the name of another, at {first}")
            else:
                found[policy.name] = policy
    return tuple(found.values()), problems


def _files(paths: Iterable[Path], problems: list[Problem]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
        if not inside:
            Where(str(path), problems).wrong(
                0, f"is a folder without {' or '.join(SUFFIXES)} files"
            )
        yield from inside


def _policy(node: Node, where: Where, can: Able, look: timedelta) -> Policy | None:
    before = len(where.problems)
    said = keys.POLICY.read(node, where)
    if said is None or len(where.problems) > before:
        return None
    bare = Policy(said["name"])
    policy = Policy(
        name=said["name"],
        description=said.get("description", ""),
        mode=said.get("mode", "notify"),
        match=Match(**_match(said.get("match", {}))),
        allow=Allow(**said.get("allow", {})),
        ladder=tuple(_rung(name, told, can) for _, name, told in said["ladder"]),
        budgets=tuple(_budget(told) for _, told in said.get("budgets", ())),
        concurrent=int(said.get("concurrent", bare.concurrent)),
        blackouts=tuple(_blackout(told) for _, told in said.get("blackouts", ())),
        act_window=_window(said.get("act_window", {})),
        approvals=_approvals(said.get("approvals")),
        on_pressure=said.get("on_pressure", False),
        on_benefit=said.get("on_benefit", False),
        min_age=said.get("min_age", bare.min_age),
        cool_down=said.get("cool_down", bare.cool_down),
        regret=_regret(said.get("regret", {})),
        max_resources=said.get("max_resources", bare.max_resources),
        source=f"{where.file}:{line_of(node)}",
    )
    rules.check(policy, rules.Text(node, said, where), can, look)
    return policy if len(where.problems) == before else None


def _match(said: Mapping[str, Any]) -> dict[str, Any]:
    floats = {"confidence", "gpus", "gpu_hours", "gpu_hours_per_day"}
    return {name: float(value) if name in floats else value for name, value in said.items()}


def _rung(name: Any, told: Any, can: Able) -> Rung:
    if name == "grace":
        return Rung("grace", wait=told)
    if name == "snapshot":
        said = told or {}
        return Rung(
            "snapshot", what=said.get("what", ("manifest",)), required=said.get("required", True)
        )
    if name == "act":
        do = told["do"]
        return Rung("act", do=do, verbs=can.verbs(do), parameters=told.get("with", {}))
    return Rung(name)


def _budget(said: Mapping[str, Any]) -> Budget:
    own = {name: said[name] for name in said if name not in Recurring.__struct_fields__}
    return Budget(**own, window=_window(said))


def _window(said: Mapping[str, Any]) -> Recurring | None:
    if "schedule" not in said or "duration" not in said:
        return None
    return Recurring(said["schedule"], said["duration"], said.get("timezone", "UTC"))


def _blackout(said: Mapping[str, Any]) -> Blackout:
    zone = ZoneInfo(said.get("timezone", "UTC"))
    start, end = said.get("from"), said.get("to")
    return Blackout(
        name=said["name"],
        start=_moment(start, zone, fold=0),
        end=_moment(end, zone, fold=1),
        window=_window(said),
    )


def _moment(said: datetime | None, zone: ZoneInfo, *, fold: int) -> datetime | None:
    """Return a moment in UTC; of one that a clock shows twice, that which makes more dark."""
    if said is None or said.tzinfo is not None:
        return said and said.astimezone(UTC)
    return said.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _approvals(said: Mapping[str, Any] | None) -> Approvals:
    if said is None:
        return Approvals()
    when, first = said["when"]
    return Approvals(when, first, said.get("four_eyes", False))


def _regret(said: Mapping[str, Any]) -> Regret:
    rate = float(said["rate"]) if "rate" in said else Regret().rate
    return Regret(rate, said.get("within", Regret().within))
