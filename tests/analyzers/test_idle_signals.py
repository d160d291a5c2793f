"""Each signal and veto at both sides of its threshold, and what silence must never become."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from analyzers.idle import samples
from analyzers.idle.analyzer import IdleAnalyzer
from analyzers.idle.holders import WorkloadBucket
from analyzers.idle.judge import judge_window
from analyzers.idle.rows import list_stretches
from fallow.models import Finding
from fallow.settings.idle import IdleSettings
from fallow.window import Window

if TYPE_CHECKING:
    Memory = Any
    Site = Any

HOUR = 60
REST = {"cpu_cores": 0.01, "net_rx_bps": 100.0, "net_tx_bps": 50.0, "fs_write_bps": 0.0}
IDLE = {"gr_engine_active": 0.0, "power_w": 110.0}
BUSY = {"gr_engine_active": 0.9, "power_w": 600.0}


@pytest.fixture
def window(site: "Site") -> Window:
    return Window(site.start, site.start + timedelta(days=1))


def find(views: "Memory", window: Window, **settings: Any) -> list[Finding]:
    return IdleAnalyzer(IdleSettings(**settings)).find(views, window)


def doubts(views: "Memory", window: Window) -> list[str]:
    return [reason for u in IdleAnalyzer().unjudged(views, window) for reason in u.reasons]


def idle_job(site: "Site", **host: object) -> None:
    """Let a job idle for four hours; its host shows what the test says."""
    site.device("GPU-0", [IDLE] * (4 * HOUR))
    site.holds("train", ["GPU-0"], kind="PyTorchJob", cpu_request_milli=32_000)
    site.host("train-0", **{**REST, **host})


@pytest.mark.parametrize(
    ("signal", "rests", "works"),
    [
        ("cpu_cores", 0.3, 0.31),
        ("net_rx_bps", 9_949.0, 9_950.0),
        ("fs_write_bps", 9_999.0, 10_000.0),
    ],
)
def test_a_host_signal_decides_at_its_threshold(  # noqa: PLR0917  (fixtures)
    views: "Memory", site: "Site", window: Window, signal: str, rests: float, works: float
) -> None:
    idle_job(site, **{signal: rests})
    (found,) = find(views, window)
    assert (found.evidence, found.details["actionable"]) == ("confirmed", True)
    views.engine.execute(f"UPDATE pod_sample SET {signal} = {works!r}")
    (found,) = find(views, window)
    assert (found.evidence, found.details["actionable"]) == ("suspected", False)


def test_one_busy_core_of_32_requested_is_work_and_a_sidecar_is_not(
    views: "Memory", site: "Site", window: Window
) -> None:
    idle_job(site, cpu_cores=1.0)
    (found,) = find(views, window)
    assert (found.evidence, found.details["signals"]["host"]) == ("suspected", "busy")
    views.engine.execute("UPDATE pod_sample SET sidecar_cores = 0.8")
    (found,) = find(views, window)
    assert (found.evidence, found.details["actionable"]) == ("confirmed", True)


def test_a_small_request_keeps_its_share_as_the_bound(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [IDLE] * (4 * HOUR))
    site.holds("train", ["GPU-0"], kind="PyTorchJob", cpu_request_milli=2_000)
    site.host("train-0", **{**REST, "cpu_cores": 0.1})
    assert find(views, window)[0].details["actionable"] is True
    views.engine.execute("UPDATE pod_sample SET cpu_cores = 0.11")
    assert find(views, window)[0].details["actionable"] is False


def test_a_host_seen_for_only_some_of_the_pods_says_nothing(
    views: "Memory", site: "Site", window: Window
) -> None:
    for n in range(2):
        site.device(f"GPU-{n}", [IDLE] * (4 * HOUR))
        site.holds("train", [f"GPU-{n}"], kind="PyTorchJob", pod=f"train-{n}")
    site.host("train-0", **REST)
    (found,) = find(views, window)
    assert (found.details["signals"]["host"], found.details["actionable"]) == ("unknown", False)
    site.host("train-1", **REST)
    (found,) = find(views, window)
    assert (found.details["signals"]["host"], found.details["actionable"]) == ("idle", True)


def test_one_busy_host_is_not_hidden_by_the_mean_of_all_pods(
    views: "Memory", site: "Site", window: Window
) -> None:
    for n in range(8):
        site.device(f"GPU-{n}", [IDLE] * (4 * HOUR))
        site.holds("train", [f"GPU-{n}"], kind="PyTorchJob", pod=f"train-{n}")
        site.host(f"train-{n}", **{**REST, "cpu_cores": 0.2 if n == 3 else 0.0})
    (found,) = find(views, window)
    assert (found.evidence, found.details["actionable"]) == ("suspected", False)


def test_steady_low_work_above_the_idle_band_is_in_use(
    views: "Memory", site: "Site", window: Window
) -> None:
    # A learned band of 110 W: eight idle boards of the model teach it.
    for n in range(8):
        site.device(f"GPU-i{n}", [IDLE] * (4 * HOUR))
        site.holds(f"idle-{n}", [f"GPU-i{n}"], kind="Job")
    site.device("GPU-s", [{"gr_engine_active": 0.03, "power_w": 114.0}] * (4 * HOUR))
    site.holds("small", ["GPU-s"])
    site.device("GPU-n", [{"gr_engine_active": 0.03, "power_w": 110.0}] * (4 * HOUR))
    site.holds("noise", ["GPU-n"])
    site.device("GPU-b", [{"gr_engine_active": 0.009, "power_w": 114.0}] * (4 * HOUR))
    site.holds("below", ["GPU-b"])
    found = {f.subject.workload for f in find(views, window)}
    assert "small" not in found
    assert {"noise", "below", "idle-0"} <= found


def test_a_server_without_request_metrics_is_never_actionable(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [IDLE] * (20 * HOUR))
    site.holds("api", ["GPU-0"])
    site.host("api-0", **REST)
    short = {"service_duration": timedelta(hours=2)}
    (found,) = find(views, window, **short)
    assert found.details["actionable"] is False
    assert any("no request metrics" in reason for reason in found.details["reasons"])
    views.engine.execute("UPDATE pod_sample SET requests_per_s = 0")
    (found,) = find(views, window, **short)
    assert found.details["actionable"] is True


def test_a_gang_that_waits_for_a_pending_peer_is_never_acted_upon(
    views: "Memory", site: "Site", window: Window
) -> None:
    for n in range(8):
        site.device(f"GPU-{n}", [IDLE] * (24 * HOUR))
        site.holds("gang", [f"GPU-{n}"], kind="PyTorchJob", pod=f"gang-{n}")
        site.host(f"gang-{n}", **REST)
    assert find(views, window)[0].details["actionable"] is True
    peer = {
        "cluster": "c", "uid": "uid-peer", "namespace": "ns", "pod": "gang-8", "phase": "Pending",
        "workload_kind": "PyTorchJob", "workload": "gang",
        "created_at": site.start.replace(tzinfo=None) + timedelta(hours=1),
        "last_seen": site.start.replace(tzinfo=None) + timedelta(hours=24),
    }  # fmt: skip
    views.rows("pod", [peer])
    (found,) = find(views, window)
    assert (found.evidence, found.details["actionable"]) == ("suspected", False)
    assert any("waits or starts" in veto for veto in found.details["vetoes"])


@pytest.mark.parametrize(("started_minutes_ago", "vetoed"), [(14, True), (16, False)])
def test_a_peer_that_starts_vetoes_for_the_startup_grace(
    views: "Memory", site: "Site", window: Window, started_minutes_ago: int, vetoed: bool
) -> None:
    site.device("GPU-0", [IDLE] * (24 * HOUR))
    site.holds("gang", ["GPU-0"], kind="PyTorchJob")
    site.host("gang-0", **REST)
    started = window.end.replace(tzinfo=None) - timedelta(minutes=started_minutes_ago)
    peer = {
        "cluster": "c", "uid": "uid-peer", "namespace": "ns", "pod": "gang-1", "phase": "Running",
        "workload_kind": "PyTorchJob", "workload": "gang", "created_at": started,
        "started_at": started, "last_seen": window.end.replace(tzinfo=None),
    }  # fmt: skip
    views.rows("pod", [peer])
    (found,) = find(views, window)
    assert found.details["actionable"] is not vetoed


@pytest.mark.parametrize(
    ("phase", "vetoed"), [("Pending", True), ("Running", False), (None, False)]
)
def test_a_peer_whose_images_are_pulled_waits_though_the_kubelet_took_it(
    views: "Memory", site: "Site", window: Window, phase: str | None, vetoed: bool
) -> None:
    site.device("GPU-0", [IDLE] * (24 * HOUR))
    site.holds("gang", ["GPU-0"], kind="PyTorchJob")
    site.host("gang-0", **REST)
    end = window.end.replace(tzinfo=None)
    peer = {
        "cluster": "c", "uid": "uid-peer", "namespace": "ns", "pod": "gang-1", "phase": phase,
        "workload_kind": "PyTorchJob", "workload": "gang", "created_at": end - timedelta(hours=3),
        "started_at": end - timedelta(hours=2), "last_seen": end,
    }  # fmt: skip
    views.rows("pod", [peer])
    (found,) = find(views, window)
    assert found.details["actionable"] is not vetoed


def test_replicas_without_telemetry_lower_the_coverage_and_are_named(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [IDLE] * (24 * HOUR))
    seen = {
        "gpu_request": 1.0, "gpu_resource": "nvidia.com/gpu",
        "scheduled_at": site.start.replace(tzinfo=None) - timedelta(days=1),
        "first_seen": site.start.replace(tzinfo=None) - timedelta(days=1),
        "last_seen": site.start.replace(tzinfo=None) + timedelta(days=1),
    }  # fmt: skip
    site.holds("web", ["GPU-0"], kind="Job", **seen)
    site.host("web-0", **REST)
    assert find(views, window)[0].details["actionable"] is True
    other = {
        "cluster": "c", "uid": "uid-web-1", "namespace": "ns", "pod": "web-1", "node": "n7",
        "phase": "Running", "workload_kind": "Job", "workload": "web",
        "started_at": site.start.replace(tzinfo=None) - timedelta(days=1), **seen,
    }  # fmt: skip
    views.rows("pod", [other])
    (found,) = find(views, window)
    assert (found.evidence, found.details["actionable"]) == ("suspected", False)
    assert found.details["coverage"] == pytest.approx(0.5)
    named = "not judged: 1 of 2 replicas has no telemetry: web-1 on node n7"
    assert named in found.details["reasons"]


def resuming(site: "Site", *, rests: int, last: int) -> None:
    """Let a job rest for so many minutes five times, working an hour in between, and again."""
    shown = [BUSY] * 60
    for _ in range(5):
        shown += [IDLE] * rests + [BUSY] * 60
    shown += [IDLE] * last
    site.device("GPU-0", shown[: 24 * HOUR])
    site.holds("merge", ["GPU-0"], kind="PyTorchJob")
    site.host("merge-0", **REST)


@pytest.mark.parametrize(("last", "acts"), [(134, False), (136, True)])
def test_a_rest_is_acted_upon_after_half_as_long_again_as_the_longest_before(
    views: "Memory", site: "Site", window: Window, last: int, acts: bool
) -> None:
    resuming(site, rests=90, last=last)
    found = max(find(views, window), key=lambda f: f.window.start)
    assert found.details["longest_rest"] == "1h30m"
    assert found.details["actionable"] is acts
    assert acts or any("went on by itself" in why for why in found.details["reasons"])


def test_the_history_is_read_from_before_the_window_too(views: "Memory", site: "Site") -> None:
    resuming(site, rests=90, last=120)
    end = site.start + timedelta(minutes=60 + 5 * 150 + 120)
    late = Window(end - timedelta(minutes=150), end)
    (found,) = find(views, late)
    assert found.details["longest_rest"] == "1h30m"
    assert found.details["actionable"] is False


@pytest.mark.parametrize(("minutes", "reads"), [(60 + 5 * 150 + 120, 1), (60 + 5 * 150, 2)])
def test_samples_are_read_again_only_where_some_are_older_than_the_window(
    views: "Memory", site: "Site", monkeypatch: pytest.MonkeyPatch, minutes: int, reads: int
) -> None:
    resuming(site, rests=90, last=120)
    calls: list[Window] = []
    read = samples.read_parts

    def note(*arguments: Any) -> Any:
        calls.append(arguments[1])
        return read(*arguments)

    monkeypatch.setattr(samples, "read_parts", note)
    end = site.start + timedelta(minutes=60 + 5 * 150 + 120)
    found = max(
        find(views, Window(end - timedelta(minutes=minutes), end)), key=lambda f: f.window.start
    )
    assert found.details["longest_rest"] == "1h30m"
    assert len(calls) == reads


@pytest.mark.parametrize("inside", [10, 45, 80])
def test_a_rest_that_the_start_of_the_window_cuts_in_two_counts_as_one(
    views: "Memory", site: "Site", inside: int
) -> None:
    """A live window is of 25 hours: each rest of before comes to lie across its start."""
    site.device("GPU-0", [BUSY] * 60 + [IDLE] * 90 + [BUSY] * 60 + [IDLE] * 120)
    site.holds("merge", ["GPU-0"], kind="PyTorchJob")
    site.host("merge-0", **REST)
    cut = site.start + timedelta(minutes=60 + 90 - inside)
    found = max(
        find(views, Window(cut, site.start + timedelta(minutes=330))), key=lambda f: f.window.start
    )
    assert found.details["longest_rest"] == "1h30m"
    assert found.details["actionable"] is False


def test_a_rest_that_ended_with_its_telemetry_is_no_history(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [IDLE] * 300 + [None] * 120 + [IDLE] * 200)
    site.holds("job", ["GPU-0"], kind="PyTorchJob")
    site.host("job-0", **REST)
    last = max(find(views, window), key=lambda f: f.window.start)
    assert "longest_rest" not in last.details
    assert last.details["actionable"] is True


def counted(minutes: int, *, frozen_from: int, frozen_for: int) -> list[dict[str, float]]:
    """Return idle samples of 110 W whose energy counter stands still for a time."""
    shown, energy = [], 1e9
    for minute in range(minutes):
        if not frozen_from <= minute < frozen_from + frozen_for:
            energy += 110 * 60 * 1000
        shown.append(IDLE | {"energy_mj": energy})
    return shown


@pytest.mark.parametrize(("frozen", "unknown"), [(9, False), (11, True)])
def test_ten_minutes_without_energy_are_unknown(
    views: "Memory", site: "Site", window: Window, frozen: int, unknown: bool
) -> None:
    site.device("GPU-0", counted(240, frozen_from=240 - frozen, frozen_for=frozen))
    site.holds("train", ["GPU-0"], kind="PyTorchJob")
    site.host("train-0", **REST)
    at = site.start + timedelta(minutes=240)
    (found,) = find(views, Window(window.start, at))
    assert (found.window.end < at - timedelta(minutes=5)) is unknown


def test_one_live_minute_does_not_hide_six_frozen_hours(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", counted(361, frozen_from=1, frozen_for=360))
    site.holds("train", ["GPU-0"], kind="PyTorchJob")
    site.host("train-0", **REST)
    assert find(views, window) == []
    assert any("stood still" in reason for reason in doubts(views, window))


def test_what_is_idle_before_and_after_a_freeze_is_found_and_the_freeze_is_not(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", counted(600, frozen_from=200, frozen_for=120))
    site.holds("train", ["GPU-0"], kind="PyTorchJob")
    site.host("train-0", **REST)
    found = sorted((f.window.start, f.window.end) for f in find(views, window))
    minutes = [
        ((a - site.start).total_seconds() / 60, (b - site.start).total_seconds() / 60)
        for a, b in found
    ]
    assert minutes == [(0, 200), (320, 600)]
    assert any("stood still" in reason for reason in doubts(views, window))


def test_a_power_in_whole_watts_may_be_constant(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [IDLE] * 240)
    site.holds("train", ["GPU-0"], kind="PyTorchJob")
    site.host("train-0", **REST)
    assert find(views, window)[0].details["actionable"] is True


@pytest.mark.parametrize(("counter_w", "unknown"), [(91, False), (80, True)])
def test_a_counter_below_the_gauge_contradicts_it(
    views: "Memory", site: "Site", window: Window, counter_w: int, unknown: bool
) -> None:
    shown = [IDLE | {"energy_mj": 1e9 + n * counter_w * 60_000} for n in range(240)]
    site.device("GPU-0", shown)
    site.holds("train", ["GPU-0"], kind="PyTorchJob")
    site.host("train-0", **REST)
    assert (find(views, window) == []) is unknown
    answer = any("contradict each other" in reason for reason in doubts(views, window))
    assert answer is unknown


def test_buckets_of_workloads_judged_apart_are_the_whole(views: "Memory", site: "Site") -> None:
    for n in range(12):
        site.device(f"GPU-{n}", [IDLE] * (2 * HOUR + n))
        site.holds(f"job-{n}", [f"GPU-{n}"], kind="PyTorchJob")
        site.host(f"job-{n}-0", **REST)
    window = Window(site.start, site.start + timedelta(days=1))
    settings = IdleSettings()
    whole = judge_window(views, window, [window.end], settings, over=True)
    parts = [
        judge_window(views, window, [window.end], settings, over=True, bucket=WorkloadBucket(n, 4))
        for n in range(4)
    ]
    assert [p.rows.height for p in parts].count(0) < 3
    found = sorted(
        part.finding(row, settings).id for part in parts for row in list_stretches(part.rows)
    )
    assert found == sorted(whole.finding(row, settings).id for row in list_stretches(whole.rows))


COARSE = IDLE | {"energy_mj": None}


@pytest.mark.parametrize(
    ("own", "actionable"),
    [
        (lambda _: COARSE, False),
        (lambda minute: COARSE | {"power_w": 109.0 if minute < 100 else 110.0}, True),
        (lambda minute: COARSE | {"power_w": None if minute % 7 else 110.0}, False),
        (lambda _: COARSE | {"proc_count": 0, "throttle_mask": 1}, False),
        (lambda minute: COARSE | {"last_kernel_age_s": 60.0 * minute + 9e5}, True),
        (lambda minute: COARSE | {"pcie_tx_bps": float(minute % 2), "pcie_rx_bps": 0.0}, True),
        (lambda minute: IDLE | {"energy_mj": 1e9 + 110 * 60_000 * minute}, True),
    ],
    ids=["coarse", "moves", "gaps", "processes", "kernel age", "traffic", "energy"],
)
def test_power_that_stands_still_alone_is_no_second_signal(
    views: "Memory", site: "Site", window: Window, own: Any, actionable: bool
) -> None:
    """Frozen telemetry reads the same: the host alone would decide."""
    site.device("GPU-0", [own(minute) for minute in range(4 * HOUR)])
    site.holds("train", ["GPU-0"], kind="PyTorchJob")
    site.host("train-0", **REST)
    (found,) = find(views, window)
    still = "power stands still and nothing tells idle from frozen"
    assert (found.evidence, found.details["actionable"]) == ("confirmed", actionable)
    assert (still in found.details["reasons"]) is not actionable
    assert (found.details["signals"]["physics"] == "unknown") is not actionable
