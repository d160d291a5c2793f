"""Every kind of quota object on an API: what is written, in which order, and the way back."""

import json
from typing import Any

import pytest

from actions.quota.executor import QuotaExecutor
from actions.quota.systems import SYSTEMS
from fallow.action_models import Change, Intent
from fallow.errors import RefusedError, UsageError
from tests.actions.quota.site import GPU, Site, decision, intend, move, stand_in

KOORDINATOR = "quota.scheduling.koordinator.sh"


def wrote(intent: Intent) -> list[tuple[str, dict[str, Any]]]:
    """Return what each change makes of which object, without what it only holds still."""

    def new(change: Change) -> dict[str, Any]:
        changed = {p: v for p, v in change.becomes.items() if v != change.was[p]}
        return {p.rpartition("/")[2].replace("~1", "/"): v for p, v in changed.items()}

    return [(c.target.name, new(c)) for c in intent.changes]


def there_and_back(site: Site, intent: Intent) -> None:
    """Send it, see what it promised, undo it, see that not a byte is left of it."""
    held_to_the_contract(intent)
    before = site.bare()
    assert all(answer.ok for answer in site.send(intent))
    assert site.bare() != before
    _shows(site, intent.changes)
    assert all(answer.ok for answer in site.undo(intent, len(intent.changes)))
    assert site.bare() == before
    _shows(site, intent.undo)


def held_to_the_contract(intent: Intent) -> None:
    """Hold an intent to what tests/contract asks of every executor, but for the version.

    A queue's status moves with each pod: its own `test`s guard the fields, and its uid.
    """
    rights = {(r.group, r.resource) for r in QuotaExecutor.rights if "patch" in r.verbs}
    for change in (*intent.changes, *intent.undo):
        assert change.method == "PATCH"
        assert json.loads(json.dumps(change.body)) == change.body
        assert change.body[0] == {"op": "test", "path": "/metadata/uid", "value": change.target.uid}
        tests = {o["path"]: o["value"] for o in change.body if o["op"] == "test"}
        assert all(tests[p] == v for p, v in change.was.items() if v is not None)
        assert set(change.becomes) == set(change.was)
        group = change.target.api_version.rpartition("/")[0]
        assert any(g == group and f"/{r}/" in change.path for g, r in rights)
    assert all(change.target.resource_version is None for change in intent.undo)
    assert [c.target.uid for c in intent.undo] == [c.target.uid for c in reversed(intent.changes)]


def _shows(site: Site, changes: tuple[Change, ...]) -> None:
    for change in changes:
        found: Any = site.door.get(change.path)
        for pointer, value in change.becomes.items():
            here = found
            for part in (p.replace("~1", "/") for p in pointer.split("/")[1:]):
                here = here[int(part)] if isinstance(here, list) else (here or {}).get(part)
            assert here == value, pointer


def hard(site: Site, space: str, gpus: str, used: str | None = "0", **spec: Any) -> None:
    body = {"hard": {f"requests.{GPU}": gpus, "cpu": "100"}, **spec}
    status = {"hard": body["hard"], "used": {f"requests.{GPU}": used}} if used else None
    site.make("ResourceQuota", "", "gpus", body, status, namespace=space)


def test_a_resource_quota_moves_requests_only(site: Site) -> None:
    hard(site, "quota-a", "16", "4")
    hard(site, "quota-b", "4", "4")
    intent = intend(
        site, "ResourceQuota", [move("quota-a/gpus", 16, 12), move("quota-b/gpus", 4, 8)]
    )
    assert wrote(intent) == [
        ("gpus", {f"requests.{GPU}": "12"}),
        ("gpus", {f"requests.{GPU}": "8"}),
    ]
    assert [c.target.namespace for c in intent.changes] == ["quota-a", "quota-b"]
    assert [c.target.namespace for c in intent.undo] == ["quota-b", "quota-a"]
    there_and_back(site, intent)


def test_limits_of_a_gpu_enforce_nothing_so_they_are_no_quota(site: Site) -> None:
    body = {"hard": {f"limits.{GPU}": "16"}}
    site.make("ResourceQuota", "", "gpus", body, {"hard": body["hard"]}, namespace="quota-a")
    hard(site, "quota-b", "4", "4")
    moves = [move("quota-a/gpus", 16, 12), move("quota-b/gpus", 4, 8)]
    with pytest.raises(RefusedError, match="had 16 when this was decided and is gone now"):
        intend(site, "ResourceQuota", moves)


def test_more_than_another_quota_of_the_namespace_allows_is_not_given(site: Site) -> None:
    hard(site, "quota-a", "16", "4")
    hard(site, "quota-b", "4", "4")
    other = {"hard": {f"requests.{GPU}": "6"}}
    site.make("ResourceQuota", "", "other", other, {"used": {}}, namespace="quota-b")
    moves = [move("quota-a/gpus", 16, 12), move("quota-b/gpus", 4, 8)]
    assert wrote(intend(site, "ResourceQuota", moves))[1][1] == {f"requests.{GPU}": "6"}


def test_a_quota_whose_use_is_not_known_gives_nothing(site: Site) -> None:
    hard(site, "quota-a", "16", None)
    hard(site, "quota-b", "4", "4")
    moves = [move("quota-a/gpus", 16, 12), move("quota-b/gpus", 4, 8)]
    with pytest.raises(RefusedError, match="quota-a/gpus: what it uses is not known"):
        intend(site, "ResourceQuota", moves)


def flavored(*quotas: dict[str, Any], cohort: str = "research", **spec: Any) -> dict[str, Any]:
    """Return a ClusterQueue whose GPUs stand in the second group's second flavor."""
    cpu = {"coveredResources": ["cpu"], "flavors": [
        {"name": "any", "resources": [{"name": "cpu", "nominalQuota": "100"}]},
    ]}  # fmt: skip
    gpus = {"coveredResources": ["memory", GPU], "flavors": [
        {"name": name, "resources": [{"name": "memory", "nominalQuota": "1Ti"}, quota]}
        for name, quota in zip(("a100", "h100"), quotas, strict=True)
    ]}  # fmt: skip
    return {"resourceGroups": [cpu, gpus], **({"cohortName": cohort} if cohort else {}), **spec}


def cluster_queue(
    site: Site, name: str, nominal: str, used: int, *, cohort: str = "research", **limits: Any
) -> None:
    quota = {"name": GPU, "nominalQuota": nominal, **limits}
    other = {"name": GPU, "nominalQuota": "0"}
    total = {"name": GPU, "total": str(used), "borrowed": "0"}
    status = {"flavorsReservation": [{"name": "h100", "resources": [total]}]}
    spec = flavored(other, quota, cohort=cohort)
    site.make("ClusterQueue", "kueue.x-k8s.io", name, spec, status)


MOVES = [move("a", 16, 12), move("b", 4, 8)]


def test_a_cluster_queue_keeps_what_it_lends_and_may_borrow_in_step(site: Site) -> None:
    cluster_queue(site, "a", "16", 4, lendingLimit="14", borrowingLimit="8")
    cluster_queue(site, "b", "4", 4, lendingLimit="1", borrowingLimit="2")
    intent = intend(site, "ClusterQueue", MOVES, flavor="h100")
    assert wrote(intent) == [
        ("a", {"nominalQuota": "12", "lendingLimit": "10", "borrowingLimit": "12"}),
        ("b", {"nominalQuota": "8", "lendingLimit": "5"}),
    ]
    there_and_back(site, intent)


def test_lending_never_exceeds_nominal_nor_falls_below_nothing(site: Site) -> None:
    cluster_queue(site, "a", "16", 0, lendingLimit="2")
    cluster_queue(site, "b", "4", 4, lendingLimit="4")
    moves = [move("a", 16, 8), move("b", 4, 12)]
    intent = intend(site, "ClusterQueue", moves, flavor="h100")
    assert wrote(intent) == [
        ("a", {"nominalQuota": "8", "lendingLimit": "0"}),
        ("b", {"nominalQuota": "12", "lendingLimit": "12"}),
    ]
    there_and_back(site, intent)


def test_a_cluster_queue_without_a_cohort_gets_no_limits(site: Site) -> None:
    cluster_queue(site, "a", "16", 4, cohort="")
    cluster_queue(site, "b", "4", 4, cohort="")
    intent = intend(site, "ClusterQueue", MOVES, flavor="h100")
    assert wrote(intent) == [("a", {"nominalQuota": "12"}), ("b", {"nominalQuota": "8"})]
    there_and_back(site, intent)


def test_an_index_that_shifted_meanwhile_is_422_and_nothing_is_written(site: Site) -> None:
    """Regression 24: only `test` guards a place in a list."""
    cluster_queue(site, "a", "16", 4)
    cluster_queue(site, "b", "4", 4)
    intent = intend(site, "ClusterQueue", MOVES, flavor="h100")
    path = intent.changes[0].path
    found: Any = site.door.get(path)
    groups = found["spec"]["resourceGroups"]
    groups[1]["flavors"].reverse()
    site.ask("PATCH", path, {"spec": {"resourceGroups": groups}})
    before = site.bare()
    answers = site.send(intent)
    assert [(a.code, a.verdict) for a in answers] == [(422, "conflict")]
    assert site.bare() == before


def test_a_number_that_somebody_else_wrote_meanwhile_is_422_and_all_is_taken_back(
    site: Site,
) -> None:
    cluster_queue(site, "a", "16", 4)
    cluster_queue(site, "b", "4", 4)
    intent = intend(site, "ClusterQueue", MOVES, flavor="h100")
    quota = "/spec/resourceGroups/1/flavors/1/resources/1/nominalQuota"
    human = [{"op": "replace", "path": quota, "value": "5"}]
    site.ask("PATCH", intent.changes[1].path, human, "application/json-patch+json")
    before = site.bare()
    assert [a.verdict for a in site.send(intent)] == ["conflict"], "the rehearsal shows it"
    assert site.bare() == before
    answers = [site.door.send(change, dry_run=False) for change in intent.changes]
    assert [a.verdict for a in answers] == ["done", "conflict"], "the sum would change"
    assert all(a.ok for a in site.undo(intent, 1))
    assert site.bare() == before
    with pytest.raises(RefusedError, match="b had 4 when this was decided and is 5 now"):
        intend(site, "ClusterQueue", MOVES, flavor="h100")


def test_a_queue_made_anew_under_the_same_name_is_another(site: Site) -> None:
    cluster_queue(site, "a", "16", 4)
    cluster_queue(site, "b", "4", 4)
    intent = intend(site, "ClusterQueue", MOVES, flavor="h100")
    site.ask("DELETE", intent.changes[0].path)
    cluster_queue(site, "a", "16", 4)
    assert [a.verdict for a in site.send(intent)] == ["conflict"]


def test_status_that_moves_meanwhile_stops_nothing(site: Site) -> None:
    cluster_queue(site, "a", "16", 4)
    cluster_queue(site, "b", "4", 4)
    intent = intend(site, "ClusterQueue", MOVES, flavor="h100")
    site.ask("PATCH", f"{intent.changes[0].path}/status", {"status": {"pendingWorkloads": 3}})
    assert all(a.ok for a in site.send(intent))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_version_comes_from_discovery(
    site: Site, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_queue(site, "a", "16", 4)
    cluster_queue(site, "b", "4", 4)
    wanted = site.door.collection

    def served(kind: str, group: str | None = None, namespace: str = "") -> str | None:
        found = wanted(kind, group, namespace)
        return found and found.replace("/v1beta2/", f"/{version}/")

    monkeypatch.setattr(site.door, "collection", served)
    intent = intend(site, "ClusterQueue", MOVES, flavor="h100")
    assert {c.path.split("/")[3] for c in intent.changes} == {version}
    assert {c.target.api_version for c in intent.changes} == {f"kueue.x-k8s.io/{version}"}
    there_and_back(site, intent)


def volcano(site: Site, name: str, deserved: int, used: int, **spec: Any) -> None:
    body = {"weight": 1, "reclaimable": True, "deserved": {GPU: str(deserved)}, **spec}
    status = {"state": "Open", "allocated": {GPU: str(used)}}
    site.make("Queue", "scheduling.volcano.sh", name, body, status)


def test_volcano_keeps_guarantee_deserved_capability_and_the_tree(site: Site) -> None:
    volcano(site, "root", 32, 20, capability={GPU: "40"})
    volcano(site, "left", 20, 6, capability={GPU: "24"})
    volcano(site, "right", 12, 12, capability={GPU: "14"})
    volcano(site, "l1", 16, 2, parent="left", guarantee={"resource": {GPU: "13"}})
    volcano(site, "r1", 6, 6, parent="right", capability={GPU: "6"})
    volcano(site, "r2", 6, 6, parent="right")
    moves = [move("l1", 16, 8), move("r1", 6, 14)]
    intent = intend(site, "Queue.volcano", moves)
    assert wrote(intent) == [
        ("l1", {GPU: "13"}),
        ("left", {GPU: "17"}),
        ("right", {GPU: "15"}),
        ("r1", {GPU: "9"}),
    ]
    assert [c.target.name for c in intent.undo] == ["r1", "right", "left", "l1"]
    assert [c.depends for c in intent.changes] == [False, True, True, True]
    assert set(intent.changes[2].becomes) == {
        "/spec/deserved/nvidia.com~1gpu", "/spec/capability/nvidia.com~1gpu"
    }  # fmt: skip
    there_and_back(site, intent)


def test_volcano_weights_of_the_proportion_plug_in_guarantee_nothing(site: Site) -> None:
    site.make("Queue", "scheduling.volcano.sh", "a", {"weight": 3}, {"state": "Open"})
    volcano(site, "b", 4, 4)
    with pytest.raises(RefusedError, match="a had 16 when this was decided and is gone now"):
        intend(site, "Queue.volcano", MOVES)


def kai(
    site: Site, name: str, quota: float, used: float, *, limit: float = -1, **more: Any
) -> None:
    firm = str(more.pop("firm", 0))
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    cpu = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    amounts = {"allocated": {GPU: str(used)}, "allocatedNonPreemptible": {GPU: firm}}
    body = {"resources": {"gpu": gpu, "cpu": cpu, "memory": cpu}, **more}
    site.make("Queue", "scheduling.run.ai", name, body, amounts)


def test_kai_sends_all_three_fields_and_keeps_sums_that_its_webhook_only_warns_of(
    site: Site,
) -> None:
    kai(site, "dept", 20, 8)
    kai(site, "a", 16, 4, firm=14, limit=16, parentQueue="dept")
    kai(site, "b", 4, 4, limit=5, parentQueue="dept")
    intent = intend(site, "Queue.kai", MOVES)
    assert wrote(intent) == [("a", {"quota": 14}), ("b", {"quota": 6, "limit": 6})]
    for change in intent.changes:
        assert [p.rpartition("/")[2] for p in change.becomes] == [
            "quota", "limit", "overQuotaWeight"
        ]  # fmt: skip
    there_and_back(site, intent)


def test_kai_children_promised_more_than_their_parent_are_left_alone(site: Site) -> None:
    kai(site, "dept", 18, 8)
    kai(site, "a", 16, 4, parentQueue="dept")
    kai(site, "b", 4, 4, parentQueue="dept")
    with pytest.raises(RefusedError, match="dept has 18, those below it are promised 20"):
        intend(site, "Queue.kai", MOVES)


def test_kai_unlimited_is_no_number(site: Site) -> None:
    kai(site, "a", -1, 4)
    kai(site, "b", 4, 4)
    with pytest.raises(RefusedError, match="a had 16 when this was decided and is gone now"):
        intend(site, "Queue.kai", MOVES)


def test_queues_that_run_ai_owns_are_not_touched() -> None:
    with stand_in() as alone:  # a namespace that goes stays for a while
        kai(alone, "a", 16, 4)
        kai(alone, "b", 4, 4)
        assert wrote(intend(alone, "Queue.kai", MOVES))
        alone.space("runai")
        with pytest.raises(RefusedError, match=r"Run:ai owns the queues \(namespace runai\)"):
            intend(alone, "Queue.kai", MOVES)


def elastic(
    site: Site,
    key: str,
    low: int,
    used: int | None,
    group: str = "scheduling.x-k8s.io",
    **more: Any,
) -> None:
    space, name = key.split("/")
    high = more.pop("max", 2 * low)
    spec = {"min": {GPU: str(low), "cpu": str(low)}, "max": {GPU: str(high), "cpu": "20"}}
    status = {"used": {GPU: str(used)}}
    site.make("ElasticQuota", group, name, spec, status, namespace=space, **more)


def test_an_elastic_quota_keeps_min_within_max(site: Site) -> None:
    elastic(site, "quota-a/q", 16, 4)
    elastic(site, "quota-b/q", 4, 4, max=5)
    moves = [move("quota-a/q", 16, 12), move("quota-b/q", 4, 8)]
    intent = intend(site, "ElasticQuota", moves)
    assert [w[1] for w in wrote(intent)] == [{GPU: "12"}, {GPU: "8"}]
    raised = intent.changes[1].becomes
    assert raised == {"/spec/min/nvidia.com~1gpu": "8", "/spec/max/nvidia.com~1gpu": "8"}
    there_and_back(site, intent)


def test_three_kinds_called_elasticquotas_are_told_apart_by_group(site: Site) -> None:
    group = "scheduling.sigs.k8s.io"
    for space, low, used in (("quota-a", 16, 4), ("quota-b", 4, 4)):
        elastic(site, f"{space}/q-{space}", low, used)
        elastic(site, f"{space}/q-{space}", low, used, group)
    moves = [move("quota-a/q-quota-a", 16, 12), move("quota-b/q-quota-b", 4, 8)]
    intent = intend(site, "ElasticQuota.koordinator", moves)
    assert {c.target.api_version for c in intent.changes} == {f"{group}/v1alpha1"}
    there_and_back(site, intent)
    with pytest.raises(RefusedError, match="nos are read only"):
        intend(site, "ElasticQuota.nos", moves)


def tree(site: Site, *, profile: bool = False) -> list[Any]:
    """Make a Koordinator tree: a root with two children."""
    group = "scheduling.sigs.k8s.io"
    mark = {f"{KOORDINATOR}/tree-id": "t1"}
    above = {**mark, f"{KOORDINATOR}/is-parent": "true"}
    elastic(site, "quota-a/top", 20, 8, group, labels=above)
    below = {**mark, f"{KOORDINATOR}/parent": "top"}
    firm = {f"{KOORDINATOR}/non-preemptible-used": f'{{"{GPU}": "14"}}'}
    elastic(site, "quota-a/a", 16, 4, group, labels=below, annotations=firm)
    elastic(site, "quota-b/b", 4, 4, group, labels=below)
    if profile:
        spec = {"quotaName": "b", "nodeSelector": {}}
        site.make("ElasticQuotaProfile", "quota.koordinator.sh", "p", spec, namespace="quota-a")
    return [move("quota-a/a", 16, 12), move("quota-b/b", 4, 8)]


def test_koordinator_keeps_siblings_within_their_parent_and_what_cannot_be_preempted(
    site: Site,
) -> None:
    intent = intend(site, "ElasticQuota.koordinator", tree(site))
    assert wrote(intent) == [("a", {GPU: "14"}), ("b", {GPU: "6"})]
    there_and_back(site, intent)


def test_roots_and_what_a_profile_computes_are_never_written(site: Site) -> None:
    moves = tree(site, profile=True)
    with pytest.raises(RefusedError, match="ElasticQuotaProfile quota-a/p computes it from nodes"):
        intend(site, "ElasticQuota.koordinator", moves)
    elastic(site, "quota-c/other", 8, 0, "scheduling.sigs.k8s.io")
    roots = [move("quota-c/other", 8, 4), move("quota-a/top", 20, 24)]
    with pytest.raises(RefusedError, match="quota-a/top: its quota is that of the queues below it"):
        intend(site, "ElasticQuota.koordinator", roots)


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"annotations": {"argocd.argoproj.io/tracking-id": "q:v1/ResourceQuota:a/q"}}, "kept by"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "quotas"}}, "kept by"),
        ({"annotations": {"fallow.dev/protect": "true"}}, "protects it"),
        (
            {
                "ownerReferences": [
                    {
                        "apiVersion": "kubeflow.org/v1",
                        "kind": "Profile",
                        "name": "team",
                        "uid": "00000000-0000-0000-0000-000000000001",
                        "controller": True,
                    }
                ]
            },
            "controlled by Profile team",
        ),
    ],
)
def test_an_object_that_somebody_else_keeps_is_not_written(
    site: Site, meta: dict[str, Any], why: str
) -> None:
    body = {"hard": {f"requests.{GPU}": "16"}}
    status = {"hard": body["hard"], "used": {f"requests.{GPU}": "4"}}
    site.make("ResourceQuota", "", "gpus", body, status, namespace="quota-a", **meta)
    hard(site, "quota-b", "4", "4")
    moves = [move("quota-a/gpus", 16, 12), move("quota-b/gpus", 4, 8)]
    with pytest.raises(RefusedError, match=why):
        intend(site, "ResourceQuota", moves)


def test_a_step_of_ours_in_the_objects_own_record_is_not_followed_by_another(site: Site) -> None:
    cluster_queue(site, "a", "16", 4)
    cluster_queue(site, "b", "4", 4)
    assert all(a.ok for a in site.send(intend(site, "ClusterQueue", MOVES, flavor="h100")))
    again = [move("a", 12, 10), move("b", 8, 10)]
    with pytest.raises(RefusedError, match="one step in 7 days"):
        intend(site, "ClusterQueue", again, flavor="h100")


def test_use_that_rose_since_the_proposal_shrinks_the_step(site: Site) -> None:
    cluster_queue(site, "a", "16", 13)
    cluster_queue(site, "b", "4", 4)
    intent = intend(site, "ClusterQueue", MOVES, flavor="h100")
    assert wrote(intent) == [("a", {"nominalQuota": "14"}), ("b", {"nominalQuota": "6"})]


def test_no_proposal_and_no_such_kind_are_one_clear_line(site: Site) -> None:
    with pytest.raises(UsageError, match="no quota proposal"):
        intend(site, "ClusterQueue", [])
    with pytest.raises(UsageError, match="not of its form"):
        intend(site, "ClusterQueue", [{"object": "a"}])
    with pytest.raises(RefusedError, match="no quota is called 'Frob'"):
        intend(site, "Frob", MOVES)


def test_every_kind_of_the_quota_table_has_an_executor_and_the_rights_it_needs() -> None:
    rights = {(r.group, r.resource): r.verbs for r in QuotaExecutor.rights}
    for system in SYSTEMS.values():
        if system.closed is None or system.kind == "Queue.kai":
            plural = {"ElasticQuota": "elasticquotas", "Queue": "queues"}.get(
                system.api_kind, system.api_kind.lower() + "s"
            )
            assert "patch" in rights[system.group, plural]
    assert not any("delete" in verbs for verbs in rights.values())
    assert decision("ClusterQueue", MOVES).verb in QuotaExecutor.verbs
