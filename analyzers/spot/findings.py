"""Build the findings of work that could run on spot: figures, signals, cautions, claims."""

from collections.abc import Sequence
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec

from analyzers.money import CENT, SMALLEST
from analyzers.spot.plans import SpotPlan, find_surviving_checkpoints
from analyzers.spot.tolerance import NO_BUDGET, ToleranceSignals
from fallow.models import Claim, Finding, FindingKey, Recommendation, Subject
from fallow.window import Window

ANALYZER = "spot"
CONFIDENCE = (0.9, 0.6, 0.4, 0.3)
"""Confidence by the number of missing signals."""
REQUEST = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
"""A Karpenter requirement: spot first, on demand where there is none."""
ALLOCATION = (
    "price-capacity-optimized over the zones named; no bid: a maximum price only caps, since "
    "November 2017 capacity decides"
)


def build_finding(
    subject: Subject,
    signals: ToleranceSignals,
    plans: Sequence[SpotPlan],
    window: Window,
    paid: Decimal | None,
) -> Finding:
    """Return the finding about one workload; its dollars are the pessimistic saving."""
    kind = _get_kind(signals)
    doubts = _list_doubts(signals, plans)
    saved = sum((p.saved_usd for p in plans), Decimal())
    hours = sum(p.gpu_hours for p in plans)
    days = Decimal(repr(window.seconds / 86_400))
    details = {
        "why": _explain(signals, plans, saved, paid),
        "paid_usd": None if paid is None else float(paid.quantize(CENT)),
        "plans": [_describe_plan(p) for p in plans],
        "signals": _describe_signals(signals),
        "allocation": ALLOCATION,
        "manifest": {"requirements": [REQUEST]},
        "assumed": doubts,
    }
    return FindingKey(ANALYZER, kind, subject, window).build(
        evidence="suspected" if doubts else "confirmed",
        confidence=CONFIDENCE[min(len(doubts), len(CONFIDENCE) - 1)],
        gpu_hours=round(hours, 6),
        usd=saved,
        details=details,
        recommendations=(
            Recommendation(
                verb=_get_verb(kind),
                target=f"{subject.workload_kind}/{subject.workload}",
                why=f"the same work for {float(saved):,.2f} USD less in the window, interruptions "
                f"paid{_get_base(kind, plans)}",
                reversible=True,
                undo="require on-demand capacity again",
                usd_per_day=(saved / days).quantize(CENT, ROUND_DOWN),
                caution="; ".join(_list_cautions(signals, doubts)) or None,
                saving="cash",
                effort="advanced",
                claims=tuple(c for p in plans for c in _build_claims(subject, p)),
                parameters={"on_demand_replicas": max(p.on_demand_replicas for p in plans)}
                if kind == "spot_service"
                else {},
            ),
        ),
    )


def _get_kind(signals: ToleranceSignals) -> str:
    if signals.tolerance == "replicated":
        return "spot_service"
    return "spot_deadline" if signals.deadline else "spot_job"


def _get_verb(kind: str) -> str:
    if kind == "spot_service":
        return "run part of its replicas on spot"
    if kind == "spot_deadline":
        return "run on spot while it keeps its pace, on demand in time"
    return "run on spot"


def _get_base(kind: str, plans: Sequence[SpotPlan]) -> str:
    if kind != "spot_service":
        return ""
    return f", with {max(p.on_demand_replicas for p in plans)} of its replicas on demand"


def _list_doubts(signals: ToleranceSignals, plans: Sequence[SpotPlan]) -> list[str]:
    doubts = []
    if any(p.risk.source != "own events" for p in plans):
        hours = plans[0].risk.facts.get("assumed_mtbf_hours")
        doubts.append(
            f"a node is assumed to live {hours:g} hours: fewer than 100 hours of spot nodes of its "
            "type, with events, were seen here"
        )
    if any(p.offers[0].source != "price history" for p in plans):
        doubts.append("the price is the provider's published mean, not this zone's history")
    if signals.tolerance == "retried" and not signals.restarts_survived:
        seen = find_surviving_checkpoints(signals)
        if seen is None:
            doubts.append("no restart was seen to succeed: what it does twice may do harm")
        elif not seen.regular:
            doubts.append("its writes come in bursts, not regularly: they may be no checkpoints")
    return doubts


def _list_cautions(signals: ToleranceSignals, doubts: Sequence[str]) -> list[str]:
    cautions = [*doubts, "cash only once the on-demand nodes that it leaves are given back"]
    if signals.local_volumes:
        cautions.append(f"what it keeps in {', '.join(signals.local_volumes)} is lost with a node")
    if signals.tolerance == "replicated":
        if signals.budget == NO_BUDGET:
            cautions.append("give it a PodDisruptionBudget: none covers it")
        elif signals.budget == "not collected":
            cautions.append("make sure that it has a PodDisruptionBudget: they were not read")
    elif signals.checkpoints is None:
        cautions.append(
            "its owner answers for its checkpoints: none was seen, each stop begins anew"
        )
    else:
        cautions.append("its owner answers for its checkpoints: try one restart first")
    return cautions


def _explain(
    signals: ToleranceSignals, plans: Sequence[SpotPlan], saved: Decimal, paid: Decimal | None
) -> str:
    best = plans[0].offers[0]
    share = f", {float(saved / paid):.0%} of what it cost" if paid else ""
    return (
        f"{sum(p.gpu_hours for p in plans):,.1f} GPU-hours on demand, and {signals.owner}; spot is "
        f"{best.discount:.0%} below list, and interruptions add "
        f"{max(p.stretched for p in plans) - 1:.1%} of time at worst: saves {float(saved):,.2f} USD"
        f"{share}"
    )


def _describe_plan(plan: SpotPlan) -> dict[str, Any]:
    provider, region, instance_type = plan.key
    rate = float(plan.paid_usd) / (plan.gpu_hours / plan.part)
    return {
        "provider": provider,
        "region": region,
        "instance_type": instance_type,
        "gpu_hours": round(plan.gpu_hours, 3),
        "paid_usd_per_gpu_hour": round(rate, 4),
        "list_discount": round(plan.offers[0].discount, 4),
        "stretch": {
            "pessimistic": round(plan.stretched, 4),
            "best": None if plan.best_stretched is None else round(plan.best_stretched, 4),
        },
        "realised_saving": round(float(plan.saved_usd / plan.paid_usd), 4),
        "saved_usd": float(plan.saved_usd.quantize(CENT, ROUND_DOWN)),
        "zones": [
            {
                "zone": offer.zone or "any of the region",
                "usd_per_gpu_hour": round(offer.usd_per_gpu_hour, 4),
                "expected_usd_per_gpu_hour_of_work": round(
                    offer.usd_per_gpu_hour * plan.stretched, 4
                ),
                "discount": round(offer.discount, 4),
                "source": offer.source,
                **offer.facts,
            }
            for offer in plan.offers
        ],
        "risk": {"mtbf_hours": round(plan.risk.hours, 2), "source": plan.risk.source}
        | {k: v for k, v in plan.risk.facts.items() if k != "mtbf_hours"},
        **plan.facts,
    }


def _describe_signals(signals: ToleranceSignals) -> dict[str, Any]:
    seen = signals.checkpoints
    return {
        "owner": signals.owner,
        "replicas": signals.replicas,
        "nodes_at_once": signals.nodes,
        "longest_run_hours": round(signals.run_hours, 3),
        "restarts_survived": signals.restarts_survived,
        "checkpoints": None
        if seen is None
        else {
            **msgspec.to_builtins(seen),
            "interval_h": round(seen.interval_h, 3),
            "counted": find_surviving_checkpoints(signals) is not None,
        },
        "local_volumes": list(signals.local_volumes),
        "claims": list(signals.claims),
        "disruption_budget": signals.budget,
    }


def _build_claims(subject: Subject, plan: SpotPlan) -> list[Claim]:
    each = plan.saved_usd / plan.paid_usd
    return [
        Claim(
            subject.cluster,
            subject.namespace,
            subject.workload_kind,
            subject.workload,
            row.pool,
            row.state,
            row.gpu_hours * plan.part,
            (row.cost * each).quantize(SMALLEST, ROUND_DOWN),
            model=row.model,
        )
        for row in plan.rows
        if row.gpu_hours > 0
    ]
