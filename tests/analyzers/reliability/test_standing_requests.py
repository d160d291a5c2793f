"""Requests that wait at a server from which no token comes."""

from typing import Any

import pytest

from analyzers.queries import load_sql
from analyzers.reliability.incidents.judge import judge_signals
from analyzers.reliability.incidents.process_signals import list_request_signals
from analyzers.reliability.incidents.rows import StandingRequests
from tests.analyzers.queried import WINDOW, at, query

QUEUE = {"cluster": "c", "namespace": "ns", "pod": "p", "interval_s": 300.0}


@pytest.mark.parametrize(
    ("waiting", "tokens", "ended", "stretches"),
    [
        ([3, 3], [0, 0], [0, 0], [(0, 10, 3)]),
        ([3], [0], [0], []),
        ([3, 3], [0, 1], [0, 0], []),
        ([3, 3], [0, None], [0, 0], []),
        ([None, None], [0, 0], [0, 0], []),
        ([0, 0], [0, 0], [0, 0], []),
        ([3, 3], [0, 0], [0, 1], []),
        ([3, 3], [0, 0], [None, None], [(0, 10, 3)]),
        ([3, 0, 5, 5], [0] * 4, [0] * 4, [(10, 20, 5)]),
        ([9, 3, 0, 5, 5], [0] * 5, [0] * 5, [(0, 10, 9), (15, 25, 5)]),
    ],
)
def test_requests_stand_still_where_they_wait_for_ten_minutes_and_no_token_comes(
    waiting: list[Any], tokens: list[Any], ended: list[Any], stretches: list[tuple[int, int, int]]
) -> None:
    rows = [
        {
            **QUEUE, "ts": at(5 * k), "requests_waiting": waiting[k], "tokens_per_s": tokens[k],
            "requests_per_s": ended[k],
        }
        for k in range(len(waiting))
    ]  # fmt: skip
    sql = load_sql("reliability/incidents/standing_requests")
    found = query(sql, {**WINDOW, "least_s": 600.0}, pod_sample=rows)
    assert [(r["at"], r["ended"], r["waiting"]) for r in found] == [
        (at(start), at(end), most) for start, end, most in stretches
    ]


def test_requests_that_stand_still_are_an_incident_for_the_owner() -> None:
    stretch = StandingRequests("c", "ns", "p", at(0), at(20), 12.0)
    (signal,) = list_request_signals([stretch], {("c", "ns", "p"): ("c", "ns", "Deployment", "w")})
    assert (signal.at, signal.known_at, signal.text) == (
        at(0), at(10), "12 requests wait and no token comes",
    )  # fmt: skip
    verdict = judge_signals([signal], has_checkpoint=False, recovered=False)
    assert (verdict.cause, verdict.step) == ("dead engine", "tell the owner")
    assert list(list_request_signals([stretch], {})) == []
