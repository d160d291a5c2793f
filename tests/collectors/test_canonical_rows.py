"""Values become one row per moment and device; what cannot be true becomes null."""

import numpy as np
import pytest

from collectors.assemble import Assembled
from collectors.series import resolve
from fallow.tables import Batch
from tests.collectors.coded import assemble

MOMENT = np.datetime64("2026-11-20T12:00:00", "us")


def gpu(uuid: str = "GPU-1", **more: str) -> dict[str, str]:
    return {"gpu": "0", "UUID": uuid, "Hostname": "n1", **more}


def made(*looks: tuple[str, dict[str, str], float], minutes: list[int] | None = None) -> Assembled:
    series = [resolve(metric, labels) for metric, labels, _ in looks]
    assert None not in series
    offsets = np.array(minutes or [0] * len(looks)) * np.timedelta64(60, "s")
    return assemble(
        [s for s in series if s is not None],
        np.arange(len(looks)),
        MOMENT + offsets,
        np.array([value for _, _, value in looks], np.float64),
        cluster="test",
        interval_s=30,
        source="test",
    )


def rows(result: Assembled, table: str = "sample") -> list[dict[str, object]]:
    found: list[Batch] = [b for b in result.batches if b.table == table]
    return [row for batch in found for row in batch.rows.to_pylist()]


BAD = [
    ("DCGM_FI_DEV_GPU_UTIL", 2147483632.0),
    ("DCGM_FI_DEV_GPU_UTIL", 2147483635.0),
    ("DCGM_FI_DEV_GPU_UTIL", 101.0),
    ("DCGM_FI_DEV_GPU_UTIL", -1.0),
    ("DCGM_FI_DEV_MEMORY_TEMP", 9223372036854775794.0),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 9223372036854775792.0),
    ("DCGM_FI_DEV_FB_USED", 2147483634.0),
    ("DCGM_FI_DEV_FB_USED", 9223372036854775794.0),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 140737488355328.0),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.5),
    ("DCGM_FI_DEV_POWER_USAGE", 140737488355331.0),
    ("DCGM_FI_DEV_POWER_USAGE", float("nan")),
    ("DCGM_FI_DEV_POWER_USAGE", float("inf")),
    ("DCGM_FI_DEV_POWER_USAGE", -5.0),
    ("DCGM_FI_DEV_XID_ERRORS", 2147483633.0),
    ("DCGM_FI_DEV_SM_CLOCK", 2147483632.0),
]


@pytest.mark.parametrize(("metric", "value"), BAD)
def test_blanks_and_impossible_values_are_null_and_counted(metric: str, value: float) -> None:
    found = resolve(metric, gpu())
    assert found is not None
    result = made((metric, gpu(), value), ("DCGM_FI_DEV_GPU_TEMP", gpu(), 40))
    (row,) = rows(result)
    assert row[found.column] is None
    assert row["temp_c"] == 40.0
    assert result.rejected == 1
    assert result.refused.tolist() == [True, False]


@pytest.mark.parametrize(
    ("model", "watts", "read"),
    [
        ("Tesla T4", 0.0, None),
        ("Tesla T4", 5.4, None),
        ("Tesla T4", 5.5, 5.5),
        ("NVIDIA H100 80GB HBM3", 34.0, None),
        ("NVIDIA H100 80GB HBM3", 35.0, 35.0),
        ("a model that nobody knows", 0.0, 0.0),
    ],
)
def test_less_than_half_of_what_an_unused_gpu_uses_is_no_reading_of_power(
    model: str, watts: float, read: float | None
) -> None:
    labels = gpu(modelName=model)
    result = made(("DCGM_FI_DEV_POWER_USAGE", labels, watts), ("DCGM_FI_DEV_GPU_TEMP", labels, 40))
    (row,) = rows(result)
    assert row["power_w"] == read
    assert result.rejected == (read is None)


def test_energy_may_exceed_int32() -> None:
    (row,) = rows(made(("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu(), 823_456_789_012)))
    assert row["energy_mj"] == 823_456_789_012


def test_zero_stays_zero_and_missing_stays_null() -> None:
    (row,) = rows(made(("DCGM_FI_DEV_GPU_UTIL", gpu(), 0)))
    assert row["gpu_util_pct"] == 0.0
    assert row["power_w"] is None
    assert row["throttle_mask"] is None


def test_clock_events_are_ored() -> None:
    name = "DCGM_EXP_CLOCK_EVENTS_COUNT"
    (row,) = rows(
        made(
            (name, gpu(clock_event="gpu_idle"), 3),
            (name, gpu(clock_event="power_cap"), 1),
            (name, gpu(clock_event="hw_thermal"), 0),
        )
    )
    assert row["throttle_mask"] == 0x1 | 0x4
    (quiet,) = rows(made((name, gpu(clock_event="gpu_idle"), 0)))
    assert quiet["throttle_mask"] == 0
    assert resolve(name, gpu(clock_event="new_kind")) is None


def test_copies_for_several_pods_are_one_row_and_holdings() -> None:
    a, b = gpu(vgpu="0", pod="a", namespace="x"), gpu(vgpu="1", pod="b", namespace="y")
    result = made(
        ("DCGM_FI_DEV_POWER_USAGE", a, 300),
        ("DCGM_FI_DEV_POWER_USAGE", b, 300),
        ("DCGM_FI_DEV_GPU_UTIL", gpu(), 70),
        ("DCGM_FI_DEV_GPU_UTIL", a, 60),
        ("DCGM_FI_DEV_GPU_UTIL", b, 10),
        ("DCGM_FI_DEV_FB_USED", a, 100),
        ("DCGM_FI_DEV_FB_USED", b, 0),
    )
    (row,) = rows(result)
    assert (row["pod"], row["namespace"], row["sharers"]) == (None, None, 2)
    assert (row["power_w"], row["gpu_util_pct"]) == (300.0, 70.0)
    held = {h["pod"]: h for h in rows(result, "holding")}
    assert set(held) == {"a", "b"}
    assert (held["a"]["gpu_util_pct"], held["b"]["gpu_util_pct"]) == (60.0, 10.0)
    assert held["a"]["mem_used_bytes"] == 100 * 2**20
    assert held["a"]["share"] is None


def test_old_exporters_copies_stand_for_the_device() -> None:
    labels = [gpu(vgpu=str(i), pod=p, namespace="x") for i, p in enumerate("ab")]
    result = made(
        *(("DCGM_FI_DEV_GPU_UTIL", at, 80) for at in labels),
        *(("DCGM_FI_DEV_POWER_USAGE", at, 250) for at in labels),
    )
    (row,) = rows(result)
    assert row["gpu_util_pct"] == 80.0


def test_two_pods_without_share_label_share_too() -> None:
    result = made(
        ("DCGM_FI_DEV_GPU_UTIL", gpu(pod="a", namespace="x"), 5),
        ("DCGM_FI_DEV_GPU_UTIL", gpu(pod="b", namespace="x"), 5),
    )
    (row,) = rows(result)
    assert (row["pod"], row["sharers"]) == (None, 2)
    assert {h["pod"] for h in rows(result, "holding")} == {"a", "b"}


def test_two_containers_of_one_pod_do_not_share() -> None:
    result = made(
        ("DCGM_FI_DEV_GPU_UTIL", gpu(pod="a", namespace="x", container="c1"), 5),
        ("DCGM_FI_DEV_GPU_TEMP", gpu(pod="a", namespace="x", container="c2"), 50),
    )
    (row,) = rows(result)
    assert (row["pod"], row["sharers"]) == ("a", None)
    assert not rows(result, "holding")


def test_owners_change_over_time() -> None:
    result = made(
        ("DCGM_FI_DEV_GPU_UTIL", gpu(pod="a", namespace="x"), 5),
        ("DCGM_FI_DEV_GPU_UTIL", gpu(pod="b", namespace="x"), 6),
        ("DCGM_FI_DEV_GPU_UTIL", gpu(), 7),
        minutes=[0, 5, 7],
    )
    assert [(r["pod"], r["gpu_util_pct"], r["sharers"]) for r in rows(result)] == [
        ("a", 5.0, None),
        ("b", 6.0, None),
        (None, 7.0, None),
    ]
    assert rows(result)[1]["ts"] == (MOMENT + np.timedelta64(300, "s")).item()


def test_a_board_beside_its_instances_is_folded_into_them() -> None:
    instance = gpu(GPU_I_ID="1", GPU_I_PROFILE="3g.20gb")
    result = made(
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", instance, 0.5),
        ("DCGM_FI_DEV_POWER_USAGE", gpu(), 222),
        ("DCGM_FI_DEV_GPU_UTIL", gpu(), 99),
    )
    (row,) = rows(result)
    assert (row["device"], row["power_w"]) == ("GPU-1/gi1", 222.0)
    assert row["gpu_util_pct"] is None  # the board's busyness is not this instance's


def test_sources_of_one_device_meet_in_one_row() -> None:
    hami = {"device_uuid": "GPU-1", "device_type": "NVIDIA-H100"}
    (row,) = rows(
        made(
            ("DCGM_FI_DEV_POWER_USAGE", gpu(modelName="NVIDIA H100"), 300),
            ("hami_host_gpu_memory_controller_utilization_ratio", hami, 12),
        )
    )
    assert (row["model"], row["node"], row["vendor"]) == ("NVIDIA H100", "n1", "nvidia")
    assert (row["power_w"], row["mem_copy_util_pct"]) == (300.0, 12.0)


def test_index_says_which_series_a_value_belongs_to() -> None:
    series = [resolve("DCGM_FI_DEV_GPU_UTIL", gpu(f"GPU-{i}")) for i in range(3)]
    result = assemble(
        [s for s in series if s],
        np.array([2, 0, 2]),
        MOMENT + np.array([0, 0, 1]) * np.timedelta64(30, "s"),
        np.array([10.0, 20.0, 30.0]),
        cluster="c",
        interval_s=15,
        source="s",
    )
    got = {(r["device"], r["gpu_util_pct"]) for r in rows(result)}
    assert got == {("GPU-2", 10.0), ("GPU-0", 20.0), ("GPU-2", 30.0)}


def test_scattered_moments_need_no_grid() -> None:
    offsets = np.array([0, 1, 86_400_000_000 * 300 + 7, 5_000_003])
    series = resolve("DCGM_FI_DEV_GPU_UTIL", gpu())
    assert series is not None
    result = assemble(
        [series],
        np.zeros(4, np.int64),
        MOMENT + offsets.astype("timedelta64[us]"),
        np.arange(4.0),
        cluster="c",
        interval_s=15,
        source="s",
    )
    assert [r["gpu_util_pct"] for r in rows(result)] == [0.0, 1.0, 3.0, 2.0]


def test_nothing_gives_nothing() -> None:
    assert made().batches == []
