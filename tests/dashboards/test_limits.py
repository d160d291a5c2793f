"""Limits that refuse scrapes on the page Data, and failures by cause on the page Health."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dashboards.figures import health, quality
from dashboards.figures.query import Filters
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from tests.dashboards.drawing import stored
from warehouse.lake import Warehouse

START = datetime(2026, 11, 15, tzinfo=UTC)
ERRORS = (
    ("a", "sample_limit: 90,000 samples, 50,000 are allowed"),
    ("b", "sample_limit: 60,000 samples, 50,000 are allowed"),
    ("c", "over exporters.body_size_limit: more than 10 bytes"),
    ("d", "cannot connect"),
    ("e", None),
)


def test_each_limit_that_refuses_is_a_row(tmp_path: Path) -> None:
    times = [(START + timedelta(minutes=n)).replace(tzinfo=None) for n in range(len(ERRORS))]
    batch = Batch.of(
        "scrape",
        {
            "cluster": ["demo"] * len(ERRORS),
            "ts": times,
            "collector": ["exporters"] * len(ERRORS),
            "target": [target for target, _ in ERRORS],
            "until": times,
            "up": [error is None for _, error in ERRORS],
            "error": [error for _, error in ERRORS],
        },
    )
    with Warehouse.open_in_memory(Settings(home=tmp_path / "home")) as warehouse:
        stored(warehouse, batch)
        window = Window(START, START + timedelta(hours=1))
        rows = quality.read_limits(warehouse, window, Filters()).to_pylist()
        elsewhere = quality.read_limits(warehouse, window, Filters(cluster="other"))
    assert [(row["limit_name"], row["targets"], row["scrapes"]) for row in rows] == [
        ("sample_limit", 2, 2),
        ("body_size_limit", 1, 1),
    ]
    assert rows[0]["error"] == ERRORS[1][1]
    assert elsewhere.num_rows == 0


def test_failures_are_counted_by_day_and_cause(tmp_path: Path) -> None:
    ends = [START.replace(tzinfo=None) + timedelta(hours=n) for n in (1, 2, 3, 30)]
    batch = Batch.of(
        "work_lost",
        {
            "cluster": ["demo"] * 4,
            "namespace": ["a", "a", "b", "a"],
            "pod": ["p0", "p1", "p2", "p3"],
            "end": ends,
            "cause": ["node", "node", None, "spot"],
            "lost": [1.0, 2.5, 4.0, None],
        },
    )
    with Warehouse.open_in_memory(Settings(home=tmp_path / "home")) as warehouse:
        stored(warehouse, batch)
        window = Window(START, START + timedelta(days=2))
        rows = health.read_failures(warehouse, window, Filters()).to_pylist()
        of_b = health.read_failures(warehouse, window, Filters(namespace="b")).to_pylist()
    day = START.replace(tzinfo=None)
    assert [(row["day"], row["cause"], row["pods"], row["gpu_hours"]) for row in rows] == [
        (day, "node", 2, 3.5),
        (day, "unknown", 1, 4.0),
        (day + timedelta(days=1), "spot", 1, None),
    ]
    assert [row["cause"] for row in of_b] == ["unknown"]


@pytest.mark.parametrize(("polled", "minutes"), [(60, 0), (59, 1), (90, 0)])
def test_a_poll_at_the_end_of_the_window_is_as_recent_as_the_samples(
    tmp_path: Path, polled: int, minutes: int
) -> None:
    """An inventory that is polled once an hour did not stop an hour ago."""
    begin = START.replace(tzinfo=None)
    times = [begin, begin + timedelta(minutes=polled)]
    batch = Batch.of(
        "scrape",
        {
            "cluster": ["demo"] * 2,
            "ts": times,
            "collector": ["kubectl"] * 2,
            "target": ["https://kubernetes.demo"] * 2,
            "until": times,
            "up": [True] * 2,
        },
    )
    with Warehouse.open_in_memory(Settings(home=tmp_path / "home")) as warehouse:
        stored(warehouse, batch)
        window = Window(START, START + timedelta(hours=1))
        (row,) = quality.read_collectors(warehouse, window, Filters(), window.end).to_pylist()
        later = Window(window.end + timedelta(hours=2), window.end + timedelta(hours=3))
        assert not quality.read_collectors(warehouse, later, Filters(), later.end).num_rows
    assert row["lag_min"] == minutes
    # The counts are those of the window.
    assert row["scrapes"] == (2 if polled < 60 else 1)
