"""Every quirk of real telemetry, and that Fallow's own scraper survives it."""

from collections.abc import Callable
from datetime import UTC, timedelta

import numpy as np
import pytest

from collectors.jupyter import JupyterCollector
from fallow.errors import UsageError
from fallow.settings.collectors import JupyterSettings
from simulator.exporters.device_catalog import read_fields
from simulator.exporters.device_telemetry import distort
from simulator.exporters.quirks import Quirks, read_quirks
from simulator.models import DeviceAllocation
from tests.simulator.exporters import fleet
from tests.simulator.exporters.conftest import WINDOW, Row, Scraped

Scrape = Callable[..., Scraped]
TRAINED = fleet.DEVICES[0].uuid
ALICE = fleet.DEVICES[4].uuid
EMPTY = fleet.DEVICES[7].uuid
BERT = f"{fleet.DEVICES[8].uuid}/gi1"
NOW = "every_s=3600,length_s=3600"


def differs(mine: dict[str, Row], plain: dict[str, Row]) -> set[str]:
    """Return the columns in which two looks at the fleet are not the same."""
    assert mine.keys() == plain.keys()
    return {
        column
        for device, row in plain.items()
        for column, value in row.items()
        if mine[device][column] != value
    }


def test_without_quirks_every_value_is_the_blocks_own(scrape: Scrape) -> None:
    found = scrape().devices(2)
    assert len(found) == len(fleet.DEVICES)
    shown = fleet.block()
    for place, (device, row) in enumerate(found.items()):
        assert device.startswith(fleet.DEVICES[place].uuid)
        assert row["power_w"] == pytest.approx(float(shown.power_w[place, 2]), abs=0.121)
        assert row["gr_engine_active"] == pytest.approx(
            float(shown.gr_engine_active[place, 2]), abs=1e-6
        )
        holder = fleet.PLAN[place][0]
        assert row["pod"] == (fleet.HOLDERS[holder].pod if holder >= 0 else None)
        assert row["mem_used_bytes"] == round(float(shown.mem_used_mib[place, 2])) * 2**20
    assert found[BERT]["parent"] == fleet.DEVICES[8].uuid
    assert found[BERT]["gpu_util_pct"] is None


@pytest.mark.parametrize("quirk", ["hostname-lower", "exported-labels", "dcgm-4.6-names"])
def test_another_spelling_says_the_same(quirk: str, scrape: Scrape) -> None:
    assert differs(scrape(f"{quirk}:rate=1").devices(1), scrape().devices(1)) == set()


def test_exporter_down_is_a_failed_look_and_no_row(scrape: Scrape) -> None:
    one = scrape(f"exporter-down:rate=1,{NOW}")
    sample_rows = one.rows("scrape")
    assert [r["up"] for r in sample_rows] == [False] * 3
    assert all("closed the connection" in r["error"] for r in sample_rows)
    assert one.rows("sample") == []


def test_after_a_restart_counters_go_on_and_pods_come_back(scrape: Scrape) -> None:
    one = scrape("exporter-restart:rate=1,every_s=2400,length_s=60", seed=1, shown=fleet.block(80))
    ticks = range(80)
    seen = [one.devices(tick).get(TRAINED) for tick in ticks]
    silent = [t for t in ticks if seen[t] is None]
    assert len(silent) == 2
    after = [t for t in ticks if t > silent[-1] and (seen[t] or {}).get("pod") is None]
    assert after == [silent[-1] + n + 1 for n in range(4)]
    energy = [row["energy_mj"] for row in seen if row is not None]
    assert energy == sorted(energy)
    assert all(row["gr_engine_active"] > 0.9 for row in seen if row is not None)


def test_a_frozen_device_repeats_itself_and_its_energy_stands_still(scrape: Scrape) -> None:
    one = scrape(f"stale-series:rate=1,{NOW}", shown=fleet.block(10))
    first, last = one.devices(0), one.devices(9)
    assert differs(last, first) == {"ts"}
    assert last[TRAINED]["energy_mj"] == first[TRAINED]["energy_mj"]


def test_a_gone_pods_series_never_names_one_owner_beside_its_successor(scrape: Scrape) -> None:
    shown = fleet.block(30)
    shown.holder[4, 5:] = fleet.CAROL
    shown.holder[0, 5:] = -1
    one = scrape("stale-series:rate=1,every_s=86400,length_s=0,linger_s=300", shown=shown)
    both = one.devices(8)
    assert (both[ALICE]["pod"], both[ALICE]["sharers"]) == (None, 2)
    held = {r["pod"] for r in one.rows("holding", ticks=(8,)) if r["device"] == ALICE}
    assert held == {"jupyter-alice-0", "jupyter-carol-0"}
    assert both[TRAINED]["pod"] == "llm-pretrain-worker-0"
    later = one.devices(20)
    assert later[ALICE]["pod"] == "jupyter-carol-0"
    assert later[TRAINED]["pod"] is None


def test_stuck_profiling_fields_leave_the_utilisation_to_contradict_them(scrape: Scrape) -> None:
    row = scrape(f"gr-engine-stuck-zero:rate=1,{NOW}").devices()[TRAINED]
    assert row["gr_engine_active"] == row["sm_active"] == row["dram_active"] == 0
    assert row["gpu_util_pct"] > 90
    assert row["power_w"] > 500


def test_a_latched_utilisation_strikes_empty_gpus_only(scrape: Scrape) -> None:
    found = scrape(f"gpu-util-latched-100:rate=1,{NOW}").devices()
    assert found[EMPTY]["gpu_util_pct"] == 100
    assert found[EMPTY]["gr_engine_active"] == 0
    assert found[ALICE]["gpu_util_pct"] == 0


def test_blanks_are_nulls_and_counted(scrape: Scrape) -> None:
    one = scrape(f"sentinels:rate=1,{NOW}")
    body = b"".join(
        one.door._texts.text(one.world.block, 0, node) or b"" for node in (fleet.A, fleet.B)
    )
    assert b"} 2147483632\n" in body or b"} 9223372036854775794\n" in body
    plain, blank = scrape().devices(), one.devices()
    lost = 0
    for device, row in plain.items():
        gone = {c for c, value in row.items() if blank[device][c] != value}
        assert all(blank[device][c] is None for c in gone)
        assert len(gone) == 1
        lost += 1
    assert sum(r["rejected"] for r in one.rows("scrape")) == lost


def test_boards_beside_their_instances_are_not_devices(scrape: Scrape) -> None:
    one = scrape("mig-labels:rate=1")
    found, plain = one.devices(), scrape().devices()
    changed = differs(found, plain)
    assert changed == {"gpu_util_pct", "mem_used_bytes", "mem_free_bytes"}
    assert found[BERT]["gpu_util_pct"] == 0
    assert found[BERT]["mem_used_bytes"] is None
    assert found[BERT]["pod"] == "bert-embed-5f7-abcde"
    assert found[TRAINED] == plain[TRAINED]


def test_copies_of_a_shared_device_are_one_device(scrape: Scrape) -> None:
    begun = fleet.START.timestamp() - 60
    shared = [
        DeviceAllocation(fleet.HOLDERS[n], (5,), begun, np.inf, 0.5)
        for n in (fleet.FRAUD, fleet.CAROL)
    ]
    row = scrape("time-slicing-copies:rate=1", tenures=shared).devices()[fleet.DEVICES[5].uuid]
    plain = scrape().devices()[fleet.DEVICES[5].uuid]
    assert (row["pod"], row["sharers"]) == (None, 2)
    same = {"power_w", "energy_mj", "gr_engine_active", "gpu_util_pct", "mem_used_bytes"}
    assert {c: row[c] for c in same} == {c: plain[c] for c in same}


def test_an_energy_counter_that_begins_again_stays_a_counter(scrape: Scrape) -> None:
    one = scrape("counter-reset:rate=1,wrap_kwh=0.05", shown=fleet.block(40))
    energy = np.array([one.devices(t)[TRAINED]["energy_mj"] for t in range(40)])
    steps = np.diff(energy)
    assert (steps < 0).any()
    assert (energy >= 0).all()
    assert energy.max() < 0.05 * 3.6e9


def test_a_wrong_clock_moves_the_lines_and_the_notebooks(scrape: Scrape) -> None:
    one = scrape("clock-skew:rate=1,skew_s=120")
    instants = {r["ts"].replace(tzinfo=UTC) - fleet.START for r in one.devices().values()}
    assert instants <= {timedelta(seconds=120), timedelta(seconds=-120)}
    settings = JupyterSettings.model_validate({"servers": one.door.notebooks()})
    seen = [
        r
        for b in JupyterCollector(settings, "sim").collect(WINDOW)
        if b.table == "notebook_sample"
        for r in b.rows.to_pylist()
    ]
    rest = fleet.START.replace(tzinfo=None) - timedelta(hours=9)
    assert {abs(r["last_kernel_activity"] - rest) for r in seen} == {timedelta(seconds=120)}


def test_an_old_xid_stands_on_devices_that_work(scrape: Scrape) -> None:
    found = scrape(f"xid-latched:rate=1,{NOW}").devices()
    assert all(row["xid"] > 0 for row in found.values())
    assert differs(found, scrape().devices()) == {"xid"}


def test_missing_labels_name_nobody_rather_than_somebody_else(scrape: Scrape) -> None:
    found = scrape(f"missing-pod-labels:rate=1,{NOW}").devices()
    assert {(r["namespace"], r["pod"], r["container"]) for r in found.values()} == {
        (None, None, None)
    }
    assert differs(found, scrape().devices()) == {"namespace", "pod", "container"}


def test_lines_that_come_twice_are_one_value(scrape: Scrape) -> None:
    one = scrape("duplicate-scrapes:rate=1")
    plain = scrape()
    assert differs(one.devices(), plain.devices()) == set()
    assert len(one.rows()) == len(plain.rows()) == len(fleet.DEVICES)


@pytest.mark.parametrize("quirk", ["no-profiling", "no-energy-counter"])
def test_fields_that_a_gpu_lacks_are_absent(quirk: str, scrape: Scrape) -> None:
    columns = differs(scrape(f"{quirk}:rate=1").devices(), scrape().devices())
    assert columns == (
        {"energy_mj"}
        if quirk == "no-energy-counter"
        else {"gr_engine_active", "sm_active", "tensor_active", "dram_active", "fp32_active",
              "pcie_tx_bps", "pcie_rx_bps", "nvlink_tx_bps", "nvlink_rx_bps"}
    )  # fmt: skip
    rows = scrape(f"{quirk}:rate=1").devices()
    missing = {device for device, row in rows.items() if all(row[c] is None for c in columns)}
    assert missing == {d.uuid for d in fleet.DEVICES if d.instance is None}


def test_a_coarse_sensor_reads_steps(scrape: Scrape) -> None:
    coarse, plain = scrape("coarse-power:rate=1,step_w=10").devices(), scrape().devices()
    assert differs(coarse, plain) == {"power_w"}
    for device, row in coarse.items():
        assert row["power_w"] % 10 == 0
        assert abs(row["power_w"] - plain[device]["power_w"]) <= 5


def test_a_quiet_sensor_repeats_itself_for_3_to_8_samples_and_never_over_a_change() -> None:
    block = fleet.block(2000)
    rng = np.random.default_rng(1)
    block.power_w[:] = 117 + rng.normal(0, 0.3, block.power_w.shape)
    block.power_w[:, 1000:1100] = 400 + rng.normal(0, 9, (len(block.devices), 100))
    telemetry = distort(block, Quirks.of(["held-power:rate=1"], 1))
    power = telemetry.values[next(i for i, f in enumerate(read_fields()) if f.column == "power_w")]
    for row in power:
        cuts = np.flatnonzero(np.diff(row) != 0) + 1
        runs = np.diff(np.concatenate([[0], cuts, [2000]]))
        idle = runs[(cuts.searchsorted(1000) + 1) : -1]
        assert set(np.unique(runs[1:50])) <= {*range(3, 9), *range(30, 61)}
        assert np.median(idle) <= 8
        assert runs.max() >= 30
        assert abs(row[:1000] - 117).max() < 3
        assert row[1000:1100].min() > 300


def test_with_every_quirk_on_nothing_is_invented(scrape: Scrape) -> None:
    shown = fleet.block(20)
    one = scrape("all", seed=4, shown=shown)
    known_pods = {h.pod for h in fleet.HOLDERS} | {None}
    for tick in (0, 7, 19):
        for device, row in one.devices(tick).items():
            assert device.partition("/")[0] in {d.uuid for d in fleet.DEVICES}
            assert row["pod"] in known_pods
            assert row["gpu_util_pct"] is None or 0 <= row["gpu_util_pct"] <= 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gremlins", "there is no quirk 'gremlins'"),
        ("sentinels:often=1", "cannot take 'often=1'"),
        ("sentinels:rate=much", "cannot take 'rate=much'"),
        ("sentinels:rate=-1", "cannot take 'rate=-1'"),
        ("hostname-lower:every_s=60", "cannot take 'every_s=60'"),
        ("all:wrap_kwh=3", "cannot take 'wrap_kwh=3'"),
    ],
)
def test_an_unknown_quirk_or_parameter_is_refused_with_the_legal_ones(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        Quirks.of([text])
    assert refused.value.hint
    assert "rate" in refused.value.hint or "counter-reset" in refused.value.hint


def test_strikes_follow_from_the_seed_alone_and_keep_their_rate() -> None:
    keys = [f"GPU-{n}" for n in range(2000)]
    ticks = np.arange(0, 86400 * 3, 1800.0)
    for name in ("stale-series", "gr-engine-stuck-zero", "hostname-lower"):
        one = Quirks.of([f"{name}:rate=0.3"], 1).strikes(name, keys, ticks).struck
        again = Quirks.of([f"{name}:rate=0.3"], 1).strikes(name, keys, ticks[40:]).struck
        other = Quirks.of([f"{name}:rate=0.3"], 2).strikes(name, keys, ticks).struck
        assert (one[:, 40:] == again).all()
        assert (one != other).any()
    always = Quirks.of(["hostname-lower:rate=0.3"], 1).strikes("hostname-lower", keys, ticks)
    assert abs(always.struck[:, 0].mean() - 0.3) < 0.05
    assert not Quirks.of(["hostname-lower:rate=0"]).strikes("hostname-lower", keys, ticks).any


def test_the_table_names_every_quirk_of_the_issue() -> None:
    assert len(read_quirks()) == 20
    assert all(quirk.description for quirk in read_quirks().values())
