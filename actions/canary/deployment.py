"""The canary's Deployment: how it is made, whether it is ours, and whether it is Ready."""

from actions.loop.protocols import ClusterClient
from fallow.action_models import Change, Target
from fallow.errors import RefusedError
from fallow.kube.objects import Object, get_labels, get_metadata, get_path
from fallow.settings.actions import CanarySettings

KIND, API = "Deployment", "apps/v1"
OURS = "fallow.dev/canary"
"""The label, with the Deployment's own name, that shows that Fallow made it."""
USER_ID = 65532
CREATED, EXISTS = 201, 409


def read_deployment(cluster: ClusterClient, settings: CanarySettings) -> Object | None:
    """Return the canary's Deployment; None = there is none yet.

    Raises:
        RefusedError: an object of that name is not Fallow's, or the API does not permit reading it.
        TemporaryError: no answer.
    """
    obj = cluster.get(f"{_get_collection(settings)}/{settings.name}")
    if obj is None:
        return None
    name = f"Deployment {settings.namespace}/{settings.name}"
    if get_labels(obj).get(OURS) != settings.name:
        raise RefusedError(
            f"{name} is not the canary: it lacks the label {OURS}={settings.name}",
            hint="set actions.canary.name or actions.canary.namespace",
        )
    if (image := _get_image(obj)) != settings.image:
        raise RefusedError(
            f"{name} runs {image}, actions.canary.image is {settings.image}",
            hint=f"kubectl -n {settings.namespace} delete deployment {settings.name}: "
            "the next turn makes it anew",
        )
    return obj


def create_deployment(cluster: ClusterClient, settings: CanarySettings) -> None:
    """Make the canary's Deployment.

    Raises:
        RefusedError: the API refuses it.
        TemporaryError: no answer.
    """
    target = Target(cluster.name, API, KIND, settings.namespace, settings.name, uid="")
    change = Change(
        target=target,
        method="POST",
        path=_get_collection(settings),
        body=build_manifest(settings),
        content_type="application/json",
        guarded=False,
    )
    result = cluster.send(change, dry_run=False)
    if result.code not in (CREATED, EXISTS):
        raise RefusedError(
            f"Deployment {settings.namespace}/{settings.name} is not made: "
            f"{result.reason or result.code}",
            hint="`fallow doctor --actions` names the rights that are missing",
        )


def explain_unready(obj: Object) -> str | None:
    """Return why the Deployment is not Ready; None = its one replica is."""
    name = f"Deployment {get_metadata(obj).get('namespace')}/{get_metadata(obj).get('name')}"
    status, generation = obj.get("status") or {}, get_metadata(obj).get("generation")
    replicas = get_path(obj, "spec", "replicas")
    if replicas != 1:
        return f"{name} has {replicas} replicas, not 1"
    if status.get("observedGeneration", 0) < (generation or 0):
        return f"{name}: its controller has not seen the last change yet"
    if (status.get("readyReplicas") or 0) < 1 or (status.get("updatedReplicas") or 0) < 1:
        return f"{name}: no replica is Ready"
    return None


def build_manifest(settings: CanarySettings) -> Object:
    """Return the Deployment's manifest: one small container without rights and without GPUs."""
    own = {OURS: settings.name}
    marks = {**own, "app.kubernetes.io/part-of": "fallow"}
    container = {
        "name": "canary",
        "image": settings.image,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    return {
        "apiVersion": API,
        "kind": KIND,
        "metadata": {"name": settings.name, "namespace": settings.namespace, "labels": marks},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": marks}, "spec": pod},
        },
    }


def _get_collection(settings: CanarySettings) -> str:
    return f"/apis/{API}/namespaces/{settings.namespace}/deployments"


def _get_image(obj: Object) -> str:
    containers = get_path(obj, "spec", "template", "spec", "containers") or [{}]
    return str(containers[0].get("image") or "")
