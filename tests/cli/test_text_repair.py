"""A home that an older Fallow filled with unclean texts is repaired by `warehouse upgrade`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import load
from tests.cli.conftest import Fallow
from tests.cli.test_unclean_texts import expose, list_pod, read_ledger
from warehouse import text_repair
from warehouse.lake import Warehouse

NOTHING = {"schema": "fallow.upgrade/v1", "upgrade": []}
NUL_DEVICES = '[{"device":"GPU-\\u0000c","share":1.0}]'
POISON = (
    "UPDATE pod SET devices = $devices WHERE pod = 'evil'",
    "UPDATE sample SET device = 'GPU-' || chr(0) || 'z' WHERE device = 'GPU-9'",
    "UPDATE rollup_5m SET device = 'GPU-' || chr(0) || 'z' WHERE device = 'GPU-9'",
    "UPDATE rollup_1h SET device = 'GPU-' || chr(0) || 'z' WHERE device = 'GPU-9'",
    "UPDATE device SET device = 'GPU-' || chr(0) || 'z' WHERE device = 'GPU-9'",
    "UPDATE ledger SET device = 'GPU-' || chr(0) || 'z' WHERE device = 'GPU-9'",
)
"""What an older Fallow stored: it checked no text."""


@pytest.fixture
def run(fallow: Fallow, tmp_path: Path) -> Callable[..., Any]:
    """Run a command in one home, and return its code and document."""

    def call(*words: str | Path) -> Any:
        ran = fallow(*words, "-o", "json", "--home", tmp_path / "home")
        document = json.loads(ran.out) if ran.out else {}
        return document if words[0] == "warehouse" and words[1] == "query" else (ran.code, document)

    return call


@pytest.mark.parametrize("killed_after", [0, 2])
def test_a_poisoned_home_is_repaired_once(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    (tmp_path / "hour.prom").write_text(expose("GPU-0", "GPU-9"))
    pods = [list_pod("honest", gpus=1), list_pod("evil", gpus=1)]
    dump = {"apiVersion": "v1", "kind": "List", "items": pods}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    assert run("import", "exposition", tmp_path / "hour.prom", "--cluster", "c")[0] == 0
    assert run("import", "kubectl", tmp_path / "dump.json", "--cluster", "c")[0] == 0
    assert run("warehouse", "upgrade", "--check") == (0, NOTHING)
    hours = read_ledger(run)
    flags = {"home": tmp_path / "home", "cluster": "c"}
    with Warehouse.open(load(environ={}, flags=flags).settings, write=True) as warehouse:
        for statement in POISON:
            with warehouse.transaction() as cursor:
                cursor.execute(statement, {"devices": NUL_DEVICES} if "$" in statement else {})

    code, listed = run("warehouse", "upgrade", "--check")
    changed = {row["name"].partition(":")[0] for row in listed["upgrade"]}
    assert code == 1
    assert changed == {"pod", "sample", "rollup_5m", "rollup_1h", "device", "ledger"}
    if killed_after:
        repair = text_repair._repair
        monkeypatch.setattr(text_repair, "_repair", stop_after(killed_after, repair))
        with (
            Warehouse.open(load(environ={}, flags=flags).settings, write=True) as warehouse,
            pytest.raises(KeyboardInterrupt),
        ):
            text_repair.repair_texts(warehouse)
        monkeypatch.setattr(text_repair, "_repair", repair)
    assert run("warehouse", "upgrade")[0] == 0
    assert run("warehouse", "upgrade", "--check") == (0, NOTHING)
    rejected = run("warehouse", "query", "SELECT kind, field, source FROM rejection ORDER BY 1")
    assert rejected["rows"] == [
        {"kind": "pod", "field": "devices", "source": "upgrade"},
        {"kind": "sample", "field": "device", "source": "upgrade"},
    ]
    assert run("import", "kubectl", tmp_path / "dump.json", "--cluster", "c")[0] == 0
    assert read_ledger(run) == [
        {**row, "device": row["device"].replace("GPU-9", "GPU-\\x00z")} for row in hours
    ]


def stop_after(count: int, repair: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, which is interrupted after so many tables were repaired."""
    done: list[object] = []

    def work(*words: Any, **named: Any) -> Any:
        if len(done) >= count:
            raise KeyboardInterrupt
        done.extend(filter(None, [result := repair(*words, **named)]))
        return result

    return work
