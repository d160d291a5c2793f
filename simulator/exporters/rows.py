"""The rows that reading the exporters' texts would give, straight from a block (closed doors).

    rows(block, quirks, ...) -> batches of `sample`, `holding` where devices are shared, `scrape`

Equal to what `collectors.exporters` makes of the texts, which is a test; quirks of spelling
(label and field names) therefore change nothing here.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fallow.tables import TYPES, Batch, columns
from simulator.exporters.facts import fields, model_of
from simulator.exporters.quirks import Quirks
from simulator.exporters.shown import Codes, Copy, Doubles, Shown, key, shown
from simulator.nouns import Block, Marks, Tenure

Moments = npt.NDArray[np.datetime64]
CELLS = 250_000
"""Rows made at once: about 0.2 GB while it lasts."""
_HELD = ("gpu_util_pct", "mem_used_bytes")


def rows(
    block: Block,
    quirks: Quirks,
    *,
    cluster: str,
    tenures: Sequence[Tenure] = (),
    source: str = "exporters",
    first: int = 0,
    last: int | None = None,
) -> Iterator[Batch]:
    """Yield what all nodes' exporters show of the ticks [first, last), in order of time.

    `sample`, `holding` where devices are shared, and `scrape` rows: one per node and stretch in
    which it answered, or did not. `tenures` and what reaches back in time: see `shown.shown`.
    """
    step = max(CELLS // max(len(block.devices), 1), 1)
    until = len(block.ticks) if last is None else last
    for begin in range(first, until, step):
        end = min(begin + step, until)
        seen = shown(block, quirks, tenures=tenures, first=begin, last=end)
        made = _Rows(seen, cluster, source)
        again_s = quirks.value("duplicate-scrapes", "again_s") if seen.twice.any() else 0.0
        heard = ~seen.silent
        yield from made.batches(heard, 0.0)
        if again_s:
            yield from made.batches(heard & seen.twice[:, None], again_s)
        yield _scrapes(seen, cluster, source)


class _Rows:
    """One stretch of what is shown, on its way to batches."""

    def __init__(self, seen: Shown, cluster: str, source: str) -> None:
        self._seen, self._cluster, self._source = seen, cluster, source
        self._values = seen.values
        self._values[~seen.printed] = np.nan
        self._holder = seen.holder.copy()
        self._holders = list(seen.holders)
        self._sharers = np.zeros(self._holder.shape, np.int16)
        self._held: list[tuple[int, int, Marks, Copy | None]] = []
        self._fill_boards()
        self._copies()

    def batches(self, heard: Marks, later_s: float) -> Iterator[Batch]:
        """Yield the rows of the cells that were heard."""
        seen = self._seen
        # Time first, as looks come.
        tick, device = np.nonzero(heard.T)
        if not len(tick):
            return
        moment = self._moments(tick, device, later_s)
        data: dict[str, object] = {
            "ts": moment,
            "device": _words([key(d) for d in seen.devices], device),
            "node": _words([d.node for d in seen.devices], device),
            "parent": _words(
                [d.uuid if d.instance is not None else None for d in seen.devices], device
            ),
            "vendor": pa.repeat(pa.scalar("nvidia"), len(tick)),
            "model": _words([model_of(d).name for d in seen.devices], device),
            "profile": _words([d.profile for d in seen.devices], device),
            "gpu_index": np.array([d.index for d in seen.devices])[device],
            "interval_s": np.full(len(tick), seen.every_s, np.float32),
            **self._constants(len(tick)),
        }
        holder = self._holder[device, tick]
        for name in ("namespace", "pod", "container"):
            data[name] = _words([getattr(h, name) for h in self._holders], holder)
        sharers = self._sharers[device, tick]
        data["sharers"] = pa.array(sharers, mask=sharers == 0)
        for number, field in enumerate(fields()):
            data[field.column] = _numbers(
                self._values[number, device, tick] * field.scale, field.column
            )
        yield Batch.of("sample", data)
        held = self._holdings(heard, later_s)
        if held is not None:
            yield held

    def _moments(self, tick: Codes, device: Codes, later_s: float) -> Moments:
        skew = np.nan_to_num(self._seen.skew_s, nan=0.0)
        ms = np.rint((self._seen.ticks[tick] + skew[device] + later_s) * 1000)
        return ms.astype(np.int64).astype("datetime64[ms]").astype("datetime64[us]")

    def _constants(self, count: int) -> dict[str, object]:
        named = {"cluster": self._cluster, "source": self._source}
        return {name: pa.repeat(pa.scalar(value), count) for name, value in named.items()}

    def _fill_boards(self) -> None:
        """Let a board's own series fill what its instances lack, as reading does."""
        seen = self._seen
        first: dict[str, int] = {}
        for place in np.flatnonzero(seen.boards).tolist():
            told = first.setdefault(seen.devices[place].uuid, place)
            for number, field in enumerate(fields()):
                if field.board and seen.printed[number, place]:
                    own = self._values[number, place]
                    board = seen.board_values[number, told]
                    self._values[number, place] = np.where(np.isnan(own), board, own)

    def _copies(self) -> None:
        by_device: dict[int, list[Copy]] = {}
        for copy in self._seen.copies:
            by_device.setdefault(copy.device, []).append(copy)
        for device, copies in by_device.items():
            base = self._seen.holder[device]
            sharing = np.any([c.when for c in copies if c.shared] or [np.zeros(len(base), bool)], 0)
            own = ~sharing & (base >= 0)
            voices: list[tuple[int, Marks, Copy | None]] = [
                (code, (base == code) & own, None) for code in np.unique(base[own]).tolist()
            ]
            for copy in copies:
                voices.append((len(self._holders), copy.when, copy))
                self._holders.append(copy.holder)
                if not copy.shared:
                    mine = self._values[:, device]
                    printed = self._seen.printed[:, device, None]
                    other = np.where(copy.when & printed, copy.values, np.nan)
                    self._values[:, device] = np.fmax(mine, other)
            count = np.sum([when for _, when, _ in voices], axis=0)
            one = np.full(len(base), -1)
            for code, when, _ in voices:
                one[when] = code
            self._holder[device] = np.where(count == 1, one, -1)
            self._sharers[device] = np.where((count > 1) | sharing, count, 0)
            contested = self._sharers[device] > 0
            self._held += [(device, code, when & contested, copy) for code, when, copy in voices]

    def _holdings(self, heard: Marks, later_s: float) -> Batch | None:
        seen = self._seen
        parts: list[tuple[Codes, int, int, dict[str, Doubles]]] = []
        for device, code, when, copy in self._held:
            ticks = np.flatnonzero(when & heard[device])
            if not len(ticks):
                continue
            used = {}
            for column in _HELD:
                number = next(i for i, f in enumerate(fields()) if f.column == column)
                blank = copy is None or not copy.shared or not seen.printed[number, device]
                value = np.full(len(ticks), np.nan) if blank else seen.values[number, device, ticks]
                used[column] = value * fields()[number].scale
            parts.append((ticks, device, code, used))
        if not parts:
            return None
        tick = np.concatenate([p[0] for p in parts])
        devices = np.concatenate([np.full(len(p[0]), p[1]) for p in parts])
        holder = np.concatenate([np.full(len(p[0]), p[2]) for p in parts])
        data: dict[str, object] = {
            "ts": self._moments(tick, devices, later_s),
            "device": _words([key(d) for d in seen.devices], devices),
            **self._constants(len(tick)),
        }
        for name in ("namespace", "pod", "container"):
            data[name] = _words([getattr(h, name) for h in self._holders], holder)
        for column in _HELD:
            whole = np.concatenate([p[3][column] for p in parts])
            data[column] = _numbers(whole, column, "holding")
        return Batch.of("holding", data)


def _scrapes(seen: Shown, cluster: str, source: str) -> Batch:
    """Return a row per node and stretch in which its exporter answered, or did not."""
    spans: list[tuple[str, float, float, bool]] = []
    ends = np.append(seen.ticks, seen.ticks[-1] + seen.every_s)
    places: dict[str, int] = {}
    for place, device in enumerate(seen.devices):
        places.setdefault(device.node, place)
    for node, place in places.items():
        silent = seen.silent[place]
        cuts = [0, *(np.flatnonzero(silent[1:] != silent[:-1]) + 1).tolist(), len(silent)]
        spans += [(node, ends[a], ends[b], not silent[a]) for a, b in pairwise(cuts)]
    return Batch.of(
        "scrape",
        {
            "cluster": [cluster] * len(spans),
            "ts": _stamps([s[1] for s in spans]),
            "until": _stamps([s[2] for s in spans]),
            "collector": [source] * len(spans),
            "target": [f"http://{s[0]}:9400/metrics" for s in spans],
            "up": [bool(s[3]) for s in spans],
            "seconds": [0.0] * len(spans),
            "rejected": [0] * len(spans),
            "error": [None if s[3] else "no connection: the exporter is down" for s in spans],
        },
    )


def _stamps(seconds: Sequence[float]) -> Moments:
    return np.rint(np.array(seconds) * 1e6).astype(np.int64).astype("datetime64[us]")


def _words(values: Sequence[str | None], codes: Codes) -> pa.Array:
    """Look codes up; -1 is null."""
    return pa.array(values, pa.string()).take(pa.array(codes, mask=codes < 0))


def _numbers(values: Doubles, name: str, table: str = "sample") -> pa.Array:
    """Cast a column whose NaNs are nulls to its type."""
    kind = TYPES[next(c.type for c in columns(table) if c.name == name)]
    missing = np.isnan(values)
    if pa.types.is_integer(kind):
        whole = np.rint(np.where(missing, 0.0, values)).astype(np.int64)
        return pa.array(whole, mask=missing).cast(kind)
    return pa.array(values, mask=missing).cast(kind)
