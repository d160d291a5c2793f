"""The soak's own ledger, and what the warehouse, the journal and the cluster are held to by it."""

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.soak.exporters import number_of
from tests.soak.site import CANARY, GPUS, SoakSite
from warehouse.lake import Warehouse

ROWS = "SELECT device, energy_mj FROM sample WHERE energy_mj IS NOT NULL"
EARLIER = "SELECT count(*) AS n, sum(gpu_util_pct) AS total FROM sample WHERE energy_mj IS NULL"


class Check(NamedTuple):
    """One thing that must hold at the end, and what was counted."""

    what: str
    ok: bool
    figure: str


class Notes(msgspec.Struct):
    """What the readers wrote down."""

    seen: set[tuple[str, int]] = msgspec.field(default_factory=set)
    earlier: Counter[tuple[int, float]] = msgspec.field(default_factory=Counter)
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    queries: int = 0


def read_notes(path: Path) -> Notes:
    """Return what a reader wrote; its last line may be cut."""
    notes = Notes()
    for line in path.read_text().splitlines():
        try:
            note = json.loads(line)
        except json.JSONDecodeError:
            continue
        notes.queries += 1
        match note:
            case {"seen": rows}:
                notes.seen.update((device, energy) for device, energy in rows)
            case {"before": [count, total]}:
                notes.earlier[count, total] += 1
            case {"error": kind, "text": text}:
                notes.errors[f"{kind}: {text}"] += 1
    return notes


IN_FLIGHT_S = 5.0
"""An answer is stored, or waits in the service's memory, this long after it was sent."""
IN_MEMORY_S = 70.0
"""Rows wait in memory for about a minute while the store is away, and go to disk then."""


class Interruptions(NamedTuple):
    """When the service was killed, when it was stopped, and when its stores began to fail."""

    kills: list[float]
    stops: list[float]
    store_faults: list[float]

    def allow_loss(self, sent: float) -> bool:
        """Return whether an answer may be lost: nobody had acknowledged it when its reader ended.

        It was on its way, or it waited in the memory of a process that was killed while, or soon
        after, its store was away.
        """
        if any(sent - 1 <= end <= sent + IN_FLIGHT_S for end in (*self.kills, *self.stops)):
            return True
        return any(
            fault - IN_FLIGHT_S <= sent <= kill <= fault + IN_MEMORY_S
            for kill in self.kills
            for fault in self.store_faults
        )


def check_rows(
    site: SoakSite, notes: Notes, earlier: tuple[int, float], interruptions: Interruptions
) -> list[Check]:
    """Hold the stored rows to the answers that the exporters sent and to what readers saw."""
    with Warehouse.open(site.settings) as warehouse:
        stored = Counter((r["device"], r["energy_mj"]) for r in warehouse.query(ROWS).to_pylist())
        (archived,) = warehouse.query(EARLIER).to_pylist()
    polled = {site.polled.device(gpu) for gpu in range(site.polled.gpus)}
    sent = {
        (exporter.device(gpu), number): at
        for exporter in (*site.exporters, site.polled)
        for number, at in exporter.answers.items()
        for gpu in range(exporter.gpus)
    }
    rows = {(device, number_of(energy)) for device, energy in stored}
    direct = {key for key in sent if key[0] not in polled}
    missing = direct - rows
    first = min(sent.values(), default=0.0)
    lost = {
        (device.rpartition("-")[0], number): not interruptions.allow_loss(sent[device, number])
        for device, number in missing
    }
    times = sorted(
        {sent[key] - first for key in missing if lost[key[0].rpartition("-")[0], key[1]]}
    )
    duplicates = [key for key, count in stored.items() if count > 1 and key[0] not in polled]
    gone = notes.seen - set(stored)
    return [
        Check(
            "no row was stored twice", not duplicates, f"{len(duplicates)} of {len(stored)} rows"
        ),
        Check(
            "no row was stored that no exporter sent", rows <= set(sent), f"{len(rows - set(sent))}"
        ),
        Check(
            "what a reader saw is there at the end",
            not gone,
            f"{len(notes.seen)} rows seen, {len(gone)} gone",
        ),
        Check(
            "answers are stored, but for what nobody had acknowledged when the service ended",
            not any(lost.values()),
            f"{len(direct) // GPUS} answers, {len(lost)} not stored, {sum(lost.values())} of them "
            f"without an excuse{_format_times(times)}",
        ),
        Check(
            "rows of before the soak are whole, hot or archived",
            (archived["n"], archived["total"]) == earlier,
            f"{archived['n']} of {earlier[0]} rows",
        ),
        Check(
            "no reader was given a part of them as the whole",
            set(notes.earlier) <= {earlier},
            f"{sum(notes.earlier.values())} answers, {sum(notes.errors.values())} errors",
        ),
    ]


def _format_times(seconds: list[float]) -> str:
    if not seconds:
        return ""
    return f", sent {seconds[0]:.1f} to {seconds[-1]:.1f} s after the first answer"


def check_actions(site: SoakSite, passed_runs: int) -> list[Check]:
    """Hold the journal to the canary runs whose command said that they passed."""
    journal = next(site.home.glob("**/journal*.sqlite"))
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as journal_file:
        rows = journal_file.execute("SELECT document FROM entry WHERE kind = 'canary'").fetchall()
    results = Counter(json.loads(document)["result"] for (document,) in rows)
    obj: Any = site.cluster.store.get("Deployment", CANARY, CANARY)
    ready = obj.get("status", {}).get("readyReplicas", 0)
    return [
        Check(
            "every canary run that its command called passed is in the journal",
            results["passed"] >= passed_runs > 0,
            f"{passed_runs} passed by the commands, {dict(results)} in the journal",
        ),
        Check(
            "the canary's Deployment is as it was",
            (obj["spec"]["replicas"], ready) == (1, 1),
            f"{obj['spec']['replicas']} replicas, {ready} Ready",
        ),
    ]
