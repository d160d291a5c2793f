"""Simulated hangs, from telemetry to the decision: away from the node, in place, or held.

The classifier sees telemetry only; the policy is the shipped one with `mode: enforce`.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.decide import decide
from actions.facts import gather_facts
from actions.policy.model import Policy
from actions.policy.parser import read_policies
from actions.recommend import add_recommendations
from analyzers.stalled.analyzer import StalledAnalyzer
from capacity.queue.exclusions import EXCLUDED
from fallow.action_models import CaseHistory, Decision, Facts
from fallow.settings import load
from runtime.operations.analysis.incidents import store_incidents
from tests.actions.cases import SPENT
from tests.analyzers.reliability.recordings import START, WINDOW, fill
from tests.cli.test_incidents_command import StoredRows
from tests.failure_cases.cases import read_cases
from tests.failure_cases.recording import CasePlayer
from warehouse.allocation import write_allocations
from warehouse.lake import Warehouse
from warehouse.rollup import roll_up

SHIPPED = Path(__file__).resolve().parents[3] / "policies" / "restart-stalled-jobs.yaml"
CASES = ("flapping fabric link", "silent hang", "NVLink flap", "one flap of a link")
HANG_S = 10_800


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Facts]]:
    """Return the facts of the jobs that hang, each in a cluster of its own."""
    settings = load(environ={}, flags={"home": tmp_path_factory.mktemp("home")}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        rows = StoredRows(warehouse)
        for name in CASES:
            fill(rows, CasePlayer(read_cases()[name], START.timestamp()).play())
            save(rows, name)
            mark_ready(rows, name)
        roll_up(warehouse)
        write_allocations(warehouse, WINDOW)
        stalls = StalledAnalyzer().find(warehouse, WINDOW)
        store_incidents(warehouse, WINDOW, stalls, WINDOW.end)
        now = max(finding.window.end for finding in stalls)
        found = gather_facts(warehouse, add_recommendations(stalls), now)
        yield {case.finding.subject.cluster: case for case in found}


def save(rows: StoredRows, cluster: str) -> None:
    """Let the first rank write a checkpoint every half hour until the hang."""
    times = [START + timedelta(seconds=s) for s in range(1800, HANG_S + 1, 1800)]
    rows.rows(
        "pod_sample",
        [
            {
                "cluster": cluster, "namespace": "ml", "pod": "job0-0", "interval_s": 60.0,
                "ts": at.replace(tzinfo=None), "fs_write_bps": 2e9,
            }
            for at in times
        ],
    )  # fmt: skip


def mark_ready(rows: StoredRows, cluster: str) -> None:
    """Let both nodes be ready."""
    seen = {"first_seen": WINDOW.start.replace(tzinfo=None), "ready": True, "unschedulable": False,
            "last_seen": WINDOW.end.replace(tzinfo=None)}  # fmt: skip
    rows.rows("node", [{"cluster": cluster, "node": node, **seen} for node in ("n-0", "n-1")])


def build_policy(*do: str) -> Policy:
    (policy,) = read_policies([SHIPPED])
    stages = tuple(
        msgspec.structs.replace(stage, do=do, verbs=do) if stage.step == "act" else stage
        for stage in policy.stages
    )
    return msgspec.structs.replace(policy, mode="enforce", stages=stages)


def rule(case: Facts, *do: str) -> tuple[Decision, list[str]]:
    """Return the decision, and what the gate of incidents says."""
    at = case.finding.window.start
    history = CaseHistory(first_seen=at, announced=dict.fromkeys(do, at), notified_at=at)
    case = msgspec.structs.replace(case, history=history)
    decision = decide(build_policy(*do), case, SPENT, case.at + timedelta(hours=1))
    return decision, [r.text for r in decision.reasons if r.gate == "incident"]


BOTH = ("restart", "restart elsewhere")


def test_a_hang_beside_a_flapping_link_is_restarted_away_from_its_node(
    facts: dict[str, Facts],
) -> None:
    case = facts["flapping fabric link"]
    assert case.incident is not None
    assert (case.incident.cause, case.incident.nodes, case.incident.room) == (
        "fabric link", ("n-0",), True,
    )  # fmt: skip
    decision, doubts = rule(case, *BOTH)
    assert (decision.verb, decision.parameters[EXCLUDED]) == ("restart elsewhere", ["n-0"])
    assert doubts == []


def test_a_policy_that_only_restarts_in_place_holds_it(facts: dict[str, Facts]) -> None:
    decision, (doubt,) = rule(facts["flapping fabric link"], "restart")
    assert decision.verb == "restart"
    assert "(fabric link) calls for: restart elsewhere" in doubt


def test_a_hang_without_a_cause_is_restarted_where_it_was(facts: dict[str, Facts]) -> None:
    decision, doubts = rule(facts["silent hang"], *BOTH)
    assert (decision.verb, doubts) == ("restart", [])
    assert EXCLUDED not in decision.parameters


def test_the_near_twin_with_a_bad_link_in_the_machine_is_held(facts: dict[str, Facts]) -> None:
    decision, (doubt,) = rule(facts["NVLink flap"], *BOTH)
    assert decision.ruling != "allow"
    assert "(nvlink) calls for: reset the GPU" in doubt


def test_the_near_twin_that_works_on_is_no_case(facts: dict[str, Facts]) -> None:
    assert "one flap of a link" not in facts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"room": False}, "its pods do not fit on nodes other than n-0"),
        ({"room": None}, "whether its pods fit on nodes other than n-0 is unknown"),
        ({"step": "hold", "why": "the evidence contradicts"}, "calls for: hold"),
    ],
)
def test_without_room_or_with_doubts_it_is_held(
    facts: dict[str, Facts], change: dict[str, Any], words: str
) -> None:
    case = facts["flapping fabric link"]
    assert case.incident is not None
    incident = msgspec.structs.replace(case.incident, **change)
    _, (doubt,) = rule(msgspec.structs.replace(case, incident=incident), *BOTH)
    assert words in doubt
