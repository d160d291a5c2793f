"""How far jobs are, from their own exporters: by common name, setting and annotation."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from collectors.exporters import ExporterCollector
from fallow.errors import UsageError
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.ingestion.collection import load_collectors
from warehouse.lake import Warehouse

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WINDOW = Window(NOW - timedelta(minutes=1), NOW)
BODIES = {
    "/own": (
        "# TYPE train_global_step gauge\n"
        "train_global_step 4200\n"
        'site_steps{rank="0"} 7\nsite_steps{rank="1"} 8\n'
        "my_epochs 3\n"
        "train_samples_total NaN\n"
        "go_goroutines 9\n"
    ),
    "/gateway": (
        'train_global_step{namespace="ml",pod="a-0"} 10\n'
        'train_global_step{exported_namespace="ml",exported_pod="b-0",pod="gw"} 20\n'
        "train_global_step 30\n"
    ),
    "/mute": "go_goroutines 9\n",
}
Told = set[tuple[str, str, str, float]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = BODIES[self.path].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def read(batches: list[Batch], table: str) -> list[dict[str, Any]]:
    return [row for batch in batches if batch.table == table for row in batch.rows.to_pylist()]


def told(batches: list[Batch]) -> Told:
    rows = read(batches, "progress_sample")
    return {(r["namespace"], r["pod"], r["metric"], r["value"]) for r in rows}


def settings(**flags: object) -> Settings:
    named = {f"exporters.{name}": value for name, value in flags.items()}
    return load(environ={}, flags={"cluster": "c", **named}).settings


def test_a_jobs_own_exporter_says_how_far_it_is(url: str) -> None:
    site = settings(trainers=[f"ml/train-0={url}/own"], progress_metrics=["site_steps"])
    batches = list(ExporterCollector(site.exporters, "c", lambda: NOW).collect(WINDOW))
    assert told(batches) == {
        ("ml", "train-0", "train_global_step", 4200.0),
        ("ml", "train-0", "site_steps", 15.0),
    }
    (row, _) = read(batches, "progress_sample")
    assert (row["cluster"], row["interval_s"]) == ("c", 30.0)
    assert row["ts"] == NOW.replace(tzinfo=None)
    (scrape,) = read(batches, "scrape")
    assert (scrape["up"], scrape["samples"], scrape["error"]) == (True, 2, None)


def test_an_exporter_of_several_jobs_names_only_pods_that_it_may_speak_of(url: str) -> None:
    """Before: one address named any pod of the cluster, and hid that its training stands still."""
    site = settings(trainers=[f"ml/a-*={url}/gateway"])
    batches = list(ExporterCollector(site.exporters, "c", lambda: NOW).collect(WINDOW))
    assert told(batches) == {("ml", "a-0", "train_global_step", 10.0)}
    (row,) = read(batches, "rejection")
    assert (row["kind"], row["namespace"], row["name"]) == ("progress_sample", "ml", "b-0")


def test_one_that_says_no_progress_is_a_scrape_that_failed_and_says_what_to_do(url: str) -> None:
    site = settings(trainers=[f"ml/mute-0={url}/mute"])
    (scrape,) = read(
        list(ExporterCollector(site.exporters, "c", lambda: NOW).collect(WINDOW)), "scrape"
    )
    assert (scrape["collector"], scrape["up"]) == ("trainers", False)
    assert "exporters.progress_metrics" in scrape["error"]


@pytest.mark.parametrize("on_owner", [False, True])
def test_the_metric_that_a_pod_names_is_read_too(
    url: str, settings: Settings, on_owner: bool
) -> None:
    note = {"fallow.dev/progress-metric": "my_epochs"}
    answer = {"fallow.owner-annotations": note} if on_owner else note
    exporters = settings.exporters.model_copy(update={"trainers": [f"ml/train-0={url}/own"]})
    site = settings.model_copy(update={"exporters": exporters})
    pod: dict[str, Any] = {
        "cluster": ["test"], "uid": ["u"], "namespace": ["ml"], "pod": ["train-0"],
        "annotations": [json.dumps(answer)], "last_seen": [NOW.replace(tzinfo=None)],
    }  # fmt: skip
    with Warehouse.open_in_memory(site, clock=lambda: NOW) as warehouse:
        (collector,) = load_collectors(site, ["exporters"], views=warehouse).values()
        before = {metric for _, _, metric, _ in told(list(collector.collect(WINDOW)))}
        warehouse.ingest([Batch.of("pod", pod)])
        after = {metric for _, _, metric, _ in told(list(collector.collect(WINDOW)))}
    assert (before, after) == ({"train_global_step"}, {"train_global_step", "my_epochs"})


@pytest.mark.parametrize(
    "text", ["train-0=http://h:1/m", "http://h:1/m", "ml/=http://h:1/m", "ml/a=ftp://h/m", "x"]
)
def test_a_target_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"exporters\.trainers"):
        ExporterCollector(settings(trainers=[text]).exporters)
