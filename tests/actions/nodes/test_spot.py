"""Eligible work is let onto spot by its template; enough replicas stay on demand."""

from typing import Any

import pytest

from actions.nodes.spot import PREFERRED, TOLERATION, SpotExecutor
from fallow.action_models import Intent
from fallow.errors import RefusedError
from tests.actions.places import Place, bare, says
from tests.actions.reclaim.examples import POD, decided, job, replicated

OTHER = {"key": "team", "operator": "Exists"}


def intended(place: Place, kind: str, verb: str = "run on spot", **parameters: Any) -> Intent:
    about = decided(kind, place.name, "x", verb, parameters=parameters)
    return SpotExecutor().writes(about, place.door)


def templates(extra: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": "x"}
    pod = {"metadata": {"labels": labels}, "spec": {**POD, **extra}}
    return {"replicas": 4, "selector": {"matchLabels": labels}, "template": pod}


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"tolerations": [OTHER]},
        {"affinity": {"podAntiAffinity": {}}},
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
    ],
    ids=["nothing", "tolerations", "affinity", "preferences"],
)
def test_a_suspended_jobs_template_prefers_spot_and_the_undo_is_exact(
    place: Place, extra: dict[str, Any]
) -> None:
    spec = job()
    spec["template"]["spec"] = {**spec["template"]["spec"], **extra}
    before = place.make("Job", {"metadata": {"name": "x"}, "spec": {**spec, "suspend": True}})

    intent = intended(place, "Job")
    place.send(*intent.changes, dry_run=True)
    place.send(*intent.changes)

    after = place.get("Job", "x")
    assert after is not None
    pod = after["spec"]["template"]["spec"]
    assert pod["tolerations"] == [*extra.get("tolerations", []), TOLERATION]
    preferred = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred == [PREFERRED]
    assert all(place.holds(c) for c in intent.changes)
    with pytest.raises(RefusedError, match="prefers spot already"):
        intended(place, "Job")
    place.send(*intent.undo)
    assert bare(place.get("Job", "x")) == bare(before)


def test_replicas_are_spread_evenly_where_half_of_them_are_enough(place: Place) -> None:
    before = place.make("Deployment", {"metadata": {"name": "x"}, "spec": templates({})})
    verb = "run part of its replicas on spot"
    intent = intended(place, "Deployment", verb, on_demand_replicas=2)
    place.send(*intent.changes)
    after = place.get("Deployment", "x")
    assert after is not None
    (spread,) = after["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": {"app": "x"}}
    assert "affinity" not in after["spec"]["template"]["spec"], "a preference would fill spot first"
    place.send(*intent.undo)
    assert bare(place.get("Deployment", "x")) == bare(before)


@pytest.mark.parametrize("base", [3, 4, None], ids=["three of four", "all", "unsaid"])
def test_a_service_that_needs_more_than_half_on_demand_is_refused(
    place: Place, base: int | None
) -> None:
    place.make("Deployment", {"metadata": {"name": "x"}, "spec": templates({})})
    answer = {} if base is None else {"on_demand_replicas": base}
    with pytest.raises(RefusedError, match="of its 4 replicas on demand"):
        intended(place, "Deployment", "run part of its replicas on spot", **answer)


def test_a_running_job_is_refused_with_what_to_do(place: Place) -> None:
    place.make("Job", {"metadata": {"name": "x"}, "spec": job()})
    with pytest.raises(RefusedError, match="fixed until it is suspended"):
        intended(place, "Job")


def test_a_template_that_changed_meanwhile_is_a_conflict_and_is_left(place: Place) -> None:
    place.make(
        "CronJob",
        {"metadata": {"name": "x"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": job()}}},
    )
    intent = intended(place, "CronJob")
    place.send(*intent.changes)
    pointer = "/spec/jobTemplate/spec/template/spec/tolerations"
    other = {"spec": {"tolerations": [OTHER]}}
    place.patch("CronJob", "x", {"spec": {"jobTemplate": {"spec": {"template": other}}}})
    (undo,) = intent.undo
    assert not says(place.door, undo, undo.was)
    assert place.door.send(undo, dry_run=False).verdict == "conflict"
    after = place.get("CronJob", "x")
    assert after is not None
    assert after["spec"]["jobTemplate"]["spec"]["template"]["spec"]["tolerations"] == [OTHER]
    assert pointer in undo.was


def test_one_replica_has_nobody_to_stand_in(place: Place) -> None:
    place.make("Deployment", {"metadata": {"name": "x"}, "spec": replicated(1)})
    with pytest.raises(RefusedError, match="of its 1 replicas on demand"):
        intended(place, "Deployment", on_demand_replicas=0)
