"""A real server's past, chunk by chunk: resumed, never doubled, bounded, its gaps told as gaps."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.prometheus import raw
from collectors.prometheus.client import BudgetSpentError, PrometheusClient
from collectors.prometheus.collector import PrometheusCollector
from collectors.prometheus.cursors import list_pieces
from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.cli import run
from runtime.cli.options import CommandRun
from runtime.operations.ingestion.collection import drain, read_cursors
from tests.servers.misbehaving import Answer, Misbehaving
from tests.servers.prometheus import END, H100, MIG, SILENCE, START
from warehouse.lake import Warehouse

pytestmark = pytest.mark.xdist_group("prometheus")
Rows = Mapping[str, list[dict[str, Any]]]
LATER = END + timedelta(hours=2)
WHOLE = Window(END - timedelta(hours=18), END)
"""Three chunks of the default length."""
BUDGET = 35
"""Requests: more than one chunk takes, and fewer than three."""
LAST = Window(END - timedelta(hours=12), END)
"""Two chunks of the default length."""
RANGE = re.compile(r"\[(\d+)ms\]$")


def quiet(_what: str, _part: float) -> None:
    """Show no progress."""


@pytest.fixture
def home(tmp_path: Path, passing_on: Misbehaving) -> Settings:
    flags = {"home": tmp_path / "home", "cluster": "real", "prometheus.url": passing_on.url}
    return load(environ={}, flags=flags).settings


@pytest.fixture
def warehouse(home: Settings) -> Iterator[Warehouse]:
    with Warehouse.open(home, write=True, clock=lambda: LATER) as opened:
        yield opened


def collector(
    settings: Settings, done: Mapping[str, datetime] | None = None, **changed: Any
) -> PrometheusCollector:
    mine = settings.prometheus.model_copy(update=changed)
    return PrometheusCollector(
        mine, settings.cluster, lambda: LATER, sleep=lambda _: None, cursors=done
    )


def count(warehouse: Warehouse, table: str) -> int:
    rows = warehouse.query(f"SELECT count(*) AS n FROM {table}").to_pylist()
    return int(rows[0]["n"])


def ranges(server: Misbehaving) -> list[tuple[datetime, float]]:
    """Return the end and the hours of each stretch of raw samples that was asked for."""
    found = []
    for _, parameters in server.asked:
        match = RANGE.search(parameters.get("query", ""))
        if match:
            # One millisecond further back: Prometheus 2 and 3 close ranges on different sides.
            end = datetime.fromtimestamp(float(parameters["time"]) + 0.001, UTC)
            found.append((end, int(match[1]) / 3.6e6))
    return found


def test_an_interrupted_backfill_goes_on_where_it_stopped_and_doubles_nothing(
    warehouse: Warehouse, home: Settings, passing_on: Misbehaving, past_rows: Rows
) -> None:
    with pytest.raises(BudgetSpentError):
        drain(warehouse, collector(home, query_budget=BUDGET), WHOLE, quiet)
    [(_, until)] = read_cursors(warehouse).items()
    assert WHOLE.start < until < END
    half = count(warehouse, "sample")
    whole = {table: len(within(past_rows, WHOLE, table)) for table in ("sample", "pod_sample")}
    assert 0 < half < whole["sample"]
    first = len(passing_on.asked)
    assert first == BUDGET

    passing_on.asked.clear()
    added, duplicates = drain(warehouse, collector(home, read_cursors(warehouse)), WHOLE, quiet)
    assert duplicates == 0
    assert added > whole["sample"] - half
    assert min(end - timedelta(hours=h) for end, h in ranges(passing_on)) >= until
    assert count(warehouse, "sample") == whole["sample"]
    assert count(warehouse, "(SELECT DISTINCT device, ts FROM sample)") == whole["sample"]
    pods = count(warehouse, "pod_sample")  # a first sample of each besides: of before the window
    assert pods >= whole["pod_sample"]
    assert count(warehouse, "(SELECT DISTINCT namespace, pod, ts FROM pod_sample)") == pods

    passing_on.asked.clear()
    assert drain(warehouse, collector(home, read_cursors(warehouse)), WHOLE, quiet)[0] == 0
    assert ranges(passing_on) == []


def test_an_earlier_start_asks_only_for_what_is_missing_before(
    warehouse: Warehouse, home: Settings, passing_on: Misbehaving, past_rows: Rows
) -> None:
    middle = END - timedelta(hours=3)
    drain(warehouse, collector(home), Window(middle, END), quiet)
    passing_on.asked.clear()
    drain(warehouse, collector(home, read_cursors(warehouse)), LAST, quiet)
    assert max(end for end, _ in ranges(passing_on)) <= middle
    assert count(warehouse, "sample") == len(within(past_rows, LAST))


def test_a_server_that_stumbles_is_asked_again_and_nothing_is_lost(
    warehouse: Warehouse, home: Settings, passing_on: Misbehaving, past_rows: Rows
) -> None:
    real = passing_on.answering
    busy = iter(range(10_000))

    def stumbling(path: str, parameters: Mapping[str, str]) -> Answer:
        turn = next(busy)
        if turn % 5 == 3:
            return Answer(503, b"", {"Retry-After": "1"})
        answer = real(path, parameters)
        return answer._replace(body=answer.body[:-20], cut=True) if turn % 5 == 4 else answer

    passing_on.answering = stumbling
    drain(warehouse, collector(home), LAST, quiet)
    assert count(warehouse, "sample") == len(within(past_rows, LAST))


def test_a_server_that_falls_silent_half_way_keeps_what_came_before(
    warehouse: Warehouse, home: Settings, passing_on: Misbehaving
) -> None:
    real, middle = passing_on.answering, LAST.start + timedelta(hours=6)

    def dying(path: str, parameters: Mapping[str, str]) -> Answer:
        late = RANGE.search(parameters.get("query", "")) and float(parameters["time"]) > (
            middle.timestamp()
        )
        return Answer(503, b"") if late else real(path, parameters)

    passing_on.answering = dying
    with pytest.raises(TemporaryError, match="HTTP 503"):
        drain(warehouse, collector(home), LAST, quiet)
    assert list(read_cursors(warehouse).values()) == [middle]
    failed = warehouse.query("SELECT error FROM scrape WHERE NOT up AND target LIKE 'http%'")
    assert "HTTP 503" in failed.to_pylist()[0]["error"]


@pytest.mark.parametrize("refusal", ["too many samples", "11,000 points"])
def test_a_stretch_that_is_too_much_is_asked_in_halves(
    home: Settings, passing_on: Misbehaving, past_rows: Rows, refusal: str
) -> None:
    real = passing_on.answering
    body = f'{{"status":"error","errorType":"execution","error":"exceeded {refusal}"}}'

    def small(path: str, parameters: Mapping[str, str]) -> Answer:
        match = RANGE.search(parameters.get("query", ""))
        if match and int(match[1]) > 2 * 3.6e6:
            return Answer(422, body.encode())
        return real(path, parameters)

    passing_on.answering = small
    rows = samples(collector(home).collect(LAST))
    assert keys(rows) == keys(within(past_rows, LAST))
    served = [hours for _, hours in ranges(passing_on) if hours <= 2]
    assert max(served) == pytest.approx(1.5)


def test_chunks_are_no_longer_than_the_settings_and_the_memory_allow(
    home: Settings, passing_on: Misbehaving, past_rows: Rows
) -> None:
    list(collector(home, chunk=timedelta(hours=4)).collect(LAST))
    assert {hours for _, hours in ranges(passing_on)} == {4.0}
    passing_on.asked.clear()
    tight = collector(home)
    tight._max_samples = 10_000  # the fleet fills 2 values a second
    rows = samples(tight.collect(LAST))
    assert max(hours for _, hours in ranges(passing_on)) == 1.0
    assert keys(rows) == keys(within(past_rows, LAST))


@pytest.mark.slow
def test_a_coarser_step_keeps_the_last_look_of_each(home: Settings, past_rows: Rows) -> None:
    rows = samples(collector(home, step=timedelta(minutes=10)).collect(LAST))
    fine = keys(within(past_rows, LAST))
    assert keys(rows) < fine
    assert len(rows) == pytest.approx(len(fine) / 5, rel=0.04)


def test_a_silence_is_a_look_that_failed_and_no_row(past_rows: Rows) -> None:
    gaps = [r for r in past_rows["scrape"] if not r["up"]]
    assert [g["target"] for g in gaps] == [H100]
    assert gaps[0]["error"].startswith("no GPU series of this node for 46m")
    near = timedelta(minutes=2)
    assert abs(gaps[0]["ts"] - naive(SILENCE[0])) <= near
    assert abs(gaps[0]["until"] - naive(SILENCE[1])) <= near
    inside = {r["node"] for r in past_rows["sample"] if SILENCE[0] <= aware(r["ts"]) < SILENCE[1]}
    assert inside == {MIG}


@pytest.mark.parametrize(
    ("begin", "end", "first", "last"),
    [
        (20, 80, 20, 46),  # who was heard before the window is known to be silent
        (-60, 106, 0, 46),  # inside one chunk
        (-60, 30, 0, 30),  # still silent when the window ends
        (5, 35, 5, 35),  # silent all through
    ],
)
def test_a_silence_is_told_wherever_the_window_cuts_it(
    home: Settings, begin: int, end: int, first: int, last: int
) -> None:
    minutes = timedelta(minutes=1)
    window = Window(SILENCE[0] + begin * minutes, SILENCE[0] + end * minutes)
    rows = [
        row
        for batch in collector(home).collect(window)
        if batch.table == "scrape"
        for row in batch.rows.to_pylist()
        if not row["up"]
    ]
    assert [r["target"] for r in rows] == [H100]
    near = 2 * minutes
    assert abs(rows[0]["ts"] - naive(SILENCE[0] + first * minutes)) <= near
    assert abs(rows[0]["until"] - naive(SILENCE[0] + last * minutes)) <= near


@pytest.mark.parametrize(
    ("second", "length", "silent"),
    [
        (10, 100, []),  # between two samples, two minutes apart
        (10, 130, []),
        (-600, 700, []),
        # From two and a half intervals after the last sample on, it is silent.
        (46 * 60 - 20, 15, [H100]),
    ],
)
def test_a_window_shorter_than_an_interval_makes_nobody_silent(
    home: Settings, second: int, length: int, silent: list[str]
) -> None:
    start = (SILENCE[0] if silent else SILENCE[1] + timedelta(hours=1)) + timedelta(seconds=second)
    window = Window(start, start + timedelta(seconds=length))
    rows = [
        row["target"]
        for batch in collector(home).collect(window)
        if batch.table == "scrape"
        for row in batch.rows.to_pylist()
        if not row["up"]
    ]
    assert rows == silent


@pytest.mark.parametrize("newest", [0, 1])
def test_a_sample_on_a_chunks_edge_belongs_to_one_chunk(
    server: Misbehaving, asking: Callable[..., PrometheusClient], newest: int
) -> None:
    start = START.timestamp()
    stored = [start - 0.001, start, start + 30, start + 60 - 0.001, start + 60]
    # Prometheus 2 takes in a range's first moment, 3 leaves it out.
    seen = ",".join(f'[{t:.3f},"{i}"]' for i, t in enumerate(stored[:4]) if i >= newest)
    series = f'{{"metric":{{"__name__":"x"}},"values":[{seen}]}}'
    body = f'{{"status":"success","data":{{"resultType":"matrix","result":[{series}]}}}}'
    server.answers = [Answer(200, body.encode())]
    found = raw.read_samples(asking(), "x", Window(START, START + timedelta(minutes=1)))
    assert found.values.tolist() == [1.0, 2.0, 3.0]
    assert server.asked[0][1]["query"] == "x[60000ms]"
    assert float(server.asked[0][1]["time"]) == pytest.approx(start + 60 - 0.001, abs=1e-4)


@pytest.mark.slow
def test_live_passes_go_on_from_one_another_and_a_late_one_leaves_no_hole(
    home: Settings,
    passing_on: Misbehaving,
    past_rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FALLOW_PROMETHEUS__URL", passing_on.url)
    words = ["collect", "--once", "--home", str(home.home), "--cluster", "real", "-o", "json"]
    begin = END - timedelta(hours=3)
    for minutes in (0, 5, 50):
        instant = begin + timedelta(minutes=minutes)
        monkeypatch.setattr(CommandRun, "now", lambda _, at=instant: at)
        assert run(words) == 0
        document = json.loads(capsys.readouterr().out)["scrapes"]
        assert all(sample["up"] for sample in document)
    with Warehouse.open(home, clock=lambda: LATER) as opened:
        stored = opened.query("SELECT device, ts FROM sample").to_pylist()
    seen = Window(begin - timedelta(minutes=5), begin + timedelta(minutes=50, seconds=-30))
    assert keys(stored) == keys(within(past_rows, seen))
    assert len(stored) == len(keys(stored))


def test_passes_closer_together_than_data_settle_leave_no_hole(
    home: Settings, passing_on: Misbehaving, past_rows: Rows
) -> None:
    begin, every, passes = END - timedelta(hours=3), timedelta(seconds=20), 12
    now = begin
    mine = home.prometheus.model_copy(update={"url": passing_on.url})
    live = PrometheusCollector(mine, "real", lambda: now, sleep=lambda _: None)
    rows: list[dict[str, Any]] = samples(live.collect(Window(begin - timedelta(minutes=5), now)))
    for _ in range(passes):
        now += every
        rows += samples(live.collect(Window(now - every, now)))
    seen = Window(begin - timedelta(minutes=5), now - timedelta(seconds=30))
    assert keys(rows) == keys(within(past_rows, seen))


@pytest.mark.parametrize("ahead_s", [0.0, 600.0, -600.0])
def test_what_a_server_with_a_late_clock_has_not_stored_yet_is_read_later(
    home: Settings, passing_on: Misbehaving, ahead_s: float
) -> None:
    passing_on.ahead_s = ahead_s
    now = END - timedelta(hours=3)
    mine = home.prometheus.model_copy(update={"url": passing_on.url})
    live = PrometheusCollector(mine, "real", lambda: now, sleep=lambda _: None)
    rows = list(live.collect(Window(now - timedelta(hours=1), now)))
    done = {row["done_until"] for b in rows if b.table == "cursor" for row in b.rows.to_pylist()}
    newest = max(done).replace(tzinfo=UTC)
    behind = timedelta(seconds=min(ahead_s, 0.0))
    assert newest <= now + behind - timedelta(seconds=30)
    assert newest >= now + behind - timedelta(minutes=6)


def test_pieces_are_what_no_cursor_covers() -> None:
    day, hour = timedelta(days=1), timedelta(hours=1)
    done = {
        f"p since {START:%Y-%m-%dT%H:%M:%SZ}": START + hour,
        f"p since {START + 3 * hour:%Y-%m-%dT%H:%M:%SZ}": START + 5 * hour,
        "p since yesterday": START + day,
        "q since 2020-01-01T00:00:00Z": START + day,
    }
    left = list_pieces(Window(START, START + 8 * hour), "p", done)
    hours = [((p.window.start - START) / hour, (p.window.end - START) / hour) for p in left]
    assert hours == [(1, 3), (5, 8)]
    young = list_pieces(
        Window(START, START + 8 * hour), "p", done, overlap=hour / 4, settled_until=START
    )
    assert [(p.window.start - START) / hour for p in young] == [1, 4.75]


def samples(batches: Iterator[Batch]) -> list[dict[str, Any]]:
    return [r for b in batches if b.table == "sample" for r in b.rows.to_pylist()]


def within(rows: Rows, window: Window, table: str = "sample") -> list[dict[str, Any]]:
    return [r for r in rows[table] if window.start <= aware(r["ts"]) < window.end]


def keys(rows: list[dict[str, Any]]) -> set[tuple[str, datetime]]:
    return {(r["device"], r["ts"]) for r in rows}


def naive(instant: datetime) -> datetime:
    return instant.replace(tzinfo=None)


def aware(instant: datetime) -> datetime:
    return instant.replace(tzinfo=UTC)
