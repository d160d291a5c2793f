"""What every installed executor must do: say what it needs, send nothing, and undo exactly."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actions.executors import choose_executor, load_executors
from actions.reclaim.evicting import RESTORE_RIGHTS
from actions.reclaim.kinds import read_kinds
from actions.recommend import read_verbs
from fallow.action_models import Change, Intent
from fallow.plugins import find_installed
from fallow.protocols import Executor, Right
from simulator.kube.kinds import read_builtin_kinds
from tests.actions.places import Place, bare, serving
from tests.actions.reclaim.examples import EXAMPLES, decided

ELSEWHERE = {
    "mig": "tests/actions/resize",
    "pool": "tests/actions/nodes",
    "precision": "tests/actions/hints",
    "quota": "tests/actions/quota",
    "recycle": "tests/actions/nodes",
    "replicas": "tests/actions/resize",
    "restart": "tests/actions/reclaim",
    "resume": "tests/actions/reclaim",
    "restart-elsewhere": "tests/actions/reclaim",
    "requests": "tests/actions/resize",
    "spot": "tests/actions/nodes",
    "jupyterhub": "tests/actions/cluster",
    "warm-pool": "tests/actions/scaling",
}
"""Executors whose examples are more than one object: where they are held to the same."""
NEVER = {"delete", "deletecollection", "*", "escalate", "bind", "impersonate"}
_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/[^/]+)?/(?P<resource>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<part>[a-z]+))?$"
)
_NAMESPACE = re.compile(r"^/api/v1/namespaces/[^/]+$")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Place]:
    with serving("stand-in", tmp_path) as (kube, server):
        yield Place(kube, server)


def needs(change: Change) -> tuple[str, str, str]:
    """Return group, resource with its subresource, and verb that a write takes."""
    if _NAMESPACE.match(change.path):
        return "", "namespaces", "patch"
    found = _PATH.match(change.path)
    assert found, change.path
    part = f"/{found['part']}" if found["part"] else ""
    verb = "create" if change.method == "POST" else "patch"
    return found["group"] or "", found["resource"] + part, verb


def covered(rights: tuple[Right, ...], change: Change) -> bool:
    group, resource, verb = needs(change)
    return any((r.group, r.resource) == (group, resource) and verb in r.verbs for r in rights)


@pytest.mark.parametrize("name", find_installed("executors"))
def test_an_executor_says_what_it_does_and_what_it_needs(name: str) -> None:
    executor = load_executors()[name]
    assert isinstance(executor, Executor)
    for said in (executor.kinds, executor.capabilities, executor.verbs):
        assert isinstance(said, frozenset)
        assert said
        assert all(said)
    assert executor.rights
    for right in executor.rights:
        assert not NEVER & set(right.verbs), f"{name} may never {right.verbs} {right.resource}"
        assert "*" not in right.resource
        assert right.resource != "secrets"


@pytest.mark.parametrize("name", find_installed("executors"))
def test_rights_name_resources_that_a_cluster_serves(name: str) -> None:
    served = {(k.group, k.plural) for k in read_builtin_kinds()}
    for right in load_executors()[name].rights:
        whole = right.resource.partition("/")[0]
        assert (right.group, whole) in served, f"{name}: {right}"


def held_to_the_contract(intent: Intent, rights: tuple[Right, ...]) -> None:
    """Hold an intent to what every intent must be: data, guarded, undone, and covered by rights."""
    assert intent.changes
    assert intent.undo
    for change in (*intent.changes, *intent.undo):
        assert change.method in {"PATCH", "POST"}
        assert json.loads(json.dumps(change.body)) == change.body
        assert change.guarded is (change.method == "PATCH")
        assert change.target.uid
        assert covered(rights, change), f"no right covers {needs(change)}"
        assert set(change.becomes) == set(change.was) or not change.becomes
    for change in intent.undo:
        assert change.target.resource_version is None, "an undo is of another time"


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=lambda n: f"{EXAMPLES[n].kind}-{n}")
def test_an_intent_is_data_that_is_undone_and_covered(api: Place, number: int) -> None:
    example = EXAMPLES[number]
    api.make(example.stored, example.body("x"), status=example.status)
    before = _everything(api)
    decision = decided(example.kind, api.name, "x", example.verb)
    executor = choose_executor(decision)
    intent = executor.writes(decision, api.door)
    assert _everything(api) == before, "an executor sends nothing"
    assert intent.capability in executor.capabilities
    # Creating pods is a role of its own, bound only where a policy restores bare pods.
    restoring = RESTORE_RIGHTS if example.kind == "Pod" else ()
    held_to_the_contract(intent, (*executor.rights, *restoring))
    again = executor.writes(decision, api.door)
    assert again == intent, "the same object and moment give the same intent"


def _everything(api: Place) -> list[Any]:
    assert api.server is not None
    store = api.server.store
    return [bare(o) for k in read_builtin_kinds() for o in store.list(k.key)]


def test_every_executor_is_under_contract() -> None:
    ours = {type(choose_executor(decided(e.kind, "a", "x", e.verb))).__name__ for e in EXAMPLES}
    held = {n for n, e in load_executors().items() if type(e).__name__ in ours}
    assert held | set(ELSEWHERE) == set(find_installed("executors"))
    root = Path(__file__).resolve().parents[2]
    assert all(any((root / folder).glob("test_*.py")) for folder in ELSEWHERE.values())


def test_every_stop_that_is_recommended_is_carried_out() -> None:
    for kind, verb in read_verbs().items():
        executor = choose_executor(decided(kind, "a", "x", verb.verb))
        assert kind in executor.kinds
    assert set(read_verbs()) | {"Pod"} == set(read_kinds())


def test_one_executor_for_each_kind_and_verb() -> None:
    seen: dict[tuple[str, str], str] = {}
    for name, executor in load_executors().items():
        for key in ((k, v) for k in executor.kinds for v in executor.verbs):
            assert key not in seen, f"{key}: {name} and {seen.get(key)}"
            seen[key] = name
