"""Build the findings of a service: its levels, and the replicas that it does not need."""

from math import ceil
from typing import Any

from analyzers.services.levels import InferenceService, ServiceLevel
from analyzers.services.rows import ReplicaUse
from analyzers.work import WorkloadCosts, compute_per_day, compute_share
from fallow.models import Finding, FindingKey, Recommendation, State
from fallow.settings.service_levels import ServicesSettings
from fallow.window import Window

ANALYZER = "services"
RELEASE: tuple[State, ...] = ("low", "idle")
"""Only hours with little or no activity are claimed."""


def build_missed(service: InferenceService, window: Window) -> Finding | None:
    """Return the finding of a service that misses a level.

    It shows no waste, and a reason not to reduce the service.
    """
    bad = [level for level in service.levels if level.state == "missed"]
    if not bad:
        return None
    why = "; ".join(level.spoken() for level in bad)
    return FindingKey(ANALYZER, "slo_missed", service.subject, window).build(
        verdict="busy",
        evidence="suspected",
        confidence=0.9 if not any(level.mean_only for level in bad) else 0.6,
        details={
            "why": why,
            "levels": [_describe_level(level) for level in service.levels],
            "means": "while it is asked, nothing that makes this workload smaller is advised",
        },
    )


def build_spare_replicas(
    service: InferenceService,
    row: ReplicaUse,
    money: WorkloadCosts,
    settings: ServicesSettings,
    window: Window,
) -> Finding | None:
    """Return the finding of a service with more replicas than its levels and activity need."""
    levels = service.levels
    if service.doubts or not levels or any(level.state != "met" for level in levels):
        return None
    if any(level.burned(level.least) > settings.burn for level in levels):
        return None
    replicas = int(row.replicas)
    needed = max(1, ceil(row.most_active / settings.busiest - 1e-9) + settings.spare)
    if needed >= replicas:
        return None
    share = 1 - needed / replicas
    total = money.total(service.owner, RELEASE)
    if total is None or total.gpu_hours * share <= 0:
        return None
    usd = None if total.usd is None else compute_share(total.usd, share)
    worst = max(level.burned(level.least) for level in levels)
    why = (
        f"{replicas} replicas are active {row.act:.0%} of the time and together at most as much "
        f"as {row.most_active:.2f} of them; at most {worst:.0%} of the error budget is used"
    )
    enough = round(needed * row.devices, 3)
    return FindingKey(ANALYZER, "slo_headroom", service.subject, window).build(
        evidence="suspected",
        confidence=0.6,
        gpu_hours=round(total.gpu_hours * share, 6),
        usd=usd,
        details={
            "why": why,
            "levels": [_describe_level(level) for level in levels],
            "replicas": replicas,
            "needed": needed,
            "activity": round(row.act, 4),
            "busiest_hour": round(row.most_active, 4),
            **({} if row.sm is None else {"sm": round(row.sm, 4)}),
            "share": round(share, 4),
            "hours_of": list(RELEASE),
            "signals": {"compute": "rollup_1h", "intent": "latency_sample"},
            "assumed": [
                "activity adds up: the same requests make fewer replicas busier in proportion",
                f"latency stays within its level up to an activity of {settings.busiest:.0%}",
            ],
            **({} if usd is not None else {"no_price": "part of its hours has no price"}),
        },
        recommendations=(
            Recommendation(
                verb="ask for fewer GPUs",
                target=f"{service.subject.workload_kind}/{service.subject.namespace}"
                f"/{service.subject.workload}",
                why=f"{needed} of {replicas} replicas are enough: {why}",
                reversible=True,
                undo=f"scale to {replicas} replicas again",
                gpu_hours_per_day=round(total.gpu_hours * share * 86_400 / window.seconds, 4),
                usd_per_day=compute_per_day(usd, window),
                caution="one replica at a time, and check the error budget in between",
                saving="capacity",
                effort="quick win",
                claims=money.claims(service.owner, share, RELEASE),
                parameters={"fewer_gpus": enough},
            ),
        ),
    )


def _describe_level(level: ServiceLevel) -> dict[str, Any]:
    return {
        "metric": level.metric,
        "source": level.source,
        "within_s": level.within_s,
        "target": level.target,
        "state": level.state,
        "requests": round(level.requests, 3),
        "attained": round(level.about, 6),
        "between": [round(level.least, 6), round(level.most, 6)],
        "budget_burned": [round(level.burned(level.most), 4), round(level.burned(level.least), 4)],
        "hours": level.hours,
        "hours_missed": level.hours_missed,
        "worst_hour": round(level.worst_hour, 6),
        **({"of_a_mean": "Markov's bound: no histogram"} if level.mean_only else {}),
    }
