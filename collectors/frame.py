"""Compute the arrays of `collectors.assemble`: scatter values into columns, rows and owners."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from collectors.series_codes import (
    ATTRIBUTES,
    DEVICE,
    NODE,
    OWNER,
    SHARED,
    TARGET,
    WEAK,
    Bools,
    CodedSeries,
    Floats,
    Ints,
    SeriesCatalog,
)
from fallow.tables import AND, TYPES, VIA, Batch, list_columns

_KEYS = {"cluster", "ts", "device", "node", "parent", "vendor", "model", "profile", "gpu_index"}
_KEYS |= {"namespace", "pod", "container", "sharers", "interval_s", "source"}
TOTAL = "mem_total_bytes"
"""No column of its own: where a source gives total and used, free is their difference."""
SAMPLE = (*(c.name for c in list_columns("sample") if c.name not in _KEYS), TOTAL)
HOLDING = ("share", "gpu_util_pct", "mem_used_bytes")

_AT = {name: i for i, name in enumerate(SAMPLE)}
_HELD_AT = {name: i for i, name in enumerate(HOLDING)}
_MASK = _AT["throttle_mask"]
# What the GPU reports once for all of its instances; filled in where an instance has no value.
_DEVICE_COLUMNS = [
    _AT[name]
    for name in (
        *("power_w", "energy_mj", "temp_c", "mem_temp_c", "sm_clock_mhz", "mem_clock_mhz", "xid"),
        *("throttle_mask", "row_remap_failure", "remapped_uncorrectable", "pcie_replay", "ecc_dbe"),
        *("row_remap_pending", "nvlink_crc", "nvlink_replay"),
    )
]
_UTILISATION = ("gpu_util_pct", "gr_engine_active", "sm_active", "tensor_active", "dram_active")
_MOST_DIFFERENCE, _NOTHING, _SOMETHING = 0.25, 0.01, 0.05
"""Two exporters of a GPU agree if the means of five minutes differ less; one may not see nothing
where the other sees something. Ten samples each of a load that comes and goes differ less."""
MARGIN = 1.1
"""How far a ratio may be above the whole."""
_DENSE = 8  # cells of the (timestamp, device) grid per value, up to which the grid is used


class BoundedValues(NamedTuple):
    """Values within their columns' bounds, and which of them were refused or clipped."""

    values: Floats
    refused: Bools
    clipped: Bools


def bound_values(values: Floats, low: Floats | float, high: Floats | float) -> BoundedValues:
    """Return values with ratios just above the whole as the whole; others out of bounds refused.

    DCGM multiplexes its counters, and under MIG it divides by an instance: 1.02 is a full second.
    What is farther above is no reading.
    """
    clipped = (high == 1) & (values > 1) & (values <= MARGIN)
    values = np.where(clipped, 1.0, values)
    return BoundedValues(values, ~((values >= low) & (values <= high)), clipped)


class RowGrid:
    """Numbers each (timestamp, device) that occurs: `row[i]` is value i's row."""

    def __init__(self, timestamp: npt.NDArray[np.datetime64], device: Ints, devices: int) -> None:
        stamp = timestamp.astype("datetime64[us]").astype(np.int64)
        first = int(stamp[0])
        if (stamp == first).all():
            step, code = 1, np.zeros(len(stamp), np.int64)
        else:
            first = int(stamp.min())
            step = max(int(np.gcd.reduce(stamp - first)), 1)
            code = (stamp - first) // step
        cell = code * devices + device
        size = (int(code.max()) + 1) * devices
        if size <= _DENSE * len(stamp) + devices:
            used = np.zeros(size, np.bool_)
            used[cell] = True
            self.cells = np.flatnonzero(used)
            place = np.cumsum(used) - 1
            self.row: Ints = place[cell]
        else:
            self.cells, self.row = np.unique(cell, return_inverse=True)
        self._devices, self._first, self._step = devices, first, step

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.cells)

    @property
    def device(self) -> Ints:
        """Device code of each row."""
        return np.asarray(self.cells % self._devices, np.int64)

    @property
    def ts(self) -> npt.NDArray[np.datetime64]:
        """Timestamp of each row."""
        stamp = self.cells // self._devices * self._step + self._first
        return stamp.astype("datetime64[us]")

    def locate(self, timestamp: npt.NDArray[np.datetime64], device: Ints) -> Ints:
        """Return the row of each timestamp and device; -1 where there is none."""
        code, rest = np.divmod(
            timestamp.astype("datetime64[us]").astype(np.int64) - self._first, self._step
        )
        wanted = code * self._devices + device
        place = np.minimum(np.searchsorted(self.cells, wanted), len(self.cells) - 1)
        return np.where((rest == 0) & (code >= 0) & (self.cells[place] == wanted), place, -1)

    def find(self, row: Ints, device: Ints) -> Ints:
        """Return the row of another device at the same timestamp; -1 where there is none."""
        wanted = self.cells[row] // self._devices * self._devices + device
        place = np.minimum(np.searchsorted(self.cells, wanted), len(self.cells) - 1)
        return np.where((device >= 0) & (self.cells[place] == wanted), place, -1)


class Frame:
    """One set of values while it is turned into rows."""

    def __init__(
        self,
        catalog: SeriesCatalog,
        coded: CodedSeries,
        ts: npt.NDArray[np.datetime64],
        values: Floats,
    ) -> None:
        self._catalog = catalog
        self._ts = ts
        measures = catalog.measures
        self._at = np.array([(_AT | {"share": -1})[m.column] for m in measures])[coded.measure]
        self._is_holding = np.array([m.table == "holding" for m in measures])[coded.measure]
        self._measure, self._bits = coded.measure, coded.bits
        self._who = catalog.table[coded.identity]
        low = np.array([m.low for m in measures])[coded.measure]
        high = np.array([m.high for m in measures])[coded.measure]
        with np.errstate(over="ignore", invalid="ignore"):
            scale = np.array([m.scale for m in measures])[coded.measure]
            self._value, self.refused, self.clipped = bound_values(values * scale, low, high)
        self._doubted = self._find_doubted(high)
        self._good = ~self.refused
        self._contested: Bools = np.zeros(len(values), np.bool_)

    def _find_doubted(self, high: Floats) -> Bools:
        """Return which values are of a device whose exporters contradict each other at the time.

        The row of such a value names its exporter's own address beside the node: the inventory
        decides which is believed. Values of one row, from several exporters, are refused.
        """
        doubted = np.zeros(len(self._ts), np.bool_)
        several = self._catalog.find_devices_of_several(TARGET)[self._who[:, DEVICE]]
        if not several.any():
            return doubted
        places = np.flatnonzero(several)
        rows = pl.DataFrame(
            {
                "place": places,
                "ts": self._ts[places].astype("datetime64[us]").astype(np.int64),
                "device": self._who[places, DEVICE],
                "target": self._who[places, TARGET],
                "at": self._at[places],
                "value": np.where(self.refused, np.nan, self._value / high)[places],
            }
        ).with_columns(bucket=pl.col("ts") // 300_000_000)
        key = ("device", "bucket", "at")
        seen = rows.filter(
            pl.col("at").is_in([_AT[name] for name in _UTILISATION]), pl.col("value").is_not_nan()
        )
        means = seen.group_by(*key, "target").agg(
            pl.col("value").mean(), first=pl.col("ts").min(), last=pl.col("ts").max()
        )
        less, more = pl.col("value"), pl.col("value_right")
        contradicted = means.join(means, on=key).filter(
            (pl.col("first") <= pl.col("last_right")) & (pl.col("first_right") <= pl.col("last")),
            (more - less > _MOST_DIFFERENCE) | ((less <= _NOTHING) & (more >= _SOMETHING)),
        )
        rows = rows.join(contradicted, on=("device", "bucket"), how="semi")
        doubted[rows["place"].to_numpy()] = True
        mixed = rows.filter(pl.col("target").n_unique().over("device", "ts") > 1)
        self.refused[mixed["place"].to_numpy()] = True
        return doubted

    def samples(self, constants: Mapping[str, Any]) -> Batch | None:
        """Return the `sample` rows."""
        has_holdings = bool(self._is_holding.any())
        if has_holdings and self._is_holding.all():
            return None
        # Usually there are no per-pod values: then a slice avoids a copy of every array.
        own_values = ~self._is_holding if has_holdings else slice(None)
        owner_codes = self._who[own_values]
        grid = RowGrid(self._ts[own_values], owner_codes[:, DEVICE], len(self._catalog.devices))
        row = np.full(len(self._is_holding), -1, np.int64)
        row[own_values] = grid.row
        if has_holdings:
            row[self._is_holding] = grid.locate(
                self._ts[self._is_holding], self._who[self._is_holding, DEVICE]
            )
        cells = self._scatter(grid, own_values)
        self._spill(row, cells)
        owner, sharers = self._owners(len(grid), row)
        attributes = _parse_attributes(grid, owner_codes)
        free = cells[_AT[TOTAL]] - cells[_AT["mem_used_bytes"]]
        missing = np.isnan(cells[_AT["mem_free_bytes"]])
        cells[_AT["mem_free_bytes"]][missing] = np.where(free >= 0, free, np.nan)[missing]
        keep = self._fold_gpu_rows(grid, cells, attributes["parent"])
        catalog = self._catalog
        data: dict[str, pa.Array] = {
            "ts": pa.array(grid.ts[keep]),
            "device": build_words(catalog.devices, grid.device[keep]),
            "sharers": pa.array(sharers[keep], mask=sharers[keep] == 0),
        }
        for name, codes in attributes.items():
            data[name] = build_words(catalog.words(name), codes[keep])
        data["node"] = self._name_both_nodes(grid, owner_codes, keep, data["node"])
        if self._doubted.any():
            targets = np.full(len(grid), -1, np.int64)
            places = np.flatnonzero(self._doubted[own_values])
            targets[grid.row[places]] = owner_codes[places, TARGET]
            hosts = build_words(catalog.hosts, targets[keep])
            via = pc.binary_join_element_wise(pc.fill_null(data["node"], ""), hosts, VIA)
            data["node"] = pc.coalesce(via, data["node"])
        for i, name in enumerate(("namespace", "pod", "container")):
            data[name] = build_words([o[i] for o in catalog.owners], owner[keep])
        for name, i in _AT.items():
            if name != TOTAL:
                data[name] = build_numbers(cells[i][keep], "sample", name)
        return build_batch("sample", data, constants, int(keep.sum()))

    def _name_both_nodes(
        self, grid: RowGrid, owner_codes: Ints, keep: Bools, nodes: pa.Array
    ) -> pa.Array:
        """Return the nodes of rows, two where exporters of two name the device at the same time.

        The inventory knows whether these are names of one node.
        """
        several = self._catalog.find_devices_of_several(NODE)[owner_codes[:, DEVICE]]
        several &= owner_codes[:, NODE] >= 0
        if not several.any():
            return nodes
        least, most = (np.full(len(grid), n, np.int64) for n in (np.iinfo(np.int64).max, -1))
        np.minimum.at(least, grid.row[several], owner_codes[several, NODE])
        np.maximum.at(most, grid.row[several], owner_codes[several, NODE])
        least, most = np.where(least < most, (least, most), -1)[:, keep]
        words = self._catalog.words("node")
        both = pc.binary_join_element_wise(build_words(words, least), build_words(words, most), AND)
        return pc.coalesce(both, nodes)

    def holdings(self, constants: Mapping[str, Any]) -> Batch | None:
        """Return the `holding` rows: one per timestamp, shared device and pod."""
        owned = self._who[:, OWNER] >= 0
        shared = (self._is_holding | (self._who[:, SHARED] > 0)) & owned
        own_values = shared | (owned & self._contested)
        if not own_values.any():
            return None
        owner_codes = self._who[own_values]
        pods = self._catalog.pods()
        key = owner_codes[:, DEVICE] * (int(pods.max()) + 1) + pods[owner_codes[:, OWNER]]
        keys_present, code = np.unique(key, return_inverse=True)
        grid = RowGrid(self._ts[own_values], code, len(keys_present))
        table = np.full((len(HOLDING), len(grid)), np.nan)
        places = np.array([_HELD_AT.get(m.column, -1) for m in self._catalog.measures])
        place = places[self._measure[own_values]]
        use = self._is_holding[own_values] & self._good[own_values] & (place >= 0)
        np.fmax.at(table, (place[use], grid.row[use]), self._value[own_values][use])
        # HAMi reports 0 cores where no limit was requested: the share is missing, not zero.
        table[0][table[0] == 0] = np.nan
        some = np.zeros(len(grid), np.int64)
        some[grid.row] = np.flatnonzero(own_values)
        owner = self._who[some, OWNER]
        catalog = self._catalog
        data = {
            "ts": pa.array(grid.ts),
            "device": build_words(catalog.devices, self._who[some, DEVICE]),
            "namespace": build_words([o[0] or "" for o in catalog.owners], owner),
            "pod": build_words([o[1] for o in catalog.owners], owner),
            "container": build_words([o[2] for o in catalog.owners], owner),
        }
        for i, name in enumerate(HOLDING):
            data[name] = build_numbers(table[i], "holding", name)
        without = {k: v for k, v in constants.items() if k != "interval_s"}
        return build_batch("holding", data, without, len(grid))

    def _scatter(self, grid: RowGrid, own_values: Bools | slice) -> Floats:
        rows = len(grid)
        cells = np.full((len(SAMPLE), rows), np.nan)
        flat = cells.reshape(-1)
        good, value, at = self._good[own_values], self._value[own_values], self._at[own_values]
        measure = self._measure[own_values]
        ored = np.array([m.combine == "or" for m in self._catalog.measures])[measure]
        plain = good & ~ored
        place, put = (at * rows + grid.row)[plain], value[plain]
        flat[place] = put
        # Two metrics with one meaning: the larger value wins, for an age the smaller.
        lost = put > flat[place]
        np.maximum.at(flat, place[lost], put[lost])
        least = np.array([m.combine == "min" for m in self._catalog.measures])[measure][plain]
        if least.any():
            np.minimum.at(flat, place[least], put[least])
        mask = good & ored
        if mask.any():
            bits = self._bits[own_values][mask]
            integers = np.where(bits > 0, bits * (value[mask] > 0), value[mask].astype(np.int64))
            merged = np.zeros(rows, np.int64)
            np.bitwise_or.at(merged, grid.row[mask], integers)
            cells[_MASK][grid.row[mask]] = merged[grid.row[mask]]
        return cells

    def _owners(self, rows: int, row_of: Ints) -> tuple[Ints, Ints]:
        """Return the owner code of each row (-1 = none or several) and how many share it."""
        pods = self._catalog.pods()
        owned = (row_of >= 0) & (self._who[:, OWNER] >= 0)
        row, owner = row_of[owned], self._who[owned, OWNER]
        pod = pods[owner]
        last = np.full(rows, -1, np.int64)
        owner_of_row = np.full(rows, -1, np.int64)
        last[row], owner_of_row[row] = pod, owner
        sharers = np.zeros(rows, np.int64)
        sharers[row[self._is_holding[owned] | (self._who[owned, SHARED] > 0)]] = 1
        contested = np.zeros(rows, np.bool_)
        contested[row[last[row] != pod]] = True
        if contested.any():
            inside = contested[row]
            span = int(pods.max()) + 1
            pairs = np.unique(row[inside] * span + pod[inside])
            several, counts = np.unique(pairs // span, return_counts=True)
            sharers[several] = counts
            owner_of_row[contested] = -1
            self._contested[owned] = contested[row]
        return owner_of_row, sharers

    def _spill(self, row_of: Ints, cells: Floats) -> None:
        """Use per-pod values for a device that has no series of its own.

        Exporters older than per-process shares print a copy of the device's value per pod.
        """
        spills = np.array([m.spill for m in self._catalog.measures])
        if not spills.any():
            return
        use = spills[self._measure] & self._good & (row_of >= 0)
        if not use.any():
            return
        at, row, value = self._at[use], row_of[use], self._value[use]
        empty = np.isnan(cells[at, row])
        np.fmax.at(cells, (at[empty], row[empty]), value[empty])

    def _fold_gpu_rows(self, grid: RowGrid, cells: Floats, parent: Ints) -> Bools:
        """Fold a GPU's own row into its instances' rows; return which rows stay.

        A GPU beside its instances would be counted twice.
        """
        keep = np.ones(len(grid), np.bool_)
        if not (parent >= 0).any():
            return keep
        catalog = self._catalog
        codes = np.array([catalog.device_code(p) for p in catalog.words("parent")], np.int64)
        rows = np.flatnonzero(parent >= 0)
        parent_row = grid.find(rows, codes[parent[rows]])
        rows, parent_row = rows[parent_row >= 0], parent_row[parent_row >= 0]
        for i in _DEVICE_COLUMNS:
            own = cells[i][rows]
            cells[i][rows] = np.where(np.isnan(own), cells[i][parent_row], own)
        keep[parent_row] = False
        return keep


def _parse_attributes(grid: RowGrid, owner_codes: Ints) -> dict[str, Ints]:
    """Return the attribute codes of each row.

    Other sources win over HAMi, and HAMi's host series win over its container series.
    """
    attributes: dict[str, Ints] = {}
    weak = owner_codes[:, WEAK]
    order = np.argsort(-weak, kind="stable") if weak.any() else slice(None)
    row, sorted_who = grid.row[order], owner_codes[order]
    for i, name in enumerate(ATTRIBUTES):
        code = sorted_who[:, TARGET + 1 + i]
        has_code = code >= 0
        column = np.full(len(grid), -1, np.int64)
        if has_code.all():
            column[row] = code
        else:
            column[row[has_code]] = code[has_code]
        attributes[name] = column
    return attributes


def build_words(values: list[Any], codes: Ints) -> pa.Array:
    """Look codes up; -1 is null."""
    kind = pa.int16() if values and isinstance(values[0], int) else pa.string()
    return pa.array(values, kind).take(pa.array(codes, mask=codes < 0))


def build_numbers(values: Floats, table: str, name: str) -> pa.Array:
    """Cast a column whose NaNs are nulls to its type."""
    kind = TYPES[next(c.type for c in list_columns(table) if c.name == name)]
    missing = np.isnan(values)
    if pa.types.is_integer(kind):
        integers = np.rint(np.where(missing, 0.0, values)).astype(np.int64)
        return pa.array(integers, mask=missing).cast(kind)
    return pa.array(values, mask=missing).cast(kind)


def build_batch(
    table: str, data: dict[str, pa.Array], constants: Mapping[str, Any], rows: int
) -> Batch | None:
    """Return rows of a table with the same values in some columns; None without rows."""
    if not rows:
        return None
    integers = {**data, **{k: pa.repeat(pa.scalar(v), rows) for k, v in constants.items()}}
    return Batch.of(table, dict(integers))
