"""Admission lets an executor's writes for a policy pass, and those of its undo."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.admission.expressions import match_globs, quote
from actions.executors import choose_executor
from actions.loop.annotate import ANNOTATION_KEYS
from actions.policy.parser import read_policies
from fallow.action_models import Action, Change
from fallow.settings import Settings
from runtime.operations.acting.admission_page import list_accounts, list_documents
from simulator.kube.paths import parse_path
from tests.actions.admission.evaluation import Object, refusals, value
from tests.actions.places import Place, current, serving
from tests.actions.reclaim.examples import EXAMPLES, decided

ACTOR = "system:serviceaccount:fallow:fallow-actor"
NOW = datetime(2026, 11, 24, tzinfo=UTC)
POLICY = """\
name: all
mode: enforce
match: {{analyzer: idle}}
allow: {{namespaces: [{namespace}], kinds: [{kind}]}}
stages: [notify, grace: 24h, act: {{do: [suspend, scale, evict], with: {{restore: true}}}}]
budgets: [{{workloads: 2, per: 1d}}]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with serving("stand-in", tmp_path_factory.mktemp("admission")) as one:
        yield one


@pytest.fixture
def api(server: Any) -> Place:
    return Place(*server)


def documents(folder: Path, kind: str, namespace: str, *standing: Action) -> list[Object]:
    file = folder / f"{kind}-{namespace}.yaml"
    file.write_text(POLICY.format(kind=kind, namespace=namespace))
    policies = read_policies([file], interval=timedelta(seconds=30))
    return list_documents(Settings(), policies, standing, list_accounts(Settings()))


def send(api: Place, change: Change, *sites: list[Object]) -> list[dict[str, str]]:
    """Send a change; return how each site's admission would have refused it."""
    assert api.server is not None
    place = parse_path(api.server.store.catalog, change.path)
    created = change.method == "POST"
    read = change.path.rpartition("/")[0] if created else change.path
    before = None if created else api.door.get(read)
    api.send(change)
    review: Object = {
        "userInfo": {"username": ACTOR},
        "operation": "CREATE" if created else "UPDATE",
        "resource": {"group": place.kind.group, "resource": place.kind.plural},
        "name": place.name or change.body["metadata"]["name"],
    }
    if place.subresource:
        review["subResource"] = place.subresource
    if place.namespace:
        review["namespace"] = place.namespace
    objects = {
        "object": change.body if created else api.door.get(read),
        "oldObject": before,
        "namespaceObject": {"metadata": {"name": place.namespace}} if place.namespace else None,
    }
    return [refusals(pages, review, **objects) for pages in sites]


def annotation(change: Change) -> Change:
    """Return the write of Fallow's annotations on the target of a change."""
    body = {"metadata": {"annotations": dict.fromkeys(ANNOTATION_KEYS, "x")}}
    path, _, part = change.path.rpartition("/")
    whole = path if part in ("scale", "eviction") else change.path
    return Change(change.target, "PATCH", whole, body, guarded=False)


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=lambda n: f"{EXAMPLES[n].kind}-{n}")
def test_acts_and_their_undo_pass_for_the_policy_that_names_them_and_no_other(
    api: Place, tmp_path: Path, number: int
) -> None:
    example = EXAMPLES[number]
    api.make(example.stored, example.body("x"), status=example.status)
    decision = decided(example.kind, api.name, "x", example.verb)
    intent = choose_executor(decision).writes(decision, api.door)
    named = documents(tmp_path, example.kind, api.name)
    other = documents(tmp_path, example.kind, "elsewhere")
    mark = [] if example.kind in ("Pod", "VolcanoJob") else [annotation(intent.changes[0])]

    for change in (*intent.changes, *mark):
        passed, refused = send(api, change, named, other)
        assert not passed
        assert refused

    # The policy does not name the namespace any more: the undo of what stands passes all the same.
    action = Action(id="a1", at=NOW, decision=decision, intent=intent, actor="a")
    standing = documents(tmp_path, example.kind, "elsewhere", action)
    for change in intent.undo:
        passed, refused = send(api, current(api.door, change), standing, other)
        assert not passed
        assert refused


@settings(max_examples=300, deadline=None)
@given(
    glob=st.text("ab-*?.[]!", max_size=8),
    text=st.text("ab-.[]!\n", max_size=8),
)
def test_a_glob_means_in_cel_what_it_means_to_the_gates(glob: str, text: str) -> None:
    result = value(match_globs("object", [glob]), {"object": text})
    assert result == fnmatchcase(text, glob), (glob, text)


@given(st.text(max_size=20))
def test_a_text_stays_itself_as_a_literal(text: str) -> None:
    assert value(quote(text), {}) == text
