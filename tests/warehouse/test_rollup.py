"""Rollups keep what the looks said: time, classes, measures, energy; late, twice, across edges."""

import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from warehouse import rollup
from warehouse.lake import Warehouse
from warehouse.late_devices import LateDevices
from warehouse.rollup import roll_up

START = datetime(2026, 11, 20, 6, 0)  # noqa: DTZ001
HALF_AN_HOUR = timedelta(minutes=30)
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def wh(settings: Settings, now: datetime) -> Iterator[Warehouse]:
    with Warehouse.open_in_memory(settings, clock=lambda: now) as warehouse:
        yield warehouse


def looks(rows: list[dict[str, Any]]) -> Batch:
    names = sorted({name for row in rows for name in row})
    data: dict[str, object] = {name: [row.get(name) for row in rows] for name in names}
    return Batch.of("sample", {"cluster": ["test"] * len(rows), **data})


def look(second: float, device: str = "GPU-0", **values: Any) -> dict[str, Any]:
    ts = START + timedelta(seconds=second)
    return {"ts": ts, "device": device, "interval_s": 60.0, "model": H100, **values}


def rolled(wh: Warehouse, table: str = "rollup_5m") -> list[dict[str, Any]]:
    rows = wh.query(f"FROM {table} ORDER BY device, bucket, namespace, pod")
    return list(rows.to_pylist())


def test_a_full_bucket_is_covered_and_its_classes_add_up(wh: Warehouse) -> None:
    values = [0.0, 5.0, 20.0, 90.0, None]
    wh.ingest([looks([look(60 * k, gpu_util_pct=v, power_w=80.0) for k, v in enumerate(values)])])
    assert roll_up(wh) >= 1
    first, after = rolled(wh)
    assert (first["n"], first["expected"], first["act_n"]) == (5, 5.0, 4)
    assert first["covered_s"] == pytest.approx(300)
    # Four looks of 75 s and one cut to 60 s by the bucket: 360 s, scaled to 300.
    parts = {c: first[f"{c}_s"] for c in ("idle", "low", "busy", "conflict", "blind")}
    assert parts == pytest.approx(
        {"idle": 125, "low": 62.5, "busy": 62.5, "conflict": 0, "blind": 50}
    )
    assert first["act_hist"] == [1, 1, 0, 0, 1, *[0] * 13, 1, 0, 0]
    assert first["gpu_util_pct_n"] == 4
    assert first["gpu_util_pct_mean"] == pytest.approx(28.75)
    # The last look reaches 15 s into the next bucket, where nobody looked.
    assert (after["bucket"], after["n"]) == (START + timedelta(minutes=5), 0)
    assert after["covered_s"] == pytest.approx(15)
    assert after["act_max"] is None


def test_a_missing_look_leaves_its_time_uncovered(wh: Warehouse) -> None:
    wh.ingest([looks([look(0, gpu_util_pct=0.0), look(240, gpu_util_pct=0.0)])])
    roll_up(wh)
    assert rolled(wh)[0]["covered_s"] == pytest.approx(75 + 60)


def test_a_rare_look_speaks_over_several_buckets(wh: Warehouse) -> None:
    wh.ingest([looks([look(30, gpu_util_pct=50.0, interval_s=600.0)])])
    roll_up(wh)
    assert [r["covered_s"] for r in rolled(wh)] == pytest.approx([270, 300, 180])
    assert [r["n"] for r in rolled(wh)] == [1, 0, 0]


def test_owners_of_one_device_share_its_bucket(wh: Warehouse) -> None:
    rows = [look(60 * k, gpu_util_pct=50.0, namespace="a", pod="x") for k in range(3)]
    rows += [look(180 + 60 * k, gpu_util_pct=0.0, namespace="b", pod="y") for k in range(2)]
    wh.ingest([looks(rows)])
    roll_up(wh)
    first = [r for r in rolled(wh) if r["bucket"] == START]
    assert [(r["pod"], r["n"]) for r in first] == [("x", 3), ("y", 2)]
    assert [r["covered_s"] for r in first] == pytest.approx([225 / 1.2, 135 / 1.2])
    assert sum(r["covered_s"] for r in first) == pytest.approx(300)


CONFLICTS = {
    "profiling is silent": ({"gr_engine_active": 0.0, "gpu_util_pct": 100.0}, "conflict"),
    "idle at full power": ({"gpu_util_pct": 0.0, "power_w": 600.0}, "conflict"),
    "busy without memory": (
        {"gpu_util_pct": 100.0, "mem_used_bytes": 0, "power_w": 70.0},
        "conflict",
    ),
    "honest work": ({"gr_engine_active": 0.9, "gpu_util_pct": 100.0, "power_w": 600.0}, "busy"),
    "an instance of a hot board": (
        {"gr_engine_active": 0.0, "power_w": 600.0, "parent": "GPU-9", "profile": "1g.10gb"},
        "idle",
    ),
    "unknown model, hot": ({"gpu_util_pct": 0.0, "power_w": 600.0, "model": "X1"}, "idle"),
    "at the threshold": ({"gpu_util_pct": 5.0}, "idle"),
    "at the low threshold": ({"gr_engine_active": 0.3}, "busy"),
    "no witness": ({"power_w": 80.0}, "blind"),
    "only the encoder": ({"gpu_util_pct": 0.0, "enc_util_pct": 40.0}, "busy"),
}


@pytest.mark.parametrize(("values", "kind"), CONFLICTS.values(), ids=CONFLICTS)
def test_a_look_is_of_one_class(wh: Warehouse, values: dict[str, Any], kind: str) -> None:
    wh.ingest([looks([look(0, **values)])])
    roll_up(wh)
    row = rolled(wh)[0]
    spoken = {c: row[f"{c}_s"] for c in ("idle", "low", "busy", "conflict", "blind")}
    assert {c for c, s in spoken.items() if s} == {kind}


@pytest.mark.parametrize(("after", "counted"), [(122_880_000, 122_880_000), (122_880_001, 0)])
def test_a_counter_that_falls_counts_what_a_gpu_can_have_used(
    wh: Warehouse, after: int, counted: int
) -> None:
    """2,048 W over 60 s are 122,880,000 mJ: with more the counter did not begin again."""
    wh.ingest([looks([look(60 * k, energy_mj=v) for k, v in enumerate((4 * 10**11, after))])])
    roll_up(wh)
    assert sum(r["energy_mj"] or 0 for r in rolled(wh)) == counted


def test_energy_is_booked_where_the_later_look_lies_and_resets_count_from_zero(
    wh: Warehouse,
) -> None:
    counter = [1000, 1600, 1900, 100, 400, 900, None, 1500]
    wh.ingest([looks([look(60 * k, energy_mj=v) for k, v in enumerate(counter)])])
    wh.ingest([looks([look(3000, energy_mj=9000)])])  # after a gap: what was used is unknown
    roll_up(wh)
    used = {r["bucket"].minute: r["energy_mj"] for r in rolled(wh) if r["n"]}
    assert used == {0: 600 + 300 + 100 + 300, 5: 500 + 600, 50: None}


def test_nulls_stay_null(wh: Warehouse) -> None:
    wh.ingest([looks([look(0)])])
    roll_up(wh)
    for table in ("rollup_5m", "rollup_1h"):
        row = rolled(wh, table)[0]
        assert row["n"] == 1
        for name in ("act_mean", "power_w_min", "energy_mj", "xid_max", "pcie_bps_max", "node"):
            assert row[name] is None
        assert row["power_w_n"] == 0


def fleet(seed: int, hours: float = 2.2) -> list[dict[str, Any]]:
    """Return looks of a few devices with holes, jitter, owners that change and resets."""
    draw = random.Random(seed)
    rows = []
    for d, interval in enumerate((15.0, 60.0, 300.0, 420.0)):
        second, energy = draw.uniform(0, interval), draw.randrange(10**6)
        while second < hours * 3600:
            energy = draw.randrange(1000) if draw.random() < 0.01 else energy + draw.randrange(5000)
            owner = draw.choice([{}, {"namespace": "n", "pod": f"p{int(second // 1700)}"}])
            if draw.random() > 0.1:
                values = {
                    "gpu_util_pct": draw.choice([None, 0.0, float(draw.randrange(101))]),
                    "sm_active": draw.choice([None, draw.random()]),
                    "power_w": draw.choice([None, draw.uniform(60, 700)]),
                    "energy_mj": draw.choice([None, energy]),
                    "mem_used_bytes": draw.choice([0, 10**9]),
                }
                rows.append(look(second, f"GPU-{d}", **values, **owner) | {"interval_s": interval})
            second += interval + draw.uniform(-0.02, 0.05) * interval
    return rows


def expected(rows: list[dict[str, Any]], size: int) -> dict[Any, dict[str, float]]:
    """Roll up naively, look by look, as the brief of the semantics reads."""
    out: dict[Any, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    spoken: dict[Any, float] = defaultdict(float)
    pieces = []
    last: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda r: r["ts"]):
        at = (row["ts"] - START).total_seconds()
        key = (row["device"], row.get("namespace") or "", row.get("pod") or "")
        until = at + 1.25 * row["interval_s"]
        five = int(at // 300)
        here = out[(*key, five * 300 // size)]
        here["n"] += 1
        for bucket in range(five, int(until // 300) + 1):
            seconds = min(until, bucket * 300 + 300) - max(at, bucket * 300)
            pieces.append((key, bucket, max(seconds, 0)))
            spoken[(row["device"], bucket)] += max(seconds, 0)
        if row["energy_mj"] is not None:
            before = last.get(row["device"])
            if before and (row["ts"] - before["ts"]).total_seconds() <= 3 * row["interval_s"]:
                increase = row["energy_mj"] - before["energy_mj"]
                here["energy_mj"] += increase if increase >= 0 else row["energy_mj"]
            last[row["device"]] = row
        if row["power_w"] is not None:
            here["power_w_sum"] += row["power_w"]
            here["power_w_n"] += 1
    for key, bucket, seconds in pieces:
        scale = min(1.0, 300 / spoken[(key[0], bucket)]) if seconds else 0.0
        out[(*key, bucket * 300 // size)]["covered_s"] += seconds * scale
    return out


@pytest.mark.parametrize("seed", range(3))
def test_both_rollups_agree_with_a_naive_one(wh: Warehouse, seed: int) -> None:
    rows = fleet(seed)
    wh.ingest([looks(rows)])
    roll_up(wh)
    for table, size in (("rollup_5m", 300), ("rollup_1h", 3600)):
        wanted = expected(rows, size)
        found = {
            (
                r["device"],
                r["namespace"],
                r["pod"],
                int((r["bucket"] - START).total_seconds()) // size,
            ): r
            for r in rolled(wh, table)
        }
        assert {k for k, v in wanted.items() if v["n"] or v["covered_s"] > 1e-3} <= set(found)
        for key, row in found.items():
            want = wanted[key]
            assert row["n"] == want["n"]
            assert row["covered_s"] == pytest.approx(want["covered_s"], abs=0.01)
            assert (row["energy_mj"] or 0) == want["energy_mj"]
            assert row["power_w_n"] == want["power_w_n"]
            if want["power_w_n"]:
                mean = want["power_w_sum"] / want["power_w_n"]
                assert row["power_w_mean"] == pytest.approx(mean, rel=1e-5)
            classes = sum(row[f"{c}_s"] for c in ("idle", "low", "busy", "conflict", "blind"))
            assert classes == pytest.approx(row["covered_s"], abs=0.01)
            assert sum(row["act_hist"]) == row["act_n"]


def test_late_rows_refresh_as_if_they_had_come_in_time(
    settings: Settings, wh: Warehouse, now: datetime
) -> None:
    rows = fleet(7)
    draw = random.Random(1)
    late = [r for r in rows if draw.random() < 0.2]
    wh.ingest([looks([r for r in rows if r not in late])])
    roll_up(wh)
    for part in (late[::2], late[1::2]):
        wh.ingest([looks(part)])
        roll_up(wh)
    assert wh.query("FROM dirty").num_rows == 0
    other = settings.model_copy(update={"home": settings.home / "other"})
    with Warehouse.open_in_memory(other, clock=lambda: now) as straight:
        straight.ingest([looks(rows)])
        roll_up(straight)
        for table in ("rollup_5m", "rollup_1h", "device"):
            order = f"FROM {table} ORDER BY ALL"
            assert wh.query(order).to_pylist() == straight.query(order).to_pylist()


@pytest.mark.parametrize("restarted", [False, True])
def test_late_rows_of_one_device_are_rolled_up_alone_and_alike(
    settings: Settings,
    wh: Warehouse,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    restarted: bool,
) -> None:
    touched: list[list[str] | None] = []
    compared: list[list[str] | None] = []
    find_late, find_touched = rollup._find_late, rollup._find_touched

    def note_late(*given: Any) -> list[str] | None:
        touched.append(find_late(*given))
        return touched[-1]

    def note_comparison(*given: Any) -> list[str] | None:
        compared.append(find_touched(*given))
        return compared[-1]

    monkeypatch.setattr(rollup, "_find_late", note_late)
    monkeypatch.setattr(rollup, "_find_touched", note_comparison)
    busy = {"gpu_util_pct": 90.0, "power_w": 500.0}
    rows = [
        look(60 * k, f"GPU-{d}", energy_mj=1000 * k, **(busy if d % 2 else {}))
        for d in range(10)
        for k in range(40)
    ]
    late = [r for r in rows if r["device"] == "GPU-3" and START < r["ts"] < START + HALF_AN_HOUR]
    wh.ingest([looks([r for r in rows if r not in late])])
    roll_up(wh)
    wh.ingest([looks(late)])
    if restarted:  # a new writer knows no devices of the marks that it finds
        wh.late = LateDevices()
    roll_up(wh)
    assert touched == [None, ["GPU-3"]]
    assert compared == ([None, ["GPU-3"]] if restarted else [None])
    other = settings.model_copy(update={"home": settings.home / "other"})
    with Warehouse.open_in_memory(other, clock=lambda: now) as straight:
        straight.ingest([looks(rows)])
        roll_up(straight)
        for table in ("rollup_5m", "rollup_1h", "device"):
            order = f"FROM {table} ORDER BY ALL"
            assert wh.query(order).to_pylist() == straight.query(order).to_pylist()


def test_rolling_a_window_twice_changes_nothing(wh: Warehouse, now: datetime) -> None:
    wh.ingest([looks(fleet(3))])
    roll_up(wh)
    before = rolled(wh), rolled(wh, "rollup_1h")
    assert roll_up(wh) == 0
    assert roll_up(wh, Window.last(timedelta(days=1), now=now)) > 0
    assert (rolled(wh), rolled(wh, "rollup_1h")) == before


def test_devices_are_kept(wh: Warehouse) -> None:
    device = look(0, "GPU-1", node="a", mem_used_bytes=20 << 30, mem_free_bytes=60 << 30)
    instance = look(0, "GPU-1/gi3", parent="GPU-1", profile="3g.40gb")
    wh.ingest([looks([device, instance])])
    roll_up(wh)
    wh.ingest([looks([look(600, "GPU-1", node="b"), look(-600, "GPU-1", node="z")])])
    roll_up(wh)
    gpu, gi = wh.query("FROM device ORDER BY device").to_pylist()
    assert (gpu["gpu_model"], gpu["weight"], gpu["node"]) == ("H100", 1.0, "b")
    assert gpu["memory_bytes"] == 80 << 30
    assert gpu["first_seen"] == START - timedelta(minutes=10)
    assert gpu["last_seen"] == START + timedelta(minutes=11)
    assert gi["weight"] == pytest.approx(3 / 7)
