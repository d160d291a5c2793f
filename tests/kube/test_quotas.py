"""Quotas of every scheduler, as their APIs print them."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from collectors.kube.queues import Queues
from collectors.kube.quotas import list_quota_rows, read_quota_kinds
from collectors.kube.shapes import CustomObject

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def rows(kind: str, **item: Any) -> dict[str, tuple[Any, ...]]:
    known = next(k for k in read_quota_kinds() if k.kind == kind)
    text = json.dumps({"metadata": {"name": "q", "namespace": "ml"}, **item})
    found = list_quota_rows(
        known, msgspec.json.decode(text, type=CustomObject), cluster="c", now=NOW
    )
    names = ("nominal", "limit", "used", "borrowed", "pending", "parent")
    return {r["resource"]: tuple(r.get(n) for n in names) for r in found}


def test_resource_quotas_meter_requests_and_no_extended_limits() -> None:
    hard = {"requests.nvidia.com/gpu": "8", "limits.nvidia.com/gpu": "8", "requests.cpu": "1500m"}
    used = {"requests.nvidia.com/gpu": "3"}
    assert rows("ResourceQuota", spec={"hard": hard}, status={"hard": hard, "used": used}) == {
        GPU: (8, 8, 3, None, None, None),
        "cpu": (1.5, 1.5, None, None, None, None),
    }


def test_a_quota_that_no_controller_has_filled_says_what_is_asked() -> None:
    assert rows("ResourceQuota", spec={"hard": {"requests.nvidia.com/gpu": "8"}})[GPU][0] == 8


def queue(**spec: Any) -> dict[str, Any]:
    resource = {"name": GPU, "nominalQuota": "16", "borrowingLimit": "8"}
    flavors = [
        {"name": "a100", "resources": [resource]},
        {"name": "t4", "resources": [{"name": GPU, "nominalQuota": 4}]},
    ]
    usage = [{"name": "a100", "resources": [{"name": GPU, "total": "20", "borrowed": "4"}]}]
    return {
        "spec": {"resourceGroups": [{"flavors": flavors}], **spec},
        "status": {"flavorsUsage": usage, "pendingWorkloads": 3},
    }


def test_cluster_queues_have_a_row_per_flavor_in_both_versions() -> None:
    for field in ("cohortName", "cohort"):  # v1beta2, v1beta1
        assert rows("ClusterQueue", **queue(**{field: "research"})) == {
            f"{GPU}@a100": (16, 24, 20, 4, 3, "research"),
            f"{GPU}@t4": (4, None, None, None, 3, "research"),
        }


def test_cohorts_say_where_they_stand_and_what_they_add_and_lend() -> None:
    resource = {"name": GPU, "nominalQuota": 2, "borrowingLimit": 3, "lendingLimit": "1"}
    groups = [{"flavors": [{"name": "t4", "resources": [resource]}]}]
    known = next(k for k in read_quota_kinds() if k.kind == "Cohort")
    for spec, want in (
        ({"parentName": "all"}, {"cohorts": (None, None, None, "all")}),
        ({"parentName": "all", "resourceGroups": groups}, {f"{GPU}@t4": (2, 5, 1, "all")}),
        ({"resourceGroups": groups}, {f"{GPU}@t4": (2, 2, 1, None)}),
    ):
        found = list_quota_rows(known, custom(spec=spec), cluster="c", now=NOW)
        names = ("nominal", "limit", "lending", "parent")
        assert {r["resource"]: tuple(r.get(n) for n in names) for r in found} == want


def test_without_a_cohort_nothing_can_be_borrowed() -> None:
    assert rows("ClusterQueue", **queue())[f"{GPU}@t4"][:2] == (4, 4)


def test_local_queues_say_use_pending_and_their_cluster_queue() -> None:
    usage = [{"name": "a100", "resources": [{"name": GPU, "total": "2"}]}]
    spec = {"clusterQueue": "cq"}
    for field in ("flavorsUsage", "flavorUsage"):
        status = {field: usage, "pendingWorkloads": 1}
        found = rows("LocalQueue", spec=spec, status=status)
        assert found == {f"{GPU}@a100": (None, None, 2, None, 1, "cq")}
    assert rows("LocalQueue", spec=spec, status={"pendingWorkloads": 5}) == {
        "workloads": (None, None, None, None, 5, "cq")
    }


def test_queues_of_volcano_and_kai_differ() -> None:
    volcano = rows(
        "Queue.volcano",
        spec={"deserved": {GPU: "8"}, "capability": {GPU: 16}, "parent": "root"},
        status={"allocated": {GPU: "4"}, "pending": 2},
    )
    assert volcano == {GPU: (8, 16, 4, None, 2, "root")}
    amounts = {
        "gpu": {"quota": 2.5, "limit": -1},
        "cpu": {"quota": 4000, "limit": 8000},
        "memory": {"quota": -1, "limit": 1000},
    }
    kai = rows(
        "Queue.kai",
        spec={"resources": amounts, "parentQueue": "dept"},
        status={"allocated": {GPU: "1500m"}},
    )
    assert kai == {
        GPU: (2.5, None, 1.5, None, None, "dept"),
        "cpu": (4, 8, None, None, None, "dept"),
        "memory": (None, 10**9, None, None, None, "dept"),
    }


def test_elastic_quotas_of_all_three_groups_have_one_shape() -> None:
    for kind in ("ElasticQuota", "ElasticQuota.koordinator", "ElasticQuota.nos"):
        found = rows(kind, spec={"min": {GPU: 2}, "max": {GPU: "4"}}, status={"used": {GPU: "3"}})
        assert found == {GPU: (2, 4, 3, None, None, None)}


def custom(**item: Any) -> CustomObject:
    return msgspec.json.decode(json.dumps({"metadata": {"name": "q"}, **item}), type=CustomObject)


def workload(name: str, gpus: int, count: int, **more: Any) -> CustomObject:
    container = {"resources": {"limits": {GPU: str(gpus)}, "requests": {"cpu": "500m"}}}
    sets = [{"count": count, "template": {"spec": {"containers": [container]}}}]
    spec = {"queueName": "q", "podSets": sets, **more.pop("spec", {})}
    return custom(metadata={"name": name, "namespace": "ml"}, spec=spec, **more)


def test_what_workloads_without_a_place_ask_for_is_their_queues() -> None:
    finished = {"conditions": [{"type": "Finished", "status": "True"}]}
    queues = Queues()
    queues.add_workloads(
        [
            workload("waits", 8, 2),
            workload("also", 1, 1),
            workload("runs", 8, 1, status={"admission": {"clusterQueue": "cq"}}),
            workload("done", 8, 1, status=finished),
            workload("off", 8, 1, spec={"active": False}),
        ]
    )
    queues.add_groups(
        [
            custom(spec={"queue": "q", "minResources": {GPU: 4}}, status={"phase": "Inqueue"}),
            custom(spec={"queue": "q", "minResources": {GPU: 2}}, status={"phase": "Running"}),
        ]
    )
    found = {
        (r["kind"], r["resource"]): (r["waiting"], r.get("parent"))
        for kind, item in (
            ("LocalQueue", {"spec": {"clusterQueue": "cq"}}),
            ("Queue.volcano", {"spec": {"deserved": {GPU: 1}}}),
        )
        for r in list_quota_rows(
            next(k for k in read_quota_kinds() if k.kind == kind),
            custom(metadata={"name": "q", "namespace": "ml" * (kind == "LocalQueue")}, **item),
            cluster="c",
            now=NOW,
            queues=queues,
        )
        if "waiting" in r
    }
    assert found == {
        ("LocalQueue", GPU): (17, "cq"),
        ("LocalQueue", "cpu"): (1.5, "cq"),
        ("Queue.volcano", GPU): (4, None),
    }


def test_kai_and_koordinator_say_themselves_what_waits() -> None:
    def waiting(kind: str, **item: Any) -> dict[str, Any]:
        known = next(k for k in read_quota_kinds() if k.kind == kind)
        found = list_quota_rows(known, custom(**item), cluster="c", now=NOW)
        return {r["resource"]: r.get("waiting") for r in found}

    spec = {"resources": {"gpu": {"quota": 2, "limit": 4}}}
    status = {"allocated": {GPU: "2"}, "requested": {GPU: "5"}}
    assert waiting("Queue.kai", spec=spec, status=status) == {GPU: 3}
    for text, want in (('{"nvidia.com/gpu": "6"}', 4), ("no JSON", None), ("[1]", None)):
        answer = {"annotations": {"quota.scheduling.koordinator.sh/request": text}}
        amounts = {"spec": {"min": {GPU: 2}}, "status": {"used": {GPU: 2}}}
        assert waiting("ElasticQuota.koordinator", metadata=answer, **amounts) == {GPU: want}


def test_fields_of_an_unexpected_shape_count_as_absent() -> None:
    assert rows("ClusterQueue", spec={"resourceGroups": "odd"}, status={"flavorsUsage": 3}) == {}
    assert rows("Queue.kai", spec={"resources": {"gpu": "odd"}}) == {
        GPU: (None, None, None, None, None, None)
    }
    assert rows("ElasticQuota", spec={"min": {GPU: "many"}})[GPU][0] is None
