"""`fallow explain ACTION`: a verdict comes out again, bit for bit, from stored rows alone."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from actions.journal import Journal, JournalState
from actions.policy.budgets import BudgetUsage
from fallow.settings import load
from runtime.operations.acting import action_history as explaining
from tests.actions.loop.site import SPACE, Site
from tests.cli.conftest import Fallow
from warehouse.lake import Warehouse


def explained(fallow: Fallow, action: str) -> dict[str, Any]:
    ran = fallow("explain", action[:8], "-o", "json")
    assert ran.code == 0, ran.err
    result: dict[str, Any] = json.loads(ran.out)
    assert result["schema"] == "fallow.action_explanation/v1"
    return result


def check_replay(site: Site, fallow: Fallow, acted: str) -> None:
    """Explain an action by stored rows: verdict and decision are the same, the writes are named."""
    names_what_was_changed_since(site, acted)
    result = explained(fallow, acted)
    assert result["reproduced"] == {"decision": "same", "finding": "same"}
    assert result["policy"]["fingerprint"] == result["policy"]["fingerprint_now"]
    assert all(gate["open"] for gate in result["gates"])
    assert len(result["gates"]) > 10
    kinds = [row["kind"] for row in result["rows"]]
    assert kinds[:2] == ["seen", "notified"]
    assert kinds.index("intent") < kinds.index("sending") < kinds.index("sent")

    ran = fallow("explain", acted)
    assert "decided again on the stored facts and budgets: same" in ran.out
    assert f"PATCH /apis/kubeflow.org/v1/namespaces/{SPACE}/notebooks/nb" in ran.out
    assert "name: notebooks" in ran.out


def check_changed_rows(site: Site, fallow: Fallow, acted: str) -> None:
    """Change, then delete, the samples of an action: its explanation says so."""
    settings = load(file=site.folder.parent / "fallow.yaml").settings
    with Warehouse.open(settings, write=True) as lake, lake.transaction() as cursor:
        cursor.execute("UPDATE sample SET gpu_util_pct = 60 WHERE gpu_util_pct = 0")
        cursor.execute("DELETE FROM rollup_5m")
    answer = explained(fallow, acted)["reproduced"]
    assert answer["decision"] == "same", "it is of the journal alone"
    assert answer["finding"].startswith("differs"), answer
    with Warehouse.open(settings, write=True) as lake, lake.transaction() as cursor:
        cursor.execute("DELETE FROM sample")
    gone = datetime.now(UTC) + timedelta(days=7)
    answer = explained(fallow, acted)["reproduced"]
    assert answer["finding"] == f"the rows were deleted (kept until {gone:%Y-%m-%d})"


def names_what_was_changed_since(site: Site, acted: str) -> None:
    """Replay the decision with other budgets and another policy: both are named."""
    with Journal.open(site.folder / "journal.sqlite", lambda: site.now, write=False) as journal:
        result = JournalState(journal).catch_up().actions[acted]
        (row,) = journal.entries("intent", key=acted)
    spent = msgspec.convert(row.document["spent"], BudgetUsage, strict=False)
    policy = explaining._find_policy(result)
    assert explaining.replay_decision(result, policy, spent) == "same"
    frozen = msgspec.structs.replace(spent, frozen="by ann")
    answer = explaining.replay_decision(result, policy, frozen)
    assert answer.startswith("differs in ")
    assert "ruling (allow then," in answer
    other = msgspec.structs.replace(policy, max_resources=99)
    assert "not the one of its fingerprint" in explaining.replay_decision(result, other, spent)
    assert "older Fallow" in explaining.replay_decision(result, policy, None)
