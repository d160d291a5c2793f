"""Whether the cluster's API answers, and whether we may read what collecting reads."""

from collections.abc import Iterator

import msgspec

from actions.rights import prove
from collectors.doctor import Row, few
from collectors.kube.shapes import Partial
from collectors.kube.watching import NODES, PODS
from fallow.errors import FallowError
from fallow.kube.api import Api, Pause, connect
from fallow.kube.shapes import Page
from fallow.settings import Settings
from runtime import proving
from runtime.doctor.fault import fault
from runtime.rbac import reading as rights

NEEDED = frozenset({"nodes", "pods"})
"""Without these there is no inventory at all; without another a part of it is missing."""
ROLE = "fallow-reader"
BIND = (
    f"kubectl apply -f deploy/rbac/reader.yaml; kubectl create clusterrolebinding {ROLE} "
    f"--clusterrole={ROLE} --serviceaccount=NAMESPACE:ACCOUNT"
)


def reading(settings: Settings, api: Api | None = None) -> Iterator[Row]:
    """Say which API server it is and which of the reader's rights are missing."""
    if not settings.kubernetes.enabled:
        return
    try:
        api = api or connect(
            settings.kubernetes.context,
            timeout_s=settings.kubernetes.timeout.total_seconds(),
            pause=Pause(sleep=lambda _: None),
        )
        version = msgspec.json.decode(api.get("/version")).get("gitVersion", "unknown version")
        yield Row("kubernetes", "ok", f"{api.host} answers: {version}")
        yield _granted(api)
        yield _watch(api)
    except FallowError as error:
        step = "kubernetes.context: does `kubectl --context NAME get nodes` work from here?"
        yield fault("kubernetes", error, step)
        return
    if settings.actions.enabled:
        for row in proving.examine(settings, api=api):
            if row["check"] != "cluster" and row["status"] != "off":
                yield Row(**row)


def _watch(api: Api) -> Row:
    """Open a watch of nodes and of pods for a second, as the service keeps them open."""
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
            return Row("watch", "warn", why, BIND)
    return Row("watch", "ok", "nodes and pods can be watched: fallow up misses none that is brief")


def _granted(api: Api) -> Row:
    proofs = prove(lambda body: proving.ask(api, body), {ROLE: rights()}, [])
    lacking = [proof for proof in proofs if not proof.allowed]
    if not lacking:
        return Row("rights to read", "ok", f"all {len(proofs)} rights are granted")
    needed = any(proof.resource in NEEDED for proof in lacking)
    named = few([proving.words(proof) for proof in lacking])
    return Row("rights to read", "bad" if needed else "warn", f"may not {named}", BIND)
