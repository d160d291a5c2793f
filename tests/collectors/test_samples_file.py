"""Any table becomes samples; a bad one becomes one line that says what to do."""

import gzip
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from collectors.samples_file import import_samples
from fallow.errors import UsageError
from fallow.tables import Batch

COLUMNS = {"workload": "w", "ts": "t", "gpu_util_pct": "u"}
MOMENT = datetime(2026, 11, 20, 12, 0, 30)  # noqa: DTZ001 (tables are UTC without zone)
UNIX = int(MOMENT.replace(tzinfo=UTC).timestamp())


def run(path: Path, **columns: str) -> list[Batch]:
    return list(import_samples(path, {**COLUMNS, **columns}, 57.0, "test"))


def rows(batches: list[Batch], table: str = "sample") -> list[dict[str, Any]]:
    return [row for b in batches if b.table == table for row in b.rows.to_pylist()]


def csv(folder: Path, *lines: str, name: str = "s.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def parquet(folder: Path, **columns: Any) -> Path:
    path = folder / "s.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


@pytest.mark.real_data
def test_gentd26_has_its_known_figures(shared_data: Callable[[str], Path]) -> None:
    path = shared_data("gentd26/gpu_dev_pods_0-7.parquet")
    columns = {
        "workload": "container_ip",
        "ts": "ts",
        "gpu_util_pct": "gpu_duty_cycle_pct",
        "mem_used_bytes": "gpu_memory_used_bytes",
    }
    batches = list(import_samples(path, columns, 57.0, "gentd26"))
    duty = pa.concat_tables([b.rows for b in batches if b.table == "sample"])["gpu_util_pct"]
    known = len(duty) - duty.null_count
    assert known == 90_752
    assert pc.mean(duty).as_py() == pytest.approx(7.5638, abs=5e-5)
    assert pc.sum(pc.equal(duty, 0)).as_py() / known == pytest.approx(0.66660, abs=5e-6)
    assert duty.null_count == pl.read_parquet(path)["gpu_duty_cycle_pct"].null_count() > 0
    pods = rows(batches, "pod")
    assert len(pods) == 80
    assert {p["workload_kind"] for p in pods} == {"Workload"}
    assert all(p["workload"] == p["pod"] and p["namespace"] == "imported" for p in pods)
    assert rows(batches, "scrape")[0]["rejected"] == 0


def test_a_row_carries_what_was_mapped(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        "w,t,u,dev,host,kind,space,pod,owner,watts,extra",
        f"train,{UNIX},40,GPU-7,n1,A100,team-a,train-0,red,250.5,x",
    )
    batches = run(
        path,
        device="dev",
        node="host",
        model="kind",
        namespace="space",
        pod="pod",
        team="owner",
        power_w="watts",
    )
    (row,) = rows(batches)
    assert {k: v for k, v in row.items() if v is not None} == {
        "cluster": "test",
        "ts": MOMENT,
        "device": "GPU-7",
        "node": "n1",
        "model": "A100",
        "namespace": "team-a",
        "pod": "train-0",
        "interval_s": 57.0,
        "source": "file",
        "gpu_util_pct": 40.0,
        "power_w": 250.5,
    }
    (pod,) = rows(batches, "pod")
    assert (pod["workload"], pod["pod"], pod["team"], pod["node"]) == (
        "train",
        "train-0",
        "red",
        "n1",
    )
    assert pod["first_seen"] == MOMENT
    assert pod["started_at"] is pod["created_at"] is None, "a file does not show when it started"
    assert pod["last_seen"] == MOMENT + timedelta(seconds=57)


def test_a_device_without_a_workload_is_kept_and_nobody_holds_it(tmp_path: Path) -> None:
    lines = ("w,t,u,dev,space", f"job,{UNIX},1,GPU-1,team-a", f",{UNIX + 60},0,GPU-2,team-b")
    batches = run(csv(tmp_path, *lines), device="dev", namespace="space")
    held, free = rows(batches)
    assert (held["device"], held["namespace"], held["pod"]) == ("GPU-1", "team-a", "job")
    assert (free["device"], free["namespace"], free["pod"]) == ("GPU-2", None, None)
    assert [pod["pod"] for pod in rows(batches, "pod")] == ["job"]
    (scrape,) = rows(batches, "scrape")
    assert (scrape["samples"], scrape["rejected"]) == (2, 0)
    assert scrape["until"] == MOMENT + timedelta(seconds=117)


def test_a_fleet_that_nobody_holds_is_imported(tmp_path: Path) -> None:
    batches = run(csv(tmp_path, "w,t,u,dev", f",{UNIX},0,GPU-1"), device="dev")
    assert [(r["device"], r["pod"]) for r in rows(batches)] == [("GPU-1", None)]
    assert rows(batches, "pod") == []


def test_a_pod_without_a_workload_holds_its_device_under_its_own_name(tmp_path: Path) -> None:
    batches = run(csv(tmp_path, "w,t,u,dev,p", f",{UNIX},0,GPU-1,web-0"), device="dev", pod="p")
    assert [(r["device"], r["pod"]) for r in rows(batches)] == [("GPU-1", "web-0")]
    assert [(p["pod"], p["workload"]) for p in rows(batches, "pod")] == [("web-0", "web-0")]


def test_a_row_without_workload_and_device_is_refused(tmp_path: Path) -> None:
    lines = ("w,t,u,dev", f",{UNIX},0,", f",{UNIX},0,GPU-1")
    batches = run(csv(tmp_path, *lines), device="dev")
    assert (len(rows(batches)), rows(batches, "scrape")[0]["rejected"]) == (1, 1)


def test_a_workload_stands_for_pod_and_device(tmp_path: Path) -> None:
    batches = run(csv(tmp_path, "w,t,u", f"job,{UNIX},1"))
    (row,) = rows(batches)
    assert (row["device"], row["pod"], row["namespace"]) == ("job", "job", "imported")
    again = run(csv(tmp_path, "w,t,u", f"job,{UNIX + 60},1"))
    assert rows(batches, "pod")[0]["uid"] == rows(again, "pod")[0]["uid"]


MOMENTS = [
    UNIX,
    float(UNIX),
    UNIX * 1000,
    UNIX * 1_000_000,
    UNIX * 1_000_000_000,
    MOMENT,
    MOMENT.replace(tzinfo=UTC),
    "2026-11-20T12:00:30",
    "2026-11-20 12:00:30",
    "2026-11-20T12:00:30Z",
    "2026-11-20T14:00:30+02:00",
    "2026-11-20T12:00:30.000",
    str(UNIX),
    f"{UNIX}.0",
]


@pytest.mark.parametrize("instant", MOMENTS, ids=repr)
def test_every_spelling_of_a_moment(instant: Any, tmp_path: Path) -> None:
    (row,) = rows(run(parquet(tmp_path, w=["a"], t=[instant], u=[1.0])))
    assert row["ts"] == MOMENT


def test_fractions_of_a_second_and_days_stay(tmp_path: Path) -> None:
    (row,) = rows(run(parquet(tmp_path, w=["a"], t=[UNIX + 0.25], u=[1.0])))
    assert row["ts"] == MOMENT + timedelta(milliseconds=250)
    (row,) = rows(run(parquet(tmp_path, w=["a"], t=[date(2026, 11, 20)], u=[1.0])))
    assert row["ts"] == datetime(2026, 11, 20)  # noqa: DTZ001


def test_impossible_values_are_null_and_counted(tmp_path: Path) -> None:
    values = [50.0, -1.0, 101.0, float("nan"), float("inf"), None, 0.0]
    path = parquet(tmp_path, w=["a"] * 7, t=[UNIX + i for i in range(7)], u=values)
    batches = run(path)
    assert [r["gpu_util_pct"] for r in rows(batches)] == [50.0, None, None, None, None, None, 0.0]
    (sample_rows,) = rows(batches, "scrape")
    assert (sample_rows["rejected"], sample_rows["samples"], sample_rows["up"]) == (3, 2, True)
    assert (sample_rows["ts"], sample_rows["until"]) == (MOMENT, MOMENT + timedelta(seconds=6 + 57))


def test_rows_without_workload_or_moment_are_dropped_and_counted(tmp_path: Path) -> None:
    path = csv(tmp_path, "w,t,u", f"a,{UNIX},1", f",{UNIX},2", "a,,3", f"b,{UNIX},N/A")
    batches = run(path)
    assert {(r["pod"], r["gpu_util_pct"]) for r in rows(batches)} == {("a", 1.0), ("b", None)}
    assert rows(batches, "scrape")[0]["rejected"] == 2


def test_whole_number_columns_are_rounded(tmp_path: Path) -> None:
    path = csv(tmp_path, "w,t,u,m", f"a,{UNIX},1,1073741824.4")
    (row,) = rows(run(path, mem_used_bytes="m"))
    assert row["mem_used_bytes"] == 2**30


def test_a_log_of_nvidia_smi_is_read_as_it_is(tmp_path: Path) -> None:
    path = csv(
        tmp_path,
        "timestamp, uuid, utilization.gpu [%], memory.used [MiB], power.draw [W]",
        "2026/11/20 12:00:30.000, GPU-1, 97 %, 40536 MiB, 301.44 W",
        "2026/11/20 12:01:30.000, GPU-1, [N/A], 4, [Unknown Error]",
        "2026/11/20 12:02:30.000, GPU-1, 0 %, 1 GiB, [Not Supported]",
    )
    named = {"workload": "uuid", "ts": "timestamp", "gpu_util_pct": "utilization.gpu [%]"}
    numbers = {"mem_used_bytes": "memory.used [MiB]", "power_w": "power.draw [W]"}
    read = rows(list(import_samples(path, {**named, **numbers}, 60.0, "test")))
    assert [row["ts"] for row in read] == [MOMENT + timedelta(minutes=n) for n in range(3)]
    assert [row["gpu_util_pct"] for row in read] == [97.0, None, 0.0]
    assert [row["mem_used_bytes"] for row in read] == [40536 << 20, 4 << 20, 1 << 30]
    assert [row["power_w"] for row in read] == [pytest.approx(301.44), None, None]


def test_a_percentage_is_a_hundredth_of_a_ratio(tmp_path: Path) -> None:
    path = csv(tmp_path, "w,t,u,sm", f"a,{UNIX},40 %,40 %", f"b,{UNIX},40,0.4")
    read = rows(run(path, sm_active="sm"))
    assert [(row["gpu_util_pct"], row["sm_active"]) for row in read] == [
        (40, pytest.approx(0.4)), (40, pytest.approx(0.4)),
    ]  # fmt: skip


def test_a_large_file_comes_in_parts(tmp_path: Path) -> None:
    size = 250_000
    path = parquet(
        tmp_path,
        w=[f"w{i % 7}" for i in range(size)],
        t=[UNIX + i for i in range(size)],
        u=[1.0] * size,
    )
    parts = [b.rows.num_rows for b in run(path) if b.table == "sample"]
    assert sum(parts) == size
    assert max(parts) <= 150_000


def _text(content: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "s.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def _truncated(folder: Path) -> Path:
    whole = parquet(folder, w=["a"] * 999, t=list(range(UNIX, UNIX + 999)), u=[1.0] * 999)
    whole.write_bytes(whole.read_bytes()[:-100])
    return whole


OK = f"a,{UNIX},1\n"
BAD_FILES: list[tuple[str, Callable[[Path], Path], str, str]] = [
    ("missing", lambda f: f / "none.csv", "cannot read", "no such file"),
    ("folder", lambda f: f, "cannot read", "is a directory"),
    ("empty", _text(""), "is empty", ""),
    ("header only", _text("w,t,u\n"), "holds no rows", ""),
    ("no such column", _text("w,time,u\n" + OK), "has no column 't'", "it has: w, time, u"),
    ("truncated Parquet", _truncated, "is not a whole Parquet file", "is the copy complete?"),
    ("ragged", _text("w,t,u\n" + OK + "a,1,2,3\n"), "cannot be read as CSV", ".parquet, .csv"),
    ("no moment", _text("w,t,u\na,soon,1\n"), "holds 'soon', which is no time", "ISO 8601"),
    ("no number", _text("w,t,u\n" + OK + f"a,{UNIX},high\n"), "'high', which is no number", ""),
    ("another unit", _text("w,t,u\n" + OK + f"a,{UNIX},3 W\n"), "'3 W', which is no number", ""),
    ("UTF-16", _text("w,t,u\n".encode("utf-16")), "is UTF-16 text", "iconv -f UTF-16 -t UTF-8 "),
    ("gzip", _text(gzip.compress(b"w,t,u\n")), "is compressed by gzip", "gunzip -k "),
    ("dmon", _text("# gpu    pwr  gtemp\n"), "a report of nvidia-smi dmon", "--format=csv -l 60"),
    ("twice", _text("w,t,u, u\n" + OK), "differ by blanks only", ""),
    ("only nulls", _text("w,t,u\na,,1\nb,,2\n"), "has no time, only nulls", "--columns ts="),
    ("no workload", _text(f"w,t,u\n,{UNIX},1\n"), "no row has both a ts and a workload", ""),
]


@pytest.mark.parametrize("bad", BAD_FILES, ids=[name for name, *_ in BAD_FILES])
def test_bad_files_say_what_is_wrong(
    bad: tuple[str, Callable[[Path], Path], str, str], tmp_path: Path
) -> None:
    _, make, message, hint = bad
    with pytest.raises(UsageError) as caught:
        import_samples(make(tmp_path), COLUMNS, 57.0, "test")
    assert message in caught.value.message
    assert "\n" not in str(caught.value)
    assert hint in str(caught.value)


BAD_MAPPINGS: list[tuple[dict[str, str], float, str, str]] = [
    ({"ts": "t", "gpu_util_pct": "u"}, 57, "does not say which column is 'workload'", "such as"),
    ({"workload": "w", "gpu_util_pct": "u"}, 57, "does not say which column is 'ts'", "such as"),
    ({**COLUMNS, "gpu_utl": "u"}, 57, "'gpu_utl' is not a column", "gpu_util_pct"),
    ({"workload": "w", "ts": "t"}, 57, "names no measurement", "power_w"),
    (COLUMNS, 0, "--interval is 0 s", "57s"),
    (COLUMNS, float("nan"), "--interval is nan s", "57s"),
    ({**COLUMNS, "power_w": "watts"}, 57, "has no column 'watts'", "it has: w, t, u"),
]


@pytest.mark.parametrize("bad", BAD_MAPPINGS, ids=[m for _, _, m, _ in BAD_MAPPINGS])
def test_bad_mappings_name_the_legal_answers(
    bad: tuple[dict[str, str], float, str, str], tmp_path: Path
) -> None:
    mapping, interval, message, hint = bad
    path = csv(tmp_path, "w,t,u", OK.strip())
    with pytest.raises(UsageError) as caught:
        import_samples(path, mapping, interval, "test")
    assert message in caught.value.message
    assert hint in str(caught.value)


def test_a_bad_last_row_leaves_nothing_behind(tmp_path: Path) -> None:
    path = csv(tmp_path, "w,t,u", *(f"a,{UNIX + i},1" for i in range(300_000)), f"a,{UNIX},oops")
    with pytest.raises(UsageError, match="'oops'"):
        import_samples(path, COLUMNS, 57.0, "test")
