"""A Prometheus that knows pods by name only, and an API: identity is resolved when it is planned.

A real Prometheus holds six hours of an exporter's and cAdvisor's series, with no
kube-state-metrics beside them; the API stub has the notebook whose pod they name.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from actions.journal import event_types
from actions.policy.parser import read_policies
from runtime.cli.options import CommandRun
from tests.actions.loop.site import SPACE, Site, pod_spec
from tests.actions.notices.conftest import Hook
from tests.cli.conftest import Fallow
from tests.cli.test_acting import _kubeconfig
from tests.cli.test_acting_whole import POLICY, steps
from tests.cli.test_acting_whole import hook as hook  # noqa: PLC0414  (fixtures)
from tests.servers import prometheus as server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("prometheus-identity")]
EVERY = 60
IDLE = timedelta(hours=4)
WHOM = f"Notebook/{SPACE}/nb"
Row = dict[str, Any]


@pytest.fixture
def made(tmp_path: Path, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> Iterator["Made"]:
    """Return a cluster with a notebook that worked for an hour and has been idle for four."""
    home = tmp_path / "home"
    home.mkdir()
    now = datetime.now(UTC).replace(microsecond=0)
    with Site(home, now - timedelta(hours=5, minutes=10)) as site:
        _kubeconfig(tmp_path / "kubeconfig", site.server.url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        import kubernetes.config.kube_config as loader

        monkeypatch.setattr(loader, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        notebook = {
            "apiVersion": "kubeflow.org/v1", "kind": "Notebook",
            "metadata": {"name": "nb", "namespace": SPACE, "labels": {"team": "ml"}},
            "spec": {"template": {"spec": pod_spec()}},
        }  # fmt: skip
        site.store.create("Notebook", notebook, manager="kubectl-create")
        site.pass_time(minutes=10)
        yield Made(site, tmp_path, hook, now)


class Made:
    """The cluster, its folder, and what its Prometheus holds."""

    def __init__(self, site: Site, folder: Path, hook: Hook, now: datetime) -> None:
        self.site, self.folder, self.hook, self.now = site, folder, hook, now
        (pod,) = site.pods()
        self.pod, self.node = str(pod["metadata"]["name"]), str(pod["spec"]["nodeName"])

    @contextmanager
    def served(self, fallow: Fallow) -> Iterator[None]:
        """Serve the series, and import the past by the command line."""
        self.site.now = self.now
        data = server.blocks(_series(self), self.folder / "prometheus")
        with server.serving(data) as url:
            config = {
                "cluster": "c",
                "home": str(self.folder / "home"),
                "prometheus": {"url": url},
                "prices": {"usd_per_gpu_hour": "2.00"},
                "warehouse": {"future_tolerance": "1h"},
                # Some hours cannot say when it is wanted again: that is not asked here.
                "idle": {"min_expected_rest": None},
                "actions": {
                    "policies": str(self.folder / "policies"), "actor": "ann",
                    "evidence_age": "5m",
                },
                "notices": {"channels": {"hook": {"url": self.hook.url}}, "default": ["hook"]},
            }  # fmt: skip
            (self.folder / "fallow.yaml").write_text(yaml.safe_dump(config))
            (self.folder / "policies").mkdir(exist_ok=True)
            (self.folder / "policies" / "notebooks.yaml").write_text(yaml.safe_dump(POLICY))
            ran = fallow("import", "prometheus", "--since", "6h")
            assert ran.code == 0, ran
            yield


def _series(made: Made) -> str:
    """Return an hour of work and four of rest, and some minutes that are still to come."""
    begin = made.now - timedelta(hours=5)
    ts = np.arange(begin.timestamp(), (made.now + timedelta(minutes=30)).timestamp(), EVERY)
    busy = ts < (made.now - IDLE).timestamp()
    history = server.History()
    of = {"namespace": SPACE, "pod": made.pod, "container": "main"}
    device = {
        **of, "gpu": "0", "UUID": "GPU-1", "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": made.node,
    }  # fmt: skip
    watts = np.where(busy, 500.0, 100.0) + history.rng.normal(0, 0.4, len(ts))
    history.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", device, ts, np.where(busy, 0.8, 0.0))
    history.add("DCGM_FI_DEV_GPU_UTIL", device, ts, np.where(busy, 90.0, 0.0))
    history.add("DCGM_FI_DEV_POWER_USAGE", device, ts, np.round(watts, 2))
    energy = np.floor(np.cumsum(watts) * EVERY * 1000)
    history.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", device, ts, energy)
    history.add("DCGM_FI_DEV_FB_USED", device, ts, 20_000.0)
    history.add("DCGM_FI_DEV_FB_FREE", device, ts, 60_000.0)
    host = {**of, "image": "x"}
    cores = np.cumsum(np.where(busy, 2.0, 0.002)) * EVERY
    history.add("container_cpu_usage_seconds_total", host, ts, np.round(cores, 3))
    history.add("container_memory_working_set_bytes", host, ts, 2.0**32)
    wire = {"namespace": SPACE, "pod": made.pod, "interface": "eth0"}
    sent = np.round(np.cumsum(np.where(busy, 9e5, 20.0)) * EVERY)
    history.add("container_network_receive_bytes_total", wire, ts, sent)
    history.add("container_network_transmit_bytes_total", wire, ts, sent)
    for disk in ("reads", "writes"):
        history.add(f"container_fs_{disk}_bytes_total", host, ts, 1e6)
    return history.text()


def planned(fallow: Fallow) -> Row:
    """Return what `plan` says of the notebook."""
    ran = fallow("plan", "-o", "json")
    assert ran.code == 0, ran
    document = json.loads(ran.out)
    rows = [r for r in (*document["decisions"], *document["refused"]) if "nb" in r["subject"][-1]]
    assert len(rows) == 1, ran.out
    row: Row = rows[0]
    return row


def reasons(row: Row) -> dict[str, str]:
    return {r["gate"]: r["text"] for r in row["reasons"]}


# The plan knows the owner: test_a_pod_made_anew_does_not_inherit_the_rest_of_the_one_before.
# The loop acts by the command line: test_acting_whole.py.
@pytest.mark.long
def test_the_plan_knows_the_owner_and_the_loop_acts(
    made: Made, fallow: Fallow, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = [timedelta(seconds=370)]
    monkeypatch.setattr(CommandRun, "now", lambda _run: datetime.now(UTC) - offset[0])
    with made.served(fallow):
        assert fallow("collect", "--once").code == 0
        row = planned(fallow)
        assert "/".join(row["subject"]) == f"c/{WHOM}", row
        assert not {"identity", "resolved", "ready", "skew"} & set(reasons(row)), row
        assert steps(fallow("apply", "--yes", "-o", "json")) == [(WHOM, "notified")]
        (policy,) = read_policies([made.folder / "policies"], interval=timedelta(minutes=2))
        trust = {"fingerprint": policy.fingerprint, "forced": True}
        made.site.journal().append(event_types.TRUSTED, "notebooks", trust)
        offset[0] = timedelta(0)
        ran = fallow("apply", "--yes", "-o", "json")
        assert steps(ran) == [(WHOM, "acted")], (ran.out, ran.err)
    answer = made.site.get("Notebook", "nb")["metadata"]["annotations"]
    assert "kubeflow-resource-stopped" in answer


def away(made: Made) -> None:
    made.site.server.faults.away = True


def anew(made: Made) -> None:
    """Let the pod be made anew two hours ago, under its old name."""
    pod = made.site.store.get("Pod", made.pod, SPACE)
    assert pod is not None
    begun = f"{made.now - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"
    meta = {**pod["metadata"], "uid": "another", "creationTimestamp": begun}
    made.site.store.remove("Pod", made.pod, SPACE)
    status = {**pod["status"], "startTime": begun}
    made.site.store.restore("Pod", {**pod, "metadata": meta, "status": status})


def elsewhere(made: Made) -> None:
    made.node = "another-node"


def unreadable(made: Made) -> None:
    made.site.server.access.deny("*", "statefulsets")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (elsewhere, "its devices on another-node"),
        (away, "no Kubernetes API can be asked"),
        # tests/actions/cluster/test_owners.py: what may not be read is said so.
        pytest.param(unreadable, "may not be read", marks=pytest.mark.long),
    ],
)
def test_what_is_not_certain_is_refused_with_its_reason(
    made: Made, fallow: Fallow, change: Callable[[Made], None], why: str
) -> None:
    change(made)
    with made.served(fallow):
        row = planned(fallow)
    assert why in reasons(row)["identity"], row


def test_a_pod_made_anew_does_not_inherit_the_rest_of_the_one_before(
    made: Made, fallow: Fallow
) -> None:
    anew(made)
    with made.served(fallow):
        row = planned(fallow)
    assert "/".join(row["subject"]) == f"c/{WHOM}"
    assert re.search(r"for (1h5\dm|2h)", row["parameters"]["why"]), row["parameters"]["why"]
