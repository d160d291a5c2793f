"""What its owner or another tool protects is not stopped: by words on any part of it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actions.cluster.protections import find_protections

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPACE: dict[str, Any] = {"kind": "Namespace", "metadata": {"name": "team-a"}}


def obj(kind: str = "Deployment", namespace: str = "team-a", **meta: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x", "namespace": namespace, **meta}}


def noted(key: str, value: str, **more: Any) -> dict[str, Any]:
    return obj(annotations={key: value}, **more)


def texts(*chain: Any, space: Any = SPACE, now: datetime | None = NOW) -> str:
    return "; ".join(r.text for r in find_protections(chain, space, now))


@pytest.mark.parametrize(
    ("key", "value", "guards"),
    [
        ("fallow.dev/keep", "true", True),
        ("fallow.dev/keep", "false", False),
        ("fallow.dev/protect", "demo", True),
        ("fallow.dev/protect", "false", False),
        ("karpenter.sh/do-not-disrupt", "true", True),
        ("karpenter.sh/do-not-disrupt", "false", False),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false", True),
        ("cluster-autoscaler.kubernetes.io/safe-to-evict", "true", False),
        ("descheduler.alpha.kubernetes.io/prefer-no-eviction", "true", True),
        ("downscaler/exclude", "true", True),
        ("downscaler/exclude", "false", False),
        ("admission.robusta.dev/krr-mutation-mode", "ignore", True),
        ("admission.robusta.dev/krr-mutation-mode", "enforce", False),
        ("kubernetes.io/config.mirror", "abc", True),
        ("fallow.dev/keep-until", "2026-11-20T12:00:01Z", True),
        ("fallow.dev/keep-until", "2026-11-20T12:00:00Z", False),
        ("fallow.dev/keep-until", "2026-11-20 13:00", True),
        ("fallow.dev/keep-until", "tomorrow", True),
        ("gpu-opt.io/protect-until", "2026-11-21", True),
        ("downscaler/exclude-until", "2026-11-19", False),
    ],
)
def test_a_word_protects_as_its_tool_means_it(key: str, value: str, guards: bool) -> None:
    assert bool(texts(noted(key, value))) is guards
    assert bool(texts(obj(labels={key: value}))) is guards


def test_a_word_on_pod_owner_or_namespace_protects_the_whole_workload() -> None:
    pod = obj("Pod")
    noted_pod = noted("fallow.dev/keep", "true", kind="Pod")
    assert "on Pod/team-a/x" in texts(noted_pod, obj())
    assert "on Deployment/team-a/x" in texts(pod, noted("fallow.dev/keep", "true"))
    space = {**SPACE, "metadata": {"name": "team-a", "annotations": {"fallow.dev/keep": "true"}}}
    assert "on Namespace/team-a" in texts(pod, obj(), space=space)
    assert texts(pod, obj()) == ""


def test_without_a_clock_a_moment_protects_for_ever() -> None:
    past = (NOW - timedelta(days=1)).isoformat()
    assert texts(noted("fallow.dev/keep-until", past), now=None)


def test_a_namespace_that_cannot_be_read_protects() -> None:
    assert "cannot be read" in texts(obj(), space=None)


@pytest.mark.parametrize("space", ["kube-system", "gpu-operator", "kai-resource-reservation"])
def test_the_clusters_own_is_never_stopped(space: str) -> None:
    """Regression 8: pods that hold devices for others are never stopped."""
    assert texts(obj(namespace=space))
    assert texts({"kind": "Pod", "metadata": {"name": "p", "namespace": space}})


def test_kinds_that_are_never_stopped() -> None:
    assert "every node by design" in texts(obj("DaemonSet"))
    assert texts({"kind": "Pod", "metadata": {"name": "p", "namespace": "team-a"}}) == ""


@pytest.mark.parametrize(
    ("spec", "guards"),
    [
        ({"priorityClassName": "system-cluster-critical"}, True),
        ({"template": {"spec": {"priorityClassName": "system-node-critical"}}}, True),
        ({"priorityClassName": "research"}, False),
    ],
)
def test_system_priority_protects(spec: dict[str, Any], guards: bool) -> None:
    assert bool(texts({**obj(), "spec": spec})) is guards
