"""A resize in place and the stop of pods with resource claims, where real controllers run.

The resize is played on the stub as well; claims need the real scheduler, which allocates devices,
and the controller that makes a claim of each pod's template and takes it away with its pod.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actions.cluster.resize_status import read_resize_status
from actions.journal import ActionState
from actions.loop.actor import Actor
from tests.actions.loop import draining, resizing
from tests.actions.loop.control_plane import RealSite, prepared
from tests.actions.loop.site import SPACE, Object, Site, pod_spec
from tests.actions.loop.test_crashes import nothing_twice
from tests.servers import kube_apiserver as real
from tests.servers.fake_kubelet import RESIZE
from tests.simulator.kube.conftest import Kube

pytestmark = pytest.mark.xdist_group("control-plane")
BEFORE, AFTER = ("1Gi", "1Gi"), ("512Mi", "512Mi")
DRIVER, DEVICES, NODE = "gpu.nvidia.com", 4, "h100-0"
DRA = "/apis/resource.k8s.io/v1"


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """Return a real server with controllers, or skip with what is missing."""
    folder = real.controllers()
    if folder is None:
        pytest.skip(real.without_controllers())
    with real.controlled(folder, tmp_path_factory.mktemp("control")) as server:
        yield prepared(server)


@pytest.fixture
def real_site(control_plane: Kube, tmp_path: Path) -> Iterator[RealSite]:
    with RealSite(tmp_path, control_plane) as made:
        yield made
        for one in made.listed("Deployment"):
            made.remove("Deployment", one["metadata"]["name"])
        made.settle()


@pytest.fixture(params=["stand-in", "kube-controller-manager"])
def any_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "stand-in":
        with Site(tmp_path) as made:
            yield made
    else:
        yield request.getfixturevalue("real_site")


def kubelets_apply(site: Site) -> None:
    """Wait for the kubelets of the real server; play those of the stub."""
    if not isinstance(site, RealSite):
        resizing.apply(site)
    draining.until(site, lambda: all(has(pod) == asked(pod) for pod in site.pods()))


def asked(pod: Object) -> tuple[str, str]:
    amounts = pod["spec"]["containers"][0]["resources"]
    return amounts["requests"]["memory"], amounts["limits"]["memory"]


def has(pod: Object) -> tuple[str, str]:
    amounts = pod["status"]["containerStatuses"][0]["resources"]
    return amounts["requests"]["memory"], amounts["limits"]["memory"]


def begun(site: Site) -> tuple[Actor, ActionState]:
    """Send the resize of both pods."""
    actor = resizing.actor(site)
    site.told_and_waited(actor)
    report = actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert [t.result for t in report.steps] == ["acted"], report.steps
    site.evidence.idle = []
    assert resizing.memory(site) == [AFTER, AFTER]
    return actor, result


def test_guaranteed_pods_are_resized_in_place_and_undone_exactly(any_site: Site) -> None:
    site = any_site
    site.deployment()
    kubelets_apply(site)
    before = {pod["metadata"]["uid"] for pod in site.pods()}
    assert resizing.memory(site) == [BEFORE, BEFORE]
    actor, result = begun(site)
    paths = {change.path.rsplit("/", 1)[-1] for change in result.action.intent.changes}
    assert paths == {"resize"}
    kubelets_apply(site)
    site.pass_time(minutes=3)
    actor.turn(dry_run=False)
    assert result.outcome is not None
    assert result.outcome.result == "done", result.outcome
    assert [has(pod) for pod in site.pods()] == [AFTER, AFTER]
    assert actor.undo(result.action.id, "ann").result == "undone"
    kubelets_apply(site)
    assert [has(pod) for pod in site.pods()] == [BEFORE, BEFORE]
    # Nothing was restarted, and the class is what it was.
    assert {pod["metadata"]["uid"] for pod in site.pods()} == before
    assert {pod["status"]["qosClass"] for pod in site.pods()} == {"Guaranteed"}
    nothing_twice(site)


def test_a_resize_that_a_kubelet_calls_infeasible_is_given_back(real_site: RealSite) -> None:
    site = real_site
    site.deployment()
    kubelets_apply(site)
    refusing = {"metadata": {"annotations": {RESIZE: "Infeasible"}}}
    site.patch("Pod", site.pods()[0]["metadata"]["name"], refusing, manager="test")
    actor, result = begun(site)

    def refused() -> bool:
        answer = [
            read_resize_status(c, p) for c, p in zip(changes(result), site.pods(), strict=True)
        ]
        return any(one is not None and one.state == "impossible" for one in answer)

    draining.until(site, refused)
    actor.turn(dry_run=False)
    assert result.outcome is not None
    assert result.outcome.result == "failed"
    text = result.outcome.reasons[0].text
    assert "PodResizePending Infeasible: the node has no room for it" in text
    kubelets_apply(site)
    assert [has(pod) for pod in site.pods()] == [BEFORE, BEFORE]
    nothing_twice(site)


def changes(told: ActionState) -> list[Any]:
    """Return the writes in the order of the pods' names."""
    return sorted(told.action.intent.changes, key=lambda c: c.target.name)


def offer(site: RealSite) -> None:
    """Offer devices on a node, and a class and a template of claims for them."""
    slice_ = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{NODE}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"gpu-{n}", "attributes": {"uuid": {"string": f"GPU-{n}"}}}
                for n in range(DEVICES)
            ],
        },
    }
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}}
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    for path, body in (
        ("resourceslices", slice_),
        ("deviceclasses", {**kind, "spec": {}}),
        (f"namespaces/{SPACE}/resourceclaimtemplates", template),
    ):
        made = site.kube.ask("POST", f"{DRA}/{path}", body)
        assert made.code in {201, 409}, made.body


def claims(site: RealSite) -> list[Object]:
    found = site.kube.ask("GET", f"{DRA}/namespaces/{SPACE}/resourceclaims")
    assert found.code == 200, found.body
    items: list[Object] = found.body["items"]
    return items


def claiming(site: RealSite, replicas: int = 2) -> None:
    """Make a Deployment whose pods hold a device by a claim each, and name it idle."""
    offer(site)
    spec = pod_spec()
    del spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    site.make(
        "Deployment",
        "web",
        {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    )
    site.evidence.idle.append(("Deployment", "web"))
    site.pass_time(minutes=3)


def allocated(site: RealSite) -> int:
    return sum("allocation" in (claim.get("status") or {}) for claim in claims(site))


def test_what_a_stop_of_claiming_pods_frees_is_counted_and_freed(real_site: RealSite) -> None:
    site = real_site
    claiming(site)
    assert allocated(site) == 2
    actor = site.actor()
    state = site.done(actor)
    assert state.action.decision.gpus == 2
    assert site.replicas() == 0
    draining.until(site, lambda: allocated(site) == 0)
    assert actor.undo(state.action.id, "ann").result == "undone"
    site.pass_time(minutes=3)
    assert (site.replicas(), allocated(site)) == (2, 2)
    nothing_twice(site)


def test_pods_that_wait_for_a_device_free_none(real_site: RealSite) -> None:
    site = real_site
    claiming(site, replicas=DEVICES + 1)
    assert allocated(site) == DEVICES
    # The evidence is of five, as the spec says; one of them waits and holds nothing.
    actor = site.actor()
    site.told_and_waited(actor)
    (taken,) = actor.turn(dry_run=False).steps
    assert taken.result == "refused", taken
    assert [r.text for r in taken.reasons] == ["would free 4 GPUs, the evidence is about 5"]
    assert site.replicas() == DEVICES + 1
    site.evidence.changes = {"gpus": float(DEVICES)}
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert (result.action.decision.gpus, site.replicas()) == (DEVICES, 0)
    draining.until(site, lambda: allocated(site) == 0)
