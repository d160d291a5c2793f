"""A file whose rows are there already changes no figure."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Fallow

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
