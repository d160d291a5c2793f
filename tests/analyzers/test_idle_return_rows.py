"""The probability of a return of each stretch, from stored hours by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from analyzers.idle.return_probability import HOUR_US, HourReader, add_return_probability
from fallow.settings.idle import IdleSettings
from fallow.window import Window

MONDAY = 24 * 20_780
"""The first hour of 2026-11-23."""
ALL_DAY = IdleSettings(working_hours=(0, 24), min_expected_rest=timedelta(hours=4))
LASTS = 600_000_000


class Hours:
    """Views that answer with the hours of workloads: `a` active, `.` idle, from Monday on."""

    def __init__(self, **workloads: tuple[str, str]) -> None:
        self.parameters: dict[str, Any] = {}
        self._rows = [
            {"cluster": "c", "namespace": "ns", "workload_kind": kind, "workload": name,
             "hours": [2 * (MONDAY + n) + (mark == "a") for n, mark in enumerate(marks)]}
            for name, (kind, marks) in workloads.items()
        ]  # fmt: skip

    def query(self, sql: str, parameters: Any = None) -> pa.Table:
        if "device_hours" not in sql:  # nothing is known of idle power but the priors
            return pa.table({name: pa.array([]) for name in ("k", "gpu_model", "band_w", "band")})
        self.parameters = parameters
        return pl.DataFrame(
            self._rows,
            schema={"cluster": pl.String, "namespace": pl.String, "workload_kind": pl.String,
                    "workload": pl.String, "hours": pl.List(pl.Int64)},
        ).to_arrow()  # fmt: skip


def stretch(now: float, start: float, **columns: Any) -> dict[str, Any]:
    """Return a stretch of workload w; times are hours since Monday."""
    base = {
        "row": 0, "cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": "w",
        "kind": "idle_job", "state": "idle", "start": round((MONDAY + start) * HOUR_US),
        "end": round((MONDAY + now) * HOUR_US), "at": round((MONDAY + now) * HOUR_US),
        "slack_us": LASTS,
    }  # fmt: skip
    return base | columns


def window() -> Window:
    monday = datetime.fromtimestamp(MONDAY * 3600, UTC)
    return Window(monday, monday + timedelta(days=7))


def answer(
    hours: Hours, *rows: dict[str, Any], settings: IdleSettings = ALL_DAY
) -> list[tuple[Any, ...]]:
    """Return probability, exposures, returns, own days and own returns of each row."""
    views: Any = hours
    frame = pl.DataFrame(list(rows))
    hours_of = HourReader(views, window().end)
    begin = window().start - settings.history
    both = add_return_probability(hours_of, begin, frame, settings)
    columns = ("wanted", "exposures", "returns", "own_days", "own_returns")
    return both.sort("row").select(columns).rows()


OTHERS = {
    "x": ("Job", "a" + "." * 10 + "a" * 9),  # it went on by itself after ten hours
    "y": ("Job", "a" + "." * 19),
    "z": ("Job", "a" * 20),
}
NOTHING = (None, None, None, None, None)


def test_others_of_the_kind_say_how_many_came_back() -> None:
    known = Hours(w=("Job", "a" * 12 + "." * 8), **OTHERS)
    assert answer(known, stretch(20, 15)) == [(0.3, 4, 1, 0, 0)]
    assert answer(known, stretch(20.9, 15)) == [(0.3, 4, 1, 0, 0)], "the hour of now is not over"


def test_a_workload_without_hours_rests_since_the_first_whole_hour_of_its_stretch() -> None:
    known = Hours(**OTHERS)
    assert answer(known, stretch(20, 10)) == [(0.3, 4, 1, 0, 0)]
    assert answer(known, stretch(20, 9.5)) == [(0.3, 4, 1, 0, 0)]
    assert answer(known, stretch(20, 9)) == [(0.375, 3, 1, 0, 0)]


@pytest.mark.parametrize(
    ("kind", "workload_kind", "expected"),
    [
        ("idle_job", "PyTorchJob", (0.5, 0, 0, 0, 0)),  # another kind of object
        ("idle_notebook", "Job", (0.5, 0, 0, 0, 0)),  # another kind of finding
        ("idle_job", "Job", (0.3, 4, 1, 0, 0)),
    ],
)
def test_only_workloads_of_the_same_kind_count(
    kind: str, workload_kind: str, expected: tuple[Any, ...]
) -> None:
    own = stretch(20, 18, kind=kind, workload_kind=workload_kind)
    known = Hours(w=(workload_kind, "a" * 12 + "." * 8), **OTHERS)
    (found,) = answer(known, own)
    if expected[1]:
        assert found == expected
    else:  # the horizon that it has lasted through itself
        assert found == (round(0.5 / (found[1] + 1), 4), found[1], 0, 0, 0)
        assert found[1] in {1, 2}


def test_services_of_no_known_kind_are_compared_with_each_other() -> None:
    deployments = {name: ("Deployment", marks) for name, (_, marks) in OTHERS.items()}
    known = Hours(w=("Deployment", "a" * 12 + "." * 8), **deployments)
    own = stretch(20, 15, kind="idle_workload", workload_kind="Deployment")
    assert answer(known, own) == [(0.3, 4, 1, 0, 0)]
    server = stretch(20, 15, kind="idle_inference", workload_kind="Deployment")
    assert answer(known, server)[0][2] == 0


@pytest.mark.parametrize(
    ("columns", "answered"),
    [
        ({}, True),
        ({"state": "partly idle"}, False),
        ({"end": (MONDAY + 20) * HOUR_US - LASTS}, True),
        ({"end": (MONDAY + 20) * HOUR_US - LASTS - 1}, False),
    ],
)
def test_only_what_still_lasts_is_asked_about(columns: dict[str, Any], *, answered: bool) -> None:
    known = Hours(w=("Job", "a" * 12 + "." * 8), **OTHERS)
    other = stretch(20, 15, row=1)
    expected = (0.3, 4, 1, 0, 0)
    both = answer(known, stretch(20, 15, **columns), other)
    assert both == [expected if answered else NOTHING, expected]
    assert answer(known, stretch(20, 15, **columns)) == both[:1]


def test_without_a_horizon_nothing_is_asked() -> None:
    known = Hours(**OTHERS)
    settings = IdleSettings(min_expected_rest=None)
    assert answer(known, stretch(20, 15), settings=settings) == [NOTHING]
    assert known.parameters == {}


def test_a_horizon_is_at_least_an_hour() -> None:
    def ask(minutes: int) -> tuple[Any, ...]:
        settings = IdleSettings(working_hours=(0, 24), min_expected_rest=timedelta(minutes=minutes))
        known = Hours(w=("Job", "a" * 12 + "." * 8), **OTHERS)
        return answer(known, stretch(20, 15), settings=settings)[0]

    assert ask(20) == ask(60)
    assert ask(60) != ask(240)
    assert ask(230) == ask(240)


DAY = "." * 9 + "a" * 8 + "." * 7


def test_its_own_days_decide_where_they_show_more_returns_than_others() -> None:
    """Monday to Thursday it was active from nine on; it is eight o'clock on Friday."""
    own = {"w": ("Job", DAY * 4 + "." * 9)}
    friday = stretch(4 * 24 + 8, 4 * 24)
    assert answer(Hours(**own), friday) == [(0.9, 4, 4, 4, 4)]
    (found,) = answer(Hours(**own, y=("Job", "." * 105)), friday)
    assert found[1] > 4
    assert (found[0], *found[2:]) == (0.9, 4, 4, 4)


def test_own_days_without_a_return_count_as_those_of_others() -> None:
    (found,) = answer(Hours(w=("Job", "." * 105)), stretch(4 * 24 + 8, 4 * 24))
    assert found[2:] == (0, 4, 0)
    assert found[0] == round(0.5 / (found[1] + 1), 4)
    assert found[0] < 0.1, "four days alone would give a tenth"


def test_hours_are_read_from_the_history_before_the_window_on() -> None:
    known = Hours(**OTHERS)
    settings = IdleSettings(
        history=timedelta(days=9), exit_threshold=0.1, threshold=0.2, working_hours=(0, 24)
    )
    answer(known, stretch(20, 15), settings=settings)
    assert known.parameters["since"] == window().start.replace(tzinfo=None) - timedelta(days=9)
    assert known.parameters["until"] == window().end.replace(tzinfo=None)
    assert known.parameters["exit_threshold"] == 0.2
    lower = settings.model_copy(update={"threshold": 0.05})
    answer(known, stretch(20, 15), settings=lower)
    assert known.parameters["exit_threshold"] == 0.1
