"""Read policies from YAML: every error names the file, the line, the key and the legal values.

file ─► tree (lines) ─► keys (pydantic) ─► Policy ─► rules (what must hold between keys)
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
from pydantic import ValidationError

from actions.policy import rules
from actions.policy.capabilities import Capabilities, find_installed_capabilities
from actions.policy.keys import PolicyKeys
from actions.policy.model import Policy
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

    `capabilities`: what executors can do; None = those installed. `interval`: time between two
    evaluations.

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
    for path in _list_files(paths, problems):
        location = Location(str(path), problems)
        nodes = read_documents(path, location)
        if not nodes and not any(p.file == str(path) for p in problems):
            location.report(0, "holds no policy")
        for node in nodes:
            policy = _parse_policy(
                node,
                location,
                find_installed_capabilities() if capabilities is None else capabilities,
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


def _list_files(paths: Iterable[Path], problems: list[PolicyProblem]) -> Iterator[Path]:
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


def _parse_policy(
    node: Node, location: Location, capabilities: Capabilities, interval: timedelta
) -> Policy | None:
    try:
        keys = PolicyKeys.model_validate(node)
    except ValidationError as invalid:
        for error in sorted(invalid.errors(), key=lambda error: error["input"].start_mark.index):
            location.at(*error["loc"]).report(error["input"], error["msg"])
        return None
    policy = msgspec.convert(keys.model_dump(exclude_unset=True), Policy)
    policy = msgspec.structs.replace(
        policy,
        stages=tuple(
            msgspec.structs.replace(stage, verbs=capabilities.verbs(stage.do))
            for stage in policy.stages
        ),
        source=f"{location.file}:{get_line(node)}",
    )
    before = len(location.problems)
    rules.check(policy, rules.PolicyText(node, keys, location), capabilities, interval)
    return policy if len(location.problems) == before else None
