"""Two clusters with equal names of everything: each has the findings that it has alone."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fallow.models import Finding
from fallow.settings import load
from runtime.operations.accounting import windows
from runtime.operations.analysis import analyzer_runs
from tests.demo_homes import copy_demo
from warehouse.lake import Warehouse

TABLES = (
    "address", "allocation", "container_sample", "device", "disruption_budget", "event", "holding",
    "incident", "latency_sample", "ledger", "node", "notebook_sample", "pending_workload", "pod",
    "pod_sample", "progress_sample", "quota", "rollup_1h", "rollup_5m", "sample", "signal",
    "step_sample", "work_lost",
)  # fmt: skip
POOLED = ("wanted", "assumed", "plans", "why")
"""Details that read the history of all clusters: how probable a return and an interruption are."""


def keep_clusters(warehouse: Warehouse, *clusters: str) -> None:
    """Replace all rows by those of the demo's largest cluster, once for each of these clusters."""
    for table in TABLES:
        rows = warehouse.query(f"SELECT * FROM {table}")
        rows = rows.filter(pc.field("cluster").isin(["demo", *clusters]))
        own = rows.filter(pc.field("cluster") == rows["cluster"][0]) if rows.num_rows else rows
        column = own.column_names.index("cluster")
        named = [
            own.set_column(
                column,
                "cluster",
                pa.array([cluster] * own.num_rows, own.schema.field(column).type),
            )
            for cluster in clusters
        ]
        warehouse.replace(table, pa.concat_tables(named))


def list_findings(home: Path, *clusters: str) -> list[Finding]:
    """Return what all analyzers find in these clusters."""
    settings = load(environ={}, flags={"home": home}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        keep_clusters(warehouse, *clusters)
        window = windows.require_extent(warehouse, None, inventory=True)
        analyzers = analyzer_runs.load_analyzers(settings, ()).values()
        return [finding for each in analyzers for finding in each.find(warehouse, window)]


def describe(finding: Finding) -> tuple[Any, ...]:
    """Return what a finding says of its own cluster, under a name that all clusters have."""
    details = {name: text for name, text in finding.details.items() if name not in POOLED}
    text = json.dumps(msgspec.to_builtins(details, enc_hook=str), sort_keys=True)
    subject = finding.subject
    return (
        finding.analyzer,
        finding.kind,
        subject.namespace,
        subject.workload_kind,
        subject.workload,
        finding.window.start,
        finding.window.end,
        finding.gpu_hours,
        text.replace(f'"{subject.cluster}"', '"of it"'),
    )


@pytest.mark.long
def test_each_of_two_clusters_with_equal_names_has_the_findings_that_it_has_alone(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    home = copy_demo(tmp_path_factory, tmp_path / "home", days=3, gpus=32)
    alone = list_findings(home, "east")
    both = list_findings(home, "east", "west")
    expected = sorted(map(describe, alone), key=str)
    assert len(expected) > 20
    for cluster in ("east", "west"):
        own = [finding for finding in both if finding.subject.cluster == cluster]
        assert sorted(map(describe, own), key=str) == expected
    assert len({finding.id for finding in both}) == len(both) == 2 * len(alone)
