"""The whole way by the command line: telemetry and an API in, a notebook told, stopped, undone."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from actions.journal import event_types
from actions.policy.parser import read_policies
from fallow.settings import Settings, load
from fallow.tables import Batch, list_table_names
from runtime.cli.options import CommandRun
from tests.actions.loop.site import SPACE, Site, bare, pod_spec
from tests.actions.notices.conftest import Hook
from tests.cli import explaining
from tests.cli.conftest import Fallow
from tests.cli.test_acting import _kubeconfig
from warehouse.lake import Warehouse

LOOK = (
    'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",'
    'Hostname="{node}",namespace="{space}",pod="{pod}",container="main"}} {util}\n'
    'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",'
    'Hostname="{node}",namespace="{space}",pod="{pod}",container="main"}} {watts}\n'
)
POLICY = {
    "name": "notebooks",
    "mode": "enforce",
    "match": {"analyzer": "idle", "evidence": "confirmed"},
    "allow": {"namespaces": [SPACE]},
    "stages": ["observe", "notify", {"grace": "6m"}, {"act": "suspend"}],
    "min_age": "1h",
    "budgets": [{"workloads": 3, "per": "1d"}],
    "max_resources": 3,
}

MARKER = "marker-env-of-a-notebook"


class Exporter:
    """One node's exporter, `util` is what its GPU does now; and its notebook's own API."""

    def __init__(self) -> None:
        self.util, self.watts = 0.0, 100.0
        self.kernel_at = datetime.now(UTC)
        self.answers: dict[str, Any] = {}
        self.labels: dict[str, str] = {}
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = {**exporter.labels, "util": exporter.util, "watts": exporter.watts}
                body = LOOK.format(**answer).encode()
                if self.path.startswith("/api/"):
                    body = json.dumps(exporter.notebook(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"

    def notebook(self, path: str) -> Any:
        """Return `answers`, else one kernel that rests and no terminal."""
        if (answer := self.answers.get(path.partition("?")[0])) is not None:
            return answer
        last = self.kernel_at.isoformat()
        if path.startswith("/api/kernels"):
            return [{"execution_state": "idle", "last_activity": last}]
        return [] if path.startswith("/api/terminals") else {"last_activity": last}


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture
def site(
    tmp_path: Path, exporter: Exporter, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """Return a cluster with a notebook that computed for an hour and has been idle for four."""
    home = tmp_path / "home"
    home.mkdir()
    now = datetime.now(UTC).replace(microsecond=0)
    with Site(home, now - timedelta(hours=5, minutes=10)) as made:
        _kubeconfig(tmp_path / "kubeconfig", made.server.url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        import kubernetes.config.kube_config as loader

        monkeypatch.setattr(loader, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        pod = pod_spec()
        pod["containers"][0]["env"] = [{"name": "TOKEN", "value": MARKER}]
        spec = {"template": {"spec": pod}}
        made.store.create(
            "Notebook",
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "Notebook",
                "metadata": {"name": "nb", "namespace": SPACE, "labels": {"team": "ml"}},
                "spec": spec,
            },
            manager="kubectl-create",
        )
        made.pass_time(minutes=10)
        (pod,) = made.pods()
        exporter.labels = {
            "node": pod["spec"]["nodeName"],
            "space": SPACE,
            "pod": pod["metadata"]["name"],
        }
        exporter.kernel_at = now - timedelta(hours=4, minutes=1)
        server = f"{SPACE}/{pod['metadata']['name']}={exporter.url.removesuffix('metrics')}"
        made.now = now
        config = {
            "cluster": "c",
            "home": str(home),
            "exporters": {"targets": [exporter.url], "interval": "2m"},
            "warehouse": {"future_tolerance": "10m"},
            # What the verdict rests on is read again before the act: kernels, too.
            "jupyter": {"servers": [server]},
            "kubernetes": {"enabled": True},
            "prices": {"usd_per_gpu_hour": "2.00"},
            # Five hours of history cannot say when the notebook is wanted again.
            "idle": {"min_expected_rest": None},
            "actions": {
                "policies": str(tmp_path / "policies"),
                "actor": "ann",
                "evidence_age": "5m",
            },
            "notices": {"channels": {"hook": {"url": hook.url}}, "default": ["hook"]},
        }
        (tmp_path / "fallow.yaml").write_text(yaml.safe_dump(config))
        (tmp_path / "policies").mkdir()
        (tmp_path / "policies" / "notebooks.yaml").write_text(yaml.safe_dump(POLICY))
        _past(load(file=tmp_path / "fallow.yaml", environ={}).settings, exporter, now)
        yield made


def _past(settings: Settings, exporter: Exporter, now: datetime) -> None:
    """Store five hours of looks at the notebook's GPU and at its kernels."""
    naive = now.replace(tzinfo=None)
    minutes = range(300, 0, -1)
    samples: dict[str, Any] = {
        "cluster": ["c"] * 300,
        "ts": [naive - timedelta(minutes=m) for m in minutes],
        "device": ["GPU-1"] * 300,
        "node": [exporter.labels["node"]] * 300,
        "model": ["NVIDIA H100 80GB HBM3"] * 300,
        "namespace": [SPACE] * 300,
        "pod": [exporter.labels["pod"]] * 300,
        "container": ["main"] * 300,
        "interval_s": [60.0] * 300,
        "gpu_util_pct": [90.0 if m > 240 else 0.0 for m in minutes],
        "power_w": [500.0 if m > 240 else 100.0 for m in minutes],
        # Power that stands still, without a counter that moves, is no second signal.
        "energy_mj": [
            10**12 + 60_000 * (100 * (300 - m) + 400 * min(300 - m, 60)) for m in minutes
        ],
    }
    wanted = range(300, 0, -10)
    notebooks: dict[str, Any] = {
        "cluster": ["c"] * 30,
        "ts": [naive - timedelta(minutes=m) for m in wanted],
        "namespace": [SPACE] * 30,
        "pod": [exporter.labels["pod"]] * 30,
        "kernels": [1] * 30,
        "busy_kernels": [0] * 30,
        "terminals": [0] * 30,
        "last_kernel_activity": [naive - timedelta(hours=4, minutes=1)] * 30,
    }
    with Warehouse.open(settings, write=True) as lake:
        lake.ingest([Batch.of("sample", samples), Batch.of("notebook_sample", notebooks)])


def steps(ran: Any) -> list[tuple[str, str]]:
    assert ran.code == 0, ran
    rows = json.loads(ran.out)["steps"]
    return [(r["workload"], r["result"]) for r in rows if r["workload"].startswith("Notebook")]


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> list[timedelta]:
    """Let commands believe that it is so much earlier: a grace has three looks at least."""
    offset = [timedelta(seconds=370)]
    monkeypatch.setattr(CommandRun, "now", lambda _run: datetime.now(UTC) - offset[0])
    return offset


@pytest.mark.parametrize(
    ("path", "answer", "is_known"),
    [
        ("/api/terminals", [], True),
        ("/api/terminals", [{"name": "1"}], False),
        ("/api/kernels", [{"id": "1"}], False),
    ],
)
@pytest.mark.usefixtures("site")
def test_a_stop_is_planned_only_where_kernels_and_terminals_are_known(
    exporter: Exporter, fallow: Fallow, path: str, answer: Any, *, is_known: bool
) -> None:
    exporter.answers[path] = answer
    assert fallow("collect", "--once").code == 0
    plan = json.loads(fallow("plan", "-o", "json").out)
    allowed = [d["verb"] for d in plan["decisions"] if d["ruling"] == "allow"]
    assert allowed == ["stop" if is_known else "notify owner"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_notebook_is_told_stopped_explained_and_undone(
    site: Site, fallow: Fallow, hook: Hook, earlier: list[timedelta]
) -> None:
    owner = f"Notebook/{SPACE}/nb"
    before = bare(site.get("Notebook", "nb"))
    assert fallow("collect", "--once").code == 0
    ran = fallow("apply", "-o", "json")
    assert steps(ran) == [(owner, "would notify")], ran.out
    assert "a dry run" in ran.err
    assert not (site.folder / "journal.sqlite").exists()

    # No policy enforces that was not replayed, or forced.
    assert steps(fallow("apply", "--yes", "-o", "json")) == [(owner, "notified")]
    assert owner in hook.got[0]["message"]
    (policy,) = read_policies([site.folder.parent / "policies"], interval=timedelta(minutes=2))
    trust = {"fingerprint": policy.fingerprint, "forced": True}
    site.journal().append(event_types.TRUSTED, "notebooks", trust)
    earlier[0] = timedelta(0)
    ran = fallow("apply", "--yes", "-o", "json")
    assert steps(ran) == [(owner, "acted")], (ran.out, ran.err)
    assert "kubeflow-resource-stopped" in site.get("Notebook", "nb")["metadata"]["annotations"]
    site.settle()

    (row,) = json.loads(fallow("actions", "-o", "json").out)["actions"]
    assert (row["workload"], row["result"]) == (owner, "under way")
    explaining.check_replay(site, fallow, row["action"])
    ran = fallow("undo", row["action"])
    assert ran.code == 0, ran
    assert bare(site.get("Notebook", "nb")) == before
    with Warehouse.open(load(file=site.folder.parent / "fallow.yaml").settings) as lake:
        kinds = lake.query("SELECT kind FROM action ORDER BY seq").column("kind").to_pylist()
        values = [str(lake.query(f'FROM "{name}"').to_pylist()) for name in list_table_names()]
    assert kinds == [entry.kind for entry in site.journal().entries()][: len(kinds)]
    assert "sent" in kinds
    assert fallow("actions", "--verify").code == 0
    shown = [fallow("actions", row["action"], "-o", form) for form in ("table", "json", "csv")]
    printed = [answer.out + answer.err for answer in (ran, *shown)]
    assert not [text for text in (*values, *printed) if MARKER in text]
    files = [path for path in site.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if MARKER.encode() in path.read_bytes()]
    explaining.check_changed_rows(site, fallow, row["action"])


# What was active just before the act: tests/actions/loop/test_last_readings.py, from HTTP on.
@pytest.mark.long
@pytest.mark.slow
def test_a_notebook_that_wakes_between_plan_and_act_is_left_alone(
    site: Site, fallow: Fallow, exporter: Exporter, earlier: list[timedelta]
) -> None:
    assert fallow("collect", "--once").code == 0
    fallow("apply", "--yes")
    (policy,) = read_policies([site.folder.parent / "policies"], interval=timedelta(minutes=2))
    trust = {"fingerprint": policy.fingerprint, "forced": True}
    site.journal().append(event_types.TRUSTED, "notebooks", trust)
    earlier[0] = timedelta(0)
    exporter.util, exporter.watts = 95.0, 600.0
    ran = fallow("apply", "--yes", "-o", "json")
    assert steps(ran) == [(f"Notebook/{SPACE}/nb", "refused")], ran.out
    assert "GPU-1 was seen at work (95%)" in ran.out
    assert event_types.INTENT not in site.kinds()
    assert "annotations" not in site.get("Notebook", "nb")["metadata"]
