"""Verdicts on workloads: what gpu-pruner, Kaiwo and dstack get wrong, and what we promise."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from analyzers.idle.analyzer import IdleAnalyzer
from fallow.errors import UsageError
from fallow.models import Finding
from fallow.settings.idle import IdleSettings
from fallow.window import Window

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    Memory = Any
    Site = Any

REST = {"cpu_cores": 0.01, "net_rx_bps": 100.0, "net_tx_bps": 50.0}
HOUR = 60
DAY = timedelta(days=1)


@pytest.fixture
def window(site: "Site") -> Window:
    return Window(site_start(site), site_start(site) + DAY)


def site_start(site: "Site") -> Any:
    return site.start


def find(views: "Memory", window: Window, **settings: Any) -> list[Finding]:
    return IdleAnalyzer(IdleSettings(**settings)).find(views, window)


def kinds(found: list[Finding]) -> list[tuple[str, str, str]]:
    return sorted((f.subject.workload, f.kind, f.evidence) for f in found)


def test_one_busy_gpu_of_eight_makes_the_pod_partly_idle_never_idle(
    views: "Memory", site: "Site", window: Window
) -> None:
    for n in range(8):
        site.device(f"GPU-{n}", [0.9 if n == 3 else 0.0] * (4 * HOUR))
    site.holds("train", [f"GPU-{n}" for n in range(8)], kind="PyTorchJob")
    (found,) = find(views, window)
    assert (found.kind, found.verdict) == ("over_allocated_ranks", "partly idle")
    assert found.gpu_hours == pytest.approx(7 * 4)
    assert found.details["actionable"] is False


def test_one_busy_replica_of_three_keeps_the_deployment(
    views: "Memory", site: "Site", window: Window
) -> None:
    for n in range(3):
        site.device(f"GPU-{n}", [0.9 if n == 0 else 0.0] * (4 * HOUR))
        site.holds("api", [f"GPU-{n}"], pod=f"api-{n}")
    assert [f.verdict for f in find(views, window)] == ["partly idle"]


def test_all_replicas_idle_are_one_finding_for_the_workload(
    views: "Memory", site: "Site", window: Window
) -> None:
    for n in range(3):
        site.device(f"GPU-{n}", [0.0] * (4 * HOUR))
        site.holds("api", [f"GPU-{n}"], pod=f"api-{n}")
    (found,) = find(views, window)
    assert found.verdict == "idle"
    assert found.gpu_hours == pytest.approx(12)


def test_a_device_without_any_look_leaves_its_workload_unjudged(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR))
    site.device("GPU-1", [])
    site.holds("train", ["GPU-0", "GPU-1"])
    site.device("GPU-2", [])
    site.holds("dark", ["GPU-2"])
    site.unknown("dark", 4.0)
    assert find(views, window) == []
    assert [u.subject.workload for u in IdleAnalyzer().unjudged(views, window)] == ["dark"]


def test_an_exporter_that_started_five_minutes_ago_proves_nothing(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * 5, begin=timedelta(hours=20))
    site.holds("train", ["GPU-0"])
    assert find(views, window) == []


def test_looks_without_an_activity_are_unknown_not_idle(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [None] * (4 * HOUR), power_w=90.0, mem_used_bytes=10**9)
    site.holds("train", ["GPU-0"])
    assert find(views, window) == []


def test_a_dead_scraper_that_repeats_its_last_value_is_unknown(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0, energy_mj=10**9)
    site.holds("train", ["GPU-0"])
    assert find(views, window) == []
    (unjudged,) = IdleAnalyzer().unjudged(views, window)
    assert "energy counter or power stood still" in unjudged.reasons[0]


def test_a_duration_shorter_than_three_looks_is_refused(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * HOUR)
    site.holds("train", ["GPU-0"])
    with pytest.raises(UsageError, match="shorter than 3 samples") as refused:
        find(views, window, min_duration=timedelta(minutes=2))
    assert refused.value.hint == "at least 3m"


def test_of_two_instances_only_the_idle_one_is_found_and_board_power_says_nothing(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0/gi1", [0.0] * (4 * HOUR), parent="GPU-0", power_w=60.0)
    site.device("GPU-0/gi2", [0.8] * (4 * HOUR), parent="GPU-0", power_w=60.0)
    site.holds("nb", ["GPU-0/gi1"], kind="Notebook")
    site.holds("serve", ["GPU-0/gi2"])
    (found,) = find(views, window)
    assert found.subject.workload == "nb"
    assert found.evidence == "suspected"
    assert "power_w" not in found.details


def test_a_holder_pod_is_not_found_but_the_users_behind_it_are(
    views: "Memory", site: "Site", window: Window
) -> None:
    # Allocation maps the device from the holder pod to its users; only they hold it.
    site.device("GPU-0", [0.0] * (4 * HOUR))
    site.holds("user", ["GPU-0"], share=0.5)
    (found,) = find(views, window)
    assert found.subject.workload == "user"
    assert found.gpu_hours == pytest.approx(2)


def test_a_silent_busy_kernel_is_busy(views: "Memory", site: "Site", window: Window) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("nb", ["GPU-0"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=1)
    assert find(views, window) == []


def test_an_open_tab_with_an_idle_kernel_is_idle_and_confirmed(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("nb", ["GPU-0"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=0, connections=1)
    (found,) = find(views, window)
    assert (found.kind, found.evidence) == ("idle_notebook", "confirmed")
    assert found.details["actionable"] is True
    assert found.confidence == 1.0


def test_a_cell_that_ran_for_a_moment_long_ago_does_not_count(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (20 * HOUR), power_w=100.0)
    site.holds("nb", ["GPU-0"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=0)
    instant = window.start.replace(tzinfo=None) + timedelta(minutes=30)
    views.engine.execute(
        "UPDATE notebook_sample SET busy_kernels = 1, last_kernel_activity = ts WHERE ts = $at",
        {"at": instant},
    )
    (found,) = find(views, window)
    assert found.details["signals"]["intent"] == "idle"


@pytest.mark.parametrize(("ahead_us", "known"), [(30_000_000, True), (30_000_001, False)])
def test_a_server_whose_clock_runs_ahead_is_unknown(
    views: "Memory", site: "Site", window: Window, *, ahead_us: int, known: bool
) -> None:
    """What it says of its last use cannot be compared with our time."""
    site.device("GPU-0", [0.0] * (20 * HOUR), power_w=100.0)
    site.holds("nb", ["GPU-0"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=0)
    views.engine.execute(
        "UPDATE notebook_sample SET last_activity = ts + to_microseconds($ahead) WHERE ts = $at",
        {"ahead": ahead_us, "at": after(window, 30)},
    )
    assert [f.details["actionable"] for f in find(views, window)] == ([True] if known else [])
    doubts = IdleAnalyzer().unjudged(views, window)
    assert [d.reasons for d in doubts] == ([] if known else [("clocks differ by more than 30 s",)])


def after(window: Window, minutes: float) -> datetime:
    return window.start.replace(tzinfo=None) + timedelta(minutes=minutes)


def minutes(found: list[Finding], window: Window) -> list[tuple[float, float]]:
    instants = [(f.window.start, f.window.end) for f in sorted(found, key=lambda f: f.window.start)]
    return [tuple((m - window.start).total_seconds() / 60 for m in pair) for pair in instants]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("said", "until"),
    [
        # What a look says may have begun just after the look before it.
        ("UPDATE notebook_sample SET busy_kernels = 1 WHERE ts = $at", 670),
        ("UPDATE notebook_sample SET last_kernel_activity = $at WHERE ts >= $at", 680),
        ("UPDATE notebook_sample SET last_terminal_activity = $at WHERE ts >= $at", 680),
        ("UPDATE pod_sample SET cpu_cores = 2 WHERE ts BETWEEN $at AND $at + INTERVAL 1 HOUR", 670),
    ],
)
def test_a_night_counts_until_somebody_comes_back_to_the_kernel_terminal_or_host(
    views: "Memory", site: "Site", window: Window, *, said: str, until: float
) -> None:
    site.device("GPU-0", [0.0] * (12 * HOUR), power_w=100.0)
    site.holds("nb", ["GPU-0"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=0)
    site.host("nb-0", **REST)
    views.engine.execute(said, {"at": after(window, 680)})
    found = find(views, window)
    assert [f.details["actionable"] for f in found] == [True]
    assert minutes(found, window) == [(0, until)]


@pytest.mark.parametrize(
    "said",
    [
        "UPDATE notebook_sample SET busy_kernels = 1 WHERE ts >= $at",
        "UPDATE pod_sample SET cpu_cores = 2 WHERE ts >= $at",
    ],
)
def test_the_look_after_a_stretch_tells_when_it_may_have_ended(
    views: "Memory", site: "Site", window: Window, said: str
) -> None:
    """The device's mean hid what began in its last minutes."""
    site.device("GPU-0", [0.0] * 678 + [0.9] * 42, power_w=100.0)
    site.holds("nb", ["GPU-0"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=0)
    site.host("nb-0", **REST)
    views.engine.execute(said, {"at": after(window, 680)})
    assert minutes(find(views, window), window) == [(0, 670)]


@pytest.mark.parametrize(
    ("gpus", "host", "kernels", "acts"),
    [
        ({"parent": "GPU-0"}, REST, 0, True),
        ({"parent": "GPU-0"}, REST, None, False),
        ({"parent": "GPU-0"}, None, 0, False),
        ({"parent": None}, REST, 0, False),
    ],
)
def test_a_mig_instance_without_power_needs_host_and_intent(
    views: "Memory",
    site: "Site",
    window: Window,
    *,
    gpus: dict[str, Any],
    host: dict[str, Any] | None,
    kernels: int | None,
    acts: bool,
) -> None:
    site.device("GPU-0/gi1", [0.0] * (4 * HOUR), **gpus)
    site.holds("nb", ["GPU-0/gi1"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=kernels)
    if host is not None:
        site.host("nb-0", **host)
    (found,) = find(views, window)
    assert found.details["actionable"] is acts
    assert bool(found.details["reasons"]) is not acts


def test_one_look_at_a_busy_host_parts_nothing(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (12 * HOUR), power_w=100.0)
    site.holds("train", ["GPU-0"], kind="Job")
    site.host("train-0", **REST)
    views.engine.execute(
        "UPDATE pod_sample SET cpu_cores = 2.0 WHERE ts = $at", {"at": after(window, 360)}
    )
    assert minutes(find(views, window), window) == [(0, 720)]


def test_a_request_parts_what_a_server_rested_before_and_after(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (12 * HOUR), power_w=100.0)
    site.holds("serve", ["GPU-0"])
    site.host("serve-0", **REST, requests_per_s=0.0)
    views.engine.execute(
        "UPDATE pod_sample SET requests_per_s = 1 WHERE ts = $at", {"at": after(window, 360)}
    )
    assert minutes(find(views, window), window) == [(0, 350), (360, 720)]


def test_kernels_that_could_not_be_asked_say_nothing(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("nb", ["GPU-0"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=None)
    (found,) = find(views, window)
    assert found.details["signals"]["intent"] == "unknown"
    assert found.details["actionable"] is False


def test_full_utilisation_of_an_empty_cold_board_is_false_busy_and_unknown(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [{"gpu_util_pct": 100.0}] * (4 * HOUR), mem_used_bytes=0, power_w=100.0)
    site.holds("train", ["GPU-0"])
    assert find(views, window) == []


def test_memory_held_after_the_pod_has_gone_is_not_blamed_on_it(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.9] * HOUR + [0.0] * (4 * HOUR), mem_used_bytes=70 * 2**30)
    site.holds("train", ["GPU-0"], length=timedelta(hours=1))
    assert find(views, window) == []


def test_profiling_that_says_zero_while_the_driver_counts_kernels_is_a_conflict(
    views: "Memory", site: "Site", window: Window
) -> None:
    shown = {"gr_engine_active": 0.0, "gpu_util_pct": 100.0}
    site.device("GPU-0", [shown] * (4 * HOUR), power_w=589.0)
    site.holds("train", ["GPU-0"])
    assert find(views, window) == []


def test_zero_activity_at_half_the_design_power_is_a_conflict(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=400.0)
    site.holds("train", ["GPU-0"])
    assert find(views, window) == []


def test_power_above_the_band_leaves_a_suspicion(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=250.0)
    site.holds("train", ["GPU-0"])
    (found,) = find(views, window)
    assert (found.evidence, found.details["idle_band"]) == ("suspected", "prior")
    assert "power is above the idle band" in found.details["reasons"]


def test_a_growing_energy_counter_confirms_where_there_is_no_power_gauge(
    views: "Memory", site: "Site", window: Window
) -> None:
    used = [{"gr_engine_active": 0.0, "energy_mj": n * 100 * 60 * 1000} for n in range(4 * HOUR)]
    site.device("GPU-0", used)
    site.holds("train", ["GPU-0"])
    (found,) = find(views, window)
    assert (found.evidence, found.details["power_w"]) == ("confirmed", 100.0)


def test_bursts_between_gauges_show_in_the_energy_counter(
    views: "Memory", site: "Site", window: Window
) -> None:
    used = [{"gr_engine_active": 0.0, "energy_mj": n * 300 * 60 * 1000} for n in range(4 * HOUR)]
    site.device("GPU-0", used, power_w=100.0)
    site.holds("train", ["GPU-0"])
    (found,) = find(views, window)
    assert found.evidence == "suspected"


def test_who_shares_a_device_that_rests_is_idle_and_never_acted_upon(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    for name in ("a", "b"):
        site.holds(name, ["GPU-0"], kind="Job", share=0.5, attribution="estimated")
        site.host(f"{name}-0", **REST)
    found = find(views, window)
    assert {(f.evidence, f.details["actionable"], f.confidence) for f in found} == {
        ("confirmed", False, 0.5)
    }
    assert sum(f.gpu_hours for f in found) == pytest.approx(4)


@pytest.mark.parametrize(("minutes", "idle"), [(74, 0), (76, 1)])
def test_the_startup_of_a_pod_is_no_idle_time(
    views: "Memory", site: "Site", window: Window, minutes: int, idle: int
) -> None:
    """A pod is idle from its 15th minute on, as in the ledger, and a finding an hour later."""
    site.device("GPU-0", [0.0] * minutes, power_w=100.0)
    started = site_start(site).replace(tzinfo=None)
    site.holds("train", ["GPU-0"], started_at=started)
    found = find(views, window)
    assert [f.window.start - site.start for f in found] == [timedelta(minutes=15)] * idle


def test_ranks_of_a_young_pod_are_suspected_at_most(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * 50, power_w=100.0)
    site.device("GPU-1", [0.9] * 50, power_w=600.0)
    started = site_start(site).replace(tzinfo=None)
    site.holds("train", ["GPU-0", "GPU-1"], started_at=started)
    (found,) = find(views, window)
    assert (found.verdict, found.evidence) == ("partly idle", "suspected")


def test_an_unresolved_owner_is_reported_and_never_acted_upon(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("x", ["GPU-0"], kind="Pod", workload_kind=None)
    site.notebook("x-0", busy_kernels=0)
    (found,) = find(views, window)
    assert found.details["actionable"] is False
    assert "owner could not be resolved" in found.details["reasons"][0]


def test_our_own_annotation_forbids_a_verdict_and_others_forbid_acting(
    views: "Memory", site: "Site", window: Window
) -> None:
    for name, noted in (
        ("kept", '{"fallow.dev/keep": "true"}'),
        ("calm", '{"karpenter.sh/do-not-disrupt": "true"}'),
    ):
        site.device(f"GPU-{name}", [0.0] * (4 * HOUR), power_w=100.0)
        site.holds(name, [f"GPU-{name}"], annotations=noted)
        site.notebook(f"{name}-0", busy_kernels=0)
    (found,) = find(views, window)
    assert found.subject.workload == "calm"
    assert found.details["actionable"] is False
    (unjudged,) = IdleAnalyzer().unjudged(views, window)
    assert unjudged.subject.workload == "kept"


def test_a_note_of_the_collector_s_own_protects_nobody(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("train", ["GPU-0"], annotations='{"fallow.selector": {"a": ["b"]}}')
    (found,) = find(views, window)
    assert found.subject.workload == "train"


def test_what_an_owner_notes_for_other_analyzers_protects_nobody(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("train", ["GPU-0"], annotations='{"fallow.dev/checkpoint-interval": "30m"}')
    (found,) = find(views, window)
    assert found.subject.workload == "train"


def test_half_the_looks_is_a_suspicion(views: "Memory", site: "Site", window: Window) -> None:
    site.device("GPU-0", [0.0, None] * (2 * HOUR), power_w=100.0)
    site.holds("train", ["GPU-0"])
    (found,) = find(views, window)
    assert found.evidence == "suspected"
    assert found.details["coverage"] == pytest.approx(0.5, abs=0.01)


def test_bursts_every_other_look_are_not_idle(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0, 0.9] * (2 * HOUR))
    site.holds("serve", ["GPU-0"])
    assert find(views, window) == []


def test_served_requests_are_busy_and_none_for_hours_confirm(
    views: "Memory", site: "Site", window: Window
) -> None:
    for name, rate in (("quiet", 0.0), ("serving", 3.0)):
        site.device(f"GPU-{name}", [0.0] * (4 * HOUR))
        site.holds(name, [f"GPU-{name}"])
        site.host(f"{name}-0", requests_per_s=rate)
    assert kinds(find(views, window)) == [("quiet", "idle_inference", "confirmed")]


@pytest.mark.parametrize(
    ("kind", "said", "service_duration", "actionable"),
    [
        ("Deployment", {**REST, "requests_per_s": 0.0}, timedelta(hours=5), False),
        ("Deployment", {**REST, "requests_per_s": 0.0}, timedelta(hours=4), True),
        ("Deployment", REST, timedelta(hours=5), False),
        ("InferenceService", REST, timedelta(hours=4), False),
        ("Job", REST, timedelta(hours=5), True),
    ],
)
def test_what_may_serve_is_acted_upon_later_and_a_server_unheard_never(
    views: "Memory",
    site: "Site",
    window: Window,
    *,
    kind: str,
    said: dict[str, float],
    service_duration: timedelta,
    actionable: bool,
) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("work", ["GPU-0"], kind=kind)
    site.host("work-0", **said)
    (found,) = find(views, window, service_duration=service_duration)
    assert found.evidence == "confirmed"
    assert found.details["actionable"] is actionable


def test_a_busy_host_forbids_acting(views: "Memory", site: "Site", window: Window) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("prep", ["GPU-0"], kind="Job")
    site.host("prep-0", cpu_cores=6.0, net_rx_bps=0.0, net_tx_bps=0.0)
    (found,) = find(views, window)
    assert (found.kind, found.details["actionable"]) == ("idle_job", False)
    assert any("host is busy" in why for why in found.details["reasons"])


def test_running_twice_gives_equal_findings_and_a_growing_run_keeps_its_id(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.9] * 30 + [0.0] * (4 * HOUR))
    site.holds("train", ["GPU-0"])
    first, second = find(views, window), find(views, window)
    assert first == second
    early = Window(window.start, window.start + timedelta(hours=3))
    assert [f.id for f in find(views, early)] == [f.id for f in first]


def test_a_run_is_cut_where_the_device_changes_hands(
    views: "Memory", site: "Site", window: Window
) -> None:
    site.device("GPU-0", [0.0] * (5 * HOUR))
    site.holds("a", ["GPU-0"], length=timedelta(hours=2))
    site.holds("b", ["GPU-0"], begin=timedelta(hours=2), length=timedelta(hours=3))
    found = {f.subject.workload: f.gpu_hours for f in find(views, window)}
    assert found == {"a": pytest.approx(2), "b": pytest.approx(3)}


def test_findings_are_plain_documents(views: "Memory", site: "Site", window: Window) -> None:
    site.device("GPU-0", [0.0] * (4 * HOUR), power_w=100.0)
    site.holds("train", ["GPU-0"])
    (found,) = find(views, window)
    encoded = msgspec.json.encode(found)
    assert msgspec.json.decode(encoded, type=Finding) == found


def test_nothing_held_finds_nothing(make_site: Callable[[], "Site"]) -> None:
    site = make_site()
    site.device("GPU-0", [0.0] * (4 * HOUR))
    window = Window(site_start(site), site_start(site) + DAY)
    assert find(site.views, window) == []
    assert IdleAnalyzer().unjudged(site.views, window) == []
