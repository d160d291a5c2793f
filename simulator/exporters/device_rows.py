"""Write the rows that reading the exporters' texts would give, directly from a block.

    rows(block, quirks, ...) -> batches of `sample`, `holding` where devices are shared, `scrape`

A test checks that they equal what `collectors.exporters` reads from the texts. Quirks of spelling
(label and field names) therefore change nothing here.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fallow.tables import TYPES, Batch, list_columns
from simulator.exporters.device_catalog import get_model, read_fields
from simulator.exporters.device_telemetry import (
    Codes,
    DeviceTelemetry,
    Doubles,
    SharedSeries,
    distort,
    get_key,
)
from simulator.exporters.quirks import Quirks
from simulator.models import Block, DeviceAllocation, Marks

Timestamps = npt.NDArray[np.datetime64]
CELLS = 250_000
"""Rows built at once: about 0.2 GB of memory."""
_HOLDING_COLUMNS = ("gpu_util_pct", "mem_used_bytes")


def build_rows(
    block: Block,
    quirks: Quirks,
    *,
    cluster: str,
    allocations: Sequence[DeviceAllocation] = (),
    source: str = "exporters",
    first: int = 0,
    last: int | None = None,
    device_indices: Sequence[int] | None = None,
) -> Iterator[Batch]:
    """Yield what nodes' exporters show of the ticks [first, last), in order of time.

    All of them, unless `device_indices` name the devices of some nodes.

    `sample`, `holding` where devices are shared, and `scrape` rows: one per node and stretch in
    which it answered, or did not. `allocations` and what reaches back in time: see `shown.shown`.
    """
    step = max(CELLS // max(len(block.devices), 1), 1)
    until = len(block.ticks) if last is None else last
    for begin in range(first, until, step):
        end = min(begin + step, until)
        telemetry = distort(
            block,
            quirks,
            allocations=allocations,
            first=begin,
            last=end,
            device_indices=device_indices,
        )
        telemetry_rows = _Rows(telemetry, cluster, source)
        again_s = quirks.value("duplicate-scrapes", "again_s") if telemetry.twice.any() else 0.0
        answered = ~telemetry.silent
        yield from telemetry_rows.batches(answered, 0.0)
        if again_s:
            yield from telemetry_rows.batches(answered & telemetry.twice[:, None], again_s)
        yield _build_scrapes(telemetry, cluster, source)


class _Rows:
    """One stretch of what is shown, on its way to batches."""

    def __init__(self, telemetry: DeviceTelemetry, cluster: str, source: str) -> None:
        self._telemetry, self._cluster, self._source = telemetry, cluster, source
        self._values = telemetry.values
        self._values[~telemetry.printed] = np.nan
        self._holder = telemetry.holder.copy()
        self._holders = list(telemetry.holders)
        self._sharers = np.zeros(self._holder.shape, np.int16)
        self._contested: list[tuple[int, int, Marks, SharedSeries | None]] = []
        self._fill_from_gpu()
        self._copies()

    def batches(self, answered: Marks, later_s: float) -> Iterator[Batch]:
        """Yield the rows of the cells with a successful scrape."""
        telemetry = self._telemetry
        # Time first, as samples arrive.
        tick, device = np.nonzero(answered.T)
        if not len(tick):
            return
        timestamps = self._timestamps(tick, device, later_s)
        data: dict[str, object] = {
            "ts": timestamps,
            "device": _build_words([get_key(d) for d in telemetry.devices], device),
            "node": _build_words([d.node for d in telemetry.devices], device),
            "parent": _build_words(
                [d.uuid if d.instance is not None else None for d in telemetry.devices], device
            ),
            "vendor": pa.repeat(pa.scalar("nvidia"), len(tick)),
            "model": _build_words([get_model(d).name for d in telemetry.devices], device),
            "profile": _build_words([d.profile for d in telemetry.devices], device),
            "gpu_index": np.array([d.index for d in telemetry.devices])[device],
            "interval_s": np.full(len(tick), telemetry.every_s, np.float32),
            **self._constants(len(tick)),
        }
        holder = self._holder[device, tick]
        for name in ("namespace", "pod", "container"):
            data[name] = _build_words([getattr(h, name) for h in self._holders], holder)
        sharers = self._sharers[device, tick]
        data["sharers"] = pa.array(sharers, mask=sharers == 0)
        for number, field in enumerate(read_fields()):
            data[field.column] = _build_numbers(
                self._values[number, device, tick] * field.scale, field.column
            )
        yield Batch.of("sample", data)
        holdings = self._holdings(answered, later_s)
        if holdings is not None:
            yield holdings

    def _timestamps(self, tick: Codes, device: Codes, later_s: float) -> Timestamps:
        skew = np.nan_to_num(self._telemetry.skew_s, nan=0.0)
        ms = np.rint((self._telemetry.ticks[tick] + skew[device] + later_s) * 1000)
        return ms.astype(np.int64).astype("datetime64[ms]").astype("datetime64[us]")

    def _constants(self, count: int) -> dict[str, object]:
        named = {"cluster": self._cluster, "source": self._source}
        return {name: pa.repeat(pa.scalar(value), count) for name, value in named.items()}

    def _fill_from_gpu(self) -> None:
        """Fill in the GPU's own values where its instances lack them, as the collector does."""
        telemetry = self._telemetry
        first: dict[str, int] = {}
        for place in np.flatnonzero(telemetry.beside_instances).tolist():
            first_index = first.setdefault(telemetry.devices[place].uuid, place)
            for number, field in enumerate(read_fields()):
                if field.per_gpu and telemetry.printed[number, place]:
                    own = self._values[number, place]
                    gpu_values = telemetry.gpu_values[number, first_index]
                    self._values[number, place] = np.where(np.isnan(own), gpu_values, own)

    def _copies(self) -> None:
        by_device: dict[int, list[SharedSeries]] = {}
        for copy in self._telemetry.copies:
            by_device.setdefault(copy.device, []).append(copy)
        for device, copies in by_device.items():
            base = self._telemetry.holder[device]
            sharing = np.any([c.when for c in copies if c.shared] or [np.zeros(len(base), bool)], 0)
            own = ~sharing & (base >= 0)
            voices: list[tuple[int, Marks, SharedSeries | None]] = [
                (code, (base == code) & own, None) for code in np.unique(base[own]).tolist()
            ]
            for copy in copies:
                voices.append((len(self._holders), copy.when, copy))
                self._holders.append(copy.holder)
                if not copy.shared:
                    own_values = self._values[:, device]
                    printed = self._telemetry.printed[:, device, None]
                    copy_values = np.where(copy.when & printed, copy.values, np.nan)
                    self._values[:, device] = np.fmax(own_values, copy_values)
            count = np.sum([when for _, when, _ in voices], axis=0)
            only_holder = np.full(len(base), -1)
            for code, when, _ in voices:
                only_holder[when] = code
            self._holder[device] = np.where(count == 1, only_holder, -1)
            self._sharers[device] = np.where((count > 1) | sharing, count, 0)
            contested = self._sharers[device] > 0
            self._contested += [
                (device, code, when & contested, copy) for code, when, copy in voices
            ]

    def _holdings(self, answered: Marks, later_s: float) -> Batch | None:
        telemetry = self._telemetry
        parts: list[tuple[Codes, int, int, dict[str, Doubles]]] = []
        for device, code, when, copy in self._contested:
            ticks = np.flatnonzero(when & answered[device])
            if not len(ticks):
                continue
            used = {}
            for column in _HOLDING_COLUMNS:
                number = next(i for i, f in enumerate(read_fields()) if f.column == column)
                blank = copy is None or not copy.shared or not telemetry.printed[number, device]
                value = (
                    np.full(len(ticks), np.nan)
                    if blank
                    else telemetry.values[number, device, ticks]
                )
                used[column] = value * read_fields()[number].scale
            parts.append((ticks, device, code, used))
        if not parts:
            return None
        tick = np.concatenate([p[0] for p in parts])
        devices = np.concatenate([np.full(len(p[0]), p[1]) for p in parts])
        holder = np.concatenate([np.full(len(p[0]), p[2]) for p in parts])
        data: dict[str, object] = {
            "ts": self._timestamps(tick, devices, later_s),
            "device": _build_words([get_key(d) for d in telemetry.devices], devices),
            **self._constants(len(tick)),
        }
        for name in ("namespace", "pod", "container"):
            data[name] = _build_words([getattr(h, name) for h in self._holders], holder)
        for column in _HOLDING_COLUMNS:
            whole = np.concatenate([p[3][column] for p in parts])
            data[column] = _build_numbers(whole, column, "holding")
        return Batch.of("holding", data)


def _build_scrapes(telemetry: DeviceTelemetry, cluster: str, source: str) -> Batch:
    """Return a row per node and stretch in which its exporter answered, or did not."""
    spans: list[tuple[str, float, float, bool]] = []
    ends = np.append(telemetry.ticks, telemetry.ticks[-1] + telemetry.every_s)
    places: dict[str, int] = {}
    for place, device in enumerate(telemetry.devices):
        places.setdefault(device.node, place)
    for node, place in places.items():
        silent = telemetry.silent[place]
        cuts = [0, *(np.flatnonzero(silent[1:] != silent[:-1]) + 1).tolist(), len(silent)]
        spans += [(node, ends[a], ends[b], not silent[a]) for a, b in pairwise(cuts)]
    return Batch.of(
        "scrape",
        {
            "cluster": [cluster] * len(spans),
            "ts": _convert_times([s[1] for s in spans]),
            "until": _convert_times([s[2] for s in spans]),
            "collector": [source] * len(spans),
            "target": [f"http://{s[0]}:9400/metrics" for s in spans],
            "up": [bool(s[3]) for s in spans],
            "seconds": [0.0] * len(spans),
            "rejected": [0] * len(spans),
            "error": [None if s[3] else "no connection: the exporter is down" for s in spans],
        },
    )


def _convert_times(seconds: Sequence[float]) -> Timestamps:
    return np.rint(np.array(seconds) * 1e6).astype(np.int64).astype("datetime64[us]")


def _build_words(values: Sequence[str | None], codes: Codes) -> pa.Array:
    """Look codes up; -1 is null."""
    return pa.array(values, pa.string()).take(pa.array(codes, mask=codes < 0))


def _build_numbers(values: Doubles, name: str, table: str = "sample") -> pa.Array:
    """Cast a column whose NaNs are nulls to its type."""
    kind = TYPES[next(c.type for c in list_columns(table) if c.name == name)]
    missing = np.isnan(values)
    if pa.types.is_integer(kind):
        whole = np.rint(np.where(missing, 0.0, values)).astype(np.int64)
        return pa.array(whole, mask=missing).cast(kind)
    return pa.array(values, mask=missing).cast(kind)
