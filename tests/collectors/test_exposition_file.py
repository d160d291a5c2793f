"""Prometheus text files become rows: one scrape, or many with timestamps."""

import gzip
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import collectors.exposition_file as module
from collectors.exposition_file import import_exposition
from fallow.errors import UsageError
from fallow.tables import Batch

LABELS = 'gpu="0",UUID="GPU-1",Hostname="n1",pod="p",namespace="team"'


def rows(batches: list[Batch], table: str = "sample") -> list[dict[str, Any]]:
    return [row for b in batches if b.table == table for row in b.rows.to_pylist()]


def run(path: Path, content: str, now: datetime) -> list[Batch]:
    path.write_text(content)
    return list(import_exposition(path, "test", now, 30.0))


def test_lines_without_timestamp_are_of_now(tmp_path: Path, now: datetime) -> None:
    batches = run(tmp_path / "a.prom", f"DCGM_FI_DEV_GPU_UTIL{{{LABELS}}} 12", now)
    (row,) = rows(batches)
    assert (row["ts"], row["gpu_util_pct"]) == (now.replace(tzinfo=None), 12.0)
    assert (row["cluster"], row["source"], row["interval_s"]) == ("test", "exposition", 30.0)
    (pod,) = rows(batches, "pod")
    assert (pod["namespace"], pod["pod"], pod["workload_kind"], pod["workload"]) == (
        "team",
        "p",
        "Pod",
        "p",
    )
    assert pod["last_seen"] - pod["first_seen"] == timedelta(seconds=30)
    (sample_rows,) = rows(batches, "scrape")
    assert (sample_rows["up"], sample_rows["samples"], sample_rows["rejected"]) == (True, 1, 0)


@pytest.mark.parametrize("per_second", [1, 1000])
@pytest.mark.parametrize("sizes", [(64, 4), (64, 1_000_000), (8 << 20, 4), (8 << 20, 1_000_000)])
def test_openmetrics_lists_metric_by_metric(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    now: datetime,
    per_second: int,
    sizes: tuple[int, int],
) -> None:
    monkeypatch.setattr(module, "BLOCK", sizes[0])
    monkeypatch.setattr(module, "SLICE", sizes[1])
    start = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp())
    lines = []
    for metric, factor in (("DCGM_FI_DEV_GPU_UTIL", 1), ("DCGM_FI_DEV_POWER_USAGE", 10)):
        lines.append(f"# TYPE {metric} gauge")
        lines += [
            f"{metric}{{{LABELS}}} {i * factor} {(start + 30 * i) * per_second}" for i in range(20)
        ]
    batches = run(tmp_path / "a.om", "\n".join([*lines, "# EOF"]) + "\n", now)
    found = rows(batches)
    assert len(found) == 20
    assert [(r["gpu_util_pct"], r["power_w"]) for r in found] == [
        (float(i), float(i * 10)) for i in range(20)
    ]
    assert found[1]["ts"] - found[0]["ts"] == timedelta(seconds=30)


def test_garbage_and_blanks_are_counted(tmp_path: Path, now: datetime) -> None:
    content = (
        f"DCGM_FI_DEV_GPU_UTIL{{{LABELS}}} 12\n"
        f"DCGM_FI_DEV_GPU_TEMP{{{LABELS}}} 2147483632\n"
        "what is this\ngo_goroutines 5\n"
    )
    batches = run(tmp_path / "a.prom", content, now)
    (sample_rows,) = rows(batches, "scrape")
    assert (sample_rows["samples"], sample_rows["rejected"]) == (1, 2)
    assert rows(batches)[0]["temp_c"] is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is no Prometheus text"),
        ("<html></html>\n", "it is no Prometheus text"),
        ("go_goroutines 5\n", "its 1 series are others"),
    ],
)
def test_files_without_gpu_metrics(
    tmp_path: Path, now: datetime, content: str, message: str
) -> None:
    with pytest.raises(UsageError, match="holds no GPU metric") as caught:
        run(tmp_path / "a.prom", content, now)
    assert message in caught.value.message
    assert caught.value.hint is not None


def test_files_that_cannot_be_read(tmp_path: Path, now: datetime) -> None:
    with pytest.raises(UsageError, match="no such file"):
        import_exposition(tmp_path / "none", "test", now, 30.0)
    with pytest.raises(UsageError, match="is a directory"):
        import_exposition(tmp_path, "test", now, 30.0)
    with pytest.raises(UsageError, match="--interval is 0 s"):
        import_exposition(tmp_path / "none", "test", now, 0.0)


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode("utf-16"),
        lambda text: gzip.compress(text.encode()),
    ],
    ids=["UTF-8 with a mark", "UTF-16", "gzip"],
)
def test_text_of_another_encoding_is_read(
    tmp_path: Path, now: datetime, encode: Callable[[str], bytes]
) -> None:
    path = tmp_path / "m.prom"
    path.write_bytes(encode('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="a"} 96\n'))
    batches = list(import_exposition(path, "c", now, 30.0))
    [row] = [row for b in batches if b.table == "sample" for row in b.rows.to_pylist()]
    assert (row["device"], row["gpu_util_pct"]) == ("GPU-1", 96.0)


def test_a_broken_archive_is_one_line(tmp_path: Path, now: datetime) -> None:
    path = tmp_path / "m.prom"
    path.write_bytes(gzip.compress(b"DCGM_FI_DEV_GPU_UTIL 1\n" * 99)[:-9])
    with pytest.raises(UsageError, match="ended before"):
        list(import_exposition(path, "c", now, 30.0))
