"""What a stop would free, as API servers say it: the stub's, and a real one where it is at hand."""

from dataclasses import dataclass

import pytest

from actions.journal import event_types
from fallow.action_models import PodRef
from tests.actions.loop.control_plane import RealSite
from tests.actions.loop.site import Object, Site, pod_spec
from tests.actions.loop.test_control_plane import (  # noqa: F401  (fixtures)
    any_site,
    control_plane,
)

pytestmark = pytest.mark.xdist_group("control-plane")


@dataclass
class Placed:
    """Pods of a Deployment whose replicas each take all GPUs of a node; nodes there are two."""

    bound: list[Object]
    gpus: int

    def refs(self, count: int) -> tuple[PodRef, ...]:
        return tuple(
            PodRef(p["metadata"]["name"], p["metadata"]["uid"]) for p in self.bound[:count]
        )


def deployed(site: Site, replicas: int) -> Placed:
    gpus = 64 if isinstance(site, RealSite) else 8
    spec = pod_spec()
    spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(gpus)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    site.make("Deployment", "web", body)
    site.evidence.idle.append(("Deployment", "web"))
    site.pass_time(minutes=3)
    bound = [p for p in site.pods() if p["spec"].get("nodeName")]
    return Placed(sorted(bound, key=lambda p: str(p["metadata"]["name"])), gpus)


def test_a_replica_that_no_evidence_is_about_is_not_stopped(any_site: Site) -> None:  # noqa: F811
    site = any_site
    placed = deployed(site, 2)
    assert len(placed.bound) == 2
    site.evidence.changes = {"gpus": float(placed.gpus), "pods": placed.refs(1)}
    actor = site.actor()
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    pod = placed.bound[1]
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    text = (
        f"would free {2 * placed.gpus} GPUs, the evidence is about {placed.gpus}: "
        f"replica {name} on node {node} has no telemetry"
    )
    assert (taken.result, [r.text for r in taken.reasons]) == ("refused", [text])
    assert site.replicas() == 2
    assert event_types.INTENT not in site.kinds()


def test_a_replica_that_waits_holds_nothing(any_site: Site) -> None:  # noqa: F811
    site = any_site
    placed = deployed(site, 3)
    assert (len(placed.bound), len(site.pods())) == (2, 3)
    site.evidence.changes = {"gpus": 2.0 * placed.gpus, "pods": placed.refs(2)}
    state = site.done(site.actor())
    assert site.replicas() == 0
    assert state.outcome is not None
    assert state.outcome.freed_gpus == 2 * placed.gpus
