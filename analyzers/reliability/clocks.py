"""Find GPUs that run slower than their peers: in a gang all ranks wait for the slowest."""

from functools import cache

import msgspec
import polars as pl

from analyzers.checkpoints import WORKLOAD
from analyzers.queries import load_records
from analyzers.reliability.rows import SlowClock
from analyzers.rows import decode_frame
from analyzers.workload_rows import Owner
from fallow.rows import Row

LEAST_PEERS = 4
"""With fewer devices the median is no reference for one device."""


class ThrottleReason(Row, frozen=True):
    """A clock event reason that indicates a hardware problem (a row of `throttles.csv`)."""

    bit: int
    name: str
    by: str
    meaning: str
    source: str


class SlowDevice(msgspec.Struct, frozen=True):
    """A device whose clock was below its peers' while both worked for one workload."""

    owner: Owner
    device: str
    node: str
    model: str
    clock_mhz: float
    peers_mhz: float
    busy_hours: float
    hot_share: float
    causes: tuple[str, ...]
    temp_c: float | None
    gang: int
    """Devices that work together with it, including itself."""

    @property
    def lost(self) -> float:
        """Share of the time that it costs by being slow."""
        return 1 - self.clock_mhz / self.peers_mhz


def find_slow(
    clocks: pl.DataFrame, pods: pl.DataFrame, *, ratio: float, hours: float
) -> list[SlowDevice]:
    """Return the slow devices of each workload with at least four devices of one model."""
    if clocks.is_empty() or pods.is_empty():
        return []
    owners = pods.select("cluster", "namespace", "pod", "workload_kind", "workload").unique(
        ["cluster", "namespace", "pod"]
    )
    each = (
        clocks.join(owners, on=["cluster", "namespace", "pod"])
        .group_by(*WORKLOAD, "device", "model")
        .agg(
            pl.col("node").last(),
            pl.col("busy_hours").sum().alias("hours"),
            ((pl.col("clock_mhz") * pl.col("busy_hours")).sum() / pl.col("busy_hours").sum()).alias(
                "clock"
            ),
            pl.col("hot_hours").sum(),
            pl.col("mask").max(),
            pl.col("temp_c").max(),
        )
        .filter(pl.col("hours") >= hours)
    )
    peers = [*WORKLOAD, "model"]
    judged = each.with_columns(
        peers_mhz=pl.col("clock").median().over(peers), gang=pl.len().over(peers)
    ).filter((pl.col("gang") >= LEAST_PEERS) & (pl.col("clock") < ratio * pl.col("peers_mhz")))
    return [
        SlowDevice(
            owner=(row.cluster, row.namespace, row.workload_kind, row.workload),
            device=row.device,
            node=row.node or "",
            model=row.model or "",
            clock_mhz=row.clock,
            peers_mhz=row.peers_mhz,
            busy_hours=row.hours,
            hot_share=row.hot_hours / row.hours,
            causes=_list_causes(row.mask),
            temp_c=row.temp_c,
            gang=row.gang,
        )
        for row in decode_frame(judged.sort(*WORKLOAD, "clock", "device"), SlowClock)
    ]


@cache
def read_throttles() -> tuple[ThrottleReason, ...]:
    """Return the clock event reasons that indicate hardware problems (`throttles.csv`)."""
    return tuple(load_records("reliability/throttles", ThrottleReason))


def compute_mask(by: str | None = None) -> int:
    """Return the combined bits of these reasons; `by`: only those of heat, or of power."""
    return sum(reason.bit for reason in read_throttles() if by in {None, reason.by})


def _list_causes(seen: int | None) -> tuple[str, ...]:
    return tuple(reason.name for reason in read_throttles() if (seen or 0) & reason.bit)
