"""The chart makes what it says: legal objects, least rights, a locked-down pod, no secret."""

import csv
import json
from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from actions import executors
from actions.cluster.allocations import OPTIONAL_RIGHTS
from actions.policy.parser import read_policies
from actions.rights import CANARY, OWN, build_rules, list_roles
from fallow.errors import UsageError
from fallow.settings import Settings, load
from fallow.shards import Shard, choose_shard
from runtime.operations.acting.access_review import list_reader_rights
from tools import chart, manifests

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "fallow"
EXAMPLES = sorted((DEPLOY / "helm" / "examples").glob("*.yaml"))
READS = {"get", "list", "watch"}
Objects = list[dict[str, Any]]


def values(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "helm" / "examples" / f"{name}.yaml").read_text()))


def made(said: Mapping[str, Any]) -> Objects:
    pytest.importorskip("helm_python", reason="no Helm here: see deploy/helm/tools.lock")
    return manifests.list_objects(manifests.render_chart(CHART, said))


def of(found: Objects, kind: str) -> Objects:
    return [one for one in found if one["kind"] == kind]


@cache
def pages() -> list[tuple[str, Objects]]:
    """Return what stands in deploy/manifests: legal to look at without Helm."""
    texts = [(p.stem, p.read_text()) for p in sorted((DEPLOY / "manifests").glob("*.yaml"))]
    return [(name, list(yaml.load_all(text, Loader=yaml.CSafeLoader))) for name, text in texts]


def pods(found: Objects) -> list[dict[str, Any]]:
    return [one["spec"]["template"]["spec"] for one in of(found, "StatefulSet")]


def test_what_the_chart_takes_from_the_code_is_current() -> None:
    for name, text in chart.render_pages(CHART).items():
        assert (CHART / name).read_text() == text, "run: python -m tools.chart deploy/helm/fallow"


def test_manifests_are_what_the_chart_makes() -> None:
    made({})
    for name, text in manifests.render_pages(DEPLOY).items():
        same = (DEPLOY / "manifests" / name).read_text() == text
        assert same, "run: python -m tools.manifests deploy"
    assert [name for name, _ in pages()] == [one.stem for one in EXAMPLES]


def test_helm_finds_nothing_to_mend() -> None:
    helm = pytest.importorskip("helm_python", reason="no Helm here: see deploy/helm/tools.lock")
    for answer in ({}, *(yaml.safe_load(one.read_text()) for one in EXAMPLES)):
        found = helm.lint(str(CHART), answer)
        assert not found["errors"]
        assert [m["error"] for m in found["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize(("name", "found"), pages(), ids=[name for name, _ in pages()])
@pytest.mark.parametrize(
    ("version", "kinds"), [("1.27", {"StatefulSet", "NetworkPolicy", "Role"}), ("1.37", None)]
)
def test_every_manifest_is_legal_for_the_api(
    name: str, found: Objects, version: str, kinds: set[str] | None
) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="see deploy/helm/tools.lock")
    ours = [one for one in found if not one["apiVersion"].startswith("monitoring.coreos.com")]
    assert len(ours) >= 10, name
    for one in ours if kinds is None else [o for o in ours if o["kind"] in kinds]:
        validate.validate(one, version, strict=True)
    broken = dict(of(found, "StatefulSet")[0])
    broken["spec"] = {**broken["spec"], "replica": 1}
    with pytest.raises(validate.ValidationError, match="replica"):
        validate.validate(broken, version, strict=True)


@pytest.mark.parametrize(("name", "found"), pages(), ids=[name for name, _ in pages()])
def test_every_pod_is_locked_down(name: str, found: Objects) -> None:
    assert len(pods(found)) == (4 if name in {"split", "sharded", "clusters"} else 1)
    for pod in pods(found):
        who = pod["securityContext"]
        assert who["runAsNonRoot"] is True
        assert who["runAsUser"] == who["runAsGroup"] == who["fsGroup"] == 65532
        assert who["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["enableServiceLinks"] is False, "FALLOW_PORT would be an unknown setting"
        assert pod["terminationGracePeriodSeconds"] >= 120
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert not any("hostPath" in volume for volume in pod["volumes"])
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        written = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
        assert written == {"/var/lib/fallow", "/tmp"}
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["resources"]["limits"]["memory"]
    (space,) = of(found, "Namespace")
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_only_roles_that_ask_the_cluster_have_a_token_and_a_disk() -> None:
    found = dict(pages())["split"]
    result = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in of(found, "StatefulSet")
    }
    tokens = {name for name, pod in result.items() if pod["automountServiceAccountToken"]}
    assert tokens == {"fallow-collector", "fallow-actor"}
    disks = {
        n for n, p in result.items() if any("persistentVolumeClaim" in v for v in p["volumes"])
    }
    assert disks == {"fallow-actor"}
    args = {name: pod["containers"][0]["args"] for name, pod in result.items()}
    assert args["fallow-analyzer"] == ["up", "--role", "analyzer"]
    assert len({pod["serviceAccountName"] for pod in result.values()}) == 4


@pytest.mark.parametrize("name", ["all-in-one", "split"])
def test_it_only_reads_until_acting_is_switched_on(name: str) -> None:
    found = dict(pages())[name]
    granted = [rule for one in of(found, "ClusterRole") for rule in one["rules"]]
    assert granted == build_rules(list_reader_rights())
    assert {verb for rule in granted for verb in rule["verbs"]} <= READS
    assert not of(found, "Role")
    assert not of(found, "RoleBinding")


def test_acting_grants_what_its_executors_declare_where_it_may_act() -> None:
    found = dict(pages())["acting"]
    result = {one["metadata"]["name"]: one["rules"] for one in of(found, "ClusterRole")}
    every = list_roles(executors.load_executors())
    for name in ("fallow-act-notebook", "fallow-act-scale", "fallow-annotate"):
        assert result[name] == build_rules(every[name])
    assert [*result["fallow-actor"], *result["fallow-actor-cluster"]] == [
        *build_rules(r for r in every["fallow-actor"] if r not in OPTIONAL_RIGHTS),
        *build_rules(OPTIONAL_RIGHTS),
    ]
    assert set(result) == {
        "fallow-reader", "fallow-actor", "fallow-actor-cluster", "fallow-annotate",
        "fallow-act-notebook", "fallow-act-scale", "fallow-snapshot", "fallow-snapshot-cluster",
    }  # fmt: skip
    (own,) = of(found, "Role")
    assert own["rules"] == build_rules(OWN)
    wide = {one["roleRef"]["name"] for one in of(found, "ClusterRoleBinding")}
    assert wide == {"fallow-reader", "fallow-actor-cluster", "fallow-snapshot-cluster"}
    cluster = [verb for name in wide for rule in result[name] for verb in rule["verbs"]]
    assert set(cluster) <= READS, "nothing is written cluster-wide"
    spaces = {(b["metadata"]["namespace"], b["roleRef"]["name"]) for b in of(found, "RoleBinding")}
    narrow = set(result) - wide
    assert spaces == {(s, n) for s in ("research", "vision") for n in narrow} | {
        ("fallow", "fallow-own")
    }


def test_the_canary_has_its_namespace_and_its_rights_only_where_it_has_an_image() -> None:
    answer = values("acting")
    assert not of(made(answer), "Namespace")
    wanted = {**answer["settings"]["actions"], "canary": {"image": "pause:3.10"}}
    found = made({**answer, "settings": {**answer["settings"], "actions": wanted}})
    (space,) = of(found, "Namespace")
    assert space["metadata"]["name"] == "fallow-canary"
    (role,) = (r for r in of(found, "Role") if r["metadata"]["name"] == "fallow-canary")
    (bound,) = (r for r in of(found, "RoleBinding") if r["metadata"]["name"] == "fallow-canary")
    assert role["metadata"]["namespace"] == bound["metadata"]["namespace"] == "fallow-canary"
    assert role["rules"] == build_rules(CANARY)
    assert bound["subjects"] == [
        {"kind": "ServiceAccount", "name": "fallow", "namespace": "fallow"}
    ]
    off = {**wanted, "enabled": False}
    assert not of(made({"settings": {**answer["settings"], "actions": off}}), "Namespace")


def test_the_collector_has_a_disk_on_which_rows_wait() -> None:
    parts = {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]
        for one in of(made(values("split")), "StatefulSet")
    }
    (claim,) = parts["collector"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "home"
    assert "home" not in {v["name"] for v in parts["collector"]["template"]["spec"]["volumes"]}
    assert {role for role, spec in parts.items() if "volumeClaimTemplates" in spec} == {"collector"}
    off = made({**values("split"), "persistence": {"enabled": False}})
    assert not any("volumeClaimTemplates" in one["spec"] for one in of(off, "StatefulSet"))


def test_shards_are_pods_whose_ordinal_says_which() -> None:
    found = made(values("sharded"))
    (collector,) = (
        one
        for one in of(found, "StatefulSet")
        if one["metadata"]["labels"]["app.kubernetes.io/component"] == "collector"
    )
    name, spec = collector["metadata"]["name"], collector["spec"]
    assert (spec["replicas"], spec["podManagementPolicy"]) == (4, "Parallel")
    (settings,) = (
        one["data"]["fallow.yaml"] for one in of(found, "ConfigMap") if "fallow.yaml" in one["data"]
    )
    shards = yaml.safe_load(settings)["service"]["shards"]
    chosen = [choose_shard("", shards, f"{name}-{ordinal}") for ordinal in range(4)]
    assert chosen == [Shard(number, 4) for number in (1, 2, 3, 4)]
    # Another count is another StatefulSet: pods of two counts never roll side by side.
    assert name.endswith("-collector-of-4")
    others = {o["metadata"]["name"]: o["spec"]["replicas"] for o in of(found, "StatefulSet")}
    assert {replicas for n, replicas in others.items() if n != name} == {1}


def test_ray_is_a_cluster_of_this_image_or_an_address() -> None:
    ray = {"enabled": True, "tokenSecret": "ray-token"}
    found = made({**values("split"), "ray": ray})
    (cluster,) = of(found, "RayCluster")
    assert cluster["spec"]["authOptions"] == {"mode": "token", "secretName": "ray-token"}
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    (group,) = cluster["spec"]["workerGroupSpecs"]
    worker = group["template"]["spec"]["containers"][0]
    own = {c["image"] for p in pods(found) for c in p["containers"]}
    assert {head["image"], worker["image"]} == own
    assert group["replicas"] == 2
    settings = read_settings(found)["warehouse"]
    assert settings["workers"] == "ray"
    service = f"{cluster['metadata']['name']}-head-svc"
    assert settings["ray_address"].startswith(f"ray://{service}.")
    tokens = [e for p in pods(found) for c in p["containers"] for e in c["env"]]
    wanted = {"secretKeyRef": {"name": "ray-token", "key": "auth_token"}}
    assert [e["valueFrom"] for e in tokens if e["name"] == "RAY_AUTH_TOKEN"] == [wanted] * len(
        pods(found)
    )
    elsewhere = made({**values("split"), "ray": {**ray, "address": "ray://head.ray:10001"}})
    assert not of(elsewhere, "RayCluster")
    assert read_settings(elsewhere)["warehouse"]["ray_address"] == "ray://head.ray:10001"
    assert "workers" not in read_settings(made(values("split")))["warehouse"]


@pytest.mark.parametrize("policy", [{}, {"egress": []}], ids=["named peers", "ports"])
def test_the_network_policy_lets_the_service_out_to_ray(policy: dict[str, Any]) -> None:
    def rules(**ray: Any) -> list[dict[str, Any]]:
        said = lay_over(values("split"), {"ray": ray, "networkPolicy": policy})
        (found,) = (
            one
            for one in of(made(said), "NetworkPolicy")
            if not one["metadata"]["name"].endswith("-pages")
        )
        return list(found["spec"]["egress"])

    without = rules(enabled=False)
    *others, last = rules(enabled=True, tokenSecret="ray-token")
    head = {"podSelector": {"matchLabels": {"ray.io/cluster": "fallow-ray"}}}
    assert others == without
    assert last == {"to": [head], "ports": [{"protocol": "TCP", "port": 10001}]}
    *others, last = rules(enabled=True, tokenSecret="ray-token", address="ray://head.ray:10002")
    assert others == without
    assert last == {"ports": [{"protocol": "TCP", "port": 10002}]}


def read_settings(found: Objects) -> dict[str, Any]:
    (text,) = (
        one["data"]["fallow.yaml"] for one in of(found, "ConfigMap") if "fallow.yaml" in one["data"]
    )
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings


def test_a_role_is_parted_without_loss() -> None:
    """What reaches beyond namespaces is what the API says is not in one."""
    with (ROOT / "simulator" / "kube" / "resources.csv").open(encoding="utf-8") as lines:
        wide = {(r["group"], r["plural"]) for r in csv.DictReader(lines) if r["namespaced"] == "0"}
    parts = chart.list_rights()["executors"]
    for name, wanted in list_roles(executors.load_executors()).items():
        if not name.startswith(chart.ACTS):
            continue
        part = parts[name.removeprefix(chart.ACTS)]
        pairs = {(r.group, r.resource, v) for r in wanted for v in r.verbs}
        split = {
            where: {
                triple
                for rule in part[where]
                for triple in product(rule["apiGroups"], rule["resources"], rule["verbs"])
            }
            for where in ("cluster", "namespaced")
        }
        assert split["cluster"] | split["namespaced"] == pairs
        for group, resource, verb in split["namespaced"]:
            at_home = resource == "namespaces" and verb == "get"  # a RoleBinding grants its own
            assert at_home or (group, resource.partition("/")[0]) not in wide, (name, resource)
        assert {(g, n) for g, n, _ in split["cluster"]} <= wide


def test_every_executor_can_be_granted() -> None:
    every = sorted(chart.list_rights()["executors"])
    answer = values("acting")
    found = made({**answer, "rights": {"executors": every, "namespaces": ["a"]}})
    bound = {one["roleRef"]["name"] for one in of(found, "RoleBinding")}
    bound |= {one["roleRef"]["name"] for one in of(found, "ClusterRoleBinding")}
    assert {one["metadata"]["name"] for one in of(found, "ClusterRole")} == bound - {"fallow-own"}
    verbs = {v for one in of(found, "ClusterRole") for rule in one["rules"] for v in rule["verbs"]}
    assert not verbs & {"delete", "deletecollection", "update", "*", "escalate", "bind"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"settings": {"prometheus": {"urls": "x"}}}, "urls"),
        ({"settings": {"service": {"token": "t"}}}, "token"),
        ({"settings": {"prometheus": {"bearer_token": "t"}}}, "bearer_token"),
        ({"settings": {"notices": {"channels": {"a": {"url": "json://h"}}}}}, "channels"),
        ({"settings": {"home": "/elsewhere"}}, "home"),
        ({"settings": {"idle": {"threshold": "much"}}}, "threshold"),
        ({"setting": {}}, "setting"),
        ({"rights": {"executors": ["everything"]}}, "executors"),
        ({"rights": {"executors": ["scale"]}}, "where may they act"),
        ({"rights": {"executors": ["scale"], "namespaces": ["a"]}}, "grant nothing"),
        ({"split": True}, "settings.warehouse.data"),
        ({"split": True, "settings": {"warehouse": {"data": "s3://a/b"}}}, "PostgreSQL catalog"),
        ({"shards": 2}, "shards needs split: true"),
        ({"shards": 0}, "shards"),
        ({"ray": {"enabled": True}}, "ray.enabled needs split: true"),
        ({"ray": {"address": "head:10001"}}, "address"),
        ({**values("split"), "ray": {"enabled": True}}, "ray.tokenSecret"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"policies": {"../evil": "x"}}, "evil"),
        ({"networkPolicy": {"egressPorts": [{"port": 99999}]}}, "port"),
    ],
)
def test_values_that_cannot_work_are_refused_and_named(said: dict[str, Any], why: str) -> None:
    pytest.importorskip("helm_python", reason="no Helm here: see deploy/helm/tools.lock")
    with pytest.raises(UsageError, match=why):
        manifests.render_chart(CHART, said)


def test_an_alert_names_the_address_of_its_section_in_the_runbook() -> None:
    url = "https://git.example/fallow/docs/runbook.md"
    found = made({"prometheusRule": {"enabled": True, "runbookUrl": url}})
    (rule,) = of(found, "PrometheusRule")
    alerts = rule["spec"]["groups"][0]["rules"]
    assert {a["annotations"]["runbook_url"] for a in alerts} == {
        f"{url}#{a['alert'].lower()}" for a in alerts
    }
    # What Prometheus fills in stays as it is.
    assert any("{{ $labels.instance }}" in a["annotations"]["summary"] for a in alerts)


def test_the_schema_knows_every_setting_that_is_no_secret() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    text = json.dumps(schema)
    assert '"format": "password"' not in text
    assert "(?" not in text, "Go's regular expressions know no lookahead"
    known = schema["properties"]["settings"]["properties"]
    assert set(Settings.model_fields) - {"home"} == set(known)


@pytest.mark.parametrize(("name", "found"), pages(), ids=[name for name, _ in pages()])
def test_fallow_reads_the_settings_and_policies_that_are_mounted(
    name: str, found: Objects, tmp_path: Path
) -> None:
    maps = {one["metadata"]["name"]: one.get("data") or {} for one in of(found, "ConfigMap")}
    file = tmp_path / "fallow.yaml"
    file.write_text(maps["fallow"]["fallow.yaml"])
    secrets = {
        "FALLOW_SERVICE__TOKEN": "t",
        "FALLOW_DASHBOARD__OIDC__CLIENT_SECRET": "c",
        "FALLOW_DASHBOARD__OIDC__COOKIE_SECRET": "0123456789abcdef0123456789abcdef",
        "FALLOW_WAREHOUSE__CATALOG": "postgres:host=db",
    }
    settings = load(file=file, environ=secrets if name != "all-in-one" else {}).settings
    assert str(settings.home) == "/var/lib/fallow"
    assert settings.service.listen == "0.0.0.0:9410"
    assert settings.actions.lease.namespace == "fallow"
    assert settings.actions.enabled == (name in {"acting", "clusters"})
    shown = settings.dashboard.oidc.on
    assert settings.dashboard.listen == ("0.0.0.0:8501" if shown else "127.0.0.1:8501")
    (tmp_path / "policies").mkdir()
    for key, text in maps["fallow-policies"].items():
        (tmp_path / "policies" / key).write_text(text)
    if maps["fallow-policies"]:
        assert len(read_policies([tmp_path / "policies"])) == len(maps["fallow-policies"])
    ports = {p["name"] for one in of(found, "Service") for p in one["spec"]["ports"]}
    assert ports == ({"http", "pages"} if shown else {"http"})


def test_networks_reach_it_only_from_home_and_where_values_say() -> None:
    for name, found in pages():
        policies = {one["metadata"]["name"]: one["spec"] for one in of(found, "NetworkPolicy")}
        pods = [one["spec"]["template"] for one in of(found, "StatefulSet")]
        for spec in policies.values():
            (ingress,) = spec["ingress"]
            assert len(ingress["from"]) == (3 if name == "acting" else 1)
            assert {"podSelector": {}} in ingress["from"]
        for pod in pods:  # a pod is reached on the ports that it serves, and on no other
            labels = pod["metadata"]["labels"].items()
            served = {p["containerPort"] for c in pod["spec"]["containers"] for p in c["ports"]}
            reached = {
                port["port"]
                for spec in policies.values()
                if spec["podSelector"]["matchLabels"].items() <= labels
                for port in spec["ingress"][0]["ports"]
            }
            assert reached == served
        assert policies["fallow"]["policyTypes"] == ["Ingress", "Egress"]
        for egress in policies["fallow"]["egress"]:
            assert egress["to"], "the examples name each peer"
            assert egress["ports"]


def test_egress_goes_to_named_peers_or_else_to_ports() -> None:
    answer = values("acting")
    ports = [{"port": 443, "protocol": "TCP"}]
    peer = {"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}], "ports": ports}
    for network, rules_wanted in (
        ({"egress": [peer], "egressPorts": ports}, [peer]),
        ({"egressPorts": ports}, [{"ports": ports}]),
        ({"egress": [], "egressPorts": []}, None),
    ):
        policies = of(made({**answer, "networkPolicy": network}), "NetworkPolicy")
        spec = next(o["spec"] for o in policies if "-" not in o["metadata"]["name"])
        assert spec.get("egress") == rules_wanted
        assert ("Egress" in spec["policyTypes"]) == (rules_wanted is not None)


def test_pods_may_be_created_only_where_the_values_restore_them() -> None:
    answer = values("acting")
    for restores in (False, True):
        rights = {"executors": ["evict"], "namespaces": ["a"], "restorePods": restores}
        found = made({**answer, "rights": rights})
        creating = [
            one["metadata"]["name"]
            for one in of(found, "ClusterRole")
            for rule in one["rules"]
            if "pods" in rule["resources"] and "create" in rule["verbs"]
        ]
        assert creating == (["fallow-restore-pods"] if restores else [])
        bound = {one["roleRef"]["name"] for one in of(found, "RoleBinding")}
        assert ("fallow-restore-pods" in bound) == restores


def test_monitoring_is_what_deploy_has() -> None:
    found = made({**values("acting"), "grafana": {"enabled": True}})
    (rule,) = of(found, "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    (monitor,) = of(found, "ServiceMonitor")
    (service,) = of(found, "Service")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    gpu = next(o for o in of(found, "ConfigMap") if o["metadata"]["name"] == "fallow-board")
    assert json.loads(gpu["data"]["fallow.json"]) == json.loads(
        (DEPLOY / "grafana" / "fallow.json").read_text()
    )


def test_the_exporter_is_told_to_count_every_column_that_we_read_once() -> None:
    with (ROOT / "collectors" / "metrics.csv").open(encoding="utf-8") as lines:
        rows = [r for r in csv.DictReader(lines) if r["metric"].startswith("DCGM_")]
    column = {r["metric"]: r["column"] for r in rows}
    lines_ = [line for line in chart.render_counters().splitlines() if not line.startswith("#")]
    result = [line.split(", ", 2) for line in lines_]
    assert {kind for _, kind, _ in result} == {"gauge", "counter"}
    columns = [column[metric] for metric, _, _ in result]
    assert sorted(columns) == sorted(set(column.values()))
    with (ROOT / "collectors" / "dcgm_fields.csv").open(encoding="utf-8") as advised:
        for row in csv.DictReader(advised):
            assert row["line"] in lines_, "the doctor and the chart advise the same line"
    assert not any("," in answer for _, _, answer in result)
    (counted,) = [
        o for o in of(dict(pages())["acting"], "ConfigMap") if "dcgm" in o["metadata"]["name"]
    ]
    assert counted["data"]["dcgm-metrics.csv"] == chart.render_counters()
    assert counted["metadata"]["namespace"] == "gpu-operator"


SIZES = {1_000: "all-in-one", 10_000: "all-in-one", 20_000: "all-in-one", 100_000: "split"}
"""Values by GPUs (deploy/helm/sizes), and the example that they are laid over."""


def lay_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return what Helm makes of two files of values: the later one wins, key by key."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(below.get(key), dict)
        merged[key] = lay_over(below[key], value) if both else value
    return merged


def test_every_size_has_values_that_say_how_they_are_known() -> None:
    files = {path.stem: path.read_text() for path in (DEPLOY / "helm" / "sizes").glob("*.yaml")}
    assert set(files) == {f"gpus-{gpus}" for gpus in SIZES}
    for gpus, example in SIZES.items():
        text = files[f"gpus-{gpus}"]
        assert ("by arithmetic" in text) == (gpus == 100_000)
        assert ("measured (python -m benchmarks memory" in text) == (
            gpus < 100_000
        ) or gpus == 1_000
        assert f"-f deploy/helm/examples/{example}.yaml -f deploy/helm/sizes/gpus-{gpus}" in text
        assert "helm install fallow deploy/helm/fallow -n fallow --create-namespace -f" in text
        secret = yaml.safe_load(text).get("ray", {}).get("tokenSecret")
        assert (
            secret is None or f"create secret generic {secret} --from-literal=auth_token=" in text
        )
    install = (ROOT / "docs" / "install.md").read_text()
    for gpus in (1_000, 10_000, 20_000):
        requests = yaml.safe_load(files[f"gpus-{gpus}"])["resources"]["requests"]
        cpu, memory = requests["cpu"], requests["memory"].replace("Gi", " GiB")
        (row,) = [line for line in install.splitlines() if line.startswith(f"| {gpus:,} | ")]
        assert f"| {cpu} CPU, {memory}" in row


@pytest.mark.parametrize("gpus", SIZES)
def test_the_values_of_a_size_render_over_their_example(gpus: int) -> None:
    size = yaml.safe_load((DEPLOY / "helm" / "sizes" / f"gpus-{gpus}.yaml").read_text())
    found = made(lay_over(values(SIZES[gpus]), size))
    by_pod = {
        one["metadata"]["name"].removeprefix("fallow-").partition("-of-")[0]: one["spec"][
            "template"
        ]["spec"]
        for one in of(found, "StatefulSet")
    }
    wanted = {"fallow": size["resources"]} if "resources" in size else {
        role: found_role["resources"] for role, found_role in size["roles"].items()
    }  # fmt: skip
    assert {name: pod["containers"][0]["resources"] for name, pod in by_pod.items()} == wanted
    if gpus == 100_000:
        (cluster,) = of(found, "RayCluster")
        (group,) = cluster["spec"]["workerGroupSpecs"]
        (container,) = group["template"]["spec"]["containers"]
        limits = container["resources"]["limits"]
        tasks, gib = int(limits["cpu"]), int(limits["memory"].removesuffix("Gi"))
        assert gib >= tasks * 1.5, "a task for each CPU"
