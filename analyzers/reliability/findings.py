"""Build the findings of nodes: sick GPUs and outages, their hours, and the remedy."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from analyzers.budgets import DisruptionBudget
from analyzers.reliability.devices import SickDevice
from analyzers.reliability.finding_builder import MOST_NAMED, GpuCost, build_finding, round_value
from fallow.checkpointing import mtbf
from fallow.models import Claim, Finding, Recommendation, Subject
from fallow.settings import ReliabilitySettings
from fallow.window import Window, format_duration

CONFIRMED = 2
"""This many independent signals confirm a sick device."""
Place = tuple[str, str]


def build_sick_node(  # noqa: PLR0917  (one caller)
    place: Place,
    sick: Sequence[SickDevice],
    away: GpuCost | None,
    node: Mapping[str, Any] | None,
    guards: Sequence[DisruptionBudget] | None,
    window: Window,
) -> Finding:
    """Return the finding of a node with sick GPUs; its hours are those it was not available.

    `guards` are the disruption budgets over its pods; None = the cluster's were not polled.
    """
    cluster, name = place
    worst = min(sick, key=lambda s: (s.level != "sick", -len(s.signals), s.device))
    kind = "sick_node" if worst.level == "sick" else "suspect_gpu"
    bill = away if kind == "sick_node" and away else GpuCost(0.0, Decimal())
    certain = kind == "sick_node" and len(worst.signals) >= CONFIRMED
    claims = (
        (Claim(cluster, None, None, None, None, "unavailable", bill.gpu_hours, bill.usd, name),)
        if bill.gpu_hours > 0
        else ()
    )
    drained = f"cordon {name}, let its work go on elsewhere, then {worst.action}"
    cautions = [] if certain else [f"one witness says so ({', '.join(worst.signals)}): look first"]
    cautions += [
        f"a drain waits: {b.id} ({b.wants}) allows no eviction"
        for b in guards or ()
        if not b.allowed
    ]
    return build_finding(
        kind,
        Subject(cluster, "", "Node", name, nodes=(name,)),
        window,
        bill,
        {
            "why": f"{len(sick)} of {node['gpu_count'] if node else 'its'} boards: "
            + "; ".join(s.signs[0] for s in sick[:2]),
            "devices": [msgspec.to_builtins(s) for s in sick[:MOST_NAMED]],
            "disruption_budgets": "not collected" if guards is None else _describe_guards(guards),
        },
        Recommendation(
            verb="recycle node" if kind == "sick_node" else "diagnose GPU",
            target=f"Node/{name}",
            why=drained if kind == "sick_node" else worst.action,
            reversible=True,
            undo="uncordon it when the diagnosis is clean",
            caution="; ".join(cautions) or None,
            saving="capacity",
            effort="quick win",
            claims=claims,
        ),
        certain=certain,
    )


def _describe_guards(guards: Sequence[DisruptionBudget]) -> list[dict[str, Any]]:
    return [{"name": b.id, "wants": b.wants, "evictions_allowed": b.allowed} for b in guards]


def build_missing_device(row: Mapping[str, Any], window: Window) -> Finding:
    """Return the finding of a node with fewer GPUs than it has; its hours are the missing GPUs'.

    Confirmed where the kubelet misses them too; its hours are then `unavailable`, else `unknown`.
    """
    expected, visible, name = row["expected"], row["visible"], row["node"]
    certain = row["allocatable"] is not None and row["allocatable"] <= visible
    bill = GpuCost(row["gpu_hours"], row["usd"])
    lost = min(row["unavailable_hours"], bill.gpu_hours)
    claim = Claim(
        row["cluster"], None, None, None, None, "unavailable", lost, bill.part(lost), name
    )
    says = f"the node has {expected} boards, its exporter shows {visible}"
    if row["allocatable"] is not None:
        says += f" and its kubelet can give out {row['allocatable']}"
    step = (
        f"cordon {name} and look for the board: dmesg for XID 79, nvidia-smi, then the slot"
        if certain
        else f"look whether the exporter on {name} sees every board (its own nvidia-smi)"
    )
    return build_finding(
        "missing_board",
        Subject(row["cluster"], "", "Node", name, nodes=(name,)),
        window,
        bill,
        {
            "why": says,
            "boards": expected,
            "shown": visible,
            "allocatable": row["allocatable"],
            "last_seen": row["last_of_missing"] and f"{row['last_of_missing']:%Y-%m-%d %H:%M}",
        },
        Recommendation(
            verb="diagnose GPU",
            target=f"Node/{name}",
            why=step,
            reversible=True,
            undo="uncordon it when every board is back",
            saving="capacity",
            effort="quick win",
            claims=(claim,) if lost > 0 else (),
        ),
        certain=certain,
    )


def build_outages(  # noqa: PLR0917  (one caller)
    pool: Place,
    downs: Mapping[Place, Sequence[tuple[datetime, datetime]]],
    away: Mapping[Place, GpuCost],
    node_hours: float,
    settings: ReliabilitySettings,
    window: Window,
) -> Finding:
    """Return the cost of a pool's outages; the saving is the time beyond a normal recovery."""
    cluster, name = pool
    names = tuple(sorted(node for _, node in downs))[:MOST_NAMED]
    bill = GpuCost(0.0, Decimal())
    for cost in away.values():
        bill = bill.plus(cost)
    lengths = [(end - start) / timedelta(hours=1) for s in downs.values() for start, end in s]
    target = settings.recover.total_seconds() / 3600
    claims = []
    for place, spans in sorted(downs.items()):
        hours = [(end - start) / timedelta(hours=1) for start, end in spans]
        over = sum(max(h - target, 0.0) for h in hours) / (sum(hours) or 1.0)
        if place in away and over > 0:
            saved = away[place].gpu_hours * over
            claims.append(
                Claim(cluster, None, None, None, None, "unavailable", saved,
                      away[place].part(saved), place[1])
            )  # fmt: skip
    measured = mtbf(len(lengths), node_hours)
    mean = sum(lengths) / len(lengths)
    return build_finding(
        "outages",
        Subject(cluster, "", "NodePool", name, nodes=names),
        window,
        bill,
        {
            "why": f"{len(lengths)} outages of {len(downs)} nodes, {mean:.2f} hours on average",
            "outages": len(lengths),
            "mean_hours": round(mean, 3),
            "longest_hours": round(max(lengths), 3),
            "node_hours": round(node_hours, 1),
            "mtbf_node_hours": round_value(measured.mean_h),
            "mtbf_node_hours_95": [round_value(measured.low_h), round_value(measured.high_h)],
            "recovery_target_hours": target,
        },
        Recommendation(
            verb="repair nodes sooner",
            target=f"NodePool/{name}",
            why="replace a node that is not ready automatically (Karpenter node repair, a machine "
            f"health check) within {format_duration(settings.recover.total_seconds())}",
            reversible=True,
            undo="turn the health check off",
            caution="cap it at a fifth of the pool: a broken network looks like many sick nodes",
            saving="capacity",
            effort="advanced",
            claims=tuple(claims),
        ),
        certain=True,
    )
