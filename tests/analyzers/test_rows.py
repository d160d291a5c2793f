"""The records of rows are what the queries return: the same columns, of the same types."""

import importlib
import inspect
import types
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import polars as pl
import pyarrow as pa
import pytest

from analyzers.anomalies.changes import SpendChange
from analyzers.anomalies.series import SeriesKey
from analyzers.idle.samples import WHOLE
from analyzers.pending import MeasureTimes
from analyzers.services.rows import RequestedObjective
from analyzers.stalled.limits import read_limits
from fallow.rows import Row, decode_rows
from fallow.settings.datapath import DatapathSettings
from fallow.window import Window
from tests.analyzers.conftest import Memory
from warehouse.signals import SPIN

ANALYZERS = Path(__file__).resolve().parents[2] / "analyzers"
WINDOW = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
SINCE, UNTIL = WINDOW.bounds().values()
TIMES = MeasureTimes(["c"], [1], [SINCE], [False])
ARGUMENTS: dict[str, Any] = {
    "window": WINDOW,
    "since": SINCE,
    "until": UNTIL,
    "recent": SINCE,
    "bounds": WINDOW.bounds(),
    "span": WINDOW.bounds(),
    "lookback": timedelta(days=14),
    "least_gpu_hours": 1.0,
    "shape": "",
    "owners": [("c", "ml", "Job", "w")],
    "objectives": [RequestedObjective(("c", "ml", "Job", "w"), "e2e", 1.0, 0.99)],
    "bucket": WHOLE,
    "uids": ["u"],
    "raw": True,
    "lead": timedelta(minutes=5),
    "clusters": ["c"],
    "stills": ["c"],
    "cluster": "c",
    "workload": "ml/Job/w",
    "nodes": ["n"],
    "kinds": ["Job"],
    "reasons": ["Rebooted"],
    "parts": 2,
    "unseen_s": 600,
    "lookback_s": 900.0,
    "settings": DatapathSettings(),
    "above": None,
    "datasets": [],
    "pods": [("c", "ml", "p")],
    "times": TIMES,
    "starts": [{"gang": 0, "cluster": "c", "model": "m", "started_at": 0}],
    "devices": [{"gang": 0, "cluster": "c", "device": "d", "since": 0, "until": 1}],
}
"""What the parameters of the functions that read rows may be, by name."""
STALLED = {
    **SPIN, **read_limits(), **WINDOW.bounds(), "kinds": ["Job"], "chosen": [0], "all_pods": True,
    "least_s": 600.0, "pods": [0],
}  # fmt: skip
PARAMETERS: dict[str, tuple[str, ...]] = {
    "read_job_pods": ("since", "until", "kinds", "chosen", "all_pods"),
    "read_quiet": (
        "since", "until", "kinds", "chosen", "all_pods", "least_s", "spin_engine", "spin_tensor",
        "spin_dram", "spin_sm", "spin_bps", "rest_engine", "most_gap", "still_readings", "still_s",
    ),
    "read_unchanged": ("since", "until", "pods", "most_gap"),
}  # fmt: skip
"""By the reader: the names of `STALLED` that its query has."""
TYPES: dict[type, Callable[[pa.DataType], Any]] = {
    bool: pa.types.is_boolean,
    int: pa.types.is_integer,
    float: lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind),
    str: pa.types.is_string,
    Decimal: pa.types.is_decimal,
    datetime: pa.types.is_timestamp,
    timedelta: pa.types.is_duration,
    list: pa.types.is_list,
}


def list_readers() -> Iterator[tuple[str, str]]:
    """Yield the module and name of each function that reads rows, not columns, from views."""
    for path in [ANALYZERS / "rows.py", *sorted(ANALYZERS.glob("*/rows.py"))]:
        module = ".".join(("analyzers", *path.relative_to(ANALYZERS).with_suffix("").parts))
        for name, function in vars(importlib.import_module(module)).items():
            own = inspect.isfunction(function) and function.__module__ == module
            signature = inspect.signature(function) if own else inspect.Signature()
            columns = signature.return_annotation is pl.DataFrame
            if "views" in signature.parameters and not columns:
                yield module, name


def fits(kind: pa.DataType, annotation: Any) -> bool:
    """Return whether the values of a column can be those of a field."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return any(fits(kind, part) for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        return bool(pa.types.is_string(kind))
    if get_origin(annotation) is list:
        return pa.types.is_list(kind) and fits(kind.value_type, get_args(annotation)[0])
    return bool(TYPES[annotation](kind))


def choose_arguments(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    special: dict[str, Any] = {}
    if name == "read_spend":
        key = SeriesKey("c", "t", "")
        special["changes"] = [SpendChange(
            key=key, measure="spend", start=WINDOW.start, end=WINDOW.end, onset=WINDOW.start,
            hours=1, score=1.0, spike=True, weeks=4, change=Decimal(1), causes={},
            gpu_hours=Fraction(1), gpu_hours_usual=Fraction(), usd=None, usd_usual=None, by=(),
        )]  # fmt: skip
    if name == "read_pending_requests":
        special["times"] = {"clusters": ["c"], "nths": [1], "times": [SINCE], "stills": [False]}
    if name == "read_node_pods":
        special["times"] = []
    if name == "read_idle_power":
        special["times"] = [SINCE, UNTIL]
    if name in {"read_presence", "read_rank_activity"}:
        special["pods"] = [0]
    if name == "read_compute_shares":
        special["parameters"] = {
            **WINDOW.bounds(), "exit_threshold": 0.05, "spans": [0], "clusters": ["c"],
            "devices": ["d"], "starts": [0], "ends": [1],
        }  # fmt: skip
    if name in PARAMETERS:
        special["parameters"] = {key: STALLED[key] for key in PARAMETERS[name]}
    wanted = inspect.signature(function).parameters.keys() - {"views"}
    return {parameter: {**ARGUMENTS, **special}[parameter] for parameter in wanted}


@pytest.mark.parametrize(("module", "name"), [*list_readers()])
def test_a_record_has_the_columns_and_types_of_its_query(
    module: str, name: str, views: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    queried: list[tuple[pa.Schema, type[Row]]] = []

    def decode(table: pa.Table, record: type[Row]) -> list[Row]:
        queried.append((table.schema, record))
        return decode_rows(table, record)

    rows = importlib.import_module(module)
    monkeypatch.setattr(rows, "decode_rows", decode)
    function = getattr(rows, name)
    function(views=views, **choose_arguments(name, function))
    assert queried
    for schema, record in queried:
        hints = get_type_hints(record)
        wrong = {c.name: str(c.type) for c in schema if not fits(c.type, hints[c.name])}
        assert not wrong, record


def test_a_column_of_another_type_is_none() -> None:
    assert fits(pa.int64(), int | None)
    assert not fits(pa.decimal128(38, 0), int)
    assert not fits(pa.list_(pa.int64()), list[str])


@pytest.mark.parametrize("unknown", ["workload_kind", "first_seen", "team", "labels"])
def test_a_pod_of_which_something_is_unknown_ends_no_reader(views: Memory, unknown: str) -> None:
    hour = SINCE + timedelta(hours=1)
    pod = {"cluster": "c", "namespace": "ml", "pod": "p"}
    known = {
        "workload_kind": "Job", "workload": "w", "team": "t", "labels": "{}", "annotations": "{}",
        "node": "n", "gpu_request": 1.0, "created_at": SINCE, "scheduled_at": SINCE,
        "first_seen": SINCE, "last_seen": UNTIL,
    }  # fmt: skip
    views.rows("pod", [{**pod, "uid": "u", **known, unknown: None}])
    views.rows("pod_sample", [{**pod, "ts": hour, "interval_s": 60.0, "fs_read_bps": 1e9}])
    measures = {"act_n": 60, "act_mean": 0.5, "covered_s": 3600.0, "low_s": 0.0, "busy_s": 3600.0}
    views.rows("rollup_1h", [{**pod, "bucket": hour, "device": "d", **measures}])
    step = {**pod, "ts": hour, "interval_s": 60.0, "reserved_bytes": 2, "allocated_bytes": 1}
    views.rows("step_sample", [step])
    readers = [getattr(importlib.import_module(module), name) for module, name in list_readers()]
    rows = {f: f(views=views, **choose_arguments(f.__name__, f)) for f in readers}
    assert any(len(some) for some in rows.values())
