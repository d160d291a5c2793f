"""A baseline is written once and read as it was written, or not at all."""

import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fallow.errors import FallowError, UsageError
from fallow.settings import Settings
from runtime.operations.accounting import baselines

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def measured(days: int = 7, usd: str | None = "700.00") -> dict[str, Any]:
    start = NOW - timedelta(days=days)
    row = {"gpu_hours": 24.0 * days, "usd": usd}
    return {
        "window": {"start": start.isoformat(), "end": NOW.isoformat()},
        "hours": 24.0 * days,
        "cluster": None,
        "bill": row,
        "ledger": [{"team": "red", "model": "H100", "state": "idle", **row}],
        "findings": [
            {
                "analyzer": "idle", "effort": "quick win", "saving": "capacity",
                "evidence": "confirmed", "count": 2, "gpu_hours": 12.0, "usd": usd,
            }
        ],
    }  # fmt: skip


def test_what_is_stored_is_read_and_listed(settings: Settings) -> None:
    path = baselines.save(settings, "before", measured(), NOW)
    body = baselines.read(settings, "before")
    assert {k: body[k] for k in measured()} == measured()
    (row,) = baselines.list_baselines(settings)
    assert (row["name"], row["status"], row["findings"]) == ("before", "ok", 2)
    assert baselines.save(settings, None, measured(), NOW).stem == "until-2026-11-20"
    assert not path.stat().st_mode & 0o222


def test_a_name_is_given_once(settings: Settings) -> None:
    path = baselines.save(settings, "before", measured(), NOW)
    kept = path.read_bytes()
    with pytest.raises(UsageError, match="do not change"):
        baselines.save(settings, "before", measured(usd="1"), NOW)
    assert path.read_bytes() == kept


@pytest.mark.parametrize("name", ["../x", "", "a b", "list", "compare", "-x", "x" * 65, "a/b"])
def test_a_name_that_could_be_a_path_or_a_command_is_refused(settings: Settings, name: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        baselines.check_name(settings, name)


def _cheaper(path: Path) -> None:
    body = json.loads(path.read_text())
    body["bill"]["usd"] = "1.00"
    path.write_text(json.dumps(body))


@pytest.mark.parametrize(
    "damage",
    [
        _cheaper,
        lambda p: p.write_text(p.read_text()[:-20]),
        lambda p: p.write_text("[]"),
        lambda p: p.write_text("{}"),
    ],
    ids=["cheaper", "cut", "list", "empty"],
)
def test_a_changed_file_is_told_and_never_believed(settings: Settings, damage: Any) -> None:
    path = baselines.save(settings, "before", measured(), NOW)
    path.chmod(0o644)
    damage(path)
    with pytest.raises(FallowError, match="hash differs") as result:
        baselines.read(settings, "before")
    assert result.value.exit_code == 1
    assert baselines.list_baselines(settings)[0]["status"] == "changed since it was stored"


def test_an_unknown_baseline_is_refused_with_those_there_are(settings: Settings) -> None:
    baselines.save(settings, "before", measured(), NOW)
    with pytest.raises(UsageError) as result:
        baselines.read(settings, "after")
    assert "before" in (result.value.hint or "")


def test_windows_of_different_lengths_are_compared_by_the_day() -> None:
    after = deepcopy(measured(14, "700.00"))
    rows = {row["what"]: row for row in baselines.compare(measured(), after)}
    assert rows["the bill"]["gpu_hours_change_pct"] == 0
    assert rows["the bill"]["before_usd_per_day"] == 100
    assert rows["team red"]["usd_change_pct"] == -50
    assert rows["savings of idle"]["gpu_hours_change_pct"] == -50
    unpriced = baselines.compare(measured(), measured(usd=None))[0]
    assert unpriced["usd_change_pct"] is None
