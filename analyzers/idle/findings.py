"""One judged stretch of one workload, and its finding."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from typing import Any

import msgspec

from analyzers.idle.evidence import VETOES, IdleSignals, Judgement, Signal, compute_confidence
from analyzers.idle.rows import JudgedStretch, NumberedDevice
from analyzers.money import SMALLEST
from capacity.workload_kinds import read_idle_kinds
from fallow.idle_details import Hold, IdleDetails, IdleRule, IdleSignalWords, ReturnEstimate
from fallow.models import Finding, Subject, compute_finding_id
from fallow.settings.idle import IdleSettings
from fallow.window import Window, format_duration
from warehouse.signals.runs import MICRO

MOST_NAMED = 16
"""Maximum number of devices, nodes and models that a finding names; the rest is counted."""

PARTLY = "over_allocated_ranks"
"""Kind of a finding about devices left unused while others of the workload compute."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class IdleCase(msgspec.Struct, frozen=True):
    """A stretch in which a workload left devices unused, with its signals and its judgement."""

    subject: Subject
    kind: str
    window: Window
    signals: IdleSignals
    judgement: Judgement
    gpu_hours: float
    usd: Decimal | None
    source: str
    devices: tuple[str, ...]
    stretch: JudgedStretch
    """The values behind the signals."""


def build_case(
    row: JudgedStretch,
    devices: Sequence[NumberedDevice],
    signals: IdleSignals,
    judgement: Judgement,
    *,
    source: str,
) -> IdleCase:
    """Make a case of a stretch and its idle devices."""
    return IdleCase(
        subject=_build_subject(row, devices),
        kind=row.kind,
        window=Window(convert_us(row.start), convert_us(row.end)),
        signals=signals,
        judgement=judgement,
        gpu_hours=round(row.gpu_us / (3600 * MICRO), 6),
        # Never above the bill: the rounding is less than a millionth of a dollar.
        usd=None if row.usd is None else Decimal(repr(row.usd)).quantize(SMALLEST, ROUND_DOWN),
        source=source,
        devices=tuple(sorted(device.device for device in devices)),
        stretch=row,
    )


def _build_subject(row: JudgedStretch, devices: Sequence[NumberedDevice]) -> Subject:
    """Return the subject of a finding: the workload, its unused nodes and models."""
    nodes = sorted({d.node for d in devices if d.node})[:MOST_NAMED]
    models = sorted({d.gpu_model or d.model for d in devices if d.model})
    return Subject(*row.owner, team=row.team, nodes=tuple(nodes), models=tuple(models))


def build_finding(case: IdleCase, settings: IdleSettings) -> Finding:
    """Return the finding of a case with evidence."""
    evidence = case.judgement.evidence
    if evidence is None:
        raise ValueError(f"no finding without evidence: {case.judgement.reasons}")
    partly = case.kind == PARTLY
    return Finding(
        id=compute_finding_id("idle", case.kind, case.subject, case.window.start),
        analyzer="idle",
        kind=case.kind,
        subject=case.subject,
        window=case.window,
        verdict="partly idle" if partly else "idle",
        evidence=evidence,
        confidence=compute_confidence(
            case.signals,
            coverage=case.stretch.coverage,
            exact=not case.signals.shared_estimated,
            evidence=evidence,
        ),
        gpu_hours=case.gpu_hours,
        usd=case.usd,
        details=_describe_details(case, settings),
    )


def _describe_details(case: IdleCase, settings: IdleSettings) -> dict[str, Any]:
    stretch, judged = case.stretch, case.judgement
    partly = case.kind == PARTLY
    reasons = list(judged.reasons)
    if stretch.gap:
        reasons.append(stretch.gap)
    if partly:
        reasons.append("other devices of the workload compute: ask for fewer, never stop it")
    vetoes = [why for name, why in VETOES.items() if getattr(case.signals, name)]
    holds = [] if partly else list_holds(case)
    return IdleDetails(
        why=explain(case, settings),
        signals=IdleSignalWords(
            compute=f"activity at or below {settings.threshold:g} "
            f"for {format_duration(case.window.seconds)}",
            physics=_describe_physics(stretch, case.signals.physics),
            host=_pick_word(case.signals.host, "idle", "busy"),
            intent=_pick_word(case.signals.intent, "idle", "active"),
        ),
        actionable=judged.actionable and not partly,
        reasons=tuple(reasons),
        coverage=round(stretch.coverage, 4),
        samples=stretch.samples,
        devices_held=stretch.devices,
        devices_idle=len(case.devices),
        devices=case.devices[:MOST_NAMED],
        read_from=case.source,
        rule=_describe_rule(settings),
        vetoes=tuple(vetoes) or None,
        held_by=tuple(holds) or None,
        is_return_considered=False if settings.min_expected_rest is None else None,
        wanted=None if partly else _describe_estimate(stretch, settings),
        longest_rest=format_duration(stretch.longest_rest_us / MICRO)
        if stretch.longest_rest_us
        else None,
        power_w=None if stretch.power_w is None else round(stretch.power_w, 1),
        idle_band_w=None if stretch.band_w is None else round(stretch.band_w, 1),
        idle_band=None if stretch.band_w is None else stretch.band,
    ).document()


def _describe_rule(settings: IdleSettings) -> IdleRule:
    return IdleRule(
        threshold=settings.threshold,
        exit_threshold=settings.exit_threshold,
        exit_samples=settings.exit_samples,
        min_duration=format_duration(settings.min_duration.total_seconds()),
        service_duration=format_duration(settings.service_duration.total_seconds()),
        max_gap=format_duration(settings.max_gap.total_seconds())
        if settings.max_gap
        else "3 intervals",
        coverage=settings.coverage,
        power_margin_w=settings.power_margin_w,
    )


def _describe_estimate(stretch: JudgedStretch, settings: IdleSettings) -> ReturnEstimate | None:
    if stretch.wanted is None or not settings.min_expected_rest:
        return None
    return ReturnEstimate(
        probability=stretch.wanted,
        within=format_duration(settings.min_expected_rest.total_seconds()),
        exposures=stretch.exposures,
        returns=stretch.returns,
        own_days=stretch.own_days,
        own_returns=stretch.own_returns,
    )


def list_holds(case: IdleCase) -> list[Hold]:
    """Return what holds an idle workload: its requests, then what its owner wrote."""
    signals, stretch = case.signals, case.stretch
    holds = []
    if signals.requested:
        counts = (stretch.waiting, stretch.running, stretch.swapped)
        verbs = ("wait", "run", "are swapped out")
        words = [f"{n:.0f} {verb}" for n, verb in zip(counts, verbs, strict=True) if n]
        holds.append(Hold(f"requests at its servers: {', '.join(words)}"))
    return [*holds, *(stretch.holds or () if signals.on_hold else ())]


def explain(case: IdleCase, settings: IdleSettings) -> str:
    """Explain in one sentence the basis of the verdict."""
    allocated, length = case.stretch.devices, format_duration(case.window.seconds)
    parts = [
        f"{len(case.devices)} of {allocated} GPUs at or below {settings.threshold:.0%} for {length}"
    ]
    w = case.signals
    if w.physics is not None:
        parts.append(_describe_physics(case.stretch, w.physics))
    if w.host is not None:
        parts.append(f"host {_pick_word(w.host, 'idle', 'busy')}")
    if w.intent is not None:
        words = _pick_word(w.intent, "kernels, terminals, requests", "")
        parts.append(f"no activity of {words}")
    return "; ".join(parts)


def _describe_physics(stretch: JudgedStretch, signal: Signal) -> str:
    if signal is None:
        return "unknown"
    power, band = stretch.power_w, stretch.band_w
    if power is not None and band is not None:
        return f"{power:.0f} W, idle band {band:.0f} W ({stretch.band})"
    if stretch.processes == 0:
        return "no process on the device"
    if stretch.idle_clock is not None:
        return "the driver says idle clocks"
    return f"last kernel {format_duration(stretch.kernel_age_s or 0)} ago"


def _pick_word(signal: Signal, yes: str, no: str) -> str:
    return "unknown" if signal is None else (yes if signal else no)


def decide_kind(workload_kind: str, served: bool, notebook: bool) -> str:
    """Return the kind of an idle finding: by the owner's kind, else by its servers and requests."""
    kind = read_idle_kinds().get(workload_kind)
    if kind is not None:
        return kind
    if notebook:
        return "idle_notebook"
    return "idle_inference" if served else "idle_workload"


def convert_us(us: int) -> datetime:
    """Return microseconds since 1970 as an aware timestamp."""
    return _EPOCH + timedelta(microseconds=us)
