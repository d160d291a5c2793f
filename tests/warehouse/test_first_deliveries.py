"""Rows of times that have none yet are stored without a join, and no row twice."""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import settings as run
from hypothesis import strategies as st

from fallow.settings import Settings, load
from fallow.tables import Batch
from warehouse.data_files import DataFiles
from warehouse.lake import Warehouse

START = datetime(2026, 11, 20, 6, 0)  # noqa: DTZ001
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def writer(settings: Settings) -> Iterator[Warehouse]:
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        yield warehouse


def build_samples(*keys: tuple[int, int]) -> Batch:
    """Return samples of (second, device)."""
    n = len(keys)
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * n,
            "ts": [START + timedelta(seconds=second) for second, _ in keys],
            "device": [f"GPU-{device}" for _, device in keys],
            "interval_s": [60.0] * n,
        },
    )


def test_a_row_of_the_newest_time_itself_is_compared(writer: Warehouse) -> None:
    writer.ingest([build_samples((60, 0))])
    assert writer.ingest([build_samples((60, 0), (60, 1))]).added == 1


def test_rows_that_replaced_others_are_compared(writer: Warehouse) -> None:
    writer.ingest([build_samples((0, 0))])
    writer.replace("sample", build_samples((120, 0)).rows)
    assert writer.ingest([build_samples((120, 0), (60, 0))]).added == 1


def test_rows_of_a_commit_without_an_answer_are_compared(
    writer: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.ingest([build_samples((0, 0))])
    commit = DataFiles.commit

    def fail(self: DataFiles, cursor: duckdb.DuckDBPyConnection, since: int) -> None:
        commit(self, cursor, since)
        raise OSError("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(DataFiles, "commit", fail)
        with pytest.raises(Exception, match="the answer is lost"):
            writer.ingest([build_samples((60, 0))])
    assert writer.ingest([build_samples((60, 0))]).added == 0


_DELIVERY = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=4, unique=True
)


@given(deliveries=st.lists(_DELIVERY, min_size=1, max_size=5), opened_at=st.integers(0, 4))
@run(max_examples=12, deadline=None)
def test_each_sample_is_stored_once_in_whatever_order_it_comes(
    deliveries: list[list[tuple[int, int]]], opened_at: int
) -> None:
    with tempfile.TemporaryDirectory() as home:
        flags = {"home": Path(home), "cluster": "test"}
        settings, stored = load(environ={}, flags=flags).settings, set[tuple[int, int]]()
        writer = Warehouse.open(settings, write=True, clock=lambda: NOW)
        try:
            for number, keys in enumerate(deliveries):
                if number == opened_at:
                    writer.close()
                    writer = Warehouse.open(settings, write=True, clock=lambda: NOW)
                assert writer.ingest([build_samples(*keys)]).added == len({*keys} - stored)
                stored |= {*keys}
            rows = writer.query("SELECT count(*) AS n FROM sample").to_pylist()
            assert rows == [{"n": len(stored)}]
        finally:
            writer.close()
