"""How much of what a GPU can do its work used, by hand from samples to `spend`."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.accounting import ledger_totals, pipeline
from runtime.rendering.tables import render
from tests.ledger.test_states_of_device_signals import T, batch, series
from warehouse.lake import Warehouse
from warehouse.spend import read_spend

pytestmark = pytest.mark.slow

HOURS = 4
WINDOW = Window(T, T + timedelta(hours=HOURS))
FIELDS = ("gpu_hours", "known_gpu_hours", "busy_gpu_hours", "measured_gpu_hours")


def bursty(**busy: Any) -> dict[str, Any]:
    """Return two hours of work with these activities, then two hours of none."""
    count = HOURS * 120
    work = np.arange(count) < count / 2
    power = np.where(work, 500.0, 110.0) + np.random.default_rng(1).normal(0, 0.2, count)
    shown: dict[str, Any] = {name: np.where(work, value, 0.0) for name, value in busy.items()}
    return series(30, HOURS, power_w=power, **shown)


def accounted(settings: Settings, *by: str, **devices: Any) -> dict[Any, dict[str, Any]]:
    """Return what `spend` says of each key."""
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch(devices)])
        assert not pipeline.account(warehouse, WINDOW)[1]
        rows = read_spend(warehouse, WINDOW, by or ("workload",)).to_pylist()
    return {" ".join(row[name] for name in by or ("workload",)).split("-")[-1]: row for row in rows}


def pct(row: dict[str, Any], part: str, whole: str) -> float:
    return float(100 * row[part] / row[whole])


def test_it_is_the_use_of_what_limits_the_work_over_its_practical_peak(settings: Settings) -> None:
    rows = accounted(
        settings,
        tensor=bursty(gpu_util_pct=95.0, sm_active=0.9, tensor_active=0.465, dram_active=0.1),
        memory=series(
            30, HOURS, power_w=500.0, gpu_util_pct=95.0, tensor_active=0.05, dram_active=0.6
        ),
        fp32=series(
            30, HOURS, power_w=500.0, gpu_util_pct=95.0, tensor_active=0.05, fp32_active=0.45
        ),
        sm=series(30, HOURS, power_w=500.0, gpu_util_pct=95.0, sm_active=0.6),
        spun=series(
            30, HOURS, power_w=180.0, gpu_util_pct=100.0, sm_active=0.9, tensor_active=0.0,
            dram_active=0.0,
        ),
    )  # fmt: skip
    shown = {name: pct(r, "effective_gpu_hours", "measured_gpu_hours") for name, r in rows.items()}
    # tensor: 0.465 / 0.93 for half of its time; memory: 0.6 / 0.8; fp32: 0.45 / 0.9; the SMs only
    # where no tensor is.
    expected = {"tensor": 25, "memory": 75, "fp32": 50, "sm": 60, "spun": 0}
    assert shown == pytest.approx(expected, abs=0.5)
    busy = {name: pct(row, "busy_gpu_hours", "known_gpu_hours") for name, row in rows.items()}
    expected = {"tensor": 50, "memory": 100, "fp32": 100, "sm": 100, "spun": 100}
    assert busy == pytest.approx(expected, abs=0.7)


def test_what_no_exporter_shows_is_not_measured_and_never_zero(settings: Settings) -> None:
    rows = accounted(
        settings,
        bare=series(30, HOURS, power_w=500.0, gpu_util_pct=95.0),
        tensor=series(30, HOURS, power_w=500.0, gpu_util_pct=95.0, tensor_active=0.93),
    )
    assert rows["bare"]["measured_gpu_hours"] == 0
    assert rows["bare"]["effective_gpu_hours"] is None
    assert rows["bare"]["busy_gpu_hours"] == pytest.approx(HOURS, abs=0.05)
    assert pct(rows["tensor"], "effective_gpu_hours", "measured_gpu_hours") == pytest.approx(100)


def test_every_grouping_has_the_same_effective_hours(settings: Settings) -> None:
    with Warehouse.open_in_memory(settings) as warehouse:
        work = bursty(gpu_util_pct=95.0, tensor_active=0.465)
        # Who holds the device changes within an hour: it is read in five-minute cells.
        handed = batch({"a": work, "b": series(30, HOURS, gpu_util_pct=0.0, tensor_active=0.0)})
        rows = handed.rows.to_pylist()
        for row in rows[: HOURS * 120]:
            late = row["ts"] >= (T + timedelta(minutes=50)).replace(tzinfo=None)
            row["pod"] = "late" if late else "soon"
        warehouse.ingest(
            [type(handed)("sample", handed.rows.from_pylist(rows, handed.rows.schema))]
        )
        assert not pipeline.account(warehouse, WINDOW)[1]
        sums = {
            by: sum(
                row["effective_gpu_hours"] or 0
                for row in read_spend(warehouse, WINDOW, [by]).to_pylist()
            )
            for by in ("team", "workload", "model", "state", "node")
        }
        pods = {
            row["workload"].split("/")[-1]: row["effective_gpu_hours"]
            for row in read_spend(warehouse, WINDOW, ["workload"]).to_pylist()
        }
        states = {
            row["state"]: row["effective_gpu_hours"]
            for row in read_spend(warehouse, WINDOW, ["state"]).to_pylist()
        }
    assert sums == pytest.approx(dict.fromkeys(sums, 1.0), abs=0.01)
    assert pods["soon"] == pytest.approx(50 / 60 * 0.5, abs=0.02)
    assert pods["late"] == pytest.approx(70 / 60 * 0.5, abs=0.02)
    assert states["idle"] == pytest.approx(0, abs=0.01)
    assert states["productive"] == pytest.approx(1, abs=0.02)


def test_spend_says_it_beside_busy_time_and_the_total_is_no_sum_of_shares(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []

    def read(*parts: Any, **more: Any) -> Any:
        reads.append(more["by"])
        return read_spend(*parts, **more)

    monkeypatch.setattr(ledger_totals, "read_spend", read)
    devices = {
        "tensor": bursty(gpu_util_pct=95.0, tensor_active=0.465),
        "bare": series(30, HOURS, power_w=500.0, gpu_util_pct=95.0),
    }
    with Warehouse.open_in_memory(settings) as warehouse:
        warehouse.ingest([batch(devices)])
        pipeline.account(warehouse, WINDOW)
        result = ledger_totals.read_total_spend(
            warehouse, f"{T:%Y-%m-%dT%H}/{WINDOW.end:%Y-%m-%dT%H}", now=WINDOW.end, cluster=None,
            by=["workload"], view="loaded", share_unallocated=False,
        )  # fmt: skip
    assert reads == [["workload", "cluster"]], "the ledger is read once"
    rows = {row["workload"].split("-")[-1]: row for row in result.rows}
    assert rows["tensor"]["effective_pct"] == pytest.approx(25, abs=0.5)
    assert rows["tensor"]["busy_pct"] == pytest.approx(50, abs=0.7)
    assert rows["bare"]["effective_pct"] is None
    assert result.total["effective_pct"] == rows["tensor"]["effective_pct"]
    assert result.total["busy_pct"] == pytest.approx(75, abs=0.7)
    assert list(result.rows[0])[:3] == ["workload", "gpu_hours", "share_pct"], "beside its hours"
    (answer,) = [line for line in result.notes if "effective utilisation" in line]
    assert answer.startswith("effective utilisation is not measured for 4.0 of 8.0 GPU-hours held")
    assert '"effective_pct": null' in render(result.rows, "json", noun="spend")
