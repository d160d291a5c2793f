"""`fallow demo`: a synthetic fleet through the very same parse, warehouse, ledger and analyzers.

Deterministic: one seed, one story. The fleet's week ends at a fixed moment, which is also the
demo's "now"; the warehouse lies in a temporary folder unless one is named.
"""

import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fallow.errors import UsageError
from fallow.nouns import Finding
from fallow.seams import Views
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime import pipeline
from runtime.fleet import exposition, inventory, truth, witnesses
from runtime.fleet.plan import Fleet, lay_out
from runtime.fleet.signals import OUTAGE, OUTAGE_NODE, Signals, measure
from runtime.importing import price_rows
from runtime.queries import sql
from runtime.showing import Progress
from runtime.telling import tell

if TYPE_CHECKING:
    from dashboards.story import Planted, Story

END = datetime(2026, 11, 16, tzinfo=UTC)
"""A Monday; prices, calendars and ages are those of that moment."""
INTERVAL_S = 300.0
"""Between two looks. A week of 128 GPUs at 5 minutes is 3 million values, seconds of work."""
CLUSTER = "demo"
PER_TEXT = 24
"""Scrapes parsed at once: two hours."""


def play(
    *, days: int, gpus: int, seed: int, progress: Progress, home: Path | None = None
) -> "Story":
    """Make the fleet, take it through the whole path and return its story.

    Its warehouse is kept in `home`; without one it is in a temporary folder and gone afterwards.

    Raises:
        UsageError: `home` is there and not empty: synthetic rows never mix with others.
    """
    if home is not None and home.exists() and any(home.iterdir()):
        raise UsageError(
            f"the demo keeps its warehouse in a folder of its own, and {home} is not empty",
            hint="name a new folder with --home, or leave it out: then nothing is kept",
        )
    window = Window(END - timedelta(days=days), END)
    progress("making the fleet", 0.0)
    fleet = lay_out(gpus, seed)
    signals = measure(fleet, window, INTERVAL_S, seed)
    with tempfile.TemporaryDirectory(prefix="fallow-demo-") as folder:
        flags = {"home": home or Path(folder), "cluster": CLUSTER}
        settings = load(environ={}, flags=flags).settings
        return _walk(settings, fleet, signals, window, seed, progress)


def _walk(  # noqa: PLR0917  (one caller; the demo's whole state)
    settings: Settings,
    fleet: Fleet,
    signals: Signals,
    window: Window,
    seed: int,
    progress: Progress,
) -> "Story":
    from analyzers.idle import IdleAnalyzer  # noqa: PLC0415  (frames and engine load in 0.5 s)
    from warehouse.lake import Warehouse  # noqa: PLC0415

    with Warehouse.open(settings, write=True, clock=lambda: END) as warehouse:
        pipeline.price(warehouse, price_rows(settings, END))
        pipeline.ingest(
            warehouse,
            inventory_rows(fleet, window),
            witnesses.batches(fleet, signals, CLUSTER, seed),
            telemetry(fleet, signals, progress),
        )
        progress("doing the books", 0.6)
        failures = pipeline.account(warehouse, window)[1]
        progress("finding waste", 0.9)
        found = pipeline.analyze(warehouse, window, [IdleAnalyzer(settings.idle)])
        return tell(
            warehouse,
            window,
            cluster=CLUSTER,
            findings=found,
            failures=failures,
            planted=compared(warehouse, fleet, signals, found),
        )


def inventory_rows(fleet: Fleet, window: Window) -> Iterator[Batch]:
    """Yield the fleet's nodes and pods as `fallow import kubectl` reads them."""
    from collectors.kube.dump import import_kubectl  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="fallow-demo-") as folder:
        path = Path(folder) / "dump.json"
        path.write_text(json.dumps(inventory.kubectl(fleet, window)), encoding="utf-8")
        yield from import_kubectl(path, CLUSTER, window.end)


def telemetry(fleet: Fleet, signals: Signals, progress: Progress) -> Iterator[Batch]:
    """Yield what the exporters' answers hold, read by the collectors' own reader."""
    from collectors.reader import Reader  # noqa: PLC0415

    reader = Reader()
    total = len(signals.ticks)
    fed = 0
    for tick, body in enumerate(exposition.scrapes(fleet, signals)):
        reader.feed("fleet", body, whole=True)
        fed += 1
        if fed == PER_TEXT or tick == total - 1:
            fed = 0
            moment = np.datetime64(int(signals.ticks[tick]), "s")
            read = reader.finish(
                moment, cluster=CLUSTER, interval_s=signals.interval_s, source="demo"
            )
            yield from read.assembled.batches
            progress("reading the exporters", 0.5 * tick / total)
    yield _looks(fleet, signals)


def _looks(fleet: Fleet, signals: Signals) -> Batch:
    """Return one `scrape` row per node, and two more for the node whose exporter fell silent."""
    n = len(signals.ticks)
    spans = []
    for ordinal, node in enumerate(fleet.nodes):
        cuts = [0, n]
        if ordinal == OUTAGE_NODE:
            cuts = [0, *(round(part * n) for part in OUTAGE), n]
        spans += [(node, begin, end, turn != 1) for turn, (begin, end) in enumerate(pairwise(cuts))]
    end_of_time = np.append(signals.ticks, signals.ticks[-1] + signals.interval_s)
    return Batch.of(
        "scrape",
        {
            "cluster": [CLUSTER] * len(spans),
            "ts": (end_of_time[[s[1] for s in spans]] * 1e6).astype("datetime64[us]"),
            "until": (end_of_time[[s[2] for s in spans]] * 1e6).astype("datetime64[us]"),
            "collector": ["exporters"] * len(spans),
            "target": [f"http://{s[0]}:9400/metrics" for s in spans],
            "up": [s[3] for s in spans],
            "error": [None if s[3] else "connection refused" for s in spans],
        },
    )


def compared(views: Views, fleet: Fleet, signals: Signals, found: list[Finding]) -> "Planted":
    """Lay what was found over what was planted, priced as the ledger prices each model."""
    from dashboards.story import Planted  # noqa: PLC0415

    stretches = truth.planted(fleet, signals)
    result = truth.compare(stretches, found)
    priced = [f.usd for f in found if f.usd is not None]
    rates = {r["model"]: r["usd_h"] for r in views.query(sql("model_rates")).to_pylist()}
    unpriced = {s.model for s in stretches} - rates.keys()
    cost = None if unpriced else sum(s.gpu_hours * rates[s.model] for s in stretches)
    return Planted(
        planted_gpu_hours=result.planted_gpu_hours,
        found_gpu_hours=result.found_gpu_hours,
        planted_usd=None if cost is None else Decimal(f"{cost:.2f}"),
        found_usd=sum(priced, Decimal()) if priced else None,
        precision=result.precision,
        recall=result.recall,
        false_alarms=result.false_alarms,
    )
