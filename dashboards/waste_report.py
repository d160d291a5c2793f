"""Write the waste story: what is paid, used, worst, and to do, as terminal text or Markdown.

A plain struct in, text out; nothing here reads a warehouse. Bars and colours appear only where
people can see them. Every number has its unit, every story its window, currency and price date.
"""

import textwrap
from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec

from dashboards.text import count, format_share
from fallow.texts import escape_markdown, spell_out
from fallow.window import Window, format_duration
from warehouse.audits import format_banner

BLOCKS = " ▏▎▍▌▋▊▉█"
COLOURS = {
    "productive": "34", "low": "36", "startup": "36", "idle": "33", "free": "37",
    "stranded": "37", "lost": "31", "unavailable": "31", "unknown": "35",
}  # fmt: skip
"""ANSI colours: used blue, allocated idle amber, free grey, broken red, unknown magenta."""
MEANING = {
    "productive": "working",
    "low": "working below target",
    "startup": "starting up",
    "idle": "allocated, not used",
    "free": "not allocated",
    "stranded": "free, but nothing fits",
    "lost": "work thrown away",
    "unavailable": "broken or cordoned",
    "unknown": "no telemetry, or odd",
}


class StateTotal(msgspec.Struct, frozen=True):
    """The GPU-hours and dollars of one ledger state; `usd` None = no price was found."""

    state: str
    gpu_hours: float
    usd: Decimal | None


class WasteRow(msgspec.Struct, frozen=True):
    """One workload's waste: the sum of all its findings of one kind."""

    workload: str
    owner: str
    kind: str
    since: str
    gpu_hours: float
    usd: Decimal | None
    evidence: str
    why: str
    advice: str
    finding: str


class OtherFinding(msgspec.Struct, frozen=True):
    """A finding of an analyzer other than the idle one, with the saving of its advice.

    `saving`: its kind, or `at most` where its hours and dollars are a bound of hours in use.
    """

    subject: str
    analyzer: str
    kind: str
    saving: str
    gpu_hours: float
    usd: Decimal | None
    evidence: str
    why: str
    advice: str
    finding: str


class UnjudgedWorkload(msgspec.Struct, frozen=True):
    """A workload whose telemetry allows no verdict."""

    workload: str
    gpu_hours: float
    why: str


class PlantedScore(msgspec.Struct, frozen=True):
    """How planted truth compares with the findings (demo only)."""

    planted_gpu_hours: float
    found_gpu_hours: float
    planted_usd: Decimal | None
    found_usd: Decimal | None
    precision: float
    recall: float
    false_alarms: int
    missed_gpu_hours: float
    """Planted hours in no finding."""
    extra_gpu_hours: float
    """Hours in a finding that were not planted: shorter or other idle times, or truly in use."""
    ledger_idle_gpu_hours: float
    """Idle in the ledger."""
    not_idle_gpu_hours: float = 0.0
    """Hours in a finding of idle time that are not idle in the ledger."""
    others_gpu_hours: float = 0.0
    """Hours idle in the ledger, and claimed by findings of other analyzers."""

    @property
    def unclaimed_gpu_hours(self) -> float:
        """Return the hours that are idle in the ledger and in no finding."""
        claimed = self.found_gpu_hours - self.not_idle_gpu_hours + self.others_gpu_hours
        return self.ledger_idle_gpu_hours - claimed

    @property
    def reconciled(self) -> str:
        """Return how planted, found and ledger-idle GPU-hours relate, in parts that add up."""
        planted_hours, found_hours, missed, idle, claimed, others = (
            Decimal(f"{value:.1f}")
            for value in (
                self.planted_gpu_hours, self.found_gpu_hours, self.missed_gpu_hours,
                self.ledger_idle_gpu_hours, self.ledger_idle_gpu_hours - self.unclaimed_gpu_hours,
                self.others_gpu_hours,
            )
        )  # fmt: skip
        # Idle hours in findings are rounded as everywhere else; the remainder is shown beside them.
        extra, unclaimed = found_hours - planted_hours + missed, idle - claimed
        in_use = min(extra, round(found_hours * (1 - Decimal(repr(self.precision))), 1))
        used = f" + in use {in_use:,}" if in_use else ""
        not_idle = found_hours + others - claimed
        if not_idle < 0:
            others, not_idle = others - not_idle, Decimal()
        beside = f" - not idle in the ledger {not_idle:,}" if not_idle else ""
        beside += f" + in other findings {others:,}" if others else ""
        return (
            f"planted {planted_hours:,} - missed {missed:,} + idle, not planted "
            f"{extra - in_use:,}{used} = found {found_hours:,};"
            f"{beside} + no finding {unclaimed:,} = idle {idle:,}"
        )


class Story(msgspec.Struct, frozen=True):
    """All data of the story. Money is in US dollars."""

    cluster: str
    window: Window
    gpus: int
    nodes: int
    states: tuple[StateTotal, ...]
    wastes: tuple[WasteRow, ...]
    others: tuple[OtherFinding, ...] = ()
    """The most expensive first; no GPU-hour is saved twice, also not one of idle work."""
    unjudged: tuple[UnjudgedWorkload, ...] = ()
    planted: PlantedScore | None = None
    audit_failures: tuple[str, ...] = ()
    prices: str = ""
    unseen: str = ""
    """The paid GPUs that no exporter shows, and who holds them; empty = there are none."""
    notes: tuple[str, ...] = ()
    savings: str = ""
    """What could be saved together, cash first; empty = nothing."""

    @property
    def gpu_hours(self) -> float:
        """Return all GPU-hours of the window."""
        return sum(s.gpu_hours for s in self.states)

    @property
    def usd(self) -> Decimal | None:
        """Return the bill, None if nothing has a price."""
        priced = [s.usd for s in self.states if s.usd is not None]
        return sum(priced, Decimal()) if priced else None


WORST = 5
BESIDE = "Beside idle work, each GPU-hour saved once"


def render_terminal(story: Story, *, width: int = 100, colour: bool = False) -> str:
    """Render the story for a terminal of this width."""
    bars = _render_bars(story, width, colour=colour)
    lines = [*_render_banner(story), *_head(story), ""]
    lines += ["Paid GPU-hours: used, idle and free", *bars, ""]
    lines += _render_worst(story, width)
    lines += _render_todo(story, width)
    lines += _render_beside(story, width)
    if story.unjudged:
        lines += [
            "Not judged: telemetry is missing or contradicts itself, so neither idle nor busy"
        ]
        lines += [
            f"  {u.workload:<40} {u.gpu_hours:>9,.1f} GPU-h  {u.why}"[:width]
            for u in story.unjudged[:WORST]
        ]
        lines += [""]
    if story.planted is not None:
        lines += [*_render_planted(story.planted, width), ""]
    lines += _render_foot(story)
    return "\n".join(s.rstrip() if s in bars else spell_out(s).rstrip() for s in lines) + "\n"


def render_markdown(story: Story) -> str:
    """Render the story as Markdown: the same facts, tables for bars."""
    total = story.gpu_hours
    lines = [f"# Fallow: {escape_markdown(story.cluster)}", "", *_render_banner(story)]
    lines += [*(f"{line}  " for line in _head(story, escape_markdown)[1:]), ""]
    lines += ["| state | GPU-hours | share | USD | meaning |", "|---|--:|--:|--:|---|"]
    lines += [
        f"| {s.state} | {s.gpu_hours:,.1f} | {format_share(s.gpu_hours, total)} | "
        f"{format_money(s.usd)} "
        f"| {MEANING.get(s.state, '')} |"
        for s in story.states
    ]
    lines += ["", "## The worst", ""]
    lines += ["| workload | owner | since | GPU-hours | USD | evidence | what to do | finding |"]
    lines += ["|---|---|---|--:|--:|---|---|---|"]
    lines += [
        f"| {escape_markdown(w.workload)} | {escape_markdown(w.owner)} | {w.since} "
        f"| {w.gpu_hours:,.1f} | {format_money(w.usd)} | {w.evidence}: {escape_markdown(w.why)} | "
        f"{escape_markdown(w.advice)} | `{w.finding}` |"
        for w in story.wastes[:WORST]
    ]
    if story.others:
        lines += ["", f"## {BESIDE}", ""]
        lines += [
            "| what | finding of | GPU-hours | USD | saves | evidence | what to do | finding |"
        ]
        lines += ["|---|---|--:|--:|---|---|---|---|"]
        lines += [
            f"| {escape_markdown(o.subject)} | {o.analyzer}: {o.kind} | {o.gpu_hours:,.1f} | "
            f"{format_money(o.usd)} "
            f"| {o.saving} | {o.evidence}: {escape_markdown(o.why)} "
            f"| {escape_markdown(o.advice)} | `{o.finding}` |"
            for o in story.others[:WORST]
        ]
    if story.unjudged:
        lines += ["", "## Not judged", "", "| workload | GPU-hours | why |", "|---|--:|---|"]
        lines += [
            f"| {escape_markdown(u.workload)} | {u.gpu_hours:,.1f} | {escape_markdown(u.why)} |"
            for u in story.unjudged
        ]
    if story.planted is not None:
        lines += ["", "## Planted and found", "", *_render_planted(story.planted, 1000)[1:]]
    lines += ["", *(f"{line}  " for line in _render_foot(story))]
    return "\n".join(lines) + "\n"


def format_money(usd: Decimal | None) -> str:
    """Return dollars as text, or that there is no price."""
    return "no price" if usd is None else f"${usd:,.2f}"


def _render_banner(story: Story) -> list[str]:
    if not story.audit_failures:
        return []
    return [f"!! {format_banner(story.audit_failures)}", ""]


def _head(story: Story, escape: Callable[[str], str] = str) -> list[str]:
    start, end = story.window.start, story.window.end
    length = format_duration(story.window.seconds)
    size = f"{count(story.gpus, 'GPU')} on {count(story.nodes, 'node')}"
    return [
        f"Fallow: cluster {story.cluster}",
        f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC ({length}), {size}",
        *([escape(story.unseen)] if story.unseen else []),
        f"Paid: {format_money(story.usd)} for {story.gpu_hours:,.1f} GPU-hours",
        *([story.savings] if story.savings else []),
    ]


def _render_bars(story: Story, width: int, *, colour: bool) -> list[str]:
    total = story.gpu_hours or 1.0
    room = max(8, min(40, width - 80))
    out = []
    for s in story.states:
        if s.gpu_hours <= 0:
            continue
        bar = draw_bar(s.gpu_hours / total, room)
        if colour:
            bar = f"\x1b[{COLOURS.get(s.state, '37')}m{bar}\x1b[0m"
        out.append(
            f"  {s.state:<11} {bar} {format_share(s.gpu_hours, total):>7} "
            f"{s.gpu_hours:>10,.1f} GPU-h "
            f"{format_money(s.usd):>14}  {MEANING.get(s.state, '')}"
        )
    return out if colour else [line[: max(width, 60)] for line in out]


def draw_bar(share: float, room: int) -> str:
    """Return a bar of eighth blocks, padded to `room` characters."""
    eighths = round(min(max(share, 0.0), 1.0) * room * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (BLOCKS[rest] if rest else "")).ljust(room)


def _render_worst(story: Story, width: int) -> list[str]:
    if not story.wastes:
        return ["Nothing idle was found.", ""]
    wasted = [w.usd for w in story.wastes if w.usd is not None]
    total = format_money(sum(wasted, Decimal())) if wasted else "no price"
    hours = sum(w.gpu_hours for w in story.wastes)
    # A workload has a row for each kind of finding.
    named = {(w.owner, w.workload) for w in story.wastes}
    where = f"{count(len(named), 'workload')} that {'was' if len(named) == 1 else 'were'} idle"
    lines = [f"Allocated, idle: {total}, {hours:,.1f} GPU-hours in {where}; the worst:"]
    for number, w in enumerate(story.wastes[:WORST], start=1):
        title = f"  {number} {w.workload}"
        lines.append(f"{title:<52} {format_money(w.usd):>12} {w.gpu_hours:>9,.1f} GPU-h  {w.kind}")
        lines += _wrap(
            f"owner {w.owner}; since {w.since}; {w.evidence}: {w.why} [{w.finding}]", width
        )
    return [*lines, ""]


def _render_todo(story: Story, width: int) -> list[str]:
    advised = [w for w in story.wastes[:WORST] if w.advice]
    if not advised:
        return []
    lines = ["What to do"]
    for number, w in enumerate(advised, start=1):
        lines += textwrap.wrap(
            f"{number} {w.advice}", width - 2, initial_indent="  ", subsequent_indent="    "
        )
    return [*lines, ""]


def _render_beside(story: Story, width: int) -> list[str]:
    if not story.others:
        return []
    lines = [f"{BESIDE} ({len(story.others)}); the most:"]
    for number, o in enumerate(story.others[:WORST], start=1):
        title = f"  {number} {o.subject}"
        lines.append(
            f"{title:<52} {format_money(o.usd):>12} {o.gpu_hours:>9,.1f} GPU-h  {o.saving}"
        )
        finding_text = f"{o.kind}, {o.evidence}: {o.why}; {o.advice} [{o.finding}]"
        lines += _wrap(finding_text, width)
    return [*lines, ""]


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width - 4, initial_indent="    ", subsequent_indent="    ")


def _render_planted(p: PlantedScore, width: int) -> list[str]:
    planted_hours = f"{p.planted_gpu_hours:,.1f} GPU-h {format_money(p.planted_usd)}"
    found_hours = f"{p.found_gpu_hours:,.1f} GPU-h {format_money(p.found_usd)}"
    alarms = f"{p.false_alarms} false alarms"
    return [
        "Planted in this synthetic fleet, and found",
        f"  planted {planted_hours}; found {found_hours}",
        f"  precision {p.precision:.1%}, recall {p.recall:.1%} of idle GPU-hours, {alarms}",
        *textwrap.wrap(
            f"GPU-h: {p.reconciled}", width, initial_indent="  ", subsequent_indent="    "
        ),
    ]


def _render_foot(story: Story) -> list[str]:
    audits = "failed" if story.audit_failures else "ok"
    lines = [f"Audits {audits}: states add up to capacity, costs add up to the bill."]
    if story.audit_failures:
        lines = [f"Audits failed: {'; '.join(story.audit_failures)}"]
    if story.prices:
        lines.append(f"Prices in USD: {story.prices}")
    return [*lines, *story.notes]


def sort_states(states: Sequence[StateTotal]) -> tuple[StateTotal, ...]:
    """Return the states in the story's order: productive first, unknown last."""
    order = list(MEANING)
    return tuple(sorted(states, key=lambda s: order.index(s.state) if s.state in order else 99))
