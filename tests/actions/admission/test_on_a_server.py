"""A real API server accepts each manifest that Fallow writes; each rule holds on both sides."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from actions.admission.controls import review_controls
from actions.hints import admission as precision
from actions.rights import check_rights
from fallow.protocols import Right
from simulator.kube.server import KubeServer
from simulator.kube.store import ObjectStore
from tests.actions.admission.test_cases import USERS, documents
from tests.actions.places import MERGE, Object, door, serving
from tests.servers import kube_apiserver as real
from tests.simulator.kube.conftest import Answer, Kube, replicated
from tests.simulator.kube.conftest import pod as pod_of

ROOT = Path(__file__).resolve().parents[3]
SPACES = {
    "serve-a": {"tier": "batch"}, "lab": {}, "research": {}, "fallow": {}, "fallow-canary": {},
}  # fmt: skip
WRITTEN = sorted(ROOT.glob("deploy/*/*.yaml"))
GPU = {"limits": {"nvidia.com/gpu": "1"}}


class Server:
    """A real server, and requests as one of its users."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self._roots = kube, dict[str, Any]()

    def find(self, document: Object) -> str | None:
        """Return the path of a manifest's collection; None = its kind is not served."""
        version = document["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if root not in self._roots:
            served = self.kube.ask("GET", root).body.get("resources") or ()
            self._roots[root] = {r["kind"]: r for r in served if "/" not in r["name"]}
        row = self._roots[root].get(document["kind"])
        if row is None:
            return None
        space = document["metadata"].get("namespace") or "default"
        return (
            f"{root}/namespaces/{space}/{row['name']}"
            if row["namespaced"]
            else (f"{root}/{row['name']}")
        )

    def apply(self, document: Object, **query: str) -> Answer:
        path = self.find(document)
        assert path is not None, document["kind"]
        return self.kube.ask("POST", path, document, fieldValidation="Strict", **query)

    def send(self, user: str, method: str, path: str, body: Any) -> Answer:
        """Send a request as a user, as a dry run."""
        headers = {
            "Authorization": f"Bearer {real.ADMIN}",
            "Impersonate-User": user,
            "Impersonate-Group": "system:authenticated",
            "Content-Type": MERGE if method == "PATCH" else "application/json",
        }
        url = f"{self.kube.url}{path}?dryRun=All&fieldValidation=Strict"
        return Answer(self.kube.pool.request(method, url, body=json.dumps(body), headers=headers))


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a real server with the admission policies of a site in force."""
    real.require()
    with serving("kube-apiserver", tmp_path_factory.mktemp("admission")) as (kube, _):
        made = Server(kube)
        for name, labels in SPACES.items():
            meta = {"name": name, "labels": labels}
            made.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        subjects = [{"kind": "User", "name": user} for user in USERS.values()]
        reference = {"kind": "ClusterRole", "name": "cluster-admin"}
        binding = {"metadata": {"name": "all"}, "subjects": subjects, "roleRef": reference}
        kube.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
        for space in ("serve-a", "lab"):
            kube.ask("POST", f"/apis/apps/v1/namespaces/{space}/deployments", replicated("x", 1))
            kube.ask("POST", f"/api/v1/namespaces/{space}/pods", pod_of("p"))
        kube.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        for document in (*documents("site"), *precision.build_manifests()):
            answer = made.apply(document)
            assert answer.code == 201, (document["metadata"], answer.body)
        yield made


@pytest.mark.parametrize("site", ["site", "none"])
def test_the_policies_of_a_site_are_accepted(real_server: Server, site: str) -> None:
    for document in documents(site):
        renamed = {**document, "metadata": {**document["metadata"], "name": "fallow-dry-run"}}
        answer = real_server.apply(renamed, dryRun="All")
        assert answer.code == 201, (document["metadata"], answer.body)


@pytest.mark.parametrize("file", WRITTEN, ids=lambda f: f"{f.parent.name}-{f.stem}")
def test_every_written_manifest_is_accepted_strictly(real_server: Server, file: Path) -> None:
    """Kinds of others (ServiceMonitor) and files of Prometheus are not the server's."""
    documents_of_file = [d for d in yaml.safe_load_all(file.read_text()) if d and "apiVersion" in d]
    for document in documents_of_file:
        if real_server.find(document) is None:
            assert document["apiVersion"].startswith("monitoring.coreos.com/")
            continue
        if space := document["metadata"].get("namespace"):
            real_server.kube.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        answer = real_server.apply(document, dryRun="All")
        assert answer.code in {201, 409}, (document["metadata"], answer.body)


def event(reason: str, name: str) -> Object:
    involved = {"kind": "Deployment", "name": "x", "namespace": "lab", "apiVersion": "apps/v1"}
    return {"metadata": {"name": name}, "reason": reason, "type": "Normal",
            "involvedObject": involved}  # fmt: skip


APPS, CORE = "/apis/apps/v1/namespaces", "/api/v1/namespaces"
ZERO = {"spec": {"replicas": 0}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
LEASE = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
NOTED = {"metadata": {"annotations": {"fallow.dev/action": "a"}}}
FOREIGN = {"metadata": {"annotations": {"fallow.dev/action": "a", "team": "x"}}}
SERVICE = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
DRY = {"dryRun": ["All"]}
"""With a body, a DELETE heeds nothing of its query."""
CONFIG = {"metadata": {"name": "c"}}
PRIORITY = {"metadata": {"name": "c"}, "value": 1}
REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
}
SIDES: list[tuple[str, str, str, Any, bool]] = [
    ("actor", "PATCH", f"{APPS}/serve-a/deployments/x/scale", ZERO, True),
    ("actor", "PATCH", f"{APPS}/lab/deployments/x/scale", ZERO, False),
    ("person", "PATCH", f"{APPS}/lab/deployments/x/scale", ZERO, True),
    ("other", "PATCH", f"{APPS}/lab/deployments/x/scale", ZERO, True),
    ("actor", "POST", f"{CORE}/lab/pods/p/eviction", EVICTION, True),
    ("actor", "POST", f"{CORE}/serve-a/pods/p/eviction", EVICTION, False),
    ("actor", "POST", f"{CORE}/lab/pods", pod_of("n", labels={"team": "nlp"}), True),
    ("actor", "POST", f"{CORE}/lab/pods", pod_of("n", labels={"team": "web"}), False),
    ("actor", "POST", f"{CORE}/lab/events", event("Fallow", "fallow.a"), True),
    ("actor", "POST", f"{CORE}/lab/events", event("Killing", "fallow.a"), False),
    ("actor", "PATCH", f"{APPS}/serve-a/deployments/x", NOTED, True),
    ("actor", "PATCH", f"{APPS}/lab/deployments/x", FOREIGN, False),
    ("actor", "PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}, True),
    ("actor", "POST", "/apis/coordination.k8s.io/v1/namespaces/fallow/leases", LEASE, True),
    ("actor", "POST", "/apis/coordination.k8s.io/v1/namespaces/lab/leases", LEASE, False),
    ("actor", "POST", f"{CORE}/fallow/configmaps", CONFIG, True),
    ("actor", "POST", f"{CORE}/lab/configmaps", CONFIG, False),
    ("actor", "POST", f"{CORE}/lab/services", SERVICE, False),
    ("person", "POST", f"{CORE}/lab/services", SERVICE, True),
    ("actor", "DELETE", f"{APPS}/serve-a/deployments/x", DRY, False),
    ("person", "DELETE", f"{APPS}/serve-a/deployments/x", DRY, True),
    ("actor", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", REVIEW, True),
    # Objects without a namespace have a message too (deckhouse/deckhouse#9849).
    ("actor", "POST", CORE, {"metadata": {"name": "new"}}, False),
    ("actor", "PATCH", f"{CORE}/lab", {"metadata": {"labels": {"a": "b"}}}, False),
    ("actor", "DELETE", f"{CORE}/lab", DRY, False),
    ("actor", "POST", "/api/v1/nodes", {"metadata": {"name": "n2"}}, False),
    ("person", "POST", "/api/v1/nodes", {"metadata": {"name": "n2"}}, True),
    ("actor", "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", PRIORITY, False),
]


@pytest.mark.parametrize(("user", "method", "path", "body", "passes"), SIDES)
def test_each_rule_lets_through_and_refuses(
    real_server: Server, user: str, method: str, path: str, body: Any, *, passes: bool
) -> None:
    codes = {200, 201} if passes else {403}
    answer = real_server.send(USERS[user], method, path, body)
    deadline = time.monotonic() + 20  # each policy is in force a moment after it was made
    while answer.code not in codes and time.monotonic() < deadline:
        answer = real_server.send(USERS[user], method, path, body)
    assert answer.code in codes, answer.raw
    if not passes:
        operation = {"PATCH": "UPDATE", "POST": "CREATE"}.get(method, method)
        assert f"Fallow may not {operation} " in answer.body["message"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{"name": "a", "resources": GPU}, {"name": "b"}]}, {"a"}),
        ({"containers": [{"name": "a", "resources": {"claims": [{"name": "g"}]}}, {"name": "b"}],
          "resourceClaims": [{"name": "g", "resourceClaimName": "g"}]}, {"a"}),
        ({"initContainers": [{"name": "s", "resources": GPU, "restartPolicy": "Always"},
                             {"name": "once", "resources": GPU}],
          "containers": [{"name": "b"}]}, {"s"}),
        ({"containers": [{"name": "b"}]}, set()),
    ],
)  # fmt: skip
def test_a_format_reaches_what_holds_the_gpus(
    real_server: Server, spec: Object, expected: set[str]
) -> None:
    every = [*spec.get("initContainers", ()), *spec["containers"]]
    for container in every:
        container["image"] = "work:1"
    meta = {"name": "f", "namespace": "lab", "labels": {precision.LABEL: "bf16"}}
    hinted: set[str] = set()
    deadline = time.monotonic() + 20
    while hinted != expected and time.monotonic() < deadline:
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        answer = real_server.apply(document, dryRun="All")
        assert answer.code == 201, answer.body
        stored = answer.body["spec"]
        named = [*stored.get("initContainers", ()), *stored["containers"]]
        hinted = {c["name"] for c in named if c.get("env")}
    assert hinted == expected


def test_doctor_says_which_controls_are_in_force(real_server: Server) -> None:
    expected = {"admission policies": ["fallow-own", "fallow-act-scale"]}
    client = door(real_server.kube.url, ca=real_server.kube.ca)
    states = {s.control: s for s in review_controls(client, expected)}
    assert {s.status for s in states.values()} == {"ok"}, states
    assert "from Kubernetes 1.33 on; v1.36" in states["resize in place"].finding


@pytest.mark.parametrize(
    ("policies", "bindings", "status", "text"),
    [
        ([], [], "off", "not applied"),
        ([], ["a", "b"], "warn", "2 bindings have no policy and refuse nothing: a, b"),
        (["a"], [], "off", "not applied"),
        (["a"], ["a"], "warn", "1 of 2 are missing: b"),
        (["a", "b"], ["a", "b"], "ok", "in force: 2 policies"),
    ],
)
def test_bindings_without_their_policy_are_named(
    policies: list[str], bindings: list[str], status: str, text: str
) -> None:
    """On the stub, as on a site that applied policies which its server refused."""
    with stub() as kube:
        root = "/apis/admissionregistration.k8s.io/v1"
        for plural, names in (
            ("validatingadmissionpolicies", policies),
            ("validatingadmissionpolicybindings", bindings),
        ):
            for name in names:
                meta = {"name": name, "labels": {"app.kubernetes.io/part-of": "fallow"}}
                spec = {"policyName": name, "validationActions": ["Deny"]}
                made = kube.ask("POST", f"{root}/{plural}", {"metadata": meta, "spec": spec})
                assert made.code == 201, made.body
        expected = {"admission policies": ["a", "b"]}
        states = {s.control: s for s in review_controls(door(kube.url), expected)}
    assert (states["admission policies"].status, states["admission policies"].finding) == (
        status, text
    )  # fmt: skip


@pytest.mark.parametrize(
    ("actions", "part", "status", "text"),
    [
        (["Warn"], {}, "warn", "1 bindings do not deny everywhere: a"),
        (["Audit"], {}, "warn", "1 bindings do not deny everywhere: a"),
        (["Deny"], {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
         "warn", "1 bindings do not deny everywhere: a"),
        (["Deny", "Audit"], {}, "ok", "in force: 1 policies, for gpu-tools/fallow alone"),
    ],
)  # fmt: skip
def test_what_denies_nothing_is_not_in_force_and_the_account_is_named(
    actions: list[str], part: Object, status: str, text: str
) -> None:
    """A site tries policies out with warnings, or wrote them for another account."""
    with stub() as kube:
        root = "/apis/admissionregistration.k8s.io/v1"
        meta = {"name": "a", "labels": {"app.kubernetes.io/part-of": "fallow"}}
        account = "request.userInfo.username in ['system:serviceaccount:gpu-tools:fallow']"
        policy = {"matchConditions": [{"name": "actor", "expression": account}]}
        binding = {"policyName": "a", "validationActions": actions, **part}
        for plural, spec in (
            ("validatingadmissionpolicies", policy),
            ("validatingadmissionpolicybindings", binding),
        ):
            made = kube.ask("POST", f"{root}/{plural}", {"metadata": meta, "spec": spec})
            assert made.code == 201, made.body
        states = {s.control: s for s in review_controls(door(kube.url), {})}
    state = states["admission policies"]
    assert (state.status, state.finding) == (status, text)


def test_a_role_binding_grants_no_write_of_a_node_and_the_review_says_so(
    real_server: Server,
) -> None:
    kube, root = real_server.kube, "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["patch"]}]
    kube.ask("POST", f"{root}/clusterroles", {"metadata": {"name": "mig"}, "rules": rules})
    binding = {
        "metadata": {"name": "mig"},
        "subjects": [{"kind": "User", "name": "nobody"}],
        "roleRef": {"kind": "ClusterRole", "name": "mig"},
    }
    kube.ask("POST", f"{root}/namespaces/lab/rolebindings", binding)
    client = door(kube.url, ca=kube.ca, token=real.NOBODY)
    rights = {"a": [Right("", "nodes", ("patch",)), Right("", "pods", ("patch",))]}
    expected = {"nodes": False, "pods": True}
    answers: dict[str, bool] = {}
    deadline = time.monotonic() + 20  # a role is in force a moment after it was bound
    while answers != expected and time.monotonic() < deadline:
        proofs = check_rights(client.review, rights, ["lab"])
        answers = {p.resource: p.allowed for p in proofs}
    assert answers == expected


@contextmanager
def stub(version: str = "1.36") -> Iterator[Kube]:
    store = ObjectStore(lambda: 1_790_000_000.0, installed=(), version=version)
    with KubeServer(store) as one:
        yield Kube("stand-in", one.url, store.history.forget)


@pytest.mark.parametrize(
    ("version", "lacking"),
    [
        ("1.29", {"admission policies": "1.30", "precision defaults": "1.36",
                  "resize in place": "1.33", "claims of devices": "1.34"}),
        ("1.30", {"precision defaults": "1.36", "resize in place": "1.33",
                  "claims of devices": "1.34"}),
        ("1.32", {"precision defaults": "1.36", "resize in place": "1.33",
                  "claims of devices": "1.34"}),
        ("1.33", {"precision defaults": "1.36", "claims of devices": "1.34"}),
        ("1.35", {"precision defaults": "1.36"}),
        ("1.36", {}),
    ],
)  # fmt: skip
def test_what_an_older_server_lacks_is_named(version: str, lacking: dict[str, str]) -> None:
    with stub(version) as kube:
        states = {s.control: s for s in review_controls(door(kube.url), {})}
    found = {name: state.finding for name, state in states.items() if "lacks it" in state.finding}
    assert found == {
        name: f"the server (v{version}.2+fallow) lacks it: it exists from Kubernetes {since} on"
        for name, since in lacking.items()
    }
    assert all(states[name].status == "off" and states[name].next_step for name in lacking)


def test_an_older_server_refuses_the_policies_by_their_kind() -> None:
    with stub("1.29") as kube:
        server = Server(kube)
        assert {server.find(d) for d in (*documents("none"), *precision.build_manifests())} == {
            None
        }
    with stub() as kube:
        server = Server(kube)
        for document in (*documents("site"), *precision.build_manifests()):
            assert server.apply(document).code == 201
