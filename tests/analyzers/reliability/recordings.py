"""Put what a simulated failure shows into tables, through the collectors' own mappings."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

import msgspec
import pyarrow.compute as pc

from analyzers.reliability.incidents.reading import read_incidents
from analyzers.reliability.incidents.records import Incident
from analyzers.stalled.analyzer import StalledAnalyzer
from collectors.kube.events import build_event_row
from collectors.kube.owners import TopOwner
from collectors.kube.pods import PodContext, build_pod_row
from collectors.kube.shapes import Event, Pod
from fallow.models import Finding
from fallow.protocols import Views
from fallow.settings.reliability import ReliabilitySettings
from fallow.tables import Batch
from fallow.window import Window
from simulator.exporters.device_rows import build_rows
from simulator.exporters.quirks import Quirks
from tests.failure_cases.recording import LENGTH_S, FailureRecording

START = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(seconds=LENGTH_S))


def naive(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


class RowSink(Protocol):
    """What takes the rows of a recording: views in memory, or a warehouse."""

    def put(self, batch: Batch, /) -> None:
        """Add a batch."""

    def rows(self, table: str, rows: list[dict[str, Any]], /) -> None:
        """Add rows of a table; columns that a row lacks are null."""


def fill(views: RowSink, recording: FailureRecording) -> None:
    """Put a recording into the tables, as a cluster of its own."""
    cluster = recording.case
    _fill_devices(views, recording, cluster)
    for body, workload, listed in recording.pods:
        pod = msgspec.json.decode(msgspec.json.encode(body), type=Pod)
        top = TopOwner("PyTorchJob", workload, None)
        context = PodContext(cluster, partial(_return, listed), partial(_return_owner, top))
        row = build_pod_row(pod, context)
        views.rows("pod", [{**row, **_without_zone(row), "team": "research"}])
    for node in recording.nodes:
        views.rows(
            "node",
            [
                {
                    "cluster": cluster, "node": node, "zone": "a", "pool": "h100", "gpu_count": 4,
                    "first_seen": WINDOW.start.replace(tzinfo=None),
                    "last_seen": WINDOW.end.replace(tzinfo=None),
                }
            ],
        )  # fmt: skip
    for event in recording.events:
        decoded = msgspec.json.decode(msgspec.json.encode(event), type=Event)
        row = build_event_row(decoded, cluster=cluster)
        views.rows("event", [{**row, **_without_zone(row)}])
    of = {"cluster": cluster, "namespace": "ml"}
    views.rows(
        "progress_sample",
        [
            {
                **of, "pod": pod, "metric": "train_global_step", "interval_s": 60.0,
                "ts": naive(at), "value": value,
            }
            for pod, at, value in recording.progress
        ],
    )  # fmt: skip
    views.rows(
        "pod_sample",
        [
            {
                **of, "pod": pod, "ts": naive(at), "interval_s": 300.0, "cpu_cores": cores,
                "net_rx_bps": received, "net_tx_bps": sent, "fs_read_bps": 0.0,
                "fs_write_bps": 0.0,
            }
            for pod, at, cores, received, sent in recording.hosts
        ],
    )  # fmt: skip


def _return(at: datetime) -> datetime:
    return at


def _return_owner(owner: TopOwner, _pod: object) -> TopOwner:
    return owner


def _fill_devices(views: RowSink, recording: FailureRecording, cluster: str) -> None:
    devices = recording.block.devices
    until = {devices[place].uuid: naive(at) for place, at in recording.hidden.items()}
    lost = {device.uuid: WINDOW.end.replace(tzinfo=None) for device in devices} | until
    last: dict[str, datetime] = {}
    for batch in build_rows(recording.block, Quirks.of((), 0), cluster=cluster):
        rows = batch.rows
        if batch.table == "sample":
            kept = [
                ts < lost[device]
                for ts, device in zip(
                    rows["ts"].to_pylist(), rows["device"].to_pylist(), strict=True
                )
            ]
            rows = rows.filter(kept)
            for device in devices:
                mine = rows.filter(pc.equal(rows["device"], device.uuid))
                if mine.num_rows:
                    last[device.uuid] = pc.max(mine["ts"]).as_py()
        views.put(Batch(batch.table, rows))
    views.rows(
        "device",
        [
            {
                "cluster": cluster, "device": device.uuid, "node": device.node,
                "gpu_model": device.gpu_model, "model": device.gpu_model, "weight": 1.0,
                "interval_s": 30.0, "first_seen": WINDOW.start.replace(tzinfo=None),
                "last_seen": last[device.uuid] + timedelta(seconds=30),
            }
            for device in devices
        ],
    )  # fmt: skip


def _without_zone(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.astimezone(UTC).replace(tzinfo=None)
        for name, value in row.items()
        if isinstance(value, datetime)
    }


def classify(views: Views, window: Window = WINDOW) -> dict[str, list[Incident]]:
    """Return the incidents by cluster: the analyzer of stalled jobs is asked first."""
    stalls: list[Finding] = StalledAnalyzer().find(views, window)
    incidents = read_incidents(views, window, ReliabilitySettings(), stalls)
    by_cluster: dict[str, list[Incident]] = {}
    for incident in incidents:
        by_cluster.setdefault(incident.cluster, []).append(incident)
    return by_cluster
