"""What was known of a stretch at each time: lengths, members, ends and sums, by hand."""

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from analyzers.idle.flags import add_recurrence
from analyzers.idle.history import add_longest_rest
from analyzers.idle.holders import join_overlapping
from analyzers.idle.pieces import SUMS, list_ranges
from analyzers.idle.samples import SampleQuery
from analyzers.idle.stretches import (
    find_stretches,
    join_pieces,
    keep_beside_busy,
    list_at_times,
    list_members,
)
from fallow.settings.idle import IdleSettings
from warehouse.signals.runs import MICRO

LEAST = {"idle": 60, "partly idle": 30}


def hold(number: int, start: int = 0, end: int = 1000, owner: int = 0) -> dict[str, Any]:
    return {"owner": owner, "number": number, "start": start, "end": end, "share": 1.0}


def piece(number: int, start: int, end: int, owner: int = 0, gpus: float = 1.0) -> dict[str, Any]:
    return {"owner": owner, "number": number, "start": start, "end": end, "gpus": gpus}


@pytest.mark.parametrize(
    ("end", "least", "found"),
    [
        (160, LEAST, [(100, 160, "idle")]),
        (159, LEAST, []),
        (160, {"idle": 61}, []),
    ],
)
def test_a_stretch_has_the_least_length_of_its_state(
    end: int, least: dict[str, int], found: list[Any]
) -> None:
    whole = pl.DataFrame([piece(0, 100, end)])
    rows = find_stretches(whole, pl.DataFrame([hold(0)]), least)
    assert rows.select("start", "end", "state").rows() == found


def test_partly_idle_stretches_are_left_out_where_they_have_no_least_length() -> None:
    whole = pl.DataFrame([piece(0, 100, 200), piece(1, 130, 200)])
    holds = pl.DataFrame([hold(0), hold(1)])
    both = find_stretches(whole, holds, LEAST)
    assert both.select("span", "start", "end", "state", "devices").rows() == [
        (0, 100, 130, "partly idle", 2), (1, 130, 200, "idle", 2),
    ]  # fmt: skip
    assert find_stretches(whole, holds, {"idle": 60})["state"].to_list() == ["idle"]
    assert find_stretches(whole, holds, LEAST | {"partly idle": 31})["state"].to_list() == ["idle"]


def test_overlaps_are_those_of_the_same_owner_and_longer_than_nothing() -> None:
    times = pl.DataFrame({"span": [0, 1], "owner": [0, 1], "start": [10, 10], "end": [20, 20]})
    parts = pl.DataFrame([hold(0, 0, 10), hold(1, 0, 11), hold(2, 15, 40), hold(3, 20, 30)])
    assert join_overlapping(times, parts).select(
        "span", "number", "start", "end", "overlap"
    ).rows() == [(0, 1, 10, 11, 1), (0, 2, 15, 20, 5)]


class Shares:
    """Views that answer how many samples of device d1 computed."""

    def __init__(self, samples: int | None, busy: int | None) -> None:
        self.parameters: dict[str, Any] = {}
        self._row = {"span": [0], "device": ["d1"], "samples": [samples], "busy": [busy]}

    def query(self, sql: str, parameters: Any = None) -> pa.Table:
        assert sql
        self.parameters = parameters
        types = [pa.int64(), pa.string(), pa.int64(), pa.int64()]
        return pa.table(self._row, pa.schema(list(zip(self._row, types, strict=True))))


QUERY = SampleQuery(
    "sample",
    9,
    pl.DataFrame({"number": [0, 1, 2], "cluster": ["c"] * 3, "device": ["d0", "d1", "d2"]}),
    3.0,
    {"since": 0, "until": 1000, "exit_threshold": 0.1},
)


@pytest.mark.parametrize(
    ("samples", "busy", "kept"),
    [(10, 2, 2), (100, 19, 1), (10, 0, 1), (10, None, 1), (0, 0, 1), (None, None, 1)],
)
def test_ranks_are_idle_beside_a_device_that_computes_in_a_fifth_of_its_samples(
    samples: int | None, busy: int | None, kept: int
) -> None:
    whole = pl.DataFrame([piece(0, 100, 200), piece(0, 500, 600), piece(1, 500, 600)])
    whole = whole.with_row_index("piece")
    holds = pl.DataFrame([hold(0), hold(1), hold(2, 700, 800)])
    stretches = find_stretches(whole, holds, LEAST)
    assert stretches["state"].to_list() == ["partly idle", "idle"]
    views: Any = Shares(samples, busy)
    rows = keep_beside_busy(views, QUERY, stretches, whole, holds)
    assert rows.height == kept
    assert rows["state"].to_list()[-1] == "idle"
    wanted = views.parameters
    assert (wanted["devices"], wanted["starts"], wanted["ends"]) == (["d1"], [100], [200])


def test_members_of_a_stretch_are_the_pieces_that_overlap_it() -> None:
    stretches = pl.DataFrame({"span": [7], "owner": [0], "start": [10], "end": [20]})
    whole = pl.DataFrame([piece(0, 0, 10), piece(0, 0, 11), piece(0, 19, 30), piece(0, 20, 30)])
    whole = whole.with_row_index("piece").with_columns(run_start=pl.lit(0), ripe=pl.lit(5))
    rows = list_members(stretches, whole)
    assert rows.select("span", "piece", "start", "end").rows() == [(7, 1, 0, 11), (7, 2, 19, 30)]


def at_times(
    *,
    stretch: tuple[int, int] = (100, 400),
    times: tuple[int, ...] = (159, 160, 250, 400, 420, 421),
    ripe: int = 130,
    slack: int = 20,
    over: bool = False,
    known: tuple[tuple[int, int], ...] = (),
    state: str = "idle",
) -> list[tuple[int, int, int]]:
    """Return k, start and end of one stretch of one piece; `known` are k and end inside it."""
    candidates = pl.DataFrame(
        {"span": [0], "owner": [0], "start": [stretch[0]], "end": [stretch[1]], "state": [state],
         "devices": [1], "slack_us": [slack]}
    )  # fmt: skip
    members = pl.DataFrame(
        {"span": [0], "piece": [0], "run_start": [100], "ripe": [ripe], "start": [stretch[0]],
         "end": [stretch[1]]}
    )  # fmt: skip
    inside = pl.DataFrame(
        [(0, k, end) for k, end in known],
        schema={"piece": pl.Int64, "k": pl.Int64, "end": pl.Int64},
        orient="row",
    )
    rows = list_at_times(candidates, members, inside, np.array(times), least=LEAST, over=over)
    return [(row["k"], row["start"], row["end"]) for row in rows.rows(named=True)]


def test_a_stretch_is_known_from_its_least_length_until_the_slack_after_its_end() -> None:
    expected = [(1, 100, 160), (2, 100, 250), (3, 100, 400), (4, 100, 400)]
    assert at_times() == expected
    assert at_times(over=True) == [*expected, (5, 100, 400)]
    assert at_times(slack=21) == [*expected, (5, 100, 400)]
    assert at_times(state="partly idle", times=(129, 130), ripe=110) == [(1, 100, 130)]


def test_a_stretch_ends_where_its_device_was_no_longer_known_to_be_idle() -> None:
    assert at_times(known=((2, 240),)) == [(1, 100, 160), (2, 100, 240), (3, 100, 400),
                                           (4, 100, 400)]  # fmt: skip
    assert at_times(known=((2, 230),))[1] == (2, 100, 230)
    assert [k for k, *_ in at_times(known=((2, 229),))] == [1, 3, 4], "longer ago than the slack"
    assert [k for k, *_ in at_times(known=((1, 159),))] == [2, 3, 4], "shorter than the least"


def test_a_run_that_is_too_short_to_be_known_ends_the_stretch_at_its_start() -> None:
    assert [k for k, *_ in at_times(ripe=160)] == [2, 3, 4]
    assert [k for k, *_ in at_times(ripe=159)] == [1, 2, 3, 4]
    assert [k for k, *_ in at_times(ripe=250, over=True)] == [3, 4, 5]


def test_ranges_are_listed_one_after_the_other() -> None:
    assert list_ranges(np.array([3, 5, 9]), np.array([5, 5, 12])).tolist() == [3, 4, 9, 10, 11]


def pieces_of(
    row: dict[str, int], known: tuple[tuple[int, int], ...] = (), silent: float = 0.0
) -> list[dict[str, Any]]:
    """Return the pieces of one row; piece 0 lasts from 100 to 200 and piece 1 from 200 to 300."""
    rows = pl.DataFrame([{"row": 0, "span": 0, "k": 0, "at": 1000} | row])
    members = pl.DataFrame(
        {"span": [0, 0], "piece": [0, 1], "start": [100, 200], "end": [200, 300]}
    )
    sums: dict[str, Any] = dict.fromkeys(SUMS, 1.0) | {"silent_us": silent}
    whole = pl.DataFrame(
        [
            {"piece": n, "number": n, "share": 0.5, "gpus": 0.25, "gpu_model": "H100",
             "instance": False, **sums}
            for n in range(2)
        ]
    )  # fmt: skip
    inside = pl.DataFrame(
        [{"piece": 0, "k": k, "end": end, **(sums | {"samples": 7.0})} for k, end in known],
        schema={"piece": pl.Int64, "k": pl.Int64, "end": pl.Int64,
                **dict.fromkeys(SUMS, pl.Float64)},
    )  # fmt: skip
    return join_pieces(rows, members, whole, inside).sort("piece").rows(named=True)


def test_a_row_has_the_part_of_each_piece_within_it() -> None:
    first, second = pieces_of({"start": 150, "end": 260})
    assert (first["start"], first["end"], first["overlap"]) == (150, 200, 50.0)
    assert (first["piece_start"], first["piece_end"], first["samples"]) == (100, 200, 1.0)
    assert (second["start"], second["end"], second["overlap"]) == (200, 260, 60.0)
    assert (second["piece_start"], second["piece_end"], second["number"]) == (200, 300, 1)


@pytest.mark.parametrize(
    ("start", "end", "pieces"),
    [(100, 200, [0]), (200, 300, [1]), (199, 201, [0, 1]), (300, 400, []), (0, 100, [])],
)
def test_a_row_has_the_pieces_that_overlap_it(start: int, end: int, pieces: list[int]) -> None:
    assert [row["piece"] for row in pieces_of({"start": start, "end": end})] == pieces


def test_a_piece_at_a_time_within_it_has_the_sums_of_that_time() -> None:
    row = {"start": 100, "end": 180, "k": 4, "at": 180}
    (growing,) = pieces_of(row, known=((4, 170),))
    assert (growing["piece_end"], growing["end"], growing["samples"]) == (170, 170, 7.0)
    (other,) = pieces_of(row, known=((3, 170),))
    assert (other["piece_end"], other["end"], other["samples"]) == (180, 180, 1.0)
    assert pieces_of(row | {"start": 170}, known=((4, 170),)) == [], "it ended when the row began"
    assert len(pieces_of(row | {"start": 169}, known=((4, 170),))) == 1


@pytest.mark.parametrize(
    ("silent", "seen"), [(0.0, 1.0), (25.0, 0.75), (100.0, 0.0), (150.0, 0.0), (-9.0, 1.0)]
)
def test_silence_in_a_piece_is_no_idle_time(silent: float, seen: float) -> None:
    (row,) = pieces_of({"start": 100, "end": 150}, silent=silent)
    assert (row["seen"], row["overlap"]) == (seen, 50 * seen)


DAY = 86_400 * MICRO
AT = 100 * DAY


@pytest.mark.parametrize(
    ("ended", "longest"),
    [
        ([(AT - 9 * DAY, AT - 7 * DAY)], 2 * DAY),
        ([(AT - 9 * DAY, AT - 7 * DAY), (AT - 6 * DAY, AT - 5 * DAY)], 2 * DAY),
        ([(AT - 40 * DAY, AT - 30 * DAY + 1)], 10 * DAY + 1),
        ([(AT - 40 * DAY, AT - 30 * DAY)], None),
        ([(AT - 9 * DAY, AT - 2 * DAY)], 7 * DAY),
        ([(AT - 9 * DAY, AT - 2 * DAY + 1)], None),  # it ended after this one began
        ([], None),
    ],
)
def test_the_longest_rest_is_that_of_the_history_before_the_stretch(
    ended: list[tuple[int, int]], longest: int | None
) -> None:
    rows = build_rows(AT - 2 * DAY)
    rests = pl.DataFrame(
        [(3, *each) for each in ended],
        schema={"owner": pl.Int64, "start": pl.Int64, "end": pl.Int64},
        orient="row",
    )
    both = add_longest_rest(rows, rests, build_bursts(), IdleSettings())
    assert both["longest_rest_us"].to_list() == [longest, None]
    assert both["rested_us"].to_list() == [2 * DAY] * 2


FIVE = 300 * MICRO


@pytest.mark.parametrize(
    ("bursts", "longest", "rested"),
    [
        ([], None, 10 * DAY),
        ([AT - 4 * DAY], 6 * DAY, 4 * DAY),
        ([AT - 8 * DAY, AT - 3 * DAY], 5 * DAY, 3 * DAY),
        ([AT - 11 * DAY], None, 10 * DAY),  # before it began
        ([AT - FIVE], 10 * DAY - FIVE, FIVE),
        ([AT - FIVE + 1], None, 10 * DAY),  # not known yet
    ],
)
def test_a_burst_ends_a_rest_and_no_stretch(
    bursts: list[int], longest: int | None, rested: int
) -> None:
    rows = build_rows(AT - 10 * DAY)
    none = pl.DataFrame(schema={"owner": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    both = add_longest_rest(rows, none, build_bursts(*bursts), IdleSettings())
    assert both["longest_rest_us"].to_list() == [longest, None]
    assert both["rested_us"].to_list() == [rested, 10 * DAY]
    assert both["end"].to_list() == [AT, AT]


@pytest.mark.parametrize(
    ("before_end", "longest", "rested"), [(FIVE, DAY - FIVE, FIVE), (FIVE - 1, None, DAY)]
)
def test_the_work_that_ended_a_stretch_is_no_burst_in_it(
    before_end: int, longest: int | None, rested: int
) -> None:
    """It is in the five minutes of the end: a rest of a day was one until then."""
    end = AT - 2 * DAY
    rows = build_rows(end - DAY).with_columns(end=end)
    none = pl.DataFrame(schema={"owner": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    both = add_longest_rest(rows, none, build_bursts(end - before_end), IdleSettings())
    assert both["longest_rest_us"].to_list() == [longest, None]
    assert both["rested_us"].to_list() == [rested, DAY]


@pytest.mark.parametrize(("rested", "recurrent"), [(2, True), (2.99, True), (3, False)])
def test_a_rest_that_is_no_longer_than_others_may_end_by_itself(
    rested: float, recurrent: bool
) -> None:
    rows = build_rows(AT - round((rested + 6) * DAY))
    bursts = build_bursts(*(AT - round((rested + n) * DAY) for n in (0, 2, 4)))
    none = pl.DataFrame(schema={"owner": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    both = add_longest_rest(rows, none, bursts, IdleSettings()).with_columns(state=pl.lit("idle"))
    assert add_recurrence(both)["recurrent"].to_list() == [recurrent, False]


def build_rows(start: int) -> pl.DataFrame:
    """Return two stretches that last until AT, of two workloads."""
    return pl.DataFrame(
        {"row": [0, 1], "span": [7, 8], "owner": [3, 4], "start": [start] * 2, "end": AT, "at": AT}
    )


def build_bursts(*at: int) -> pl.DataFrame:
    """Return when the first of them worked for a moment."""
    schema = {"span": pl.Int64, "burst_us": pl.Int64}
    return pl.DataFrame([(7, each) for each in at], schema=schema, orient="row")
