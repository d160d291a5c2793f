"""Judge an incident: rank its causes by its signals, and take the step of the first one, or hold.

    signals ─► causes.csv (weights) ─► ranked causes ─► steps.csv ─► step
         └───► contradictions.csv ───► unknown, hold

A cause counts from `LEAST` on, and only if it leads every rival by `LEAD`: a cause with another
step and evidence of its own. A symptom (a hang, a timeout of a collective) is the cause only where
nothing else explains it, and a rival by what only symptoms show. An error of the application
explains the timeout of the ranks that wait for it, but no hang.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from analyzers.reliability.incidents.records import (
    HOLD,
    UNKNOWN,
    IncidentVerdict,
    RankedCause,
    Signal,
)
from analyzers.reliability.incidents.tables import (
    LEADING,
    read_cause_signals,
    read_contradictions,
    read_steps,
)

LEAST, LEAD = 4, 2
"""Weights: the least that names a cause, and its least distance to a cause with another step."""

ENDINGS = frozenset({"process_failed", "oom_killed", "pods_lost", "preempted", "spot_notice"})
"""Signals after which progress of the workload is its restart and contradicts nothing."""


def judge_signals(
    group: Iterable[Signal], *, has_checkpoint: bool, recovered: bool
) -> IncidentVerdict:
    """Return the verdict on the signals of an incident.

    `recovered`: replacements of all its pods have started. A controller that restarts the workload
    itself counts as that, until it gives up.
    """
    signals = tuple(group)
    names = {s.name for s in signals}
    restarts = [s.at for s in signals if s.name == "controller_restarts"]
    ends = [s.at for s in signals if s.name == "controller_gave_up"]
    recovered = recovered or (bool(restarts) and max(ends, default=max(restarts)) <= max(restarts))
    last = max((s.at for s in signals if s.name in ENDINGS), default=None)
    if last is None:
        return judge(names, has_checkpoint=has_checkpoint, runs_again=recovered)
    moves = [s.known_at for s in signals if s.name == "progress_advances"]
    runs_again = recovered or any(at > last for at in moves)
    return judge(
        names - {"progress_advances"}, has_checkpoint=has_checkpoint, runs_again=runs_again
    )


def judge(names: Collection[str], *, has_checkpoint: bool, runs_again: bool) -> IncidentVerdict:
    """Return the verdict on an incident with these signals.

    `has_checkpoint`: a checkpoint of its workloads is known. `runs_again`: their own controllers
    have started them again, or do.
    """
    causes = rank_causes(names)
    doubts = _find_contradictions(names)
    if doubts:
        return IncidentVerdict(
            UNKNOWN, UNKNOWN, HOLD, HOLD, doubts, "the evidence contradicts", causes
        )
    best, doubt = _choose(causes)
    if best is None:
        return IncidentVerdict(
            UNKNOWN, UNKNOWN, HOLD, HOLD, (doubt,), "too little evidence", causes
        )
    row = read_steps()[best.cause]
    remedy = row.step if row.otherwise is None or has_checkpoint else row.otherwise
    holds: tuple[str, ...] = ()
    if remedy == HOLD:
        holds = (row.why,)
    elif runs_again and row.target == "workload":
        holds = ("its own controller has started it again",)
    step = HOLD if holds else remedy
    return IncidentVerdict(best.cause, best.class_, remedy, step, holds, row.why, causes)


def rank_causes(names: Collection[str]) -> tuple[RankedCause, ...]:
    """Return the causes that signals speak for, the heaviest first."""
    signals: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for row in read_cause_signals():
        if row.signal in names:
            signals[row.cause, row.class_].append((row.signal, row.weight))
    ranked = [
        RankedCause(
            cause=cause,
            class_=class_,
            weight=sum(weight for _, weight in theirs),
            signals=tuple(name for name, _ in theirs),
        )
        for (cause, class_), theirs in signals.items()
    ]
    return tuple(sorted(ranked, key=lambda c: (-c.weight, c.cause)))


def _choose(causes: tuple[RankedCause, ...]) -> tuple[RankedCause | None, str]:
    """Return the cause, or the reason why there is none."""
    depths = {row.cause: row.symptom for row in read_cause_signals()}
    enough = [c for c in causes if c.weight >= LEAST]
    if not enough:
        return None, "no cause has enough evidence"
    depth = min(depths[c.cause] for c in enough)
    best = next(c for c in enough if depths[c.cause] == depth)
    for rival in causes:
        if read_steps()[rival.cause].step == read_steps()[best.cause].step:
            continue
        is_symptom = depths[rival.cause] > depth
        if best.weight - _weigh_rival(rival, depths, is_symptom=is_symptom) < LEAD:
            return None, f"{best.cause} and {rival.cause} are as probable"
    return best, ""


def _weigh_rival(rival: RankedCause, depths: Mapping[str, int], *, is_symptom: bool) -> int:
    """Return the weight of a rival; 0 = nothing of it shows where the cause is.

    Of a symptom of the cause count the signals that only causes of its depth have.
    """
    rows = [r for r in read_cause_signals() if r.cause == rival.cause and r.signal in rival.signals]
    if is_symptom:
        above = {r.signal for r in read_cause_signals() if depths[r.cause] < depths[rival.cause]}
        rows = [row for row in rows if row.signal not in above]
    if not any(row.weight >= LEADING for row in rows):
        return 0
    return sum(row.weight for row in rows)


def _find_contradictions(names: Collection[str]) -> tuple[str, ...]:
    return tuple(
        row.why
        for row in read_contradictions()
        if row.signal in names and (not row.other or row.other in names)
    )
