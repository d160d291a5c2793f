"""A second import: rows that are there already, and rows of another cluster by the same name."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.inventory import build_batches
from fallow.settings import load
from tests.cli.conftest import Fallow
from warehouse.lake import Warehouse

BEGAN = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=1)
COLUMNS = "workload=pod,device=device,ts=time,gpu_util_pct=util"
HEAD = "time,pod,device,util"
ROWS = [
    f"{(BEGAN + timedelta(minutes=minute)).isoformat()},{f'job-{n}' if n < 2 else ''},GPU-{n},50"
    for minute in range(60)
    for n in range(4)
]


@pytest.mark.parametrize("place", [7 * 4, -1, -4])
def test_a_row_that_is_there_already_changes_no_held_hour(
    fallow: Fallow, tmp_path: Path, place: int
) -> None:
    """Two of four GPUs are held for an hour; the row is at the start, within, or at the end."""

    def read(rows: list[str]) -> list[dict[str, object]]:
        (tmp_path / "a.csv").write_text("\n".join([HEAD, *rows]) + "\n")
        flags = ("--columns", COLUMNS, "--interval", "60s", "--home", tmp_path / "home")
        assert fallow("import", "samples", tmp_path / "a.csv", *flags).code == 0
        sql = "SELECT device, state, workload, sum(gpu_seconds) AS s FROM ledger GROUP BY ALL"
        ran = fallow("warehouse", "query", sql, "-o", "json", "--home", tmp_path / "home")
        return sorted(json.loads(ran.out)["rows"], key=lambda row: (row["device"], row["state"]))

    first = read(ROWS)
    assert [(row["device"], row["workload"], row["s"]) for row in first] == [
        ("GPU-0", "job-0", 3600), ("GPU-1", "job-1", 3600),
        ("GPU-2", "", 3600), ("GPU-3", "", 3600),
    ]  # fmt: skip
    assert read([ROWS[place]]) == first


def test_an_import_counts_the_rows_of_its_file(fallow: Fallow, tmp_path: Path) -> None:
    old = "1980-01-01T00:00:00+00:00,job-0,GPU-0,50"
    (tmp_path / "a.csv").write_text("\n".join([HEAD, *ROWS, old]) + "\n")
    flags = ("--columns", COLUMNS, "--interval", "60s", "--home", tmp_path / "home", "-o", "csv")
    for added, duplicates in ((len(ROWS), 0), (0, len(ROWS))):
        ran = fallow("import", "samples", tmp_path / "a.csv", *flags)
        (row,) = csv.DictReader(io.StringIO(ran.out))
        counts = [int(row[name]) for name in ("rows", "added", "duplicates", "old")]
        assert counts == [len(ROWS) + 1, added, duplicates, 1]


@pytest.mark.parametrize(
    ("old", "new", "named", "notes"),
    [("GPU-", "other-", (), True), ("GPU-", "other-", ("--cluster", "default"), False),
     ("GPU-3", "other-3", (), False)],
)  # fmt: skip
def test_gpus_of_another_cluster_by_the_same_name_are_reported(
    fallow: Fallow, tmp_path: Path, old: str, new: str, named: tuple[str, ...], *, notes: bool
) -> None:
    flags = ("--columns", COLUMNS, "--interval", "60s", "--home", tmp_path / "home")
    for name, rows in (("a", ROWS), ("b", [row.replace(old, new) for row in ROWS])):
        (tmp_path / f"{name}.csv").write_text("\n".join([HEAD, *rows]) + "\n")
    assert "--cluster" not in fallow("import", "samples", tmp_path / "a.csv", *flags).err
    ran = fallow("import", "samples", tmp_path / "b.csv", *flags, *named)
    assert ran.code == 0
    said = "none of its GPUs is among the 4 that cluster 'default' had already: --cluster NAME"
    assert (said in ran.err) is notes


def test_a_second_prometheus_is_mixed_into_no_cluster_by_default(
    fallow: Fallow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_PROMETHEUS__RETRIES", "0")
    home, at = tmp_path / "home", BEGAN.replace(tzinfo=None)
    row = {"cluster": "default", "collector": "prometheus", "target": "http://east:9090",
           "ts": at, "until": at, "up": True, "samples": 1}  # fmt: skip
    with Warehouse.open(load(environ={}, flags={"home": home}).settings, write=True) as warehouse:
        warehouse.ingest(build_batches("scrape", [row]))
    words = ("import", "prometheus", "--url", "http://127.0.0.1:9", "--home", home)
    ran = fallow(*words)
    assert ran.code == 2
    assert "cluster default has the telemetry of http://east:9090" in ran.err
    assert "--cluster default where it is the same" in ran.err
    assert fallow(*words, "--cluster", "default").code == 75, "it is asked, and does not answer"
