"""Which jobs are stalled, by whose word, and which only wait: each hang beside its near twin."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.stalled.analyzer import StalledAnalyzer
from analyzers.stalled.limits import read_limits
from fallow.models import Finding
from fallow.settings import Settings
from fallow.settings.reliability import StalledSettings
from fallow.stalled_details import read_stalled_details
from runtime.operations.analysis.analyzer_runs import load_analyzers
from tests.analyzers.conftest import Memory
from tests.analyzers.gangs import SHOWN, Gangs
from tests.analyzers.goldens import agree

GOLDEN = Path(__file__).parent / "golden"
WORKED = ("work", 120)
SAVED = {"fs_write_bps": 300e6}
WORKS = {"cpu_cores": 3.0, "net_rx_bps": 4e6}


def found(gangs: Gangs, **chosen: Any) -> dict[str, Finding]:
    analyzer = StalledAnalyzer(StalledSettings(**chosen))
    return {f.subject.workload: f for f in analyzer.find(gangs.views, gangs.window)}


def doubts(gangs: Gangs) -> dict[str, str]:
    rows = StalledAnalyzer().unjudged(gangs.views, gangs.window)
    return {u.subject.workload: u.reasons[0] for u in rows}


@pytest.mark.parametrize("case", sorted(p.name for p in GOLDEN.iterdir()))
def test_a_site_becomes_its_document(case: str, gangs: Gangs) -> None:
    for job in json.loads((GOLDEN / case / "site.json").read_text())["jobs"]:
        ranks = [[tuple(piece) for piece in rank] for rank in job.pop("ranks")]
        name, progress, hosts = job.pop("name"), job.pop("progress", ()), job.pop("hosts", ())
        gangs.job(name, *ranks, **job)
        if progress:
            gangs.progress(name, *map(tuple, progress))
        for rank, pieces in enumerate(hosts):
            gangs.host(name, rank, *map(tuple, pieces))
    agree(GOLDEN / case, StalledAnalyzer().find(gangs.views, gangs.window))


def test_empty_tables_give_nothing(gangs: Gangs) -> None:
    assert StalledAnalyzer().find(gangs.views, gangs.window) == []
    assert StalledAnalyzer().unjudged(gangs.views, gangs.window) == []


@pytest.mark.parametrize(("minutes", "stalled"), [(9, False), (10, True)])
def test_ranks_that_all_spin_for_ten_minutes_are_suspected(
    gangs: Gangs, minutes: int, stalled: bool
) -> None:
    gangs.job("w", *[(WORKED, ("spin", minutes))] * 4, usd=2.0)
    assert (set(found(gangs)) == {"w"}) is stalled
    if stalled:
        made = found(gangs)["w"]
        assert (made.kind, made.evidence, made.verdict) == ("stalled_job", "suspected", "wasteful")
        assert made.gpu_hours == pytest.approx(4 * 10 / 60, abs=1e-6)
        assert float(made.usd or 0) == pytest.approx(4 * 10 / 60 * 2.0, abs=1e-4)
        assert made.details["actionable"] is False


def test_a_scrape_every_15_s_counts_ten_minutes_alike(gangs: Gangs) -> None:
    gangs.job("before", *[(WORKED, ("spin", 9.75))] * 2, every=15)
    gangs.job("after", *[(WORKED, ("spin", 10))] * 2, every=15)
    assert set(found(gangs)) == {"after"}


def test_progress_that_stands_still_confirms_it(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 12))] * 2)
    gangs.progress("w", (120, 30), (12, 0))
    made = found(gangs)["w"]
    assert (made.evidence, made.details["actionable"]) == ("confirmed", True)
    assert made.details["progress"]["metric"] == "train_global_step"
    assert made.details["progress"]["value"] == 1000 + 120 * 30


def test_a_step_that_shows_late_delays_only_what_confirms_it(gangs: Gangs) -> None:
    # The last step ended before the hang; the metric's own minute shows it one, or three, later.
    gangs.job("w", *[(WORKED, ("spin", 10))] * 2)
    gangs.progress("w", (122, 30), (8, 0))
    gangs.job("later", *[(WORKED, ("spin", 11))] * 2)
    gangs.progress("later", (122, 30), (9, 0))
    gangs.job("moved", *[(WORKED, ("spin", 12))] * 2)
    gangs.progress("moved", (125, 30), (7, 0))
    evidence = {name: finding.evidence for name, finding in found(gangs).items()}
    assert evidence == {"w": "suspected", "later": "confirmed"}


def test_progress_that_moves_clears_it(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 30))] * 2)
    gangs.progress("w", (120, 30), (26, 30), (4, 0))
    assert found(gangs) == {}


def test_progress_that_fell_silent_confirms_nothing(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 12))] * 2)
    gangs.progress("w", (120, 30), (12, 0), late=3)
    assert found(gangs)["w"].evidence == "suspected"


def test_only_the_metric_that_the_owner_names_counts(gangs: Gangs) -> None:
    note = {"fallow.dev/progress-metric": "my_epochs"}
    gangs.job("w", *[(WORKED, ("spin", 12))] * 2, annotations=note)
    gangs.progress("w", (120, 30), (12, 30))
    assert found(gangs)["w"].evidence == "suspected"
    gangs.progress("w", (120, 1), (12, 0), metric="my_epochs")
    made = found(gangs)["w"]
    assert (made.evidence, made.details["progress"]["metric"]) == ("confirmed", "my_epochs")


def test_one_rank_whose_progress_moves_is_enough(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 12))] * 2)
    gangs.progress("w", (120, 30), (12, 0))
    gangs.progress("w", (120, 30), (12, 30), rank=1)
    assert found(gangs) == {}


@pytest.mark.parametrize(("minutes", "evidence"), [(35, "suspected"), (40, "confirmed")])
def test_checkpoints_that_stopped_confirm_it(gangs: Gangs, minutes: int, evidence: str) -> None:
    gangs.job("w", *[(WORKED, ("spin", minutes))] * 2)
    every = [(5, SAVED), (25, {})] * 4
    # The last burst began 5 minutes before the spin: 45 minutes, 1.5 times the usual 30, are late.
    gangs.host("w", 0, (25, {}), *every[:-1], (minutes, {}))
    assert found(gangs)["w"].evidence == evidence


def test_the_rank_that_left_the_spin_first_is_named_and_confirms_it(gangs: Gangs) -> None:
    stay = (WORKED, ("spin", 15))
    gangs.job("w", stay, stay, (WORKED, ("spin", 5), ("rest", 10)), stay)
    made = found(gangs)["w"]
    assert made.evidence == "confirmed"
    assert made.details["left_first"]["pod"] == "w-2"
    assert made.details["left_first"]["at"] == "2026-11-20T07:50:00Z"
    assert read_stalled_details(made).document() == made.details


@pytest.mark.parametrize(("minutes", "stalled"), [(1, False), (2, True)])
def test_a_rank_has_to_spin_with_the_others_before_it_leaves(
    gangs: Gangs, minutes: int, stalled: bool
) -> None:
    gone = (WORKED, ("spin", minutes), ("rest", 20 - minutes))
    gangs.job("w", (WORKED, ("spin", 20)), gone)
    assert bool(found(gangs)) is stalled


@pytest.mark.parametrize("phase", ["work", "rest"])
def test_ranks_that_wait_for_one_that_evaluates_or_saves_are_not_stalled(
    gangs: Gangs, phase: str
) -> None:
    # Rank 0 evaluates on its GPU, or writes a checkpoint from the host, while the others spin.
    gangs.job("w", (WORKED, (phase, 20)), *[(WORKED, ("spin", 20))] * 3)
    gangs.progress("w", (120, 30), (20, 0))
    assert found(gangs) == {}


@pytest.mark.parametrize("column", ["fs_write_bps", "net_tx_bps", "fs_read_bps", "net_rx_bps"])
def test_a_host_that_moves_data_is_in_a_phase_whatever_the_gpus_show(
    gangs: Gangs, column: str
) -> None:
    most = read_limits()["phase_bps"]
    for name, bps in (("below", most - 100), ("at", most)):
        gangs.job(name, *[(WORKED, ("spin", 30))] * 2)
        gangs.progress(name, (120, 30), (30, 0))
        gangs.host(name, 0, (120, WORKS), (30, {column: bps}))
    assert set(found(gangs)) == {"below"}


def test_a_job_whose_gpus_rest_hangs_only_by_its_progress_and_a_host_at_rest(gangs: Gangs) -> None:
    preparing = {"cpu_cores": 7.0}
    sites: dict[str, tuple[dict[str, float] | None, bool]] = {
        "hung": ({}, True), "data": (preparing, True), "no-host": (None, True), "idle": ({}, False),
    }  # fmt: skip
    for name, (host, tells) in sites.items():
        gangs.job(name, *[(WORKED, ("rest", 20))] * 2)
        if tells:
            gangs.progress(name, (120, 30), (20, 0))
        if host is not None:
            gangs.host(name, 0, (120, WORKS), (20, host))
            gangs.host(name, 1, (120, WORKS), (20, host))
    assert {n: f.evidence for n, f in found(gangs).items()} == {"hung": "confirmed"}
    assert found(gangs)["hung"].details["how"] == "rest"
    assert "whether its hosts prepare data" in doubts(gangs)["no-host"]


def test_one_host_of_two_is_not_both(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("rest", 20))] * 2)
    gangs.progress("w", (120, 30), (20, 0))
    gangs.host("w", 0, (120, WORKS), (20, {}))
    assert found(gangs) == {}
    gangs.host("w", 1, (120, WORKS), (20, {}))
    assert set(found(gangs)) == {"w"}


def test_progress_that_never_moved_is_a_job_that_has_not_begun(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("rest", 20))] * 2)
    gangs.progress("w", (140, 0))
    for rank in range(2):
        gangs.host("w", rank, (140, {}))
    assert found(gangs) == {}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (("tensor_active",), "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        (("dram_active",), "DCGM_FI_PROF_DRAM_ACTIVE"),
        (("pcie_tx_bps", "pcie_rx_bps"), "DCGM_FI_PROF_PCIE_TX_BYTES"),
    ],
)
def test_without_the_fields_of_tensor_memory_and_traffic_it_is_not_judged_and_named(
    gangs: Gangs, fields: tuple[str, ...], named: str
) -> None:
    absent = dict.fromkeys(fields)
    gangs.job("w", *[(WORKED, ("spin", 20))] * 2, shown={"spin": absent, "work": absent})
    gangs.progress("w", (120, 30), (20, 0))
    assert found(gangs) == {}
    assert named in doubts(gangs)["w"]


def test_nvlink_alone_is_traffic_enough(gangs: Gangs) -> None:
    shown = {"pcie_tx_bps": None, "pcie_rx_bps": None, "nvlink_tx_bps": 0.0, "nvlink_rx_bps": 0.0}
    gangs.job("w", *[(WORKED, ("spin", 20))] * 2, shown={"spin": shown})
    assert set(found(gangs)) == {"w"}


@pytest.mark.parametrize(
    ("column", "still", "moves"),
    [
        ("tensor_active", 0.01, 0.011),
        ("fp64_active", 0.01, 0.011),
        ("dram_active", 0.02, 0.021),
        ("pcie_rx_bps", 799_000.0, 801_000.0),
        ("nvlink_tx_bps", 599_000.0, 601_000.0),
        ("sm_active", 0.30, 0.31),
        ("gr_engine_active", 0.95, 0.94),
    ],
)
def test_each_limit_of_a_spin_at_both_sides(
    gangs: Gangs, column: str, still: float, moves: float
) -> None:
    for name, value in (("still", still), ("moves", moves)):
        gangs.job(name, *[(WORKED, ("spin", 20))] * 2, shown={"spin": {column: value}})
    assert set(found(gangs)) == {"still"}


@pytest.mark.parametrize(("watts", "stalled"), [(509.0, True), (511.0, False)])
def test_power_lies_below_the_jobs_own_working_level(
    gangs: Gangs, watts: float, stalled: bool
) -> None:
    # 85 % of 600 W. A kernel that draws as much as the work computes something.
    gangs.job("w", *[(WORKED, ("spin", 20))] * 2, shown={"spin": {"power_w": watts}})
    assert bool(found(gangs)) is stalled
    assert ("near the 600 W" in doubts(gangs).get("w", "")) is not stalled


@pytest.mark.parametrize(
    ("shown", "stalled"),
    [
        ({"energy_mj": 5e9}, False),
        ({"power_w": 180.25}, False),
        ({"power_w": 180.0}, True),
        ({"energy_mj": None}, True),
    ],
)
def test_an_exporter_that_repeats_an_old_value_shows_no_spin(
    gangs: Gangs, shown: dict[str, float | None], stalled: bool
) -> None:
    gangs.job("w", *[(WORKED, ("spin", 20))] * 2, shown={"spin": shown})
    gangs.progress("w", (120, 30), (20, 0))
    assert bool(found(gangs)) is stalled
    if not stalled:
        assert doubts(gangs)["w"] == "the telemetry of GPU-1 repeats an old value"


@pytest.mark.parametrize(("minutes", "stalled"), [(9, True), (10, False)])
def test_an_exporter_that_freezes_in_a_spin_shows_no_more_of_it(
    gangs: Gangs, minutes: int, stalled: bool
) -> None:
    # A counter that moved in the first 20 minutes of the spin, and then no more.
    pieces = (WORKED, *[("spin", 1), ("on", 1)] * 10, ("stands", minutes))
    shown: dict[str, dict[str, float | None]] = {
        "spin": {"energy_mj": 5e9},
        "on": {**SHOWN["spin"], "energy_mj": 6e9},
        "stands": {**SHOWN["spin"], "energy_mj": 6e9},
    }
    gangs.job("w", *[pieces] * 2, shown=shown)
    assert bool(found(gangs)) is stalled


def test_power_is_flat(gangs: Gangs) -> None:
    pieces = (WORKED, *[("spin", 1), ("hot", 1)] * 10)
    for name, watts in (("flat", 189.0), ("uneven", 205.0)):
        hot = {**SHOWN["spin"], "power_w": watts}
        gangs.job(name, *[pieces] * 2, shown={"hot": hot})
    assert set(found(gangs)) == {"flat"}
    assert "not flat" in doubts(gangs)["uneven"]


def test_without_power_or_without_work_before_nobody_knows(gangs: Gangs) -> None:
    gangs.job("blind", *[(WORKED, ("spin", 20))] * 2, shown={"spin": {"power_w": None}})
    gangs.job("new", *[(("spin", 20),)] * 2)
    assert found(gangs) == {}
    assert "power of GPU-1 is unknown" in doubts(gangs)["blind"]
    assert "did no work yet" in doubts(gangs)["new"]


def test_a_rank_that_nobody_sees_may_work(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 20))] * 3, unseen=1)
    assert found(gangs) == {}
    assert doubts(gangs)["w"] == "1 of its 4 GPUs are not seen; the others spin"


def test_ranks_that_wait_for_one_that_is_pending_are_not_stalled(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 20))] * 3, pending=1)
    assert found(gangs) == {}


def test_one_working_rank_is_enough(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 20))] * 3, (WORKED, ("work", 20)))
    assert (found(gangs), doubts(gangs)) == ({}, {})


def test_a_silence_parts_a_stretch(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 16))] * 2)
    gangs.views.engine.execute(
        "DELETE FROM sample WHERE ts >= TIMESTAMP '2026-11-20 07:51:00' "
        "AND ts < TIMESTAMP '2026-11-20 07:54:00'"
    )
    assert found(gangs) == {}


def test_services_and_notebooks_do_not_hang_together(gangs: Gangs) -> None:
    for kind in ("Deployment", "Notebook"):
        gangs.job(kind.lower(), *[(WORKED, ("spin", 20))] * 2, kind=kind)
    assert found(gangs) == {}


def test_one_sample_at_rest_before_the_spin_does_not_hide_it(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("rest", 1), ("spin", 12))] * 2)
    assert set(found(gangs)) == {"w"}


def test_a_barrier_before_the_rest_does_not_hide_a_hang_at_rest(gangs: Gangs) -> None:
    gangs.job("w", *[(WORKED, ("spin", 1), ("rest", 19))] * 2)
    gangs.progress("w", (120, 30), (20, 0))
    for rank in range(2):
        gangs.host("w", rank, (120, WORKS), (20, {}))
    assert found(gangs)["w"].details["how"] == "rest"


PIECE = st.tuples(st.sampled_from(["work", "spin", "rest"]), st.integers(1, 25))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ranks=st.lists(st.lists(PIECE, min_size=1, max_size=4), min_size=1, max_size=4),
    still=st.one_of(st.none(), st.integers(1, 40)),
)
def test_hours_are_those_of_ranks_that_did_no_work(
    ranks: list[list[tuple[str, int]]], still: int | None
) -> None:
    """Whatever a gang did: a finding lies where no rank works, and never exceeds these hours."""
    gangs = Gangs(Memory())
    try:
        gangs.job("w", *[[WORKED, *rank] for rank in ranks])
        if still is not None:
            gangs.progress("w", (120, 30), (still, 0))
        worst = [[what for what, minutes in rank for _ in range(minutes)] for rank in ranks]
        for made in StalledAnalyzer().find(gangs.views, gangs.window):
            start = round((gangs.window.end - made.window.start).total_seconds() / 60)
            end = round((gangs.window.end - made.window.end).total_seconds() / 60)
            for line in worst:
                mine = line[len(line) - start : len(line) - end if end else None]
                assert len(mine) == start - end
                assert "work" not in mine
            assert start - end >= 10
            assert made.gpu_hours == pytest.approx(len(ranks) * (start - end) / 60, abs=1e-5)
    finally:
        gangs.views.engine.close()


@pytest.mark.parametrize(
    ("margin_w", "watts", "stalled"),
    [(10.0, 130.0, True), (10.0, 131.0, False), (30.0, 150.0, True), (30.0, 151.0, False)],
)
def test_ranks_above_the_idle_band_do_not_rest(
    gangs: Gangs, margin_w: float, watts: float, stalled: bool
) -> None:
    """120 W are an idle H100's, beside `idle.power_margin_w`: bursts between readings are work."""
    gangs.job("w", *[(WORKED, ("rest", 30))] * 2, shown={"rest": {"power_w": watts}})
    gangs.progress("w", (120, 30), (30, 0))
    for rank in range(2):
        gangs.host("w", rank, (120, WORKS), (30, {}))
    chosen = Settings.model_validate({"idle": {"power_margin_w": margin_w}})
    made = load_analyzers(chosen, ["stalled"])["stalled"].find(gangs.views, gangs.window)
    assert [f.subject.workload for f in made] == ["w"] * stalled


def test_energy_shows_bursts_that_the_power_gauge_misses(gangs: Gangs) -> None:
    """178 W by the counter, 110 W in each reading."""
    gangs.job("w", *[(WORKED, ("rest", 30))] * 2)
    gangs.progress("w", (120, 30), (30, 0))
    for rank in range(2):
        gangs.host("w", rank, (120, WORKS), (30, {}))
    assert set(found(gangs)) == {"w"}
    gangs.views.engine.execute("UPDATE sample SET energy_mj = 178 * 1000 * epoch(ts)")
    assert found(gangs) == {}
