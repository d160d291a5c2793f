"""Every metric is exported by what happens, described once, and named by no tenant."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families as families

from actions.canary import CanaryResult
from actions.loop.protocols import Notice, NoticeProof, StepResult, TurnReport
from capacity.queue.records import QueueBlocker, QueuedWorkload, WayIn
from collectors.kube.list_watch import WatchProgress
from dashboards.figures.anomalies import TeamBudget
from fallow.action_models import Decision, LedgerEntry, Outcome, Reason
from fallow.models import Finding, Subject
from fallow.plugin_runs import PluginRun
from fallow.rejections import Rejection, build_batch
from fallow.settings import Settings
from fallow.shards import Shard
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.acting.actor_turns import CanaryStatus
from runtime.operations.ingestion.ingest_queue import QueueState
from runtime.service.metrics import SelfMetrics, list_metrics
from runtime.service.roles import PARTS, ServiceJob, ServiceRole
from warehouse.audits import AuditFailure
from warehouse.lake import Warehouse
from warehouse.shards import ShardState

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TENANT = "somebodys-secret"
LABELS = {
    *(
        "job_name",
        "class",
        "step",
        "collector",
        "state",
        "way",
        "audit",
        "tier",
        "analyzer",
        "saving",
        "result",
    ),
    *(
        "gate",
        "version",
        "role",
        "what",
        "code",
        "resource",
        "kind",
        "plugin",
        "evidence",
        "shard",
        "medium",
    ),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> SelfMetrics:
    """Return metrics after everything that they tell of has happened once."""
    made = SelfMetrics()
    settings = Settings(cluster="test", home=tmp_path_factory.mktemp("metrics"))
    with Warehouse.open(settings, write=True, clock=lambda: NOW) as lake:
        bad = Rejection("pod", TENANT, TENANT, "devices", TENANT)
        lake.ingest([*_looks(), build_batch([bad], cluster="test", source="kubernetes", at=NOW)])
        pipeline.account(lake, Window(NOW - timedelta(hours=3), NOW))
        made.record_fleet(lake, "test", NOW)
        made.record_tiers(lake, NOW)
    made.record_schedule(
        [ServiceJob("collect", timedelta(minutes=1), lambda: None, ServiceRole.collector)], NOW
    )
    made.record_collectors(["exporters"], NOW)
    made.record_turn("collect", 1.0, NOW, well=True)
    made.record_turn("collect", 1.0, NOW, well=False)
    made.record_readiness(ready=True)
    made.record_collection("exporters", 1.0, added=2, up=True, now=NOW)
    made.record_queue(QueueState(3, 2, 40, 900, 60.0, refused=7))
    made.record_queue(QueueState(refused=9))
    made.record_canary(CanaryStatus(timedelta(hours=1), NOW, CanaryResult(ok=False, at=NOW)))
    made.record_watches(
        [WatchProgress("pods", lists=2, streams=3, events=5, expiries=1, failures=1)]
    )
    made.record_watches(
        [WatchProgress("pods", lists=2, streams=4, events=9, expiries=1, failures=1)]
    )
    made.record_plugin_runs([PluginRun("executor", "suspend", "failed", TENANT)])
    made.record_audits([AuditFailure("ledger_capacity", 3, ({"device": TENANT},))])
    made.record_shards([ShardState("test", Shard(2, 3), targets=4, running=False)])
    made.record_findings([_finding()], 10)
    made.record_budgets([TeamBudget(TENANT, Decimal(9), Decimal(10), None, None)])
    made.record_stalled_jobs([_finding()])
    made.record_incidents([])
    made.record_waiting(_queue())
    made.record_savings([_entry("cash", "12.50"), _entry("cash", "2.50"), _entry("released", None)])
    made.record_actor_turn(_report())
    notice = Notice("f", "p", TENANT)
    made.record_notices(
        [NoticeProof(notice, delivered=("x",)), NoticeProof(notice, failed=(TENANT,))]
    )
    made.record_journal(7, broken=False, waiting=2)
    made.record_request("approve", 200)
    made.record_delivery("sent")
    made.record_backlog(2, 90.0)
    made.record_dashboard(up=True)
    return made


def _looks() -> list[Batch]:
    moments = [(NOW - timedelta(minutes=m)).replace(tzinfo=None) for m in range(180, 0, -1)]
    count = len(moments)
    sample: dict[str, Any] = {
        "cluster": ["test"] * count, "ts": moments, "device": ["GPU-1"] * count,
        "node": ["n1"] * count, "interval_s": [60.0] * count, "gpu_util_pct": [90.0] * count,
        "namespace": [TENANT] * count, "pod": [TENANT] * count,
    }  # fmt: skip
    scrape: dict[str, Any] = {
        "cluster": ["test"] * 3, "ts": [moments[-30], moments[-20], moments[-10]],
        "collector": ["exporters"] * 3, "target": ["a", "b", "b"], "up": [True, True, False],
    }  # fmt: skip
    return [Batch.of("sample", sample), Batch.of("scrape", scrape)]


def _finding() -> Finding:
    return Finding(
        id="f", analyzer="idle", kind="idle",
        subject=Subject("test", TENANT, "Deployment", TENANT, team=TENANT),
        window=Window(NOW - timedelta(hours=10), NOW), verdict="idle", evidence="confirmed",
        confidence=1.0, gpu_hours=10.0, usd=Decimal(20), details={},
    )  # fmt: skip


def _queue() -> list[QueuedWorkload]:
    """Return one that an idle notebook blocks for 1.5 h, and one of an unknown size and wait."""
    blocker = QueueBlocker(("c", TENANT, "Notebook", TENANT), 8, ("idle",), "", 1.0)
    waiting = QueuedWorkload(
        key=("c", TENANT, "Job", TENANT), pods=1, gpus=8.0, since=NOW, team=TENANT, queue=TENANT,
        priority_class=TENANT, priority=0, hours=1.5, gpu_hours=12.0, usd_h=None,
        waiting_cost=None, reasons=(), blocked_by=(blocker,), held_by_others="", ways=(),
    )  # fmt: skip
    moved = WayIn("after_moves", "holds", moves=(TENANT,))
    return [
        replace(waiting, ways=(moved, WayIn("preempt", "holds"))),
        replace(waiting, gpus=None, hours=None, blocked_by=(), ways=(WayIn("free", "refused"),)),
    ]


def _entry(kind: Any, usd: str | None) -> LedgerEntry:
    money = None if usd is None else Decimal(usd)
    return LedgerEntry("a", TENANT, kind, NOW, NOW, 1.0, 2.0, money, money)


def _report() -> TurnReport:
    decision = Decision(
        id="d", policy=TENANT, finding="f", ruling="allow", step="act", verb="suspend", reasons=(),
        subject=("test", "Deployment", TENANT, TENANT), at=NOW, gpus=1.0,
    )  # fmt: skip
    return TurnReport(
        NOW,
        dry_run=False,
        halted=(Reason("breaker", TENANT),),
        steps=(StepResult(decision, "acted"), StepResult(decision, "held")),
        closed=(Outcome("a", "done", NOW),),
        open=("a", "b"),
    )


def value(told: SelfMetrics, name: str, **labels: str) -> float | None:
    return told.registry.get_sample_value(name, labels)


def test_every_metric_that_is_described_is_exported_and_none_else(told: SelfMetrics) -> None:
    text = told.text().decode()
    sampled = {s.name for f in families(text) for s in f.samples}
    assert sampled == {name for one in list_metrics() for name in one.exported()}
    for one in list_metrics():
        assert one.meaning
        assert set(one.labels) <= LABELS
        assert one.name.startswith("fallow_")


def test_no_label_names_a_tenant(told: SelfMetrics) -> None:
    assert TENANT not in told.text().decode()


def test_what_happened_is_what_is_told(told: SelfMetrics) -> None:
    for name, labels, expected in (
        ("fallow_state_share", {"state": "productive"}, 1.0),
        ("fallow_state_share", {"state": "unknown"}, 0.0),
        ("fallow_gpus", {}, 1.0),
        ("fallow_unpriced_share", {}, 1.0),
        ("fallow_unseen_gpus", {}, 0.0),
        ("fallow_targets", {"collector": "exporters", "state": "up"}, 1.0),
        ("fallow_targets", {"collector": "exporters", "state": "down"}, 1.0),
        ("fallow_job_failures_total", {"job_name": "collect"}, 1.0),
        ("fallow_job_duration_seconds_count", {"job_name": "collect"}, 2.0),
        ("fallow_job_last_success_timestamp_seconds", {"job_name": "collect"}, NOW.timestamp()),
        ("fallow_audit_failures", {"audit": "ledger_capacity"}, 3.0),
        ("fallow_plugin_up", {"kind": "executor", "plugin": "suspend"}, 0.0),
        ("fallow_waste_usd_per_hour", {"analyzer": "idle"}, 2.0),
        ("fallow_budgets", {"state": "over"}, 1.0),
        ("fallow_budgets", {"state": "within"}, 0.0),
        ("fallow_stalled_jobs", {"evidence": "confirmed"}, 1.0),
        ("fallow_stalled_jobs", {"evidence": "suspected"}, 0.0),
        ("fallow_waiting_workloads", {"state": "blocked"}, 1.0),
        ("fallow_waiting_gpus", {"state": "blocked"}, 8.0),
        ("fallow_waiting_longest_seconds", {"state": "blocked"}, 5400.0),
        ("fallow_waiting_workloads", {"state": "unblocked"}, 1.0),
        ("fallow_waiting_ways", {"way": "after_moves"}, 1.0),
        ("fallow_waiting_ways", {"way": "preempt"}, 0.0),
        ("fallow_waiting_ways", {"way": "none"}, 1.0),
        ("fallow_waiting_gpus", {"state": "unblocked"}, 0.0),
        ("fallow_waiting_longest_seconds", {"state": "unblocked"}, 0.0),
        ("fallow_saved_usd", {"saving": "cash"}, 15.0),
        ("fallow_saved_usd", {"saving": "sunk"}, 0.0),
        ("fallow_saved_gpu_hours", {"saving": "released"}, 2.0),
        ("fallow_act_steps_total", {"result": "held"}, 1.0),
        ("fallow_act_steps_total", {"result": "refused"}, 0.0),
        ("fallow_act_outcomes_total", {"result": "failed"}, 0.0),
        ("fallow_act_halted", {"gate": "breaker"}, 1.0),
        ("fallow_act_halted", {"gate": "lease"}, 0.0),
        ("fallow_notices_total", {"result": "failed"}, 1.0),
        ("fallow_act_waiting", {}, 2.0),
        ("fallow_queue_rows", {"medium": "disk"}, 0.0),
        ("fallow_queue_refused_rows_total", {}, 9.0),
        ("fallow_canary_failures_total", {}, 1.0),
        ("fallow_canary_period_seconds", {}, 3600.0),
        ("fallow_canary_last_success_timestamp_seconds", {}, NOW.timestamp()),
        ("fallow_watch_events_total", {"resource": "pods"}, 9.0),
        ("fallow_watch_restarts_total", {"resource": "pods"}, 3.0),
        ("fallow_watch_lists_total", {"resource": "pods"}, 2.0),
        ("fallow_watch_failures_total", {"resource": "pods"}, 1.0),
        ("fallow_watch_up", {"resource": "pods"}, 1.0),
    ):
        assert value(told, name, **labels) == pytest.approx(expected), (name, labels)


def test_a_process_tells_only_what_its_roles_know() -> None:
    for role in PARTS:
        text = SelfMetrics({role}).text().decode()
        named = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
        mine = {
            one.exported()[0] if one.kind == "counter" else one.name
            for one in list_metrics()
            if one.role in {role, ServiceRole.all}
        }
        assert named == mine


def test_gauges_that_alerts_read_hold_nothing_of_a_week_ago(tmp_path: Path) -> None:
    made, later = SelfMetrics(), NOW + timedelta(days=7)
    with Warehouse.open(
        Settings(cluster="test", home=tmp_path), write=True, clock=lambda: NOW
    ) as lake:
        bad = Rejection("pod", TENANT, TENANT, "devices", TENANT)
        lake.ingest([*_looks(), build_batch([bad], cluster="test", source="kubernetes", at=NOW)])
        pipeline.account(lake, Window(NOW - timedelta(hours=3), NOW))
        made.record_fleet(lake, "test", NOW)
        assert b"fallow_state_share{" in made.text()
        made.record_fleet(lake, "test", later)
    text = made.text().decode()
    assert "fallow_state_share{" not in text
    assert "fallow_state_usd_per_hour{" not in text
    assert "fallow_gpus NaN" in text
    assert "fallow_targets{" not in text
