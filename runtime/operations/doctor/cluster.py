"""Check whether the cluster's API responds, and whether collecting has its read permissions."""

from collections.abc import Iterator

import msgspec

from actions.cluster.access import post_review
from actions.rights import check_rights
from collectors.doctor import CheckRow, format_few
from collectors.kube.shapes import Partial
from collectors.kube.watches import NODES, PODS
from fallow.errors import FallowError
from fallow.kube.api import ApiConnection, BackOff, connect
from fallow.kube.api_objects import Page
from fallow.settings import Settings
from runtime.operations.acting import access_review
from runtime.operations.doctor.fault import build_fault_row

NEEDED = frozenset({"nodes", "pods"})
"""Without these there is no inventory at all; without another, a part of it is missing."""
ROLE = "fallow-reader"
BIND = (
    f"kubectl apply -f deploy/rbac/reader.yaml; kubectl create clusterrolebinding {ROLE} "
    f"--clusterrole={ROLE} --serviceaccount=NAMESPACE:ACCOUNT"
)


def check_cluster(settings: Settings, api: ApiConnection | None = None) -> Iterator[CheckRow]:
    """Return the API server, and which of the reader's rights are missing."""
    if not settings.kubernetes.enabled:
        return
    try:
        api = api or connect(
            settings.kubernetes.context,
            timeout_s=settings.kubernetes.timeout.total_seconds(),
            pause=BackOff(sleep=lambda _: None),
        )
        version = msgspec.json.decode(api.get("/version")).get("gitVersion", "unknown version")
        yield CheckRow("kubernetes", "ok", f"{api.host} answers: {version}")
        yield _check_rights(api)
        yield _check_watch(api)
    except FallowError as error:
        step = "kubernetes.context: does `kubectl --context NAME get nodes` work from here?"
        yield build_fault_row("kubernetes", error, step)
        return
    if settings.actions.enabled:
        for row in access_review.review_access(settings, api=api):
            if row["check"] != "cluster" and row["status"] != "off":
                yield CheckRow(**row)


def _check_watch(api: ApiConnection) -> CheckRow:
    """Open a watch of nodes and of pods for a second, as the service does permanently."""
    for path in (NODES, PODS):
        query = {"watch": "true", "timeoutSeconds": 1, "allowWatchBookmarks": "true"}
        try:
            newest = msgspec.json.decode(api.get(path, {"limit": 1}), type=Page[Partial])
            version = newest.metadata.resource_version
            stream = api.stream(path, {**query, "resourceVersion": version}, read_timeout_s=10)
            for _ in stream:
                pass
        except FallowError as error:
            why = f"{path} cannot be watched, so pods that live shortly are missed: {error.message}"
            return CheckRow("watch", "warn", why, BIND)
    return CheckRow(
        "watch", "ok", "nodes and pods can be watched: fallow up misses none that is brief"
    )


def _check_rights(api: ApiConnection) -> CheckRow:
    proofs = check_rights(
        lambda body: post_review(api, body), {ROLE: access_review.list_reader_rights()}, []
    )
    lacking = [proof for proof in proofs if not proof.allowed]
    if not lacking:
        return CheckRow("rights to read", "ok", f"all {len(proofs)} rights are granted")
    needed = any(proof.resource in NEEDED for proof in lacking)
    named = format_few([access_review.describe_right(proof) for proof in lacking])
    return CheckRow("rights to read", "bad" if needed else "warn", f"may not {named}", BIND)
