"""Savings as a noun: kept once an hour, the same rows give the same again, listed by command."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from actions.journal import Journal, JournalState, event_types
from actions.journal.warehouse_copy import copy_journal
from actions.savings.storage import store_hourly, store_savings
from fallow.action_models import Action, Change, Decision, Facts, FreedPod, Intent, Outcome, Target
from fallow.models import Finding, Recommendation, Subject
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from tests.cli.conftest import Fallow
from tests.cli.conftest import fallow as fallow  # noqa: PLC0414  (a fixture)
from tests.rates import every_gpu
from warehouse import audits
from warehouse.lake import Warehouse

NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
ACT = NOW - timedelta(hours=10)
WATCHED = timedelta(days=14)
POLICY = {"name": "idle", "fingerprint": "f", "text": {}}


def naive(hours: float) -> datetime:
    """A moment so many hours after the act, as tables keep it."""
    return (ACT + timedelta(hours=hours)).replace(tzinfo=None)


def journalled(home: Path, name: str, *, back: float | None = None) -> str:
    """Write the rows of an action that took, and of the owner who took it back."""
    target = Target("c", "v1", "Notebook", "ml", name, f"uid-{name}")
    decision = Decision(
        id=f"d-{name}",
        policy="idle",
        finding=f"f-{name}",
        subject=("c", "Notebook", "ml", name),
        verb="stop",
        step="act",
        ruling="allow",
        reasons=(),
        at=ACT,
        owner="team-a",
    )
    held = FreedPod("ml", f"{name}-0", "u", "n", 1.0)
    change = Change(target, "PATCH", "/p", {})
    action = Action(
        id=f"a-{name}",
        decision=decision,
        intent=Intent(target, "suspend", (change,), (change,), frees=(held,)),
        at=ACT,
        actor="service",
    )
    finding = Finding(
        id=f"f-{name}",
        analyzer="idle",
        kind="idle",
        subject=Subject("c", "ml", "Notebook", name),
        window=Window(ACT - timedelta(hours=2), ACT),
        verdict="idle",
        evidence="confirmed",
        confidence=0.9,
        gpu_hours=2.0,
        usd=Decimal(5),
        details={},
    )
    facts = Facts(finding, Recommendation("stop", "x", "idle", reversible=True), ACT, gpus=1.0)
    instant = [ACT]
    with Journal.open(home / "journal.sqlite", lambda: instant[0]) as journal:
        journal.append(event_types.SEEN, f"f-{name}", {})
        journal.append(event_types.NOTIFIED, f"f-{name}", {"policy": "idle"})
        journal.append(
            event_types.INTENT, action.id, {"action": action, "facts": facts, "policy": POLICY}
        )
        journal.append(event_types.SENDING, action.id, {"change": 0})
        journal.append(event_types.SENT, action.id, {"change": 0, "code": 200})
        journal.append(event_types.OUTCOME, action.id, Outcome(action.id, "done", ACT))
        if back is not None:
            instant[0] = ACT + timedelta(hours=back)
            journal.append(event_types.REVERSED, action.id, {"by": "ann", "person": True})
    return action.id


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(environ={}, flags={"home": tmp_path, "cluster": "c"}).settings


@pytest.fixture
def lake(settings: Settings) -> Iterator[Warehouse]:
    """Return a warehouse with three boards of $2 an hour; two held what is stopped."""
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as made:
        names = ["GPU-0", "GPU-1", "GPU-2"]
        made.ingest(
            [
                Batch.of(
                    "device",
                    {
                        "cluster": ["c"] * 3,
                        "device": names,
                        "node": ["n"] * 3,
                        "model": ["NVIDIA H100 80GB HBM3"] * 3,
                        "weight": [1.0] * 3,
                        "first_seen": [naive(-3)] * 3,
                        "last_seen": [naive(10)] * 3,
                    },
                ),
                every_gpu("2"),
            ]
        )
        held = [
            ("GPU-0", "nb", -2, 0),
            ("GPU-1", "back", -2, 0),
            ("GPU-1", "back", 4, 10),
            ("GPU-0", "train", 6, 10),
        ]
        rows = Batch.of(
            "allocation",
            {
                "cluster": ["c"] * len(held),
                "device": [h[0] for h in held],
                "pod_uid": [f"{h[1]}-{h[2]}" for h in held],
                "start": [naive(h[2]) for h in held],
                "end": [naive(h[3]) for h in held],
                "namespace": ["ml"] * len(held),
                "workload_kind": ["Notebook"] * len(held),
                "workload": [h[1] for h in held],
                "share": [1.0] * len(held),
            },
        )
        made.replace("allocation", rows.rows)
        yield made


def stored(lake: Warehouse) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.query("FROM saving ORDER BY action, kind").to_pylist()
    return rows


def record(settings: Settings) -> JournalState:
    journal = Journal.open(settings.home / "journal.sqlite", lambda: NOW)
    return JournalState(journal).catch_up()


def test_savings_are_kept_and_keeping_them_again_changes_nothing(
    settings: Settings, lake: Warehouse
) -> None:
    journalled(settings.home, "nb")
    journalled(settings.home, "back", back=4)
    entries = store_savings(lake, record(settings), "c", WATCHED, NOW)
    rows = stored(lake)
    assert [(r["action"], r["kind"], r["gpu_hours"], r["usd"]) for r in rows] == [
        ("a-back", "released", 4.0, Decimal(8)),
        ("a-nb", "released", 6.0, Decimal(12)),
        ("a-nb", "served", 4.0, Decimal(8)),
    ]
    assert len(entries) == 3
    assert not any(r["is_final"] for r in rows)
    assert [r["is_reversed"] for r in rows] == [True, False, False]
    assert {r["team"] for r in rows} == {"team-a"}
    store_savings(lake, record(settings), "c", WATCHED, NOW)
    assert stored(lake) == rows
    whole = Window(ACT, NOW)
    assert "saved" not in {f.audit for f in audits.run_audits(lake, whole)}
    with lake.transaction() as cursor:
        cursor.execute("UPDATE saving SET usd = usd + 100")
    assert "saved" in {f.audit for f in audits.run_audits(lake, whole)}


def test_a_kind_that_is_none_any_more_is_gone_from_the_noun(
    settings: Settings, lake: Warehouse
) -> None:
    journalled(settings.home, "nb")
    store_savings(lake, record(settings), "c", WATCHED, NOW)
    with lake.transaction() as cursor:
        cursor.execute("DELETE FROM allocation WHERE workload = 'train'")
    store_savings(lake, record(settings), "c", WATCHED, NOW)
    assert [(r["kind"], r["gpu_hours"]) for r in stored(lake)] == [("released", 10.0)]


LATER = ACT + WATCHED + timedelta(hours=1)


def test_after_its_watch_it_is_left_as_it_was_measured(settings: Settings, lake: Warehouse) -> None:
    journalled(settings.home, "back", back=0.5)
    store_savings(lake, record(settings), "c", WATCHED, LATER)
    before = stored(lake)
    assert [(r["gpu_hours"], r["is_final"]) for r in before] == [(0.5, True)]
    assert store_savings(lake, record(settings), "c", WATCHED, LATER + timedelta(days=1)) == []
    assert stored(lake) == before


def test_what_came_back_saves_no_more_while_its_prediction_goes_on(
    settings: Settings, lake: Warehouse
) -> None:
    journalled(settings.home, "back", back=0.5)
    idle = {
        "analyzer": "idle", "verdict": "idle", "cluster": "c", "namespace": "ml",
        "workload_kind": "Notebook",
        "start": ACT.replace(tzinfo=None) - timedelta(hours=50),
        "end": ACT.replace(tzinfo=None) - timedelta(hours=10),
    }  # fmt: skip
    names = [f"w{n}" for n in range(10)]
    rows = {key: [value] * len(names) for key, value in idle.items()}
    lake.replace("finding", Batch.of("finding", rows | {"id": names, "workload": names}).rows)
    result = []
    for hours in (1, 10):
        store_savings(lake, record(settings), "c", WATCHED, ACT + timedelta(hours=hours))
        result += [(r["gpu_hours"], r["predicted_gpu_hours"]) for r in stored(lake)]
    assert result == [(0.5, pytest.approx(1)), (0.5, pytest.approx(10))]


def test_a_turn_measures_once_an_hour(settings: Settings, lake: Warehouse) -> None:
    journalled(settings.home, "nb")
    result: list[int] = []
    measure = store_hourly(
        lake, record(settings), "c", WATCHED, lambda entries: result.append(len(entries))
    )
    for minutes in (0, 30, 59, 61):
        measure(NOW + timedelta(minutes=minutes))
    assert len(result) == 2


@pytest.mark.parametrize("by", ["policy", "team", "action", "kind"])
def test_the_command_adds_up_however_it_is_asked(
    settings: Settings, lake: Warehouse, fallow: Fallow, by: str
) -> None:
    journalled(settings.home, "nb")
    journalled(settings.home, "back", back=4)
    store_savings(lake, record(settings), "c", WATCHED, NOW)
    lake.close()
    where = ("--home", settings.home, "--cluster", "c")
    ran = fallow("saved", "--by", by, "-o", "json", *where)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["schema"] == "fallow.savings/v1"
    rows, total = document["savings"], document["total"]
    assert sum(r["usd"] for r in rows) == pytest.approx(total["usd"])
    assert total["usd"] == pytest.approx(sum(total[k] or 0 for k in ("cash", "served", "released")))
    assert (total["actions"], total["reversed"], total["reversal_rate"]) == (2, 1, 0.5)
    assert total["reversal_low"] == pytest.approx(0.0945, abs=1e-3)
    assert total["reversal_high"] == pytest.approx(0.9055, abs=1e-3)
    ran = fallow("saved", "--by", by, *where)
    assert "reversed by their owners within 24 h: 1 of 2" in ran.err
    assert fallow("saved", "--by", "owner", *where).code == 2


def test_each_case_is_one_row_from_finding_to_saving(
    settings: Settings, lake: Warehouse, fallow: Fallow
) -> None:
    journalled(settings.home, "nb")
    journalled(settings.home, "back", back=4)
    with Journal.open(settings.home / "journal.sqlite", lambda: NOW) as journal:
        journal.append(event_types.SEEN, "f-new", {})
        copy_journal(journal, lake, "c")
    store_savings(lake, record(settings), "c", WATCHED, NOW)
    lake.close()
    ran = fallow("saved", "--cases", "-o", "json", "--home", settings.home, "--cluster", "c")
    assert ran.code == 0, ran.err
    cases = json.loads(ran.out)["cases"]
    rows = {r["finding"]: r for r in cases}
    assert sorted((r["finding"], r["policy"]) for r in cases) == [
        ("f-back", "idle"), ("f-nb", "idle"), ("f-new", None)
    ], "notified and acted upon are one row, under the policy's name"  # fmt: skip
    assert {f: r["state"] for f, r in rows.items()} == {
        "f-nb": "done",
        "f-back": "done",
        "f-new": "identified",
    }
    assert rows["f-nb"]["saved_usd"] == pytest.approx(20)
    assert rows["f-nb"]["verified_at"] is not None
    assert rows["f-back"]["reversed_at"] is not None
