"""Build the findings of failures: their hours and dollars, the evidence, and the remedy."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec

from analyzers.checkpoints import Checkpoints
from analyzers.money import CENT, SMALLEST
from analyzers.reliability.clocks import SlowDevice
from analyzers.reliability.devices import SickDevice
from analyzers.reliability.failure_loss import (
    CheckpointPlan,
    FailureLoss,
    LostWork,
    compute_loss,
    compute_saved,
    list_steps,
    plan_checkpoints,
    read_media,
)
from analyzers.reliability.failures import STEPS, Failure
from analyzers.reliability.gpu_costs import GpuCost, build_claims, sum_states
from analyzers.reliability.rows import MissingDevices, NodeLifetime
from analyzers.workload_rows import Owner
from fallow.checkpointing import compute_daly_interval, compute_mtbf, compute_time_per_work
from fallow.models import Claim, Finding, FindingKey, Recommendation, Subject, Unjudged
from fallow.settings.reliability import ReliabilitySettings
from fallow.window import Window, format_duration
from warehouse.disruption_budgets import DisruptionBudget

ANALYZER = "reliability"
MOST_NAMED = 16
CONFIRMED = 2
"""This many independent signals confirm a sick device."""
Place = tuple[str, str]


def build_sick_node(  # noqa: PLR0917  (one caller)
    place: Place,
    sick: Sequence[SickDevice],
    away: GpuCost | None,
    node: NodeLifetime | None,
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
    cautions = [] if certain else [f"one signal says so ({', '.join(worst.signals)}): check first"]
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
            "why": f"{len(sick)} of {node.gpu_count if node else 'its'} GPUs: "
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


def build_missing_device(missing: MissingDevices, window: Window) -> Finding:
    """Return the finding of a node with fewer GPUs than it has; its hours are the missing GPUs'.

    Confirmed where the kubelet misses them too; its hours are then `unavailable`, else `unknown`.
    """
    expected, visible, name = missing.expected, missing.visible, missing.node
    certain = missing.allocatable is not None and missing.allocatable <= visible
    bill = GpuCost(missing.gpu_hours, missing.usd)
    lost = min(missing.unavailable_hours, bill.gpu_hours)
    claim = Claim(
        missing.cluster, None, None, None, None, "unavailable", lost, bill.part(lost), name
    )
    says = f"the node has {expected} GPUs, its exporter shows {visible}"
    if missing.allocatable is not None:
        says += f" and its kubelet can give out {missing.allocatable}"
    step = (
        f"cordon {name} and find the GPU: dmesg for XID 79, nvidia-smi, then the slot"
        if certain
        else f"check whether the exporter on {name} sees every GPU (its own nvidia-smi)"
    )
    return build_finding(
        "missing_gpu",
        Subject(missing.cluster, "", "Node", name, nodes=(name,)),
        window,
        bill,
        {
            "why": says,
            "gpus": expected,
            "shown": visible,
            "allocatable": missing.allocatable,
            "last_seen": missing.last_of_missing and f"{missing.last_of_missing:%Y-%m-%d %H:%M}",
        },
        Recommendation(
            verb="diagnose GPU",
            target=f"Node/{name}",
            why=step,
            reversible=True,
            undo="uncordon it when every GPU is back",
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
    measured = compute_mtbf(len(lengths), node_hours)
    mean = sum(lengths) / len(lengths)
    return build_finding(
        "outages",
        Subject(cluster, "", "NodePool", name, nodes=names),
        window,
        bill,
        {
            "why": f"outages: {len(lengths)}, on nodes: {len(downs)}, {mean:.2f} hours on average",
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
            caution="cap it at a fifth of the pool: a broken network resembles many sick nodes",
            saving="capacity",
            effort="advanced",
            claims=tuple(claims),
        ),
        certain=True,
    )


def build_lost_work(  # noqa: PLR0917  (one caller)
    owner: Owner,
    failed: Sequence[Failure],
    checkpoints: Checkpoints,
    costs: Mapping[str, GpuCost],
    thrown: Mapping[datetime, LostWork],
    settings: ReliabilitySettings,
    window: Window,
) -> Finding | None:
    """Return the cost of a workload's failures: allocated while dead, restarted, and repeated.

    The repeated work comes from `work_lost`; for a failure without a row, it is half of the
    interval between two checkpoints. `thrown`: its rows by the time of the failure.
    """
    worked = sum_states(costs, ("productive", "low", "lost"))
    startup = costs.get("startup", GpuCost(0.0, Decimal()))
    loss = compute_loss(failed, checkpoints, thrown, startup.gpu_hours)
    lost = min(loss.total, worked.gpu_hours + startup.gpu_hours)
    if lost < settings.min_gpu_hours:
        return None
    plan = plan_checkpoints(failed, checkpoints, settings, window)
    saved = compute_saved(loss, plan, worked.gpu_hours)
    claims = build_claims(owner, costs, saved) if saved > 0 else ()
    confirmed = checkpoints.regular and all(f.cause != "application" for f in failed)
    about = Subject(*owner, nodes=tuple(sorted({n for f in failed for n in f.nodes}))[:MOST_NAMED])
    return build_finding(
        "lost_work",
        about,
        window,
        GpuCost(lost, worked.plus(startup).part(lost)),
        {
            **_describe_failures(failed),
            **_describe_loss(failed, loss),
            **_describe_interruptions(failed, plan, window),
            "checkpoints": _describe_checkpoints(plan),
            "assumed": [
                *(
                    []
                    if loss.measured
                    else ["half of the work between two checkpoints is lost each time"]
                ),
                *([] if checkpoints.write_s else ["the time to write a checkpoint is unknown"]),
            ],
        },
        _recommend_interval(owner, plan, claims),
        certain=confirmed,
    )


def build_slow_gpus(
    owner: Owner,
    slow: Sequence[SlowDevice],
    costs: Mapping[str, GpuCost],
    together: bool,
    window: Window,
) -> Finding:
    """Return the cost of slow GPUs for their workload; a gang runs at the speed of its slowest."""
    worked = sum_states(costs, ("productive", "low"))
    each = [s.lost * s.busy_hours for s in slow]
    everybody = max(s.lost * s.busy_hours * s.gang for s in slow)
    lost = min(everybody if together else sum(each), worked.gpu_hours)
    hot = [s for s in slow if s.causes]
    named = ", ".join(dict.fromkeys(s.node for s in slow))
    return build_finding(
        "slow_gpu",
        Subject(*owner, nodes=tuple(dict.fromkeys(s.node for s in slow))[:MOST_NAMED]),
        window,
        GpuCost(lost, worked.part(lost)),
        {
            "why": f"{len(slow)} of {slow[0].gang} GPUs at {slow[0].clock_mhz:.0f} MHz, the median "
            f"at {slow[0].peers_mhz:.0f}",
            "devices": [
                {
                    "device": s.device,
                    "node": s.node,
                    "clock_mhz": round(s.clock_mhz, 1),
                    "peers_mhz": round(s.peers_mhz, 1),
                    "busy_hours": round(s.busy_hours, 2),
                    "throttled_share": round(s.hot_share, 4),
                    "throttled_by": list(s.causes),
                    "temp_c": s.temp_c,
                }
                for s in slow[:MOST_NAMED]
            ],
            "pace": "the slowest's" if together else "each its own",
            "assumed": ["work is as fast as the SM clock: what waits for memory loses less"],
        },
        Recommendation(
            verb="move work off slow GPUs",
            target=f"Node/{slow[0].node}",
            why=("cool them: " if hot else "find why: ")
            + (
                f"{', '.join(hot[0].causes)} on {named}"
                if hot
                else f"no throttling is shown on {named}"
            ),
            reversible=True,
            undo="uncordon the node",
            saving="capacity",
            effort="quick win",
            claims=build_claims(owner, costs, lost),
        ),
        certain=bool(hot),
    )


def build_unknown_loss(owner: Owner, failed: Sequence[Failure], window: Window) -> Unjudged:
    """Return the finding that the loss from failures is unknown, with its upper limit."""
    most = sum(f.run_hours * f.gpus for f in failed)
    return Unjudged(
        Subject(*owner),
        round(most, 6),
        ("no checkpoint was seen: what its failures lost is unknown",),
        window,
    )


def _describe_failures(failed: Sequence[Failure]) -> dict[str, Any]:
    causes = sorted(Counter(f.cause for f in failed).items())
    return {
        "why": "failures: " + ", ".join(f"{n} by {c}" for c, n in causes),
        "failures": [_describe_failure(f) for f in failed[:MOST_NAMED]],
        "failures_count": len(failed),
    }


def _describe_failure(failure: Failure) -> dict[str, Any]:
    return {
        "at": f"{failure.at:%Y-%m-%dT%H:%M:%SZ}",
        "cause": failure.cause,
        "nodes": list(failure.nodes),
        "gpus": failure.gpus,
        "seconds": None
        if failure.seconds is None
        else {step: round(failure.seconds[step], 1) for step in STEPS},
    }


def _describe_loss(failed: Sequence[Failure], loss: FailureLoss) -> dict[str, Any]:
    return {
        "gpu_hours_by_step": {
            "held_while_dead": round(loss.dead, 3),
            "started_again": round(loss.again, 3),
            "replayed": round(sum(loss.replay), 3),
        },
        "mean_seconds_to_recover": _average_recovery(failed, loss),
    }


def _average_recovery(failed: Sequence[Failure], loss: FailureLoss) -> dict[str, float] | None:
    """Return the mean seconds of each step; None = no recovery was seen."""
    steps = list_steps(failed)
    if not steps:
        return None
    return {
        **{k: round(sum(s[k] for s in steps) / len(steps), 1) for k in STEPS},
        "replay": round(sum(loss.replay) * 3600 / sum(loss.gpus), 1),
    }


def _describe_interruptions(
    failed: Sequence[Failure], plan: CheckpointPlan, window: Window
) -> dict[str, Any]:
    """Return the hours between interruptions; the MTBF leaves out spot and preemption."""
    faults = sum(f.cause not in {"spot", "preemption"} for f in failed)
    measured = compute_mtbf(faults, window.seconds / 3600)
    return {
        "hours_between_interruptions": round_value(plan.between_h),
        "mtbf_hours": round_value(measured.mean_h),
        "mtbf_hours_95": [round_value(measured.low_h), round_value(measured.high_h)],
    }


def _describe_checkpoints(plan: CheckpointPlan) -> dict[str, Any]:
    checkpoints = plan.checkpoints
    return {
        "interval_hours": round(checkpoints.interval_h, 3),
        "source": checkpoints.source,
        "write_seconds": round(plan.write_h * 3600, 1),
        "best_interval_hours": round(plan.best_h, 3),
        "stretch_now": _drop_infinite(
            compute_time_per_work(
                checkpoints.interval_h, plan.write_h, plan.between_h, plan.restart_h
            )
        ),
        "stretch_best": _drop_infinite(
            compute_time_per_work(plan.best_h, plan.write_h, plan.between_h, plan.restart_h)
        ),
        "media": _compare_media(plan.write_h, plan.between_h, plan.restart_h),
    }


def _recommend_interval(
    owner: Owner, plan: CheckpointPlan, claims: tuple[Claim, ...]
) -> Recommendation | None:
    """Return the advice to checkpoint more often; None = today's interval is short enough."""
    if plan.best_h >= plan.checkpoints.interval_h:
        return None
    return Recommendation(
        verb=f"checkpoint every {format_duration(max(round(plan.best_h * 60), 1) * 60)}",
        target=f"{owner[2]}/{owner[3]}",
        why=f"Daly's interval for an interruption every {plan.between_h:.1f} hours and "
        f"{plan.write_h * 3600:.0f} seconds of writing",
        reversible=True,
        undo="restore the interval",
        caution="write to a faster medium first where writing stops the work",
        saving="capacity",
        effort="quick win",
        claims=claims,
    )


def _compare_media(write_h: float, between: float, restart: float) -> list[dict[str, Any]]:
    """Return the best interval on each medium, if the present one is a network file system."""
    media = []
    for medium in read_media():
        write = write_h / (medium.gb_per_s / read_media()[0].gb_per_s)
        best = compute_daly_interval(write, between)
        media.append(
            {
                "medium": medium.medium,
                "write_seconds": round(write * 3600, 1),
                "best_interval_hours": round(best, 3),
                "stretch": _drop_infinite(compute_time_per_work(best, write, between, restart)),
            }
        )
    return media


def _drop_infinite(value: float) -> float | None:
    """Return a value that JSON can represent; None = infinite."""
    return round(value, 4) if value < 1e6 else None  # noqa: PLR2004


def _describe_guards(guards: Sequence[DisruptionBudget]) -> list[dict[str, Any]]:
    return [{"name": b.id, "wants": b.wants, "evictions_allowed": b.allowed} for b in guards]


def build_finding(  # noqa: PLR0917  (one place where findings are made)
    kind: str,
    about: Subject,
    window: Window,
    bill: GpuCost,
    details: dict[str, Any],
    advice: Recommendation | None,
    *,
    certain: bool,
) -> Finding:
    """Build a finding from its bill, its details and its advice."""
    days = Decimal(repr(window.seconds / 86_400))
    claims = advice.claims if advice else ()
    saved = sum(c.gpu_hours for c in claims)
    usd = sum((c.usd or Decimal() for c in claims), Decimal())
    return FindingKey(ANALYZER, kind, about, window).build(
        evidence="confirmed" if certain else "suspected",
        confidence=0.9 if certain else 0.6,
        gpu_hours=round(bill.gpu_hours, 6),
        usd=None if bill.usd is None else bill.usd.quantize(SMALLEST, ROUND_DOWN),
        details=details,
        recommendations=()
        if advice is None
        else (
            msgspec.structs.replace(
                advice,
                gpu_hours_per_day=round(saved / float(days), 4) if saved else None,
                usd_per_day=(usd / days).quantize(CENT, ROUND_DOWN) if usd else None,
            ),
        ),
    )


def round_value(value: float | None) -> float | None:
    """Return a value rounded as findings show it."""
    return None if value is None else round(value, 2)
