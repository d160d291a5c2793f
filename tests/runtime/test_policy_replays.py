"""Back-tests of several policies as slices are those that one process makes."""

from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from fallow.errors import UsageError
from runtime.operations.acting import policy_replays
from runtime.operations.acting.plans import load_policies
from runtime.operations.acting.policy_replays import ReplaySpan, replay_policies
from tests import runners
from tests.copies import copied
from tests.demo_homes import copy_demo
from tests.warehouse.stage_tasks import KillsFirst
from tests.warehouse.test_stages import InProcess, open_settings
from warehouse.lake import Warehouse
from warehouse.runners.slices import Runner

runner = runners.runner
POLICY = """name: {name}
mode: enforce
match: {{analyzer: idle}}
allow: {{namespaces: ["*"]}}
stages: [observe, notify, grace: {grace}, act: stop]
budgets: [{{workloads: 100, per: 1d}}]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replays")
    home = copy_demo(tmp_path_factory, folder / "home", days=1, gpus=24, seed=3)
    policies = home / "policies"
    policies.mkdir(exist_ok=True)
    for name, grace in (("soon", "1h"), ("late", "12h")):
        (policies / f"{name}.yaml").write_text(POLICY.format(name=name, grace=grace))
    return home


@pytest.fixture
def wh(home: Path, tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse.open(open_settings(copied(home, tmp_path / "home")), write=True) as warehouse:
        yield warehouse


def build_span(wh: Warehouse, since: str = "20h") -> ReplaySpan:
    row = wh.query("SELECT max(bucket) AS last FROM ledger").to_pylist()[0]
    return ReplaySpan(since, row["last"].replace(tzinfo=UTC) + timedelta(hours=1), None)


def test_policies_as_slices_stop_what_they_stop_in_one_process(
    wh: Warehouse, tmp_path: Path
) -> None:
    policies = load_policies(wh.settings, [wh.settings.home / "policies"])
    span = build_span(wh)
    whole = replay_policies(wh, wh.settings, policies, span)
    assert [result.policy for result in whole] == ["late", "soon"]
    assert whole[0].stops != whole[1].stops
    runner = InProcess()
    assert replay_policies(wh, wh.settings, policies, span, runner) == whole
    assert [str(part) for part in runner.slices] == ["policy late", "policy soon"]
    killed = KillsFirst(tmp_path / "killed")
    assert replay_policies(wh, wh.settings, policies, span, killed) == whole
    assert killed.marker.exists()


# test_policies_as_slices_stop_what_they_stop_in_one_process has the same with one of two killed.
@pytest.mark.long
def test_policies_stop_the_same_in_workers_as_in_one_process(wh: Warehouse, runner: Runner) -> None:
    policies = load_policies(wh.settings, [wh.settings.home / "policies"])
    span = build_span(wh)
    whole = replay_policies(wh, wh.settings, policies, span)
    assert replay_policies(wh, wh.settings, policies, span, lambda _: runner) == whole


def test_a_window_without_rows_is_refused_as_in_one_process(wh: Warehouse) -> None:
    policies = load_policies(wh.settings, [wh.settings.home / "policies"])
    span = build_span(wh, "2026-01-01/2026-01-02")
    messages = []
    for runner in (None, InProcess()):
        with pytest.raises(UsageError) as caught:
            replay_policies(wh, wh.settings, policies, span, runner)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "no data from" in messages[0]


def test_one_policy_is_no_slice(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_replays, "replay_policy", lambda *parts: parts[2].name)
    (policy, _) = load_policies(wh.settings, [wh.settings.home / "policies"])
    runner = InProcess()
    names: list[object] = [*replay_policies(wh, wh.settings, [policy], build_span(wh), runner)]
    assert names == ["late"]
    assert runner.slices == []
