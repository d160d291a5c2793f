"""What is said of failures: the hours and dollars they cost, the steps, and what to do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from functools import cache
from typing import Any

import msgspec

from analyzers.budgets import Budget
from analyzers.checkpoints import Checkpoints, Owner
from analyzers.idle import Unjudged
from analyzers.money import CENT, SMALLEST
from analyzers.queries import rows_of
from analyzers.reliability.clocks import Slow
from analyzers.reliability.devices import Sick
from analyzers.reliability.failures import STEPS, Failure
from fallow.checkpointing import daly, mtbf, stretch
from fallow.nouns import Claim, Finding, Recommendation, State, Subject, finding_id
from fallow.settings import ReliabilitySettings
from fallow.window import Window, format_duration

ANALYZER = "reliability"
MOST_NAMED = 16
CONFIRMED = 2
"""So many independent witnesses make a sick device certain."""
Place = tuple[str, str]


class Bill(msgspec.Struct, frozen=True):
    """GPU-hours and their dollars; None = part of them has no price."""

    gpu_hours: float
    usd: Decimal | None

    def plus(self, other: "Bill") -> "Bill":
        """Return both together."""
        known = self.usd is not None and other.usd is not None
        usd = (self.usd or Decimal()) + (other.usd or Decimal()) if known else None
        return Bill(self.gpu_hours + other.gpu_hours, usd)

    def part(self, gpu_hours: float) -> Decimal | None:
        """Return the dollars of some of the hours."""
        if self.usd is None or self.gpu_hours <= 0:
            return None
        share = Decimal(repr(min(gpu_hours / self.gpu_hours, 1.0)))
        return (self.usd * share).quantize(SMALLEST, ROUND_DOWN)


def sick_node(  # noqa: PLR0917  (one caller)
    place: Place,
    sick: Sequence[Sick],
    away: Bill | None,
    node: Mapping[str, Any] | None,
    guards: Sequence[Budget] | None,
    window: Window,
) -> Finding:
    """Return what is known of a node with sick boards; its hours are those it was not available.

    `guards` are the disruption budgets over its pods; None = nobody read the cluster's.
    """
    cluster, name = place
    worst = min(sick, key=lambda s: (s.level != "sick", -len(s.witnesses), s.device))
    kind = "sick_node" if worst.level == "sick" else "suspect_gpu"
    bill = away if kind == "sick_node" and away else Bill(0.0, Decimal())
    certain = kind == "sick_node" and len(worst.witnesses) >= CONFIRMED
    claims = (
        (Claim(cluster, None, None, None, None, "unavailable", bill.gpu_hours, bill.usd, name),)
        if bill.gpu_hours > 0
        else ()
    )
    drained = f"cordon {name}, let its work go on elsewhere, then {worst.action}"
    cautions = (
        [] if certain else [f"one witness says so ({', '.join(worst.witnesses)}): look first"]
    )
    cautions += [
        f"a drain waits: {b.id} ({b.wants}) allows no eviction"
        for b in guards or ()
        if not b.allowed
    ]
    return _made(
        kind,
        Subject(cluster, "", "Node", name, nodes=(name,)),
        window,
        bill,
        {
            "why": f"{len(sick)} of {node['gpu_count'] if node else 'its'} boards: "
            + "; ".join(s.signs[0] for s in sick[:2]),
            "devices": [msgspec.to_builtins(s) for s in sick[:MOST_NAMED]],
            "disruption_budgets": "not collected" if guards is None else _told(guards),
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


def _told(guards: Sequence[Budget]) -> list[dict[str, Any]]:
    return [{"name": b.id, "wants": b.wants, "evictions_allowed": b.allowed} for b in guards]


def outages(  # noqa: PLR0917  (one caller)
    pool: Place,
    downs: Mapping[Place, Sequence[tuple[datetime, datetime]]],
    away: Mapping[Place, Bill],
    node_hours: float,
    settings: ReliabilitySettings,
    window: Window,
) -> Finding:
    """Return what a pool's outages cost; saved is what was longer than recovery should take."""
    cluster, name = pool
    names = tuple(sorted(node for _, node in downs))[:MOST_NAMED]
    bill = Bill(0.0, Decimal())
    for one in away.values():
        bill = bill.plus(one)
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
    return _made(
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
            "mtbf_node_hours": _round(measured.mean_h),
            "mtbf_node_hours_95": [_round(measured.low_h), _round(measured.high_h)],
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


def lost_work(  # noqa: PLR0917  (one caller)
    owner: Owner,
    failed: Sequence[Failure],
    kept: Checkpoints,
    held: Mapping[str, Bill],
    settings: ReliabilitySettings,
    window: Window,
) -> Finding | None:
    """Return what a workload's failures cost: held while dead, started again, done again."""
    worked = _sum(held, ("productive", "low"))
    startup = held.get("startup", Bill(0.0, Decimal()))
    hours = worked.gpu_hours + startup.gpu_hours
    replay = [min(kept.interval_h / 2, f.run_hours) * f.gpus for f in failed]
    steps = [f.seconds for f in failed if f.seconds]
    dead = sum(
        (f.seconds["detect"] + f.seconds["drain"]) / 3600 * f.gpus for f in failed if f.seconds
    )
    loaded = sum(f.load_s / 3600 * f.gpus for f in failed if f.seconds)
    again = min(loaded, startup.gpu_hours)
    lost = min(sum(replay) + dead + again, hours)
    if lost < settings.min_gpu_hours:
        return None
    usd = worked.plus(startup).part(lost)
    span = window.seconds / 3600
    measured = mtbf(len(failed), span)
    write_h = (kept.write_s or settings.write.total_seconds()) / 3600
    between = measured.mean_h or span
    best = daly(write_h, between)
    restart = sum(sum(s.values()) for s in steps) / len(steps) / 3600 if steps else 0.0
    saved = _saved(failed, replay, best, worked.gpu_hours, write_h, kept.interval_h)
    claims = _claims(owner, held, saved) if saved > 0 else ()
    confirmed = kept.regular and all(f.cause != "application" for f in failed)
    about = Subject(*owner, nodes=tuple(sorted({n for f in failed for n in f.nodes}))[:MOST_NAMED])
    return _made(
        "lost_work",
        about,
        window,
        Bill(lost, usd),
        {
            "why": "failures: "
            + ", ".join(f"{n} by {c}" for c, n in sorted(Counter(f.cause for f in failed).items())),
            "failures": [_failure(f) for f in failed[:MOST_NAMED]],
            "failures_count": len(failed),
            "gpu_hours_by_step": {
                "held_while_dead": round(dead, 3),
                "started_again": round(again, 3),
                "replayed": round(sum(replay), 3),
            },
            "mean_seconds_to_recover": {
                **{k: round(sum(s[k] for s in steps) / len(steps), 1) for k in STEPS},
                "replay": round(sum(replay) * 3600 / sum(f.gpus for f in failed), 1),
            }
            if steps
            else None,
            "mtbf_hours": _round(measured.mean_h),
            "mtbf_hours_95": [_round(measured.low_h), _round(measured.high_h)],
            "checkpoints": {
                "interval_hours": round(kept.interval_h, 3),
                "source": kept.source,
                "write_seconds": round(write_h * 3600, 1),
                "best_interval_hours": round(best, 3),
                "stretch_now": _bounded(stretch(kept.interval_h, write_h, between, restart)),
                "stretch_best": _bounded(stretch(best, write_h, between, restart)),
                "media": _media(write_h, between, restart),
            },
            "assumed": [
                "half of the work between two checkpoints is lost each time",
                *([] if kept.write_s else ["how long a checkpoint is written nobody saw"]),
            ],
        },
        None
        if best >= kept.interval_h
        else Recommendation(
            verb=f"checkpoint every {format_duration(max(round(best * 60), 1) * 60)}",
            target=f"{owner[2]}/{owner[3]}",
            why=f"Daly's interval for a failure every {between:.1f} hours and {write_h * 3600:.0f} "
            "seconds of writing",
            reversible=True,
            undo="restore the interval",
            caution="write to a faster medium first where writing stops the work",
            saving="capacity",
            effort="quick win",
            claims=claims,
        ),
        certain=confirmed,
    )


def slow_gpus(
    owner: Owner,
    slow: Sequence[Slow],
    held: Mapping[str, Bill],
    together: bool,
    window: Window,
) -> Finding:
    """Return what slow GPUs cost their workload; a gang goes at the pace of its slowest."""
    worked = _sum(held, ("productive", "low"))
    each = [s.lost * s.busy_hours for s in slow]
    everybody = max(s.lost * s.busy_hours * s.gang for s in slow)
    lost = min(everybody if together else sum(each), worked.gpu_hours)
    hot = [s for s in slow if s.causes]
    named = ", ".join(dict.fromkeys(s.node for s in slow))
    return _made(
        "slow_gpu",
        Subject(*owner, nodes=tuple(dict.fromkeys(s.node for s in slow))[:MOST_NAMED]),
        window,
        Bill(lost, worked.part(lost)),
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
            claims=_claims(owner, held, lost),
        ),
        certain=bool(hot),
    )


def unknown_loss(owner: Owner, failed: Sequence[Failure], window: Window) -> Unjudged:
    """Return that nobody can tell what failures lost, and at most how much."""
    most = sum(f.run_hours * f.gpus for f in failed)
    return Unjudged(
        Subject(*owner),
        round(most, 6),
        ("no checkpoint was seen: what its failures lost is unknown",),
        window,
    )


def _saved(  # noqa: PLR0917  (one caller)
    failed: Sequence[Failure],
    replay: Sequence[float],
    best_h: float,
    worked: float,
    write_h: float,
    interval_h: float,
) -> float:
    """Return the GPU-hours that the best interval would have saved, its writing paid."""
    less = sum(now - min(now, best_h / 2 * f.gpus) for now, f in zip(replay, failed, strict=True))
    return max(less - worked * write_h * max(1 / best_h - 1 / interval_h, 0.0), 0.0)


def _claims(owner: Owner, held: Mapping[str, Bill], gpu_hours: float) -> tuple[Claim, ...]:
    states: tuple[State, ...] = ("productive", "low")
    total = _sum(held, states).gpu_hours
    cluster, namespace, kind, name = owner
    return tuple(
        Claim(cluster, namespace, kind, name, None, state, part, held[state].part(part))
        for state in states
        if state in held and (part := gpu_hours * held[state].gpu_hours / total) > 0
    )


def _sum(held: Mapping[str, Bill], states: Sequence[str]) -> Bill:
    bill = Bill(0.0, Decimal())
    for state in states:
        if state in held:
            bill = bill.plus(held[state])
    return bill


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "at": f"{failure.at:%Y-%m-%dT%H:%M:%SZ}",
        "cause": failure.cause,
        "nodes": list(failure.nodes),
        "gpus": failure.gpus,
        "seconds": None
        if failure.seconds is None
        else {step: round(failure.seconds[step], 1) for step in STEPS},
    }


def _media(write_h: float, between: float, restart: float) -> list[dict[str, Any]]:
    """Return the best interval on each medium, were today's a network file system."""
    found = []
    for name, speed in _speeds():
        write = write_h / speed
        best = daly(write, between)
        found.append(
            {
                "medium": name,
                "write_seconds": round(write * 3600, 1),
                "best_interval_hours": round(best, 3),
                "stretch": _bounded(stretch(best, write, between, restart)),
            }
        )
    return found


@cache
def _speeds() -> tuple[tuple[str, float], ...]:
    rows = rows_of("reliability/media")
    return tuple((r["medium"], float(r["gb_per_s"]) / float(rows[0]["gb_per_s"])) for r in rows)


def _bounded(value: float) -> float | None:
    """Return a figure that JSON has; None = it never ends."""
    return round(value, 4) if value < 1e6 else None  # noqa: PLR2004


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _made(  # noqa: PLR0917  (one place where findings are made)
    kind: str,
    about: Subject,
    window: Window,
    bill: Bill,
    details: dict[str, Any],
    advice: Recommendation | None,
    *,
    certain: bool,
) -> Finding:
    days = Decimal(repr(window.seconds / 86_400))
    claims = advice.claims if advice else ()
    saved = sum(c.gpu_hours for c in claims)
    usd = sum((c.usd or Decimal() for c in claims), Decimal())
    return Finding(
        id=finding_id(ANALYZER, kind, about, window.start),
        analyzer=ANALYZER,
        kind=kind,
        subject=about,
        window=window,
        verdict="wasteful",
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
