"""Structural schemas of custom kinds: the same answers from the stub and a real server."""

import itertools
from functools import partial
from typing import Any

import pytest

from actions.reclaim.kinds import read_kinds
from tests.servers.definitions import ROOT, build_definitions, build_schema, is_structural
from tests.simulator.kube.conftest import JSON, MERGE, Kube, Object, Space, until

FIELDS = (
    "spec.suspend:boolean spec.size:integer spec.mode:string"
    " spec.amounts:{quantity} spec.groups[].name:string! spec.groups[].quota:quantity"
    " spec.share:number spec.template:any spec.inner.switch:boolean"
)
GROUP = "schemas.example.com"
COLLECTION = f"{GROUP}/v1"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def defined(kube: Kube) -> str:
    """Return the plural of a kind whose fields are all in `FIELDS`."""
    plural = f"samples{next(_numbers)}"
    kind = plural.capitalize()
    version = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": build_schema(FIELDS)},
    }  # fmt: skip
    body = {
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
            "versions": [version],
        },
    }
    assert kube.ask("POST", ROOT, body).code == 201
    until(partial(_served, kube, f"/apis/{COLLECTION}/{plural}"))
    return plural


def _served(kube: Kube, path: str) -> bool:
    return kube.ask("GET", path).code == 200


def made(space: Space, plural: str, spec: Object, **query: Any) -> Any:
    kind = plural.capitalize()
    head = {"apiVersion": COLLECTION, "kind": kind, "metadata": {"name": "x"}}
    return space.create(plural, {**head, "spec": spec}, COLLECTION, **query)


@pytest.mark.parametrize(
    "spec",
    [
        {"suspend": True, "size": 2, "share": 2, "mode": "Slow"},
        {"share": 0.5, "amounts": {"gpu": 2, "memory": "2Gi", "cpu": "500m"}},
        {"groups": [{"name": "a", "quota": "2"}, {"name": "b", "quota": 0}]},
        {"template": {"any": [{"thing": None}]}},
    ],
)
def test_what_a_schema_has_is_stored_as_it_came(space: Space, defined: str, spec: Object) -> None:
    answer = made(space, defined, spec, fieldValidation="Strict")
    assert answer.code == 201, answer.body
    assert answer.body["spec"] == spec


UNKNOWN: list[Object] = [
    {"other": 1}, {"inner": {"other": 1}}, {"groups": [{"name": "a", "other": 1}]},
]  # fmt: skip


@pytest.mark.parametrize("spec", UNKNOWN)
def test_an_unknown_field_is_refused_strictly_and_left_out_otherwise(
    space: Space, defined: str, spec: Object
) -> None:
    refused = made(space, defined, spec, fieldValidation="Strict")
    assert refused.code == 400, refused.body
    assert 'unknown field "spec.' in refused.body["message"]
    stored = made(space, defined, spec)
    assert stored.code == 201
    assert "other" not in str(stored.body["spec"])


@pytest.mark.parametrize(
    ("body", "media", "code"),
    [
        ({"spec": {"other": 1}}, MERGE, 422),
        ([{"op": "add", "path": "/spec/other", "value": 1}], JSON, 422),
        ({"spec": {"suspend": True}}, MERGE, 200),
    ],
)
def test_a_patch_is_held_to_the_schema(
    space: Space, defined: str, body: Any, media: str, code: int
) -> None:
    made(space, defined, {})
    query = {"group": COLLECTION, "media": media, "fieldValidation": "Strict"}
    answer = space.patch(defined, "x", body, **query)
    assert answer.code == code, answer.body


def test_every_kind_that_is_written_has_a_schema() -> None:
    """A kind of others that an executor patches is in `foreign_kinds.csv`."""
    names = {(d["spec"]["group"], d["spec"]["names"]["kind"]): d for d in build_definitions()}
    written = {(k.group, k.api_kind) for k in read_kinds().values() if k.pointer}
    foreign = written & names.keys()
    assert len(foreign) > 15
    assert [key for key in foreign if not is_structural(names[key])] == []
