"""Lists: selectors, pages, versions, forms; and what the server says it serves."""

import gzip
import json
from typing import Any

import pytest

from tests.simulator.kube.conftest import Answer, Kube, Space, definition, until

MAPS = "configmaps"


def fill(space: Space, count: int = 5, **more: Any) -> None:
    for i in range(count):
        words = {"name": f"c{i}", "labels": {"even": str(i % 2 == 0).lower(), "n": str(i)}}
        assert space.create(MAPS, {"metadata": words, **more}).code == 201


def listed(space: Space, plural: str = MAPS, **query: Any) -> Answer:
    return space.ask("GET", space.path(plural), **query)


def names(answer: Answer) -> list[str]:
    return [i["metadata"]["name"] for i in answer.body["items"]]


def test_a_list_has_a_version_and_its_items_no_kind(space: Space) -> None:
    fill(space, 2)
    found = listed(space)
    assert found.body["kind"] == "ConfigMapList"
    assert int(found.version) >= max(
        int(i["metadata"]["resourceVersion"]) for i in found.body["items"]
    )
    assert all("kind" not in i for i in found.body["items"])


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("even=true", ["c0", "c2", "c4"]),
        ("even!=true", ["c1", "c3"]),
        ("n in (1, 2)", ["c1", "c2"]),
        ("n notin (1,2),even", ["c0", "c3", "c4"]),
        ("!n", []),
        ("even==true,n=2", ["c2"]),
    ],
)
def test_label_selectors(space: Space, selector: str, wanted: list[str]) -> None:
    fill(space)
    assert names(listed(space, labelSelector=selector)) == wanted


def test_field_selectors(space: Space) -> None:
    for name, node in (("a", "n0"), ("b", "n1"), ("c", "n0")):
        space.pod(name, running=name != "c", nodeName=node)
    assert names(listed(space, "pods", fieldSelector="spec.nodeName=n0")) == ["a", "c"]
    assert names(listed(space, "pods", fieldSelector="metadata.name=b")) == ["b"]
    both = "spec.nodeName=n0,status.phase!=Pending"
    assert names(listed(space, "pods", fieldSelector=both)) == ["a"]


@pytest.mark.parametrize(
    "query", [{"labelSelector": "a in b"}, {"fieldSelector": "spec.colour=red"}, {"limit": "x"}]
)
def test_a_query_that_cannot_be_read_is_a_bad_request(space: Space, query: dict[str, str]) -> None:
    answer = listed(space, "pods", **query)
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


def test_pages_show_one_moment(space: Space) -> None:
    fill(space)
    first = listed(space, limit=2)
    assert (names(first), first.body["metadata"]["remainingItemCount"]) == (["c0", "c1"], 3)
    space.create(MAPS, {"metadata": {"name": "c3a"}})
    space.ask("DELETE", space.path(MAPS, "c4"))
    second = listed(space, limit=2, **{"continue": first.body["metadata"]["continue"]})
    third = listed(space, limit=2, **{"continue": second.body["metadata"]["continue"]})
    assert names(second) + names(third) == ["c2", "c3", "c4"]
    assert first.version == second.version == third.version
    assert "continue" not in third.body["metadata"]


def test_an_expired_token_comes_with_a_fresh_one(kube: Kube, space: Space) -> None:
    fill(space)
    first = listed(space, limit=2)
    last = space.create(MAPS, {"metadata": {"name": "c9"}}).version
    kube.compact(int(last))
    gone = listed(space, limit=2, **{"continue": first.body["metadata"]["continue"]})
    assert (gone.code, gone.body["reason"]) == (410, "Expired")
    rest = listed(space, **{"continue": gone.body["metadata"]["continue"]})
    assert names(rest) == ["c2", "c3", "c4", "c9"]


def test_a_token_that_is_none_is_a_bad_request(space: Space) -> None:
    assert listed(space, **{"continue": "nonsense"}).code == 400


def test_a_version_to_come_is_not_waited_for_long(space: Space) -> None:
    future = int(listed(space).version) + 1_000_000
    answer = listed(space, "pods", resourceVersion=future)
    assert (answer.code, answer.body["reason"]) == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert answer.body["details"]["retryAfterSeconds"] == 1


def test_metadata_alone_can_be_asked_for(space: Space) -> None:
    fill(space, 1, data={"a": "b"})
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    found = listed(space, accept=accept).body
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    (item,) = found["items"]
    assert item["metadata"]["labels"]["n"] == "0"
    assert "data" not in item


def test_large_answers_are_packed_for_those_who_ask(kube: Kube, space: Space) -> None:
    fill(space, 5, data={"filling": "x" * 40_000})
    headers = {"Accept-Encoding": "gzip", "Authorization": "Bearer admin-token"}
    url = kube.url + space.path(MAPS)
    answer = kube.pool.request("GET", url, headers=headers, decode_content=False)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(answer.data))["items"]) == 5
    plain = kube.pool.request("GET", url, headers={"Authorization": "Bearer admin-token"})
    assert "Content-Encoding" not in plain.headers


def test_the_server_says_what_it_serves(kube: Kube) -> None:
    groups = {g["name"]: g for g in kube.ask("GET", "/apis").body["groups"]}
    assert groups["apps"]["preferredVersion"]["groupVersion"] == "apps/v1"
    assert {"kubeflow.org", "policy", "batch"} <= groups.keys()
    served = {r["name"]: r for r in kube.ask("GET", "/apis/apps/v1").body["resources"]}
    assert served["statefulsets"]["kind"] == "StatefulSet"
    assert served["statefulsets/scale"]["kind"] == "Scale"
    core = {r["name"] for r in kube.ask("GET", "/api/v1").body["resources"]}
    assert {"pods", "pods/eviction", "nodes", "resourcequotas"} <= core
    assert kube.ask("GET", "/api").body["versions"] == ["v1"]
    assert kube.ask("GET", "/version").body["major"] == "1"
    assert kube.ask("GET", "/readyz").raw == b"ok"


def test_a_definition_makes_its_kind_served_until_it_goes(kube: Kube) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    item = definition("example.com", "Gadget", version="v1alpha1")
    assert kube.ask("POST", definitions, item).code == 201
    gadgets = "/apis/example.com/v1alpha1/namespaces/default/gadgets"
    until(lambda: kube.ask("GET", gadgets).code == 200)
    gadget = {"apiVersion": "example.com/v1alpha1", "kind": "Gadget", "metadata": {"name": "g"}}
    made = kube.ask("POST", gadgets, {**gadget, "spec": {"any": [1]}})
    assert made.code == 201
    assert made.body["spec"] == {"any": [1]}
    kube.ask("DELETE", f"{definitions}/gadgets.example.com")
    until(lambda: kube.ask("GET", gadgets).code == 404)


def test_what_one_may_not_do_is_refused_and_can_be_asked_before(space: Space) -> None:
    refused = listed(space, "pods", token="nobody-token")
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
    assert refused.body["message"] == (
        'pods is forbidden: User "nobody" cannot list resource "pods" in API group "" '
        f'in the namespace "{space.name}"'
    )
    wanted = {"namespace": space.name, "verb": "patch", "group": "apps", "resource": "statefulsets"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**wanted, "subresource": "scale"}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert space.ask("POST", path, review).body["status"]["allowed"] is True
    named = space.patch(
        "statefulsets", "db", {}, group="apps/v1", part="scale", token="nobody-token"
    )
    assert 'cannot patch resource "statefulsets/scale" in API group "apps"' in named.body["message"]
