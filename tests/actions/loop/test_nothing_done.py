"""What happens between a decision and the write, and stops it: nothing is done."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from actions.journal import event_types
from actions.plan import ActionPlan
from fallow.action_models import Reason
from tests.actions.loop.site import (
    SPACE,
    Site,
    delete_deployment,
    freeze_by_file,
    plan,
    report_incident,
)

# Between the decision and the write.


def _busy(site: Site) -> None:
    site.evidence.busy_on_second_look.add("web")


def _woken(site: Site) -> None:
    site.evidence.awake_at_last.add("web")


def _stale(site: Site) -> None:
    site.evidence.age = timedelta(seconds=61)


def _unseen(site: Site) -> None:
    site.evidence.changes = {"seen_until": None}


def _another(site: Site) -> None:
    """The evidence still speaks of the object that was."""
    site.evidence.changes = {"uid": site.get("Deployment", "web")["metadata"]["uid"]}
    site.store.delete("Deployment", "web", SPACE)
    site.evidence.idle.clear()
    site.deployment()


def _new_case(site: Site) -> None:
    """The evidence speaks of another object: its owner was never told."""
    site.evidence.again = lambda facts, now: msgspec.structs.replace(facts, uid="another")  # type: ignore[method-assign]  # noqa: ARG005


def _no_uid(site: Site) -> None:
    site.evidence.changes = {"uid": None}


def _older(site: Site) -> None:
    site.evidence.changes = {"generation": 77}


def _written(site: Site) -> None:
    site.patch("Deployment", "web", {"spec": {"paused": False, "minReadySeconds": 5}})


def _kept(site: Site) -> None:
    answer = {"metadata": {"annotations": {"fallow.dev/keep": "true"}}}
    site.patch("Deployment", "web", answer)


def _kept_for_now(site: Site) -> None:
    answer = {"metadata": {"annotations": {"fallow.dev/keep-until": "2026-11-21T00:00:00Z"}}}
    site.patch("Deployment", "web", answer)


def _kept_namespace(site: Site) -> None:
    answer = {"metadata": {"annotations": {"fallow.dev/protect": "true"}}}
    site.store.patch("Namespace", SPACE, "", answer, manager="kubectl")


def _kept_pod(site: Site) -> None:
    answer = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    site.patch("Pod", site.pods()[0]["metadata"]["name"], answer)


def _argo(site: Site) -> None:
    answer = {
        "metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "x:apps/Deployment:y"}}
    }
    site.patch("Deployment", "web", answer)


def _forbidden(site: Site) -> None:
    site.server.access.deny("patch", "deployments/scale")


def _configmap(site: Site) -> None:
    body = {"metadata": {"name": "fallow-freeze", "namespace": "fallow"}, "data": {"frozen": "yes"}}
    site.store.create("ConfigMap", {"apiVersion": "v1", "kind": "ConfigMap", **body})


def _unreadable(site: Site) -> None:
    site.server.access.deny("get", "configmaps")


def _command(site: Site) -> None:
    site.journal().append(event_types.FROZEN, event_types.FLEET, {"why": "demo day"}, actor="ann")


def _other_actor(site: Site) -> None:
    two = site.actor(identity="two").lease
    assert two.hold() is not None
    site.pass_time(minutes=5)
    assert two.hold() is None


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (_busy, "no case any more"),
        (_woken, "seen at work"),
        (_stale, "older than 60 s"),
        (_unseen, "last sampled at never"),
        (_another, "another object"),
        (_new_case, "first sight never acts"),
        (_no_uid, "does not say which object"),
        (_older, "generation"),
        (_kept, "keep"),
        (_kept_for_now, "keep-until"),
        (_kept_namespace, "protect"),
        (_kept_pod, "do-not-disrupt"),
        (_argo, "Argo CD"),
        (_forbidden, "forbidden"),
        (delete_deployment, ""),
        (freeze_by_file, "FREEZE exists"),
        (_configmap, "says so"),
        (_unreadable, "may say frozen"),
        (_command, "demo day"),
        (report_incident, "turned idle"),
        (_other_actor, "two acts"),
    ],
    ids=lambda x: x.__name__.strip("_") if callable(x) else "",
)
def test_nothing_is_done_once(site: Site, happens: Callable[[Site], None], says: str) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    happens(site)
    report = actor.turn(dry_run=False)
    answer = [*report.halted, *(r for t in report.steps for r in t.reasons)]
    assert any(says in r.text for r in answer), answer
    assert not any(t.result == "acted" for t in report.steps)
    assert not site.writes("/scale")
    assert event_types.INTENT not in site.kinds()


def test_a_spec_that_somebody_wrote_after_the_last_look_is_not_touched(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    site.evidence.age = timedelta(seconds=30)
    _written(site)
    site.pass_time(seconds=10)
    (taken,) = actor.turn(dry_run=False).steps
    assert "kubectl-edit changed it after the last sample of its devices" in taken.reasons[0].text
    assert not site.writes("/scale")


def test_the_same_refusal_is_written_down_once(site: Site) -> None:
    site.deployment()
    actor = site.actor()
    site.told_and_waited(actor)
    _kept(site)
    for _ in range(3):
        actor.turn(dry_run=False)
    assert site.kinds().count(event_types.REFUSED) == 1


def test_an_annotation_of_the_last_moment_stops_the_write(site: Site) -> None:
    """The owner asks to keep it after everything was checked: the version no longer fits."""
    site.deployment()

    def pulse(step: str) -> None:
        if step == "journalled the intent":
            _kept(site)

    actor = site.actor(pulse=pulse)
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.reasons[0].gate == "conflict"
    assert site.replicas() == 2


def test_a_run_that_is_aborted_does_nothing_at_all(site: Site) -> None:
    """The eleventh of ten is not refused after ten were done: none is."""
    for name in ("a", "b"):
        site.deployment(name, replicas=1)

    def aborting(*asked: Any) -> ActionPlan:
        return msgspec.structs.replace(
            plan(*asked), aborted={"c": Reason("max_resources", "2 of 1")}
        )

    actor = site.actor(planner=aborting)
    site.told_and_waited(actor)
    report = actor.turn(dry_run=False)
    assert report.plan is not None
    assert list(report.plan.aborted) == ["c"]
    assert not report.steps
    assert not site.writes()
    assert not site.told.notices
