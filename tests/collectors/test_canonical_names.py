"""Names of every vendor and generation lead to the same columns."""

import csv
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.assemble import Assembled
from collectors.frame import HOLDING, SAMPLE
from collectors.series import Series, resolve
from fallow.tables import get_schema
from tests.collectors.coded import assemble

MOMENT = np.datetime64("2026-11-20T12:00:00", "us")
GPU = {
    "gpu": "3",
    "UUID": "GPU-1",
    "modelName": "NVIDIA H100 80GB HBM3",
    "Hostname": "node-a",
    "pod": "train-0",
    "namespace": "team-a",
    "container": "main",
}
GENERATIONS = [
    ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", 87.0),
    ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", 412.5),
    ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", 61.0),
    ("DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", 70.0),
    ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR", 31.0),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 4.0),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED", 1.0),
    (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
        2.0,
    ),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 0.5),
    ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO", 0.4),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO", 0.3),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO", 0.2),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_FP32_UTIL_RATIO", 0.1),
]


def rows_of(*looks: tuple[str, dict[str, str], float]) -> Assembled:
    series: list[Series] = []
    for metric, labels, _ in looks:
        found = resolve(metric, labels)
        assert found is not None, metric
        series.append(found)
    return assemble(
        series,
        np.arange(len(series)),
        np.full(len(series), MOMENT),
        np.array([value for _, _, value in looks]),
        cluster="test",
        interval_s=30,
        source="test",
    )


def one(made: Assembled, table: str = "sample") -> dict[str, object]:
    (batch,) = (b for b in made.batches if b.table == table)
    (row,) = batch.rows.to_pylist()
    return {name: value for name, value in row.items() if value is not None}


def test_dcgm_generations_give_equal_rows() -> None:
    old = rows_of(*((classic, GPU, value) for classic, _, value in GENERATIONS))
    new = rows_of(*((canonical, GPU, value) for _, canonical, value in GENERATIONS))
    assert one(old) == one(new)
    assert one(old)["gpu_util_pct"] == 87.0  # a ratio by name, a percentage by value


def test_hami_generations_give_equal_rows() -> None:
    host = {"node": "n1", "device_index": "0", "device_uuid": "GPU-9", "device_type": "NVIDIA-A"}
    host_old = {"nodeid": "n1", "deviceidx": "0", "deviceuuid": "GPU-9", "devicetype": "NVIDIA-A"}
    ctr = {"namespace": "a", "pod": "p", "container": "c", "device_uuid": "GPU-9"}
    ctr_old = {"podnamespace": "a", "podname": "p", "ctrname": "c", "deviceuuid": "GPU-9"}
    new = rows_of(
        ("hami_host_gpu_utilization_ratio", host, 55),
        ("hami_host_gpu_memory_used_bytes", host, 2**30),
        ("hami_container_device_utilization_ratio", ctr, 20),
        ("hami_vgpu_memory_used_bytes", ctr, 2**29),
        ("hami_container_last_kernel_elapsed_seconds", ctr, 7200),
        ("hami_vgpu_core_allocated_ratio", ctr, 30),
    )
    old = rows_of(
        ("HostCoreUtilization", host_old, 55),
        ("HostGPUMemoryUsage", host_old, 2**30),
        ("Device_utilization_desc_of_container", ctr_old, 20),
        ("vGPU_device_memory_usage_in_bytes", ctr_old, 2**29),
        ("Device_last_kernel_of_container", ctr_old, 7200),
        ("vGPUCoreAllocated", ctr_old, 30),
    )
    assert one(new) == one(old)
    assert one(new, "holding") == one(old, "holding")
    assert one(new)["gpu_util_pct"] == 55.0
    assert one(new)["vendor"] == "nvidia"
    assert one(new)["last_kernel_age_s"] == 7200.0
    assert one(new)["pod"] == "p"
    assert one(new)["sharers"] == 1
    held = one(new, "holding")
    assert (held["gpu_util_pct"], held["mem_used_bytes"]) == (20.0, 2**29)
    assert held["share"] == pytest.approx(0.3)


def test_no_core_limit_in_hami_is_no_share() -> None:
    labels = {"namespace": "a", "pod": "p", "node": "n", "device_uuid": "GPU-9"}
    assert "share" not in one(rows_of(("hami_vgpu_core_allocated_ratio", labels, 0)), "holding")


@pytest.mark.parametrize("prefix", ["", "amd_"])
def test_amd_units_become_ours(prefix: str) -> None:
    labels = {
        "gpu_id": "2",
        "gpu_uuid": "ccff74a1",
        "hostname": "amd-1",
        "card_series": "AMD Instinct MI300X",
        "gpu_partition_id": "0",
        "pod": "p",
        "namespace": "n",
    }
    row = one(
        rows_of(
            (f"{prefix}gpu_gfx_activity", labels, 93),
            (f"{prefix}gpu_used_vram", labels, 1024),
            (f"{prefix}gpu_total_vram", labels, 4096),
            (f"{prefix}gpu_energy_consumed", labels, 5_000_000),
            (f"{prefix}gpu_package_power", labels, 700),
        )
    )
    assert row["vendor"] == "amd"
    assert (row["device"], row["node"], row["gpu_index"]) == ("ccff74a1", "amd-1", 2)
    assert row["mem_used_bytes"] == 2**30
    assert row["mem_free_bytes"] == 3 * 2**30
    assert row["energy_mj"] == 5_000
    assert row["gpu_util_pct"] == 93.0


def test_secondary_amd_partitions_are_not_judged() -> None:
    labels = {"gpu_id": "2", "gpu_uuid": "x", "gpu_partition_id": "3", "hostname": "amd-1"}
    assert resolve("gpu_gfx_activity", labels) is None


def test_ascend_busiest_core_counts() -> None:
    labels = {
        "id": "1",
        "vdie_id": "D1",
        "model_name": "Ascend910B",
        "node": "npu-1",
        "namespace": "n",
        "pod_name": "p",
        "container_name": "c",
    }
    row = one(
        rows_of(
            ("npu_chip_info_utilization", labels, 0),
            ("npu_chip_info_overall_utilization", labels, 64),
            ("npu_chip_info_hbm_used_memory", labels, 100),
        )
    )
    assert row["gpu_util_pct"] == 64.0
    assert (row["vendor"], row["model"], row["pod"]) == ("ascend", "Ascend910B", "p")
    assert row["mem_used_bytes"] == 100 * 2**20
    # Memory in use is no memory traffic: mapped to traffic, no idle device would look idle.
    assert resolve("npu_chip_info_hbm_utilization", labels) is None


def test_openmetrics_counters_lose_their_suffix() -> None:
    plain = resolve("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", GPU)
    assert resolve("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total", GPU) == plain


@pytest.mark.parametrize("metric", ["go_goroutines", "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "", "up"])
def test_other_metrics_are_unknown(metric: str) -> None:
    assert resolve(metric, GPU) is None


def test_every_row_of_the_table_names_a_column() -> None:
    text = files("collectors").joinpath("metrics.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len({r["metric"] for r in rows}) == len(rows)
    for row in rows:
        legal = SAMPLE if row["table"] == "sample" else HOLDING
        assert row["column"] in legal, row["metric"]
        assert row["combine"] in {"max", "min", "or"}
        assert float(row["low"]) < float(row["high"])
        assert get_schema(row["table"]) is not None


@given(
    st.text(max_size=40), st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=6)
)
def test_no_labels_make_resolve_fail(metric: str, labels: dict[str, str]) -> None:
    assert resolve(metric, labels) is None
    resolve("DCGM_FI_DEV_GPU_UTIL", labels)
    resolve("hami_vgpu_memory_used_bytes", {"device_uuid": "G", **labels})
