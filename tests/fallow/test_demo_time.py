"""A demo's fleet has a time of its own, which its world's log tells."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from fallow.demo_marker import MARKER, WORLD, read_now

REACHED = datetime(2026, 11, 16, tzinfo=UTC)
ADVANCE = b'{"type":"advance","until_s":%d}\n'


def test_now_is_the_time_that_a_demos_fleet_has_reached(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    hour = int(REACHED.timestamp()) - 3600
    (tmp_path / WORLD).write_bytes(
        ADVANCE % hour + b'{"type":"server"}\n' + ADVANCE % (hour + 3600)
    )
    assert read_now(tmp_path) == REACHED


def test_a_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    line = ADVANCE % REACHED.timestamp()
    (tmp_path / WORLD).write_bytes(line + line[:-5])
    assert read_now(tmp_path) == REACHED


def test_now_of_a_home_of_ones_own_is_the_clocks(tmp_path: Path) -> None:
    (tmp_path / WORLD).write_bytes(ADVANCE % REACHED.timestamp())  # without a demo's marker
    assert abs(read_now(tmp_path) - datetime.now(UTC)) < timedelta(minutes=1)
