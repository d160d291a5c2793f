"""Tests are marked by what they import, and one of `make test-fast` that starts a server fails."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.marking import (
    ROOT,
    SHARED_FIXTURES,
    imported_modules,
    marks,
    nothing_started,
    read_slow_files,
)

HERE = ROOT / "tests"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("browser/test_signin.py", {"browser", "server"}),
        ("prometheus/test_history.py", {"server"}),
        ("actions/loop/test_control_plane.py", {"server"}),
        ("runtime/test_child.py", {"server"}),
        ("collectors/test_exporters_scrape.py", {"server"}),
        ("actions/policy/test_reading.py", set()),
        ("analyzers/test_idle_verdicts.py", set()),
        ("ledger/test_every_second_is_named.py", set()),
    ],
)
def test_a_file_is_marked_by_what_it_imports_directly_or_not(name: str, expected: set[str]) -> None:
    assert (HERE / name).exists()
    assert set(marks(HERE / name, [])) == expected


def test_a_fixture_marks_who_uses_it() -> None:
    plain = HERE / "actions" / "test_decision.py"
    assert set(marks(plain, [("place", HERE / "actions" / "conftest.py")])) == {"server"}
    assert set(marks(plain, [("settings", SHARED_FIXTURES)])) == set()
    assert set(marks(plain, [("prometheus_with_history", SHARED_FIXTURES)])) == {"server"}


def test_slow_files_are_files_of_tests() -> None:
    assert len(read_slow_files()) > 20
    assert all((ROOT / path).is_file() for path in read_slow_files())


def test_every_kind_of_import_is_read() -> None:
    text = """
from tests.servers import s3, postgres as database
from aiohttp import (
    web,
)
import tests.engine
def f():
    import subprocess
"""
    modules = imported_modules(text)
    assert {"tests.servers", "tests.servers.s3", "tests.servers.postgres"} <= modules
    assert {"aiohttp.web", "tests.engine", "subprocess"} <= modules


def test_where_nothing_may_start_a_socket_and_a_process_fail() -> None:
    with nothing_started():
        with socket.socket() as listener, pytest.raises(AssertionError, match="make test-fast"):
            listener.bind(("127.0.0.1", 0))
        with pytest.raises(AssertionError, match="make test-fast"):
            subprocess.run([sys.executable, "-c", ""], check=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))


def test_every_mark_is_in_the_table_of_contributing() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in ("server", "browser", "slow", "real_data", "long"):
        assert f"| `{name}` |" in page
    assert Path(ROOT / "Makefile").read_text(encoding="utf-8").count("test-fast:") == 1
