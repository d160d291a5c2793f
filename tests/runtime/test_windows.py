"""Which window a command looks at."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from fallow.errors import EmptyWarehouseError, UsageError
from fallow.window import Window
from runtime.operations.accounting.windows import DEFAULT_LENGTH, choose, parse

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Devices:
    """Views over one device that was seen between two moments."""

    def __init__(self, first: datetime | None, last: datetime | None) -> None:
        self.row = {"first": first, "last": last}

    def query(self, _sql: str, _parameters: Mapping[str, Any] | None = None) -> pa.Table:
        naive = {k: [v and v.replace(tzinfo=None)] for k, v in self.row.items()}
        return pa.table(naive, schema=pa.schema([(k, pa.timestamp("us")) for k in naive]))


def seen(first: str, last: str) -> Devices:
    return Devices(
        datetime.fromisoformat(f"{first}+00:00"), datetime.fromisoformat(f"{last}+00:00")
    )


def test_live_data_are_looked_at_for_the_last_seven_days() -> None:
    window, _ = choose(seen("2026-09-01T00:00", "2026-11-20T12:00"), None, NOW)
    assert window == Window(NOW - DEFAULT_LENGTH, NOW)


def test_a_young_warehouse_is_looked_at_from_its_first_look_on() -> None:
    window, _ = choose(seen("2026-11-19T00:00", "2026-11-20T11:59"), None, NOW)
    assert window.start == datetime(2026, 11, 19, tzinfo=UTC)
    assert window.end == datetime(2026, 11, 20, 11, 59, tzinfo=UTC)


def test_an_import_of_old_data_is_looked_at_whole_and_that_is_said() -> None:
    window, note = choose(seen("2020-01-01T00:00", "2020-01-03T06:00"), None, NOW)
    assert window.seconds == timedelta(days=2, hours=6).total_seconds()
    assert "2020-01-01 00:00 to 2020-01-03 06:00 UTC (2d6h)" in note
    assert "the data end" in note


def test_data_that_end_within_the_last_week_are_looked_at_by_their_own_last_week() -> None:
    start, end = NOW - timedelta(days=20), NOW - timedelta(days=6, hours=23, minutes=50)
    window, note = choose(seen(f"{start:%Y-%m-%dT%H:%M}", f"{end:%Y-%m-%dT%H:%M}"), None, NOW)
    assert window == Window(end - timedelta(days=7), end)
    assert "the data end 6d23h ago" in note


@pytest.mark.parametrize(("hours", "said"), [(6, False), (7, True)])
def test_the_end_of_the_data_is_said_when_it_is_old(hours: int, *, said: bool) -> None:
    end = NOW - timedelta(hours=hours)
    _, note = choose(seen("2026-11-01T00:00", f"{end:%Y-%m-%dT%H:%M}"), None, NOW)
    assert ("the data end" in note) is said


def test_a_window_without_data_is_refused_with_one_that_has_some() -> None:
    with pytest.raises(UsageError, match="data are from 2020-01-01 00:00 to") as caught:
        choose(seen("2020-01-01T00:00", "2020-01-03T06:00"), "2d", NOW)
    assert "--window 2020-01-01T00:00/2020-01-03T06:00" in str(caught.value.hint)


def test_an_empty_warehouse_is_refused_with_what_to_do() -> None:
    with pytest.raises(EmptyWarehouseError, match="no telemetry") as caught:
        choose(Devices(None, None), None, NOW)
    assert "fallow collect --once" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("1d", "2026-11-19T12:00", "2026-11-20T12:00"),
        ("2026-11-01/2026-11-02T06:00", "2026-11-01T00:00", "2026-11-02T06:00"),
        ("2d/1d", "2026-11-18T12:00", "2026-11-19T12:00"),
        ("2026-11-19/", "2026-11-19T00:00", "2026-11-20T12:00"),
    ],
)
def test_windows_are_spelt_as_durations_or_as_two_moments(text: str, start: str, end: str) -> None:
    expected = [datetime.fromisoformat(f"{instant}+00:00") for instant in (start, end)]
    assert parse(text, NOW) == Window(*expected)


@pytest.mark.parametrize("text", ["week", "1d/2d", "2026-13-01/now", ""])
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text, NOW)
