"""Which samples are read for a verdict, in which parts and order, by hand."""

from datetime import UTC, timedelta
from typing import Any, cast

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from analyzers.idle import samples
from analyzers.idle.rows import RollupMeasures, SampleCounts
from analyzers.idle.samples import (
    SampleQuery,
    build_parameters,
    plan_query,
    read_parts,
    read_shortest_interval_s,
)
from analyzers.idle.spans import MEASURES
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from tests.analyzers.queried import HOUR, T, TableViews, at
from warehouse.signals.runs import BLIND, BUSY, CONFLICT, IDLE, MICRO, DeviceSamples


def hour() -> Window:
    return Window(T.replace(tzinfo=UTC), (T + HOUR).replace(tzinfo=UTC))


def devices(*intervals: float | None, **columns: Any) -> Any:
    """Return views with an allocated device per interval."""
    names = {"cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w"}
    held = [
        {**names, "device": f"d{n}", "pod": "p", "pod_uid": "u", "start": at(0), "end": at(60)}
        for n in range(len(intervals))
    ]
    known = [
        {"cluster": "c", "device": f"d{n}", "interval_s": interval, "node": "n",
         "model": "NVIDIA H100 80GB HBM3", "weight": 1.0, **columns}
        for n, interval in enumerate(intervals)
    ]  # fmt: skip
    return TableViews(allocation=held, device=known)


def test_settings_are_checked_against_the_fastest_device() -> None:
    assert read_shortest_interval_s(devices(300.0, 30.0, 60.0), hour()) == 30.0
    assert read_shortest_interval_s(devices(None, 60.0), hour()) == 60.0
    assert read_shortest_interval_s(devices(None), hour()) is None
    assert read_shortest_interval_s(devices(), hour()) is None


def plan(
    monkeypatch: pytest.MonkeyPatch,
    counted: tuple[int, int],
    *,
    every: bool = False,
    accounted: tuple[int | None, int | None] = (None, None),
    **settings: Any,
) -> SampleQuery:
    monkeypatch.setattr(samples, "count_samples", lambda *_: SampleCounts(*counted, *accounted))
    measures = RollupMeasures(energy=True, traffic=False, procs=True, kernels=False, every=every)
    monkeypatch.setattr(samples, "read_measures", lambda *_: measures)
    return plan_query(devices(30.0, 60.0), hour(), IdleSettings(**settings))


@pytest.mark.parametrize(
    ("counted", "source", "rows"),
    [
        ((10, 10), "sample", 10),
        ((9, 10), "rollup_5m", 10),  # raw samples are no longer complete
        ((11, 10), "sample", 11),
        ((30_000_000, 0), "sample", 30_000_000),
        ((30_000_001, 7), "rollup_5m", 7),
        ((0, 0), "sample", 0),
    ],
)
def test_raw_samples_are_read_where_they_are_complete_and_at_most_thirty_million(
    monkeypatch: pytest.MonkeyPatch, counted: tuple[int, int], source: str, rows: int
) -> None:
    chosen = plan(monkeypatch, counted)
    assert (chosen.source, chosen.rows) == (source, rows)
    assert ("every" in chosen.parameters) is (source == "rollup_5m")


@pytest.mark.parametrize(("counted", "rows"), [((10, 10), 90.0), ((0, 10), 12.0)])
def test_a_plan_knows_the_rows_of_its_own_devices_not_those_of_the_fleet(
    monkeypatch: pytest.MonkeyPatch, counted: tuple[int, int], rows: float
) -> None:
    """In an hour a device has 120 samples of 30 s, one 60 of 60 s; each has 12 five minutes."""
    assert plan(monkeypatch, counted).rows_per_device == rows


def test_a_plan_has_the_devices_with_the_power_of_their_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = plan(monkeypatch, (10, 0), accounted=(5, 9))
    assert chosen.devices["number"].to_list() == [0, 1]
    assert chosen.devices["gpu_model"].to_list() == ["H100"] * 2
    assert chosen.devices["tdp_w"].to_list() == [700.0] * 2
    assert chosen.accounted == (5, 9)
    assert plan(monkeypatch, (10, 0)).accounted == (0, 0)


def test_the_exit_threshold_is_never_below_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = plan(monkeypatch, (10, 0), threshold=0.2, exit_threshold=0.1)
    assert (chosen.parameters["threshold"], chosen.parameters["exit_threshold"]) == (0.2, 0.2)
    chosen = plan(monkeypatch, (10, 0), threshold=0.02, exit_threshold=0.1)
    assert (chosen.parameters["threshold"], chosen.parameters["exit_threshold"]) == (0.02, 0.1)


@pytest.mark.parametrize(
    ("gap_s", "every", "barriers", "read_every"),
    [
        (None, False, False, False),
        (None, True, False, True),
        (300, False, False, False),
        (301, False, True, True),
        (301, True, True, True),
    ],
)
def test_busy_buckets_are_read_where_a_gap_may_extend_over_them(
    monkeypatch: pytest.MonkeyPatch, gap_s: int | None, *, every: bool, barriers: bool,
    read_every: bool,
) -> None:  # fmt: skip
    gap = None if gap_s is None else timedelta(seconds=gap_s)
    parameters = plan(monkeypatch, (0, 10), every=every, max_gap=gap).parameters
    assert (parameters["barriers"], parameters["every"]) == (barriers, read_every)
    assert parameters["max_gap_s"] == gap_s
    assert (parameters["energy"], parameters["traffic"]) == (True, False)


QUERY_DEVICES: dict[str, Any] = {
    "number": [0, 1, 2, 3], "cluster": ["c"] * 4, "device": ["d0", "d1", "d2", "d3"],
    "parent": [None, "d9", None, None], "tdp_w": [700.0, 700.0, 400.0, None],
    "prior_w": [120.0, 120.0, 60.0, None], "gpu_model": ["H100", "H100", "A100", None],
}  # fmt: skip


IDLE_POWER = pa.schema(
    {"k": pa.int64(), "gpu_model": pa.string(), "band_w": pa.float64(), "band": pa.string()}
)


def query_of(source: str, rows: int) -> SampleQuery:
    parameters = {"since": T, "until": T + HOUR, "threshold": 0.05}
    devices = pl.DataFrame(QUERY_DEVICES)
    return SampleQuery(source, rows, devices, rows / devices.height, parameters)


def test_parameters_name_the_devices_of_a_part() -> None:
    chosen = query_of("sample", 9)
    made = build_parameters(chosen, chosen.devices[1:3])
    assert (made["numbers"], made["first"], made["last"]) == ([1, 2], "d1", "d2")
    assert (made["whole_gpus"], made["half_tdp_w"]) == ([False, True], [350.0, 200.0])
    assert made["context_w"] == [120.0, 60.0]
    assert "half_tdp_w" not in build_parameters(query_of("rollup_5m", 9), chosen.devices)


class Parts:
    """Views that answer with rows by hand, and note the devices that were asked for."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.numbers: list[list[int]] = []
        self._rows = rows

    def query(self, sql: str, parameters: Any = None) -> pa.Table:
        if "frozen" in sql:
            self.numbers.append(parameters["numbers"])
            names = {"device": pa.int64(), "bucket_us": pa.int64(), "low": pa.bool_(),
                     "frozen": pa.bool_()}  # fmt: skip
            return pa.table({name: pa.array([], kind) for name, kind in names.items()})
        if "numbers" not in parameters:
            return pa.Table.from_pylist([], IDLE_POWER)
        listed = [row for row in self._rows if row["device"] in parameters["numbers"]]
        base = dict.fromkeys(("device", "at", "interval_s", "samples", "kind", "peak", *MEASURES))
        types = {name: pa.float64() for name in base} | {
            "device": pa.int64(), "at": pa.int64(), "kind": pa.int8(), "samples": pa.int64(),
            "peak": pa.bool_(),
        }  # fmt: skip
        return pa.table({n: pa.array([r.get(n) for r in listed], types[n]) for n in base})


def sample(device: int, second: int, **columns: Any) -> dict[str, Any]:
    base = {"device": device, "at": second * MICRO, "interval_s": 60.0, "samples": 1, "kind": IDLE}
    return base | columns


def parts_of(
    source: str, rows: int, *listed: dict[str, Any], **settings: Any
) -> tuple[list[list[int]], list[DeviceSamples]]:
    views: Any = Parts(list(listed))
    read = list(read_parts(views, query_of(source, rows), IdleSettings(**settings)))
    return views.numbers, read


@pytest.mark.parametrize(
    ("source", "rows", "numbers"),
    [
        ("sample", 5, [[0, 1, 2, 3]]),
        ("sample", 10, [[0, 1], [2, 3]]),
        ("sample", 7, [[0, 1], [2, 3]]),
        ("sample", 6, [[0, 1, 2], [3]]),
        ("sample", 60, [[0], [1], [2], [3]]),
        ("sample", 0, [[0, 1, 2, 3]]),
        ("rollup_5m", 60, [[0, 1], [2, 3]]),
        ("rollup_5m", 5, [[0, 1, 2, 3]]),
    ],
)
def test_devices_are_read_in_parts_of_a_bounded_number_of_samples(
    monkeypatch: pytest.MonkeyPatch, source: str, rows: int, numbers: list[list[int]]
) -> None:
    monkeypatch.setattr(samples, "PER_PART", {"sample": 5, "rollup_5m": 30})
    wanted, read = parts_of(source, rows)
    assert wanted == numbers
    assert len(read) == len(numbers)


def test_without_devices_there_are_no_parts() -> None:
    views: Any = Parts([])
    nothing = SampleQuery("sample", 0, pl.DataFrame(QUERY_DEVICES).clear(), 0.0, {})
    assert list(read_parts(views, nothing, IdleSettings())) == []


def test_a_device_has_the_idle_power_of_its_model_where_only_some_are_read() -> None:
    """Number 2 has a prior of 60 W, number 1 of 120 W: 100 W is above the first alone."""
    chosen = query_of("sample", 4)
    some = msgspec.structs.replace(chosen, devices=chosen.devices[1:3], accounted=(0, 1))
    rows = [sample(number, 60, power_w=100.0) for number in (1, 2)]
    (part,) = read_parts(cast("Any", Parts(rows)), some, IdleSettings())
    assert part.kind.tolist() == [IDLE, CONFLICT]


def test_samples_are_in_the_order_of_device_and_time() -> None:
    (read,) = parts_of(
        "sample", 1,
        sample(1, 60, power_w=4.0), sample(0, 120, power_w=3.0), sample(0, 0, power_w=1.0),
        sample(0, 60, power_w=2.0, kind=BUSY), sample(1, 0, kind=BLIND), sample(1, 120),
    )[1]  # fmt: skip
    assert read.device.tolist() == [0, 0, 0, 1, 1]
    assert (read.at // MICRO).tolist() == [0, 60, 120, 60, 120]
    assert read.kind.tolist() == [IDLE, BUSY, IDLE, IDLE, IDLE]
    assert read.measures["power_w"][:4].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert np.isnan(read.measures["power_w"][4])
    assert np.isnan(read.measures["activity"]).all()
    assert len(read) == 5


@pytest.mark.parametrize("shift", [0, 10**6])
def test_constant_and_ordered_columns_keep_their_values(shift: int) -> None:
    rows = [sample(n // 2, shift + 60 * n, power_w=7.0, procs=float(n)) for n in range(4)]
    (read,) = parts_of("sample", 1, *rows)[1]
    assert read.measures["power_w"].tolist() == [7.0] * 4
    assert read.measures["procs"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert read.device.tolist() == [0, 0, 1, 1]
    assert not read.bucketed


@pytest.mark.parametrize(
    ("source", "intervals", "gap_s", "validity", "gaps"),
    [
        ("sample", (60.0, 60.0), None, [60, 60], [180, 180]),
        ("sample", (60.0, 30.0), None, [60, 30], [180, 90]),
        ("sample", (60.0, 30.0), 100, [60, 30], [100, 100]),
        ("sample", (60.0, 60.0), 0, [60, 60], [0, 0]),
        ("rollup_5m", (60.0, 30.0), None, [300, 300], [300, 300]),
        ("rollup_5m", (60.0, 120.0), None, [300, 300], [300, 360]),
        ("rollup_5m", (60.0, 60.0), 400, [300, 300], [400, 400]),
    ],
)
def test_a_sample_is_valid_for_its_interval_and_a_gap_is_three_of_them(
    source: str, intervals: tuple[float, float], gap_s: int | None, validity: list[int],
    gaps: list[int],
) -> None:  # fmt: skip
    rows = [sample(n, 0, interval_s=interval) for n, interval in enumerate(intervals)]
    max_gap = None if gap_s is None else timedelta(seconds=gap_s)
    (read,) = parts_of(source, 1, *rows, max_gap=max_gap)[1]
    assert (read.validity // MICRO).tolist() == validity
    assert (read.gap // MICRO).tolist() == gaps
    assert read.bucketed is (source == "rollup_5m")
    assert read.interval_s.tolist() == list(intervals)
