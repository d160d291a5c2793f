"""What was read and refused is listed by its name, in clean texts and in bounded numbers."""

from datetime import UTC, datetime, timedelta

import pytest

from fallow.rejections import MOST_LISTED, MOST_OF_NAMESPACE, Rejection, build_batch
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.texts import CUT
from warehouse import ingest
from warehouse.lake import Warehouse

AT = datetime(2026, 11, 20, 10, tzinfo=UTC)


def build(*rejected: Rejection, at: datetime = AT) -> Batch:
    return build_batch(rejected, cluster="c", source="kubernetes", at=at)


def test_a_name_that_is_unclean_is_listed_escaped_and_cut() -> None:
    name = "a\x00\ud800\x1b[31m" + "x" * 500
    (row,) = build(Rejection("pod", "ns", name, "pod", "not readable", uid="\n")).rows.to_pylist()
    assert row["name"].startswith("a\\x00\\ud800\\x1b[31mxx")
    assert row["name"].endswith("… (508 characters)")
    assert (len(row["name"].encode()), row["uid"]) == (CUT, "\\n")


def test_a_flood_is_counted_beyond_what_is_listed() -> None:
    of_one = [Rejection("pod", "ns", f"p-{n}", "cpu", "9E") for n in range(300)]
    rows = build(*of_one).rows.to_pylist()
    assert len(rows) == MOST_OF_NAMESPACE + 1
    assert {(r["namespace"], r["name"], r["count"]) for r in rows if not r["name"]} == {
        ("ns", "", 300 - MOST_OF_NAMESPACE)
    }
    of_many = [Rejection("pod", f"ns-{n}", "p", "cpu", "9E") for n in range(5_000)]
    rows = build(*of_many).rows.to_pylist()
    assert len(rows) == MOST_LISTED + 1
    assert sum(row["count"] for row in rows) == 5_000


def test_a_pass_adds_to_the_count_once_and_what_was_not_seen_for_a_week_is_dropped(
    settings: Settings, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, old = (Rejection("pod", "ns", name, "cpu", "9E") for name in ("bad", "old"))
    clock = [now]
    with Warehouse.open_in_memory(settings, clock=lambda: clock[0]) as warehouse:
        for at in (now, now, now + timedelta(minutes=1)):  # the second is a repeated delivery
            warehouse.ingest([build(bad, at=at)])
        warehouse.ingest([build(old, at=now - timedelta(days=8))])
        assert warehouse.query("SELECT name, count, last_seen FROM rejection").to_pylist() == [
            {
                "name": "bad",
                "count": 2,
                "last_seen": (now + timedelta(minutes=1)).replace(tzinfo=None),
            }
        ]
        monkeypatch.setattr(ingest, "MOST_REJECTIONS", 20)
        for minute in range(2, 5):
            clock[0] = now + timedelta(minutes=minute)
            flood = [Rejection("pod", f"{minute}", f"p-{n}", "cpu", "9E") for n in range(15)]
            warehouse.ingest([build(*flood, at=clock[0])])
        (row,) = warehouse.query(
            "SELECT count(*) AS n, max(namespace) AS ns FROM rejection"
        ).to_pylist()
        assert (row["n"] <= 30, row["ns"]) == (True, "4")
