"""Hangs behind a real Prometheus: each is found in minutes, and no near twin ever is.

The service runs over it minute by minute, its clock injected: what it says at each minute is what
a site would have read on /metrics then.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

import msgspec
import pytest

from analyzers.stalled.analyzer import StalledAnalyzer
from collectors.prometheus.collector import PrometheusCollector
from fallow.models import Finding
from fallow.settings import load
from fallow.window import Window
from runtime.service.jobs import ServiceLoop
from runtime.service.metrics import SelfMetrics
from tests.servers import prometheus as server
from tests.servers.stalled_world import EVERY, HANGS, JOBS, LASTS, World
from warehouse.lake import Warehouse

pytestmark = pytest.mark.xdist_group("prometheus-stalled")
MINUTE = timedelta(minutes=1)
FIRST, LAST = HANGS + 8 * MINUTE, HANGS + 24 * MINUTE
TWO_INTERVALS = 2 * timedelta(seconds=EVERY)


class Watched(msgspec.Struct):
    """What the service said, minute by minute."""

    first: dict[str, datetime]
    """When each job was first a finding."""
    counted: dict[datetime, tuple[float | None, float | None]]
    """`fallow_stalled_jobs`: suspected, confirmed."""
    findings: dict[str, Finding]
    """At the end, by job."""
    doubts: Mapping[str, str]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("stalled")
    data = server.blocks(World().history.text(), folder / "prometheus")
    with server.serving(data) as url:
        flags = {"home": folder / "home", "cluster": "c", "prometheus.url": url}
        settings = load(environ={}, flags=flags).settings
        now = FIRST
        metrics, seen = SelfMetrics(), Watched({}, {}, {}, {})

        def clock() -> datetime:
            return now

        analyzer = StalledAnalyzer(settings.stalled)
        with Warehouse.open_in_memory(settings, clock=clock) as lake:
            service = ServiceLoop(
                lake,
                settings,
                collectors={"prometheus": PrometheusCollector(settings.prometheus, "c", clock)},
                analyzers={"stalled": analyzer},
                metrics=metrics,
                clock=clock,
                since={"prometheus": HANGS - LASTS},
            )
            while now <= LAST:
                service.collect()
                service.stalled()
                for row in lake.query("SELECT DISTINCT workload FROM finding").to_pylist():
                    seen.first.setdefault(row["workload"], now)
                seen.counted[now] = (
                    metrics.registry.get_sample_value(
                        "fallow_stalled_jobs", {"evidence": "suspected"}
                    ),
                    metrics.registry.get_sample_value(
                        "fallow_stalled_jobs", {"evidence": "confirmed"}
                    ),
                )
                now += MINUTE
            window = Window(HANGS - LASTS, LAST)
            found = analyzer.find(lake, window)
            seen.findings = {f.subject.workload: f for f in found}
            seen.doubts = {
                d.subject.workload: "; ".join(d.reasons) for d in analyzer.unjudged(lake, window)
            }
        yield seen


@pytest.mark.parametrize("job", [j.name for j in JOBS if j.evidence])
def test_every_hang_is_found_and_by_what_it_is_known(watched: Watched, job: str) -> None:
    (planted,) = [j for j in JOBS if j.name == job]
    found = watched.findings[job]
    assert (found.kind, found.evidence) == ("stalled_job", planted.evidence)


@pytest.mark.parametrize("job", [j.name for j in JOBS if not j.evidence])
def test_no_near_twin_is_ever_a_finding(watched: Watched, job: str) -> None:
    assert job not in watched.first
    assert job not in watched.findings


@pytest.mark.parametrize("job", ["spins", "still", "named-still", "left", "rests", "saved"])
def test_a_hang_is_told_within_two_intervals_after_its_ten_minutes(
    watched: Watched, job: str
) -> None:
    assert watched.first[job] - HANGS <= 10 * MINUTE + TWO_INTERVALS
    assert watched.first[job] - HANGS >= 10 * MINUTE - TWO_INTERVALS


def test_the_metric_counts_them_by_evidence(watched: Watched) -> None:
    expected = [j.evidence for j in JOBS if j.evidence]
    assert watched.counted[LAST] == (expected.count("suspected"), expected.count("confirmed"))
    # `unsaved` spins for longer than the others; its checkpoint is not late yet.
    assert watched.counted[FIRST] == (1, 0)


def test_the_signals_are_those_that_were_planted(watched: Watched) -> None:
    details = {name: finding.details for name, finding in watched.findings.items()}
    assert details["left"]["left_first"]["pod"] == "left-worker-2"
    assert details["named-still"]["progress"]["metric"] == "my_epochs"
    assert details["still"]["progress"]["metric"] == "train_global_step"
    assert details["rests"]["how"] == "rest"
    # Its last burst of writes was planted an hour before the end.
    at = "2026-11-20T11:00:00Z"
    assert details["unsaved"]["checkpoint"] == {"every_s": 1800, "source": "writes", "at": at}
    assert "no checkpoint for" in details["unsaved"]["why"]


def test_a_job_without_the_field_of_tensor_work_is_not_judged_and_named(watched: Watched) -> None:
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in watched.doubts["blind"]


def test_devices_that_nobody_sees_or_that_repeat_themselves_are_not_judged(
    watched: Watched,
) -> None:
    assert watched.doubts["silent"] == "1 of its 4 GPUs are not seen; the others spin"
    assert "repeats an old value" in watched.doubts["frozen"]
