"""Every collector and import, as a function from objects to batches, with an object of each kind.

A source is read in this process: its transport has tests of its own (`test_odd_answers`).
"""

import csv
import io
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from collectors import exporters, jupyter
from collectors.exporters import ExporterCollector
from collectors.exposition_file import import_exposition
from collectors.http_fetch import OK, Fetch
from collectors.jupyter import JupyterCollector
from collectors.kube.collector import KubernetesCollector
from collectors.kube.dump import import_kubectl
from collectors.kube.watches import Watches
from collectors.nvml import NvmlCollector
from collectors.openb import import_openb
from collectors.prices.rate_card import RateCard
from collectors.prometheus import collector as prometheus
from collectors.prometheus import remote_read
from collectors.samples_file import import_samples
from fallow.kube.api import ApiError
from fallow.kube.api_objects import ApiStatus
from fallow.settings.collectors import (
    ExporterSettings,
    JupyterSettings,
    KubernetesSettings,
    NvmlSettings,
    PrometheusSettings,
)
from fallow.settings.prices import PriceSettings
from fallow.tables import Batch
from fallow.window import Window
from tests.collectors.test_nvml import Binding
from tests.collectors.test_nvml import board as describe_gpu
from tests.hostile.values import DEEP, RAW
from tests.kube.kinds import kinds
from tests.prometheus.test_remote_read import series
from tests.prometheus.test_streamed_chunks import frame

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
WINDOW = Window(NOW - timedelta(hours=1), NOW)
Item = dict[str, Any]


class Source(NamedTuple):
    """A source: what honest objects of a name are, and what it reads of objects."""

    build: Callable[[str], list[Item]]
    read: Callable[[Path, Sequence[Item]], Iterable[Batch]]
    can_hold: Callable[[tuple[Any, ...], Any], bool] = lambda _path, _value: True
    """Whether the source's own program lets a field have a value: a driver's number is no text."""
    share: int = 3
    """Of how many values a field meets one: a source of many fields takes longer."""
    refuses: bool = False
    """A file with a value that its column cannot have is refused whole, in words."""


def is_text(value: Any) -> bool:
    """Return whether it is text that UTF-8 has."""
    return isinstance(value, str) and not value.startswith((DEEP, RAW)) and "\ud800" not in value


def is_number(value: Any) -> bool:
    """Return whether it is a number, or the text of one."""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return not isinstance(value, bool) and str(value).isascii() and "_" not in str(value)


def write_json(value: Any) -> bytes:
    """Write JSON, also such that no Python value has."""
    text = json.dumps(value)
    text = text.replace(json.dumps(DEEP), "[" * 2000 + "]" * 2000)
    parts = text.split(json.dumps(RAW)[:-1])
    return "".join([parts[0], *(p.replace('"', "", 1) for p in parts[1:])]).encode()


def write_text(value: Any) -> str:
    """Write a value as a text file has it."""
    if isinstance(value, str):
        return value.removeprefix(RAW)
    return json.dumps(value)[:100_000]


# Kubernetes: a dump, a list, a watch.


def read_dump(folder: Path, items: Sequence[Item]) -> Iterable[Batch]:
    path = folder / "dump.json"
    path.write_bytes(write_json({"apiVersion": "v1", "kind": "List", "items": items}))
    return import_kubectl(path, "c", NOW)


class ApiStub:
    """An API server's answers in this process: each kind's objects as one list, or as a watch."""

    host = "http://stub"

    def __init__(self, items: Sequence[Item], stop: threading.Event | None = None) -> None:
        self._lists: dict[str, list[Item]] = defaultdict(list)
        self._groups: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._stop, self.pause = stop, lambda *_: None
        for item in items:
            group, _, version = str(item["apiVersion"]).rpartition("/")
            kind = str(item["kind"])
            plural = f"{kind.lower()}s"
            self._groups[group][version].add(plural)
            self._lists[
                f"/apis/{group}/{version}/{plural}" if group else f"/api/v1/{plural}"
            ].append(item)

    def get(self, path: str, *_query: Any, **_accept: str) -> bytes:
        if path == "/apis":
            versions = {
                g: [{"version": v, "groupVersion": f"{g}/{v}"} for v in by]
                for g, by in self._groups.items()
                if g
            }
            groups = [
                {"name": g, "versions": v, "preferredVersion": v[0]} for g, v in versions.items()
            ]
            return write_json({"groups": groups})
        parts = path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) == 3:
            names = self._groups[parts[1]][parts[2]]
            return write_json(
                {"resources": [{"name": n, "kind": n, "namespaced": True} for n in names]}
            )
        if self._stop is None and path in self._lists:
            return write_json({"metadata": {"resourceVersion": "1"}, "items": self._lists[path]})
        if path.startswith("/api/v1/") and path.count("/") == 3:
            return b'{"metadata":{"resourceVersion":"1"},"items":[]}'
        raise ApiError(path, 404, ApiStatus(message="none"))

    def stream(self, path: str, _query: Any, *, read_timeout_s: float) -> Any:
        del read_timeout_s
        if self._stop is not None and path not in self._lists:
            self._stop.set()
        lines = [
            line
            for item in self._lists.pop(path, ())
            if b"\n" not in (line := write_json({"type": "ADDED", "object": item}))
        ]
        return LineStub(lines)


class LineStub:
    """Lines of a watch."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        yield from self._lines

    def close(self) -> None:
        """End."""


def read_list(_folder: Path, items: Sequence[Item]) -> Iterable[Batch]:
    api: Any = ApiStub(items)
    return KubernetesCollector(KubernetesSettings(), "c", lambda: NOW, api=api).collect(WINDOW)


def read_watch(_folder: Path, items: Sequence[Item]) -> Iterator[Batch]:
    stop = threading.Event()
    api: Any = ApiStub(items, stop)
    collector = KubernetesCollector(KubernetesSettings(), "c", lambda: NOW, api=api)
    watches = Watches(api, limit=500, clock=lambda: NOW, stop=stop)
    collector._watches = watches
    for path, watch, collection in watches._watches:
        del path
        for step in watch.steps(stop):
            collection.apply(step)
        stop.clear()
    with collector.changes() as batches:
        yield from batches


# Exporters: text of Prometheus.


def build_lines(name: str) -> list[Item]:
    labels = {
        "gpu": "0",
        "UUID": f"GPU-{name}",
        "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": f"n-{name}",
        "namespace": "ml",
        "pod": f"p-{name}",
        "container": "c",
        "GPU_I_ID": "",
        "GPU_I_PROFILE": "",
    }
    at = int(NOW.timestamp() * 1000) - 60_000
    metrics = (
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_XID_ERRORS",
    )
    lines = [{"metric": m, "labels": labels, "value": 50, "at": at} for m in metrics]
    trained = {"namespace": "ml", "pod": f"p-{name}"}
    return [*lines, {"metric": "train_global_step", "labels": trained, "value": 7, "at": at}]


def write_exposition(items: Sequence[Item], *, dated: bool) -> bytes:
    lines = []
    for item in items:
        labels = item["labels"]
        if isinstance(labels, dict):
            labels = ",".join(f'{k}="{write_text(v)}"' for k, v in labels.items())
        at = f" {write_text(item['at'])}" if dated else ""
        lines.append(
            f"{write_text(item['metric'])}{{{write_text(labels)}}} {write_text(item['value'])}{at}\n"  # noqa: E501
        )
    return "".join(lines).encode("utf-8", "surrogatepass")


def read_exposition(folder: Path, items: Sequence[Item]) -> Iterable[Batch]:
    path = folder / "text.prom"
    path.write_bytes(write_exposition(items, dated=True))
    return import_exposition(path, "c", NOW, 30.0)


def scrape(kind: str) -> Callable[[Path, Sequence[Item]], Iterator[Batch]]:
    """Return a reader of one exporter's text; of a trainer's."""

    def read(_folder: Path, items: Sequence[Item]) -> Iterator[Batch]:
        body = write_exposition(items, dated=False)

        async def respond(*_: Any, **__: Any) -> Fetch:
            return Fetch(OK, "OK", body)

        target = f"{'ml/*=' * (kind == 'trainers')}http://stub:9400/metrics"
        settings = ExporterSettings.model_validate(
            {kind: [target], "sample_limit": 0, "label_limit": 0,
             "label_value_length_limit": 0}
        )  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exporters, "fetch", respond)
            collector = ExporterCollector(settings, "c", lambda: NOW)
            list(collector.collect(WINDOW))
            yield from list(collector.collect(WINDOW))  # by its template

    return read


# Prometheus: JSON, and remote read.


def build_series(name: str) -> list[Item]:
    """Return series of a device, of kube-state-metrics, of cAdvisor and of a server's latencies."""
    pod = {"namespace": f"ml-{name}", "pod": f"p-{name}", "uid": f"uid-{name}"}
    owner = {"owner_kind": "ReplicaSet", "owner_name": f"rs-{name}", "owner_is_controller": "true"}
    node, began = {"node": f"n-{name}"}, NOW.timestamp() - 7200
    gpu = {"resource": "nvidia_com_gpu", "unit": "integer", **node}
    device = {
        **build_lines(name)[0]["labels"],
        "namespace": f"ml-{name}",
        "instance": f"10.0.0.{len(name)}:9400",
    }
    found: list[tuple[str, Item, float]] = [
        ("DCGM_FI_DEV_GPU_UTIL", device, 50),
        ("DCGM_FI_DEV_POWER_USAGE", device, 400),
        ("DCGM_FI_DEV_XID_ERRORS", device, 0),
        ("kube_pod_info", {**pod, **node, "host_ip": "10.0.0.1", "pod_ip": "10.0.0.2", "created_by_kind": "ReplicaSet",  # noqa: E501
                           "created_by_name": f"rs-{name}", "priority_class": "high"}, 1),
        ("kube_pod_owner", {**pod, **owner}, 1),
        ("kube_pod_labels", {**pod, "label_app": "x", "label_team": "t"}, 1),
        ("kube_pod_annotations", {**pod, "annotation_fallow_dev_keep": "yes"}, 1),
        ("kube_pod_status_phase", {**pod, "phase": "Running"}, 1),
        ("kube_pod_status_qos_class", {**pod, "qos_class": "Burstable"}, 1),
        ("kube_pod_created", pod, began),
        ("kube_pod_start_time", pod, began),
        ("kube_pod_status_scheduled_time", pod, began),
        ("kube_pod_completion_time", pod, began + 5),
        ("kube_pod_container_resource_requests", {**pod, **gpu, "container": "c"}, 1),
        ("kube_pod_container_resource_limits", {**pod, **gpu, "container": "c"}, 1),
        ("kube_pod_container_status_last_terminated_reason", {**pod, "container": "c", "reason": "OOMKilled"}, 1),  # noqa: E501
        ("kube_replicaset_owner", {"namespace": f"ml-{name}", "replicaset": f"rs-{name}", **owner,
                                   "owner_kind": "Deployment"}, 1),
        ("kube_namespace_labels", {"namespace": f"ml-{name}", "label_team": "t"}, 1),
        ("kube_node_info", {**node, "provider_id": "aws:///a/i-1", "internal_ip": "10.0.0.1", "system_uuid": "u"}, 1),  # noqa: E501
        ("kube_node_labels", {**node, "label_nvidia_com_gpu_product": "A100", "label_nvidia_com_gpu_replicas": "2"}, 1),  # noqa: E501
        ("kube_node_created", node, began),
        ("kube_node_status_capacity", {**node, **gpu}, 8),
        ("kube_node_status_allocatable", {**node, "resource": "memory", "unit": "byte"}, 1e11),
        ("kube_node_spec_unschedulable", node, 0),
        ("kube_node_spec_taint", {**node, "key": "a", "effect": "NoSchedule", "value": "b"}, 1),
        ("kube_node_status_condition", {**node, "condition": "Ready", "status": "true"}, 1),
        ("container_cpu_usage_seconds_total", {**pod, "container": "c"}, 1),
        ("container_memory_working_set_bytes", {**pod, "container": "c"}, 1e9),
        ("vllm:time_to_first_token_seconds_bucket", {**pod, "le": "0.5"}, 5),
        ("vllm:time_to_first_token_seconds_bucket", {**pod, "le": "+Inf"}, 6),
        ("vllm:time_to_first_token_seconds_sum", pod, 2),
        ("vllm:time_to_first_token_seconds_count", pod, 6),
        ("train_global_step", pod, 7),
    ]  # fmt: skip
    at = NOW.timestamp() - 600
    return [
        {"metric": {"__name__": metric, **labels}, "value": value, "at": at}
        for metric, labels, value in found
    ]


class PrometheusStub:
    """A server's answers in this process: of each query the series whose names stand in it."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items, self.is_remote = items, False
        self.names = sorted({n for i in items if isinstance(n := self._name(i), str)})

    @staticmethod
    def _name(item: Item) -> Any:
        return item["metric"].get("__name__") if isinstance(item["metric"], dict) else None

    def _select(self, expression: str) -> list[Item]:
        words = set("".join(c if c.isalnum() or c in "_:" else " " for c in expression).split())
        return [
            item
            for item in self.items
            if str(self._name(item)) in words or not isinstance(self._name(item), str)
        ]

    def get(self, path: str, parameters: Mapping[str, Any]) -> bytes:
        if path.startswith("label/"):
            return write_json({"status": "success", "data": self.names})
        if path == "status/config":
            return write_json({"status": "success", "data": {"yaml": ""}})
        expression = str(parameters["query"]).partition(") and on (")[0]
        found = self._select(expression)
        if path == "query_range":
            end = float(parameters["end"])
            rows = [{"metric": i["metric"], "values": [[end, self._value(i)]]} for i in found]
            return self._answer("matrix", rows)
        if expression.endswith("ms]"):
            rows = [{"metric": i["metric"], "values": [[i["at"], self._value(i)]]} for i in found]
            return self._answer("matrix", rows)
        if expression.startswith(("count(", "max(")):
            return self._answer("vector", [{"metric": {}, "value": [1, "10"]}])
        is_time = "timestamp(" in expression
        rows = [
            {"metric": i["metric"], "value": [1, str(i["at"]) if is_time else self._value(i)]}
            for i in found
        ]
        return self._answer("vector", rows)

    def post_read(self, request: bytes) -> bytes:
        """Answer a remote read."""
        found = self._select(request.decode())
        samples = [[(int(i["at"]) * 1000, float(i["value"]))] for i in found]
        # A server sends no labels twice in a row: that would be one series going on.
        labels = (
            {**{k: str(v) for k, v in i["metric"].items()}, "number": str(n)}
            for n, i in enumerate(found)
        )
        return frame(*map(series, labels, samples))

    @staticmethod
    def _value(item: Item) -> Any:
        value = item["value"]
        return (
            str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        )

    @staticmethod
    def _answer(kind: str, rows: list[Item]) -> bytes:
        return write_json({"status": "success", "data": {"resultType": kind, "result": rows}})


def read_prometheus(_folder: Path, items: Sequence[Item]) -> Iterator[Batch]:
    stub = PrometheusStub(items)
    collector = prometheus.PrometheusCollector(
        PrometheusSettings(url="http://stub"),
        "c",
        lambda: NOW + timedelta(minutes=10),
        sleep=lambda _: None,
    )
    collector.client.get = stub.get  # type: ignore[method-assign]
    collector.client.post_read = stub.post_read  # type: ignore[method-assign]
    yield from collector.collect(WINDOW)
    assert collector.failure is None, collector.failure


def read_remotely(folder: Path, items: Sequence[Item]) -> Iterator[Batch]:
    """Read series of devices by remote read: not one answer is left to JSON."""
    refusals: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prometheus, "LEAST_REMOTE", 0)
        patch.setattr(remote_read, "encode_request", lambda names, _: " ".join(names).encode())
        patch.setattr(remote_read.log, "info", lambda *words: refusals.append(words))
        yield from read_prometheus(folder, items)
    assert not refusals


def is_remote_series(path: tuple[Any, ...], value: Any) -> bool:
    """Return whether a remote read may have it: a number has 64 bits."""
    return path not in {("at",), ("metric",)} and is_series(path, value) and len(str(value)) < 99


def is_series(path: tuple[Any, ...], value: Any) -> bool:
    """Return whether a Prometheus may answer it: labels are texts, the rest are numbers."""
    if path == ("metric",):
        return isinstance(value, dict) and all(is_text(text) for text in value.values())
    if path[0] == "metric":
        return is_text(value)
    return is_number(value) and (path != ("at",) or abs(float(value)) < 1e15)


# Files.

SAMPLES = {
    name: name
    for name in ("workload", "device", "node", "model", "namespace", "pod", "team", "ts", "gpu_util_pct",  # noqa: E501
                 "mem_used_bytes", "power_w", "energy_mj")
}  # fmt: skip


def build_samples(name: str) -> list[Item]:
    return [
        {"workload": f"w-{name}", "device": f"GPU-{name}", "node": f"n-{name}", "model": "A100",
         "namespace": "ml", "pod": f"p-{name}", "team": "t", "ts": "2026-11-20T11:30:00Z", "gpu_util_pct": 50,  # noqa: E501
         "mem_used_bytes": 1000, "power_w": 300, "energy_mj": 5}
    ]  # fmt: skip


def write_csv(path: Path, items: Sequence[Item]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(items[0]))
    writer.writeheader()
    writer.writerows({key: write_text(value) for key, value in item.items()} for item in items)
    path.write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
    return path


def read_csv(folder: Path, items: Sequence[Item]) -> Iterable[Batch]:
    return import_samples(write_csv(folder / "s.csv", items), SAMPLES, 60.0, "c")


def build_openb(name: str) -> list[Item]:
    node = {"sn": f"n-{name}", "cpu_milli": 1000, "memory_mib": 1000, "gpu": 8, "model": "A100"}
    pod = {"name": f"p-{name}", "cpu_milli": 1000, "memory_mib": 1000, "num_gpu": 1, "gpu_milli": 1000,  # noqa: E501
           "gpu_spec": "", "qos": "BE", "pod_phase": "Running", "creation_time": 5, "deletion_time": 9,  # noqa: E501
           "scheduled_time": 6}  # fmt: skip
    return [node, pod, {"pod": f"p-{name}", "node": f"n-{name}", "gpu_index": "0"}]


def read_openb(folder: Path, items: Sequence[Item]) -> Iterable[Batch]:
    parts = ("sn", "name", "pod")
    paths = [write_csv(folder / f"{key}.csv", [i for i in items if key in i]) for key in parts]
    return import_openb(paths[0], paths[1], paths[2], "c")


# The node's own driver, notebooks, prices.


def build_gpu(name: str) -> list[Item]:
    return [describe_gpu(f"GPU-{name}", used=1)]


def read_nvml(_folder: Path, items: Sequence[Item]) -> Iterable[Batch]:
    binding = Binding(
        *(
            {key: value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
             for key, value in item.items()}
            for item in items
        )
    )  # fmt: skip
    return NvmlCollector(NvmlSettings(node="n"), "c", lambda: NOW, binding).collect(WINDOW)


def is_driver_value(path: tuple[Any, ...], value: Any) -> bool:
    """Return whether NVML may answer it: a name is bytes, the rest are numbers of C."""
    if path[0] in {"nvmlDeviceGetUUID", "nvmlDeviceGetName"}:
        return isinstance(value, str) and not value.startswith((DEEP, RAW))
    return is_number(value) and not isinstance(value, str)


def build_notebook(name: str) -> list[Item]:
    at = "2026-11-20T11:00:00Z"
    return [
        {
            "server": name,
            "kernels": [{"execution_state": "idle", "last_activity": at}],
            "status": {"last_activity": at, "connections": 2},
            "terminals": [{"last_activity": at}],
        }
    ]


def read_jupyter(_folder: Path, items: Sequence[Item]) -> Iterator[Batch]:
    async def respond(_session: Any, url: Any, *_: Any, **__: Any) -> Fetch:
        _, number, _, path = url.path.split("/")
        return Fetch(OK, "OK", write_json(items[int(number)][path]))

    servers = [f"ml/{i['server']}=http://stub/{n}/" for n, i in enumerate(items)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jupyter, "fetch", respond)
        yield from JupyterCollector(JupyterSettings(servers=servers), "c", lambda: NOW).collect(
            WINDOW
        )


def build_offer(name: str) -> list[Item]:
    return [
        {"provider": "aws", "region": f"r-{name}", "instance_type": f"p5-{name}", "gpu_model": "H100",  # noqa: E501
         "gpu_count": 8, "vcpu": 192, "memory_gib": 2048, "term": "reserved", "usd_per_hour": 98.32,
         "as_of": "2026-07-20", "reference": "list", "confirmed": "yes"}
    ]  # fmt: skip


def read_rate_card(folder: Path, items: Sequence[Item]) -> Iterable[Batch]:
    path = write_csv(folder / "card.csv", items)
    return [RateCard(PriceSettings(rate_card=str(path)), lambda: NOW).rates(WINDOW)]


SOURCES: dict[str, Source] = {
    "kubectl": Source(kinds, read_dump, share=8),
    "list": Source(kinds, read_list, share=16),
    "watch": Source(lambda name: kinds(name)[:2], read_watch, share=8),
    "exposition": Source(build_lines, read_exposition),
    "exporter": Source(lambda name: build_lines(name)[:4], scrape("targets")),
    "trainer": Source(lambda name: build_lines(name)[4:], scrape("trainers")),
    "prometheus": Source(build_series, read_prometheus, is_series, share=6),
    "remote read": Source(lambda name: build_series(name)[:3], read_remotely, is_remote_series),
    "samples": Source(build_samples, read_csv, refuses=True),
    "openb": Source(build_openb, read_openb, share=6, refuses=True),
    "nvml": Source(build_gpu, read_nvml, is_driver_value),
    "jupyter": Source(build_notebook, read_jupyter),
    "rate card": Source(build_offer, read_rate_card, share=6, refuses=True),
}
