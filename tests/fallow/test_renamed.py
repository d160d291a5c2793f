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
        names = {column.name for column in tables.columns(table)}
        assert new in names
        assert old not in names


def test_an_entry_of_the_journal_with_old_fields_is_read_and_stays_as_it_is(tmp_path: Path) -> None:
    old = {
        "fingerprint": "f", "since": (NOW - timedelta(days=14)).isoformat(),
        "until": NOW.isoformat(), "judged": 9, "regretted": 2, "declared": 0.05,
    }  # fmt: skip
    with Journal.open(tmp_path / "journal.sqlite", lambda: NOW, actor="fallow") as journal:
        JournalState(journal).append(event_types.BACKTESTED, "nightly", old)
        proof = JournalState(journal).catch_up().replays["nightly"].proof
        (entry,) = journal.entries(event_types.BACKTESTED)
    assert (proof.reversals, proof.judged) == (2, 9)
    assert entry.document == old
