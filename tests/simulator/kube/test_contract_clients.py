"""The official Python client, as people use it."""

from typing import Any

import pytest

from tests.servers.kube_apiserver import ADMIN
from tests.simulator.kube.conftest import Kube, Space, replicated


@pytest.fixture
def client(kube: Kube) -> Any:
    """The official client's connection."""
    from kubernetes import client

    config = client.Configuration(host=kube.url)
    config.api_key = {"authorization": ADMIN}
    config.api_key_prefix = {"authorization": "Bearer"}
    config.ssl_ca_cert = kube.ca
    return client.ApiClient(config)


def test_the_client_reads_scales_and_evicts(client: Any, space: Space) -> None:
    from kubernetes import client as api

    space.pod(running=True, nodeName="n0")
    space.create("statefulsets", replicated("db", 3), "apps/v1")
    core: Any = api.CoreV1Api(client)
    apps: Any = api.AppsV1Api(client)
    (found,) = core.list_namespaced_pod(space.name).items
    limits = found.spec.containers[0].resources.limits
    assert (found.metadata.name, limits) == ("p", {"nvidia.com/gpu": "2"})
    scaled = apps.patch_namespaced_stateful_set_scale(
        "db", space.name, {"spec": {"replicas": 0}}, field_manager="fallow"
    )
    assert scaled.spec.replicas is None  # left out when it is 0
    meta = api.V1ObjectMeta(name="p", namespace=space.name)
    core.create_namespaced_pod_eviction("p", space.name, api.V1Eviction(metadata=meta))
    assert core.read_namespaced_pod("p", space.name).metadata.deletion_timestamp is not None


def test_the_client_patches_custom_objects_and_watches(client: Any, space: Space) -> None:
    from kubernetes import client as api
    from kubernetes import watch

    item = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "metadata": {"name": "ada"}}
    custom: Any = api.CustomObjectsApi(client)
    watching: Any = watch.Watch
    where = ("kubeflow.org", "v1", space.name, "notebooks")
    custom.create_namespaced_custom_object(*where, item)
    stop = {"metadata": {"annotations": {"kubeflow-resource-stopped": "2026-11-20T12:00:00Z"}}}
    custom.patch_namespaced_custom_object(*where, "ada", stop, field_manager="fallow")
    events = watching().stream(
        custom.list_namespaced_custom_object, *where, timeout_seconds=1, resource_version="0"
    )
    (event,) = events
    notes = event["object"]["metadata"]["annotations"]
    assert (event["type"], notes) == ("ADDED", stop["metadata"]["annotations"])
