"""Find work that waits for data, and data that is stored too expensively or read repeatedly.

rollup_1h, pod_sample ─► waits.sql ─► GPUs that wait for input ─┐
pod, pod_sample ─► reads.sql ─► bounds of what is read ─────────┼─► findings.py
settings (sizes, classes, prices) ─► tiers.py ─► moves, caches ─┘
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction

import msgspec

from analyzers.datapath.findings import build_cache, build_move, build_wait
from analyzers.datapath.rows import ClaimReads, WorkloadWaits, read_claims, read_waits
from analyzers.datapath.tiers import ReadRange, compute_cache_return, find_best_class
from analyzers.work import read_costs
from fallow.errors import SettingsError
from fallow.models import Finding, Subject, Unjudged
from fallow.protocols import Views
from fallow.settings.datapath import DatapathSettings, Dataset, StorageClass
from fallow.window import Window

RECENT = timedelta(days=2)
"""Host samples are the largest part of a warehouse: only these are read for waiting GPUs."""
DAY_S = 86_400
GIB = 2**30


class DatasetReads(msgspec.Struct, frozen=True):
    """One dataset: the amount that its readers read, or why that is unknown."""

    dataset: Dataset
    subject: Subject
    bounds: ReadRange | None
    readers: tuple[str, ...]
    why: str = ""


class DatapathAnalyzer:
    """Find GPUs that wait for data, and storage that costs more than it must."""

    def __init__(self, settings: DatapathSettings | None = None) -> None:
        self.settings = settings or DatapathSettings()

    def find(self, views: Views, window: Window) -> list[Finding]:
        """Return what waits and what is stored too expensively, the most dollars first.

        Raises:
            SettingsError: a dataset is in a class that the settings do not name.
        """
        findings = [*self._waits(views, window), *self._storage(views, window)]
        return sorted(findings, key=lambda f: (-(f.usd or 0), -f.gpu_hours, f.id))

    def unjudged(self, views: Views, window: Window) -> list[Unjudged]:
        """Return the workloads and datasets that cannot be judged, and why."""
        unjudged = []
        for row in self._rows(views, window):
            hours = row.gpu_hours - row.watched
            if hours > 0.5 * row.gpu_hours:
                why = "whether it waits for data: no disk or network reads of its pods (cAdvisor)"
                unjudged.append(Unjudged(Subject(*row.owner), round(hours, 6), (why,), window))
        unjudged += [
            Unjudged(read.subject, 0.0, (read.why,), window)
            for read in self._reads(views, window)
            if read.bounds is None
        ]
        return unjudged

    def _waits(self, views: Views, window: Window) -> Iterator[Finding]:
        recent = Window(max(window.start, window.end - RECENT), window.end)
        rows = [r for r in self._rows(views, window) if r.hours >= self.settings.least_hours]
        if not rows:
            return
        money = read_costs(views, recent)
        for row in rows:
            yield from build_wait(row, money, recent)

    def _rows(self, views: Views, window: Window) -> list[WorkloadWaits]:
        recent = Window(max(window.start, window.end - RECENT), window.end)
        return read_waits(views, recent, self.settings)

    def _storage(self, views: Views, window: Window) -> Iterator[Finding]:
        classes = {c.name: c for c in self.settings.classes}
        for read in self._reads(views, window):
            if read.bounds is None:
                continue
            data = read.dataset
            storage_class, gib = _find_class(classes, data), Fraction(data.gib)
            days = Fraction(self.settings.horizon_days)
            age = _compute_age_days(data, window)
            margin = Fraction(str(self.settings.read_margin))
            wary = ReadRange(Fraction(), read.bounds.most * margin)
            move = find_best_class(gib, storage_class, classes.values(), wary, days, age)
            if move is not None and self._worth(move.saving_usd, days):
                yield build_move(read.subject, data, read.bounds, read.readers, move, window, days)
            price = self.settings.cache_usd_per_gib_month
            if price is not None:
                saved = compute_cache_return(gib, storage_class, read.bounds, days, Fraction(price))
                if self._worth(saved, days):
                    yield build_cache(
                        read.subject, data, read.bounds, read.readers, saved, window, days
                    )

    def _worth(self, saving: Fraction, days: Fraction) -> bool:
        return saving > 0 and saving / days * 30 >= Fraction(self.settings.min_saving_usd)

    def _reads(self, views: Views, window: Window) -> list[DatasetReads]:
        """Return by dataset the minimum and maximum that its readers read per day."""
        sets = self.settings.datasets
        if not sets:
            return []
        by: dict[int, list[ClaimReads]] = defaultdict(list)
        for row in read_claims(views, window, sets):
            by[row.dataset].append(row)
        return [self._read(data, by[n], window) for n, data in enumerate(sets)]

    def _read(self, data: Dataset, rows: Sequence[ClaimReads], window: Window) -> DatasetReads:
        cluster = rows[0].cluster if rows else ""
        about = Subject(cluster, data.namespace, "Dataset", data.name)
        days = Fraction(str(window.seconds)) / DAY_S
        readers = tuple(sorted({f"{r.workload_kind}/{r.workload}" for r in rows}))
        if days < self.settings.least_days:
            why = f"{float(days):g} days: how data is read is known by {self.settings.least_days}"
            return DatasetReads(data, about, None, readers, why)
        if not rows:
            why = "no pod in the inventory mounts its claim: read by others, or not at all"
            return DatasetReads(data, about, None, readers, why)
        lived, seen = sum(r.lived_s for r in rows), sum(r.seen_s for r in rows)
        if not all(r.whole for r in rows) or seen < self.settings.coverage * lived:
            why = f"reads of {seen / max(lived, 1):.0%} of its readers' life are known (cAdvisor)"
            return DatasetReads(data, about, None, readers, why)
        # For a pod with several claims, all of its traffic may belong to any of them.
        least = sum(r.disk for r in rows if r.claims == 1)
        most = sum(r.disk + r.network for r in rows)
        unseen = Fraction(str(lived)) / max(Fraction(str(seen)), Fraction(1))
        per_day = 1 / (GIB * days)
        bounds = ReadRange(Fraction(int(least)) * per_day, Fraction(int(most)) * per_day * unseen)
        return DatasetReads(data, about, bounds, readers)


def _find_class(classes: Mapping[str, StorageClass], data: Dataset) -> StorageClass:
    if data.storage_class not in classes:
        legal = ", ".join(sorted(classes)) or "none: datapath.classes is empty"
        raise SettingsError(
            f"dataset {data.name!r} lies in the class {data.storage_class!r}, which has no price",
            hint=f"legal here: {legal}",
        )
    return classes[data.storage_class]


def _compute_age_days(data: Dataset, window: Window) -> Fraction:
    if data.stored_since is None or data.stored_since >= window.end:
        return Fraction()
    return Fraction(int((window.end - data.stored_since).total_seconds()), DAY_S)
