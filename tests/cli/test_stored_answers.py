"""`fallow why-not` in five lines, from the plan that the last turn stored."""

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import load
from fallow.tables import Batch
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]
AT = datetime(2026, 11, 20, 12, 0)  # noqa: DTZ001  (tables hold naive UTC)
GATES = [{"gate": f"gate{n}", "text": f"reason {n}"} for n in range(5)]
ROW = {
    "cluster": "c",
    "namespace": "ns",
    "workload_kind": "Notebook",
    "ts": AT,
    "policy": "reclaim-idle",
    "finding": "f",
    "request": "abc123",
    "verb": "stop",
    "step": "act",
    "reasons": "[]",
    "owner": "risk",
    "gpus": 1.0,
    "usd_per_day": Decimal("82.34"),
    "acts": True,
}


REQUEST = {
    "cluster": "c",
    "about": "abc123",
    "kind": "approval-requested",
    "seq": 1,
    "ts": AT,
    "actor": "fallow",
    "document": "{}",
    "hash": "h",
}


def store(home: Path, *rows: dict[str, object], requested: bool = False) -> None:
    settings = load(environ={}, flags={"home": home, "cluster": "c"}).settings
    whole = [ROW | row for row in rows]
    columns: dict[str, object] = {name: [row[name] for row in whole] for name in whole[0]}
    with Warehouse.open(settings, write=True) as lake:
        lake.replace("plan", Batch.of("plan", columns).rows)
        if requested:
            entry: dict[str, object] = {name: [value] for name, value in REQUEST.items()}
            lake.replace("action", Batch.of("action", entry).rows)


APPROVAL = json.dumps([{"gate": "approval", "text": "somebody has to approve"}])


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"ruling": "allow"}, "policy reclaim-idle goes on now, step act: stop"),
        ({"ruling": "allow", "acts": False}, "step act: stop, were acting enabled"),
        (
            {"ruling": "allow", "step": "notify"},
            "nothing stops it yet; policy reclaim-idle only notifies its owner",
        ),
        (
            {"ruling": "allow", "step": "observe"},
            "nothing will stop it; policy reclaim-idle only lists it",
        ),
        ({"ruling": "hold", "reasons": APPROVAL}, "yet; policy reclaim-idle waits: stop"),
        (
            {"ruling": "hold", "reasons": APPROVAL, "next_at": AT},
            "waits until 2026-11-20 12:00 UTC: stop",
        ),
        (
            {"ruling": "deny", "step": None, "reasons": APPROVAL},
            "nothing will stop it; the nearest policy is reclaim-idle: stop",
        ),
        (
            {"ruling": "deny", "step": None, "policy": "", "reasons": APPROVAL},
            "nothing will stop it: no policy matches it",
        ),
        ({"ruling": "allow", "aborted": "frozen by ada"}, "nothing will stop it: frozen by ada"),
    ],
)
def test_the_first_line_says_what_happens(
    fallow: Fallow, tmp_path: Path, row: dict[str, object], text: str
) -> None:
    store(tmp_path, {"workload": "nb-1", **row})
    ran = fallow("why-not", "nb-1", "--home", tmp_path)
    assert ran.code == 0, ran.err
    first, *others = ran.out.splitlines()
    assert first.startswith("Notebook/ns/nb-1: ")
    assert text in first
    assert len(others) <= 4
    assert "as of 2026-11-20 12:00 UTC" in others[-1]


def test_a_held_act_names_its_reason_and_the_command_that_helps(
    fallow: Fallow, tmp_path: Path
) -> None:
    store(tmp_path, {"workload": "nb-1", "ruling": "hold", "reasons": APPROVAL}, requested=True)
    lines = fallow("why-not", "nb-1", "--home", tmp_path).out.splitlines()
    assert lines[1:4] == [
        "because approval: somebody has to approve",
        "to change that: `fallow approve abc123`",
        "it holds 1 GPU, $82.34 a day",
    ]


def test_only_a_request_of_the_journal_is_named(fallow: Fallow, tmp_path: Path) -> None:
    store(tmp_path, {"workload": "nb-1", "ruling": "hold", "reasons": APPROVAL})
    out = fallow("why-not", "nb-1", "--home", tmp_path).out
    assert "fallow approve" not in out
    assert "to change that: nothing to approve yet: a turn of `fallow up`" in out


def test_a_notice_names_what_keeps_it_from_more(fallow: Fallow, tmp_path: Path) -> None:
    store(tmp_path, {"workload": "nb-1", "ruling": "allow", "step": "notify", "reasons": APPROVAL})
    lines = fallow("why-not", "nb-1", "--home", tmp_path).out.splitlines()
    assert lines[1] == "because approval: somebody has to approve"


def test_three_reasons_are_named_and_the_others_counted(fallow: Fallow, tmp_path: Path) -> None:
    store(tmp_path, {"workload": "nb-1", "ruling": "deny", "reasons": json.dumps(GATES)})
    out = fallow("why-not", "nb-1", "--home", tmp_path).out
    assert "because gate0: reason 0; gate1: reason 1; gate2: reason 2 (and 2 more)" in out


def test_equal_names_in_two_clusters_need_the_name_of_one(fallow: Fallow, tmp_path: Path) -> None:
    store(
        tmp_path,
        {"workload": "nb-1", "ruling": "hold"},
        {"workload": "nb-1", "ruling": "allow", "cluster": "d"},
    )
    ran = fallow("why-not", "nb-1", "--home", tmp_path)
    assert (ran.code, "is in c and d" in ran.err) == (2, True)
    assert "goes on now" in fallow("why-not", "nb-1", "--home", tmp_path, "--cluster", "d").out


def test_an_unknown_name_is_refused(fallow: Fallow, tmp_path: Path) -> None:
    store(tmp_path, {"workload": "nb-1", "ruling": "hold"})
    ran = fallow("why-not", "nobody", "--home", tmp_path)
    assert (ran.code, "no workload 'nobody'" in ran.err) == (2, True)
