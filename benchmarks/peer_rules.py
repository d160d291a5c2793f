"""Replay two other tools' idle rules on Fallow's rows: gpu-pruner and Job Defense Shield.

gpu-pruner reads Prometheus, so it does not see a node whose labels it does not expect: one that
writes `hostname`, or `exported_pod` where others write `pod`. It scales Deployments, ReplicaSets,
StatefulSets, InferenceServices and Notebooks to zero; other kinds it only reports. Princeton's rule
(Job Defense Shield) cancels every job that it finds.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import polars as pl

from benchmarks.accuracy_scores import Verdict
from fallow.protocols import Views
from fallow.window import Window
from simulator.exporters.quirks import Quirks
from warehouse.steps import POD_OWNERS, compose_query

BREAKING = ("hostname-lower", "exported-labels")
"""Quirks that make a node invisible to gpu-pruner (its issue 655; `--honor-labels` has one value
for the whole cluster)."""


class Rule(msgspec.Struct, frozen=True):
    """Another tool's rule with its defaults."""

    name: str
    statement: str
    every_s: int
    """Time between two checks."""
    window_s: int
    kinds: frozenset[str] | None
    """What it can stop; None = everything."""
    parameters: dict[str, float]
    labels_matter: bool = False


GPU_PRUNER = Rule(
    "gpu-pruner",
    "gpu_pruner",
    every_s=180,
    window_s=1800,
    kinds=frozenset({"Deployment", "ReplicaSet", "StatefulSet", "InferenceService", "Notebook"}),
    parameters={"grace_s": 300},
    labels_matter=True,
)
PRINCETON = Rule(
    "Princeton",
    "princeton",
    every_s=900,
    window_s=18_000,
    kinds=None,
    parameters={"start_s": 7200, "part": 1.0},
)


def read_verdicts(
    views: Views, window: Window, rule: Rule, *, blind: Sequence[str] = ()
) -> list[Verdict]:
    """Return the verdicts of another tool: one per workload and sequence of checks that agree.

    `blind`: nodes that it cannot read.
    """
    parameters = {
        **window.bounds(),
        "every_s": rule.every_s,
        "window_s": rule.window_s,
        "blind": list(blind),
        **rule.parameters,
    }
    rows = views.query(
        compose_query((POD_OWNERS, "peer_series", rule.statement), "benchmarks"),
        parameters,
    )
    checks = pl.DataFrame(rows).filter(pl.col("step") * rule.every_s <= window.end.timestamp())
    owner = ["namespace", "workload_kind", "workload"]
    runs = (
        checks.sort(*owner, "step")
        .with_columns(run=(pl.col("step") - pl.int_range(pl.len()).over(owner)))
        .group_by(*owner, "run", maintain_order=True)
        .agg(first=pl.col("step").min(), last=pl.col("step").max())
    )
    return [
        Verdict(
            owner=(row["namespace"], row["workload_kind"], row["workload"]),
            known_s=float(row["first"] * rule.every_s),
            end_s=float((row["last"] + 1) * rule.every_s),
            actionable=rule.kinds is None or row["workload_kind"] in rule.kinds,
        )
        for row in runs.iter_rows(named=True)
    ]


def list_unreadable_nodes(
    rule: Rule, nodes: Iterable[str], quirks: Quirks, window: Window
) -> list[str]:
    """Return the nodes whose labels another tool cannot read."""
    if not rule.labels_matter:
        return []
    named = sorted(set(nodes))
    start = np.array([window.start.timestamp()])
    marks_by_quirk = [quirks.strikes(name, named, start).struck[:, 0] for name in BREAKING]
    return [
        node for place, node in enumerate(named) if any(marks[place] for marks in marks_by_quirk)
    ]
