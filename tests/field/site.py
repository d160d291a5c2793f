"""A small site for a case: objects of Kubernetes, an exporter's text, commands.

All times are relative to the present hour: an import of a dump dates what it has as of now.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

HOUR = timedelta(hours=1)
END = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
HOURS = 6
"""Length of a case's telemetry."""
STEP = timedelta(minutes=5)
BUSY = {
    "DCGM_FI_DEV_GPU_UTIL": 96.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.94,
    "DCGM_FI_DEV_POWER_USAGE": 560.0,
    "DCGM_FI_DEV_FB_USED": 60000.0,
    "DCGM_FI_DEV_FB_FREE": 20000.0,
}
IDLE = {
    "DCGM_FI_DEV_GPU_UTIL": 0.0,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0,
    "DCGM_FI_DEV_POWER_USAGE": 112.0,
    "DCGM_FI_DEV_FB_USED": 20000.0,
    "DCGM_FI_DEV_FB_FREE": 60000.0,
}
FREE = {**IDLE, "DCGM_FI_DEV_POWER_USAGE": 70.0, "DCGM_FI_DEV_FB_USED": 4.0}
POWER = frozenset({"DCGM_FI_DEV_POWER_USAGE"})
"""Never equal twice in a row: a reading that stands still is no measurement."""
H100 = "NVIDIA H100 80GB HBM3"


class Answer(NamedTuple):
    """What one command printed and how it ended."""

    code: int
    out: str
    err: str


Fallow = Callable[..., Answer]


def write_time(at: datetime) -> str:
    """Return a time as the API server writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(hours: float) -> datetime:
    """Return the time so many hours before the present hour."""
    return END - HOUR * hours


WINDOW = ("--window", f"{write_time(ago(HOURS))}/{write_time(END)}")
"""Option: the hours of a case's telemetry."""


def label_instance(kind: str, region: str = "us-east-1", **labels: str) -> dict[str, str]:
    """Return the labels that a cloud puts on its nodes, and GFD's named by their last word."""
    return {
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/region": region,
        **{f"nvidia.com/gpu.{name}": value for name, value in labels.items()},
    }


def build_node(
    name: str,
    gpus: int | None = 2,
    *,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    provider: str = "aws:///us-east-1a/i-",
    born: float = 24,
    resources: Mapping[str, str] | None = None,
    **capacity: str,
) -> dict[str, Any]:
    """Return a ready node with so many GPUs, a day older than the telemetry; None: no resource."""
    gpu = {} if gpus is None else {"nvidia.com/gpu": str(gpus)}
    size = {"cpu": "96", "memory": "1024Gi", "pods": "110", **gpu, **capacity, **(resources or {})}
    since = write_time(ago(born))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"node-{name}",
            "creationTimestamp": since,
            **({"labels": dict(labels)} if labels else {}),
        },
        "spec": {"providerID": f"{provider}{name}"} if provider else {},
        "status": {
            "capacity": size,
            "allocatable": {**size, **(allocatable or {})},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
        },
    }


def build_pod(
    name: str,
    node: str,
    *,
    gpus: int = 0,
    namespace: str = "ml",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    born: float = HOURS + 2,
    status: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    resources: Mapping[str, str] | None = None,
    **requests: str,
) -> dict[str, Any]:
    """Return a running pod that was created before the telemetry began.

    `resources` are limits, as of devices; `status` and `spec` replace fields.
    """
    gpu = {**({"nvidia.com/gpu": str(gpus)} if gpus else {}), **(resources or {})}
    since = write_time(ago(born))
    reference = {"apiVersion": "batch/v1", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": since,
            "annotations": dict(annotations or {}),
            **({"labels": dict(labels)} if labels else {}),
            **(
                {"ownerReferences": [{**reference, "kind": owner[0], "name": owner[1], "uid": "o"}]}
                if owner
                else {}
            ),
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "c",
                    "image": "x",
                    "resources": {
                        "requests": {"cpu": "4", "memory": "16Gi", **requests, **gpu},
                        "limits": gpu,
                    },
                }
            ],
            **(spec or {}),
        },
        "status": {
            "phase": "Running",
            "startTime": since,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}],
            "containerStatuses": [
                {
                    "name": "c",
                    "state": {"running": {"startedAt": since}},
                    "ready": True,
                    "restartCount": 0,
                    "image": "x",
                    "imageID": "",
                }
            ],
            **(status or {}),
        },
    }


def write_dump(path: Path, objects: Iterable[Mapping[str, Any]]) -> Path:
    """Write objects as `kubectl get -o json` prints them."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


def list_lines(
    uuid: str,
    host: str,
    *,
    gpu: int = 0,
    values: Mapping[str, float] = BUSY,
    since: float = HOURS,
    until: float = 0,
    **labels: str,
) -> list[str]:
    """Return one device's lines, a scrape every five minutes between two hours before the present.

    A label that is empty here is left out.
    """
    names = {"gpu": str(gpu), "UUID": uuid, "modelName": H100, "Hostname": host, **labels}
    text = ",".join(f'{key}="{value}"' for key, value in names.items() if value)
    count = round((since - until) * HOUR / STEP)
    times = [int((ago(since) + STEP * k).timestamp() * 1000) for k in range(count)]
    return [
        f"{metric}{{{text}}} {value + k % 3 * (metric in POWER)} {at}"
        for metric, value in values.items()
        for k, at in enumerate(times)
    ]


def list_counter(
    metric: str,
    uuid: str,
    host: str,
    *,
    gpu: int = 0,
    steps: Sequence[float],
    start: float = 4e12,
    **labels: Any,
) -> list[str]:
    """Return a counter's lines, from the first scrape of the telemetry on: what each adds."""
    lines = list_lines(uuid, host, gpu=gpu, values={metric: 0.0}, **labels)
    values = accumulate(steps, initial=start)
    return [
        f"{line.rsplit(' ', 2)[0]} {value:.0f} {line.rsplit(' ', 1)[1]}"
        for line, value in zip(lines, values, strict=False)
    ]


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write an exposition text."""
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    return path


class Site:
    """The home of one case, and its commands."""

    def __init__(self, fallow: Fallow, folder: Path) -> None:
        self.fallow, self.folder = fallow, folder
        self.home = folder / "home"

    def run(self, *words: str | Path) -> Answer:
        """Run a command on the case's home."""
        return self.fallow(*words, "--home", self.home)

    def read_json(self, *words: str | Path) -> Any:
        """Return the JSON of a command that has to end well."""
        answer = self.run(*words, "-o", "json")
        assert answer.code == 0, answer.err
        return json.loads(answer.out)

    def set_price(self, usd_per_gpu_hour: float) -> None:
        """Write the settings of the commands that follow: one price for every GPU."""
        text = f"prices: {{usd_per_gpu_hour: {usd_per_gpu_hour}}}\n"
        (self.folder / "fallow.yaml").write_text(text)

    def import_objects(self, *objects: Mapping[str, Any]) -> Answer:
        """Import a dump."""
        return self.run("import", "kubectl", write_dump(self.folder / "dump.json", objects))

    def import_lines(self, *lines: str, config: Path | None = None) -> Answer:
        """Import an exposition text of five minutes' interval."""
        path = write_lines(self.folder / "metrics.txt", lines)
        more = () if config is None else ("--config", config)
        return self.run("import", "exposition", path, "--interval", "5m", *more)

    def sum_hours(self, by: str, *words: str) -> dict[str, float]:
        """Return the paid GPU-hours of the case's window by a dimension."""
        rows = self.read_json("spend", "--by", by, *WINDOW, *words)["spend"]
        hours: dict[str, float] = {}
        for row in rows:
            key = str(row[by])
            hours[key] = round(hours.get(key, 0.0) + float(row["gpu_hours"]), 2)
        return hours

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a statement."""
        rows: list[dict[str, Any]] = self.read_json("warehouse", "query", sql)["rows"]
        return rows
