"""Rows of devices that are scraped together are those of values that are placed one by one."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import aligned
from collectors.frame import build_batch
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import Matrix
from collectors.prometheus.telemetry import Telemetry
from collectors.series import read_metrics
from collectors.series_codes import Bools, SeriesCatalog
from fallow.settings.collectors import PrometheusSettings
from fallow.tables import Batch
from fallow.window import Window

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=1))
STEP_S = 60
GROUPS = (
    ("DCGM_FI_DEV_GPU_UTIL", "hami_core_utilization"),
    ("DCGM_FI_DEV_FB_USED", "gpu_used_vram"),
    ("DCGM_FI_DEV_FB_FREE",),
    ("gpu_total_vram",),
    ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_EXP_CLOCK_EVENTS_COUNT"),
)
"""Metrics of one column each."""
OWNERS: tuple[dict[str, str], ...] = (
    {},
    {"namespace": "a", "pod": "p"},
    {"namespace": "a", "pod": "q"},
)
KINDS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"GPU_I_ID": "1", "GPU_I_PROFILE": "3g.20gb"},
    {"modelName": "NVIDIA H100"},
    {"vgpu": "x"},
    {"clock_event": "gpu_idle"},
)
EVERY = tuple(range(6))


class Line(msgspec.Struct, frozen=True):
    """A series: its group, which of its metrics, device, labels, which minutes, its first value."""

    group: int
    device: int
    name: int = 0
    owner: int = 0
    kind: int = 0
    minutes: tuple[int, ...] = EVERY
    value: float = 1.0

    def list_labels(self) -> dict[str, str]:
        own = {"UUID": f"GPU-{self.device}", "gpu": str(self.device), "Hostname": "n1"}
        name = GROUPS[self.group][self.name % len(GROUPS[self.group])]
        return {"__name__": name, **own, **KINDS[self.kind], **OWNERS[self.owner]}


LINES = st.builds(
    Line,
    group=st.integers(0, len(GROUPS) - 1),
    device=st.integers(0, 2),
    name=st.integers(0, 1),
    owner=st.integers(0, len(OWNERS) - 1),
    kind=st.integers(0, len(KINDS) - 1),
    minutes=st.sampled_from([EVERY, EVERY[:3], EVERY[3:], (0, 2, 5)]),
    value=st.sampled_from([0.0, 1.0, 2.7, 90.0, 2147483632.0, float("nan")]),
)


def build_fleet(metrics: int, devices: int) -> list[Line]:
    return [Line(m, d, owner=d % 3, value=1.0 + m) for m in range(metrics) for d in range(devices)]


def build_matrices(lines: Sequence[Line]) -> list[Matrix]:
    """Return an answer for each group; a label set occurs once."""
    by_labels = {msgspec.json.encode(line.list_labels()): line for line in lines}
    parts: dict[int, list[Matrix]] = {}
    for text, line in sorted(by_labels.items()):
        minutes = np.array(line.minutes)
        ts = np.datetime64("2026-11-20T12:00:07", "us") + minutes * np.timedelta64(STEP_S, "s")
        matrix = Matrix([text], np.array([len(ts)]), ts, line.value + minutes)
        parts.setdefault(line.group, []).append(matrix)
    return [Matrix.joined(of_group) for _, of_group in sorted(parts.items())]


def read_rows(lines: Sequence[Line]) -> tuple[list[Batch], int]:
    """Return the batches, and how many values were rejected."""
    client = PrometheusClient(PrometheusSettings(url="http://localhost:1"))
    telemetry = Telemetry(client, cluster="c", step=timedelta(seconds=STEP_S))
    chunk = telemetry.chunk(WINDOW, iter(build_matrices(lines)))
    return list(telemetry.batches(chunk)), chunk.rejected


def place_one_by_one(lines: Sequence[Line]) -> tuple[list[Batch], int]:
    """Return what `read_rows` returns where no device is aligned."""

    def find_none(catalog: SeriesCatalog, *_: object) -> Bools:
        return np.zeros(len(catalog.devices), np.bool_)

    with mock.patch.object(aligned, "_find_simple_devices", find_none):
        return read_rows(lines)


def count_rows(batches: Sequence[Batch]) -> Counter[str]:
    return Counter(f"{b.table} {row}" for b in batches for row in b.rows.to_pylist())


UNALIGNED = {
    "owners differ by metric": [Line(0, 0, owner=1), Line(1, 0, owner=2)],
    "two owners at once": [Line(g, 0, owner=o) for g in (0, 1) for o in (1, 2)],
    "other times in between": [Line(0, 0, minutes=(0, 2, 5)), Line(1, 0, minutes=(0, 1, 5))],
    "an instance": [Line(0, 0, kind=2), Line(1, 0)],
    "models differ by metric": [Line(0, 0, kind=3), Line(1, 0)],
    "only in the second metric": [Line(0, 0), Line(1, 1, minutes=(0, 1))],
}
ALIGNED = {
    "an owner after the other": [
        Line(g, 0, owner=o, minutes=m) for g in (0, 1) for o, m in ((1, EVERY[:3]), (2, EVERY[3:]))
    ],
    "two metrics of a column": [Line(0, 0), Line(4, 0), Line(4, 0, name=1, value=90.0)],
    "bits of two series": [Line(0, 0), Line(5, 0, value=4.0), Line(5, 0, name=1, kind=5)],
    "total memory instead of free": [Line(1, 0, name=1), Line(3, 0, value=9.0)],
}


@pytest.mark.parametrize("case", [*UNALIGNED, *ALIGNED])
def test_each_case_has_the_rows_of_values_placed_one_by_one(case: str) -> None:
    lines = (UNALIGNED | ALIGNED)[case]
    (batches, rejected), (others, others_rejected) = read_rows(lines), place_one_by_one(lines)
    assert count_rows(batches) == count_rows(others)
    assert rejected == others_rejected
    with mock.patch.object(aligned, "build_batch", wraps=build_batch) as built:
        read_rows(lines)
    devices = {line.device for line in lines}
    assert built.call_count == (case in ALIGNED or len(devices) > 1), "who is aligned"


@given(
    st.integers(1, len(GROUPS)), st.integers(1, 3), st.lists(LINES, max_size=4), st.integers(0, 4)
)
def test_rows_are_those_of_values_placed_one_by_one(
    metrics: int, devices: int, more: list[Line], skipped: int
) -> None:
    lines = [*build_fleet(metrics, devices)[skipped:], *more, Line(0, 0)]
    (batches, rejected), (others, others_rejected) = read_rows(lines), place_one_by_one(lines)
    assert count_rows(batches) == count_rows(others)
    assert rejected == others_rejected


def test_a_device_scraped_together_is_aligned_beside_one_that_is_not() -> None:
    lines = [*build_fleet(2, 2), Line(4, 0, value=7.5), Line(4, 1, minutes=(0, 2, 5))]
    with mock.patch.object(aligned, "build_batch", wraps=build_batch) as built:
        batches, _ = read_rows(lines)
    assert built.call_count == 1
    first, second = (batch.rows.to_pylist() for batch in batches)
    assert [(r["device"], r["power_w"]) for r in first] == [("GPU-0", 7.5 + n) for n in range(6)]
    powers = [1.0, None, 3.0, None, None, 6.0]
    assert [(r["device"], r["power_w"]) for r in second] == [("GPU-1", power) for power in powers]


def test_metrics_of_one_column_have_one_rule_of_what_several_are() -> None:
    rules: dict[str, set[str]] = {}
    for measure in read_metrics().values():
        rules.setdefault(f"{measure.table}.{measure.column}", set()).add(measure.combine)
    assert not {column: found for column, found in rules.items() if len(found) > 1}
