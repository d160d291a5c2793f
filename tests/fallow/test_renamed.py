"""Names that changed before 0.1.0: refused, renamed or read, each by one table."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.journal import Journal, JournalState, event_types
from actions.policy.parser import read_policies
from fallow import tables
from fallow.errors import FallowError, SettingsError, UsageError
from fallow.renamed import KINDS, list_renames, read_renames
from fallow.settings import Settings, load
from warehouse.lake import Warehouse

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_the_changelog_lists_every_name_that_changed() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert {rename.kind for rename in list_renames()} <= set(KINDS)
    for kind, old, new in list_renames():
        assert f"| {kind} | `{old}` | `{new}` |\n" in text


@pytest.mark.parametrize(("old", "new"), sorted(read_renames("setting").items()))
def test_an_old_setting_is_refused_by_its_new_name(old: str, new: str) -> None:
    with pytest.raises(SettingsError, match=f"setting '{old}' .*is called {new} since 0.1.0"):
        load(environ={}, flags={old: "1"})
    assert _read_annotation(new) is not None


def _read_annotation(dotted: str) -> Any:
    model: Any = Settings
    for name in dotted.split("."):
        model = model.model_fields[name].annotation
    return model


@pytest.mark.parametrize(("old", "new"), sorted(read_renames("policy").items()))
def test_an_old_key_of_a_policy_is_refused_by_its_new_name(
    tmp_path: Path, old: str, new: str
) -> None:
    values = {"stages": "[notify]", "reversals": "{rate: 5%}"}
    lines = [f"{old if key == new else key}: {value}" for key, value in values.items()]
    path = tmp_path / "p.yaml"
    path.write_text("\n".join(["name: nightly", *lines]) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=f"p.yaml:[23]: {old}: is called {new} since 0.1.0 .hint"):
        read_policies([path])
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    (policy,) = read_policies([path])
    assert policy.name == "nightly"


def test_a_warehouse_of_before_keeps_its_rows_under_the_new_columns(settings: Settings) -> None:
    renames = [(*old.split("."), new.split(".")[1]) for old, new in read_renames("column").items()]
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        cursor = warehouse._connection.cursor()
        for table, old, new in renames:
            cursor.execute(f'ALTER TABLE lake.main."{table}" RENAME COLUMN "{new}" TO "{old}"')
        cursor.execute(
            "INSERT INTO lake.main.policy (policy, ladder, regret_rate, regret_within_s)"
            " VALUES ('nightly', 'observe > notify', 0.05, 86400)"
        )
    with pytest.raises(FallowError, match="written by an older Fallow"):
        Warehouse.open(settings)
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        rows = warehouse.query(
            "SELECT stages, reversal_rate, reversal_within_s FROM policy WHERE policy = 'nightly'"
        ).to_pylist()
    assert rows == [
        {"stages": "observe > notify", "reversal_rate": 0.05, "reversal_within_s": 86400.0}
    ]
    for table, old, new in renames:
        names = {column.name for column in tables.list_columns(table)}
        assert new in names
        assert old not in names


def test_entries_of_before_are_read_under_the_names_of_today(tmp_path: Path) -> None:
    old = {
        "fingerprint": "f", "since": (NOW - timedelta(days=14)).isoformat(),
        "until": NOW.isoformat(), "judged": 9, "regretted": 2, "declared": 0.05,
    }  # fmt: skip
    with Journal.open(tmp_path / "journal.sqlite", lambda: NOW, actor="fallow") as journal:
        journal.append("backtested", "nightly", old)
        journal.append("noticed", "f1", {"policy": "nightly"})
        journal.append("demoted", "nightly", {"taken_back": 2})
        state = JournalState(journal).catch_up()
        proof = state.replays["nightly"].proof
        (backtested,) = journal.entries(event_types.BACKTESTED)
        (notified,) = journal.entries(event_types.NOTIFIED, key="f1")
        (demoted,) = journal.entries(event_types.DEMOTED)
        assert journal.verify() is None
    assert (proof.reversals, proof.judged) == (2, 9)
    assert (backtested.document["reversed"], demoted.document) == (2, {"reversed": 2})
    assert notified.kind == "notified"


def test_every_event_type_of_before_is_one_of_today() -> None:
    renames = read_renames("event")
    assert set(renames.values()) <= event_types.read_event_types()
    assert not set(renames) & event_types.read_event_types()
    for old in (name for kind, name, _ in list_renames() if kind == "journal"):
        kind = old.partition(".")[0]
        assert kind in renames or kind in event_types.read_event_types()


def test_the_warehouse_copy_of_before_gets_the_event_types_of_today(settings: Settings) -> None:
    renames = read_renames("event")
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        cursor = warehouse._connection.cursor()
        cursor.execute("DELETE FROM lake.main.schema_version WHERE version > 1")
        for number, kind in enumerate([*renames, "seen"]):
            cursor.execute(
                "INSERT INTO lake.main.action (cluster, seq, kind) VALUES ('c', $n, $kind)",
                {"n": number, "kind": kind},
            )
    with pytest.raises(FallowError, match="written by an older Fallow"):
        Warehouse.open(settings)
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as warehouse:
        rows = warehouse.query("SELECT kind FROM action ORDER BY seq").to_pylist()
    assert [row["kind"] for row in rows] == [*renames.values(), "seen"]
