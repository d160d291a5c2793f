"""What a stop would free is what its decision is about: bound pods, by uid and by GPUs."""

from typing import Any

import pytest

from actions.loop.scope import find_mismatch
from fallow.action_models import Facts, FreedPod, Intent, PodRef, Target
from tests.actions import cases
from tests.actions.loop.site import SPACE, Site

TARGET = Target("c", "apps/v1", "Deployment", "ml", "web", "uid-web")


def pod(name: str, gpus: float = 1.0, **more: Any) -> FreedPod:
    return FreedPod(**{"namespace": "ml", "pod": name, "uid": f"uid-{name}", "node": "n7", **more},
                gpus=gpus)  # fmt: skip


def stop(*frees: FreedPod) -> Intent:
    return Intent(TARGET, "scale", (), (), frees)


def about(*pods: str, gpus: float | None = None, **more: Any) -> Facts:
    refs = tuple(PodRef(p, f"uid-{p}") for p in pods)
    held = float(len(pods)) if gpus is None else gpus
    return cases.facts(**{"pods": refs, "gpus": held, **more})


def said(facts: Facts, intent: Intent) -> str | None:
    why = find_mismatch(facts, intent)
    assert why is None or why.gate == "scope"
    return why.text if why else None


def test_a_replica_that_no_evidence_is_about_is_named() -> None:
    assert said(about("web-0"), stop(pod("web-0"), pod("web-1"))) == (
        "would free 2 GPUs, the evidence is about 1: replica web-1 on node n7 has no telemetry"
    )


def test_four_of_five_are_counted() -> None:
    frees = stop(*(pod(f"web-{n}") for n in range(5)))
    assert said(about("web-0"), frees) == (
        "would free 5 GPUs, the evidence is about 1: replica web-1 on node n7 and 3 more have no "
        "telemetry"
    )


def test_pods_that_wait_hold_nothing() -> None:
    assert said(about("web-0"), stop(pod("web-0"), pod("web-1", node=None))) is None


def test_pods_without_gpus_are_not_compared() -> None:
    assert said(about("web-0"), stop(pod("web-0"), pod("head", 0.0))) is None


def test_a_pod_of_the_evidence_that_is_gone_is_another_decision() -> None:
    assert said(about("web-0", "web-1"), stop(pod("web-0"))) == (
        "would free 1 GPUs, the evidence is about 2: replica web-1 of the evidence is bound no more"
    )


def test_a_pod_made_anew_under_its_name_is_another() -> None:
    why = said(about("web-0"), stop(pod("web-0", uid="anew")))
    assert why is not None
    assert "replica web-0 on node n7 has no telemetry" in why


def test_a_source_without_uids_names_pods_by_their_names() -> None:
    named = about("web-0", pods=(PodRef("web-0"),))
    assert said(named, stop(pod("web-0"))) is None
    assert said(named, stop(pod("web-0"), pod("web-1"))) is not None


@pytest.mark.parametrize(("seen", "refused"), [(8.0, False), (7.0, True), (4.0, True)])
def test_devices_of_one_pod_that_are_not_seen_count(seen: float, refused: bool) -> None:
    why = said(about("web-0", gpus=seen), stop(pod("web-0", 8.0)))
    assert (why is not None) == refused


@pytest.mark.parametrize(("seen", "refused"), [(2.0, False), (1.0, True)])
def test_where_the_evidence_names_no_pods_gpus_are_compared(seen: float, refused: bool) -> None:
    facts = about(pods=None, gpus=seen)
    assert (find_mismatch(facts, stop(pod("web-0"), pod("web-1"))) is not None) == refused


def test_instances_are_compared_by_pod_only() -> None:
    """An instance of an A30 is a quarter of it by the device, a seventh by the resource."""
    assert said(about("web-0", gpus=0.25), stop(pod("web-0", 1 / 7))) is None


def test_what_frees_no_pods_and_what_stops_nothing_is_not_compared() -> None:
    assert said(about("web-0"), stop()) is None
    advice = cases.advice("right-size")
    assert said(about("web-0", recommendation=advice), stop(pod("web-0"), pod("web-1"))) is None


@pytest.mark.parametrize(("unseen", "replicas"), [(1, 2), (4, 5)])
def test_a_deployment_with_replicas_beyond_the_evidence_is_not_scaled(
    site: Site, unseen: int, replicas: int
) -> None:
    site.deployment(replicas=replicas)
    site.evidence.changes = {"gpus": float(replicas - unseen)}
    actor = site.actor()
    site.told_and_waited(actor)
    report = actor.turn(dry_run=False)
    (taken,) = report.steps
    assert taken.result == "refused"
    assert taken.reasons[0].text.startswith(
        f"would free {replicas} GPUs, the evidence is about {replicas - unseen}"
    )
    assert (site.replicas(), site.writes(f"namespaces/{SPACE}/")) == (replicas, [])
    assert not any("intent" in kind for kind in site.kinds())


def test_one_bound_replica_and_one_that_waits_are_compared_right(site: Site) -> None:
    """The cluster has fewer than 17 GPUs: the replicas without a place hold nothing."""
    site.deployment(replicas=17)
    bound = [p for p in site.pods() if p["spec"].get("nodeName")]
    assert 0 < len(bound) < 17
    site.evidence.changes = {
        "gpus": float(len(bound)),
        "pods": tuple(PodRef(p["metadata"]["name"], p["metadata"]["uid"]) for p in bound),
    }
    site.acted(site.actor())
    assert site.replicas() == 0
