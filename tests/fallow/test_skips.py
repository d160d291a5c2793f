"""A run says how many tests skipped, by what they lack."""

from types import SimpleNamespace

import pytest

from tests import conftest
from tests.servers import kube_apiserver


@pytest.mark.parametrize(
    ("reason", "lack"),
    [
        ("Skipped: public data set 'openb' is not beside the checkout", "public data"),
        (f"Skipped: {kube_apiserver.absence()}", "API server"),
        ("Skipped: no driver of nvidia here", "GPU"),
        ("Skipped: the dashboard is an extra: fallow[dashboards]", "extra"),
        ("Skipped: could not import 'moto.server': No module named 'moto'", "extra"),
        ("Skipped: no bwrap here (Debian: apt-get install bubblewrap)", "program"),
        ("Skipped: a real server cannot be told to throttle", "other"),
    ],
)
def test_a_reason_names_what_the_test_lacks(reason: str, lack: str) -> None:
    assert conftest.classify_skip(reason) == lack


def test_the_run_prints_how_many_of_each() -> None:
    lines: list[str] = []
    skipped = [SimpleNamespace(longrepr=("f", 1, "Skipped: public data set 'x' is not beside"))] * 2
    reporter = SimpleNamespace(stats={"skipped": skipped}, write_line=lines.append)
    conftest.pytest_terminal_summary(reporter)
    assert lines == [
        "skipped for lack of: public data 2, API server 0, GPU 0, extra 0, program 0, other 0"
    ]
