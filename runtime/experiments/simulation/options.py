"""Read and check the options of a simulation before it runs."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from fallow.errors import UsageError
from fallow.window import parse_duration
from simulator.arrivals import replace_shares
from simulator.cluster.nodes import SimulatedNode, build_fleet, build_nodes
from simulator.cluster.pools import read_pools
from simulator.cluster.scheduler.requests import POLICIES, Policy
from simulator.exporters.quirks import Quirks
from simulator.models import TICK_S
from simulator.world import DAY_S, Spec

START = datetime(2026, 11, 2, tzinfo=UTC)
"""A Monday; prices are those of the world's end."""


class Options(msgspec.Struct, frozen=True):
    """A world, and how it is observed."""

    spec: Spec
    seed: int
    days: int
    gpus: int
    quirks: Quirks
    every_s: float
    """Time between two judgements."""
    sample_every_s: float
    """Scrape interval of the exporters."""
    warm_up_s: float = 0.0
    """The time of observation only, before the first action."""

    @property
    def end_s(self) -> float:
        """The world's end, seconds since the epoch."""
        return self.spec.start_s + self.days * DAY_S


def read(
    *,
    days: int,
    gpus: int,
    seed: int,
    pool: Iterable[str] = (),
    mix: Iterable[str] = (),
    quirk: Iterable[str] = (),
    placement: str = "best-fit",
    failures: float = 1.0,
    every: str = "4h",
    interval: str = "5m",
    warm_up: str | None = None,
    policies: Path | None = None,
) -> Options:
    """Return the options of a command line.

    Raises:
        UsageError: a pool, category, quirk, placement or folder does not exist, or an amount is
            not valid; the message names the legal ones.
    """
    if policies is not None and not policies.is_dir():
        raise UsageError(
            f"--policies {policies} is not a folder",
            hint="name a folder of policy files, or leave it out",
        )
    if placement not in POLICIES:
        raise UsageError(
            f"there is no placement {placement!r}", hint=f"legal: {', '.join(POLICIES)}"
        )
    if failures < 0:
        raise UsageError(f"--failures {failures:g} is below 0", hint="0 = never, 1 = as published")
    every_s, sample_every_s = (
        _parse_ticks("--every", every, 86_400),
        _parse_ticks("--interval", interval, 900),
    )
    if every_s % sample_every_s:
        raise UsageError(
            f"--every {every} is no multiple of --interval {interval}", hint="such as 2h and 5m"
        )
    warm_up_s = parse_duration(warm_up).total_seconds() if warm_up else 0.0
    if warm_up_s >= days * DAY_S:
        raise UsageError(
            f"--warm-up {warm_up} leaves nothing of --days {days} to act in",
            hint="a shorter one, or more days",
        )
    nodes = _build_nodes(pool) or build_fleet(gpus)
    spec = Spec(
        nodes=nodes,
        start_s=START.timestamp(),
        mix=replace_shares(_parse_shares(mix)),
        placement=_parse_placement(placement),
        fault_rate=failures,
        effects=failures,
        horizon_s=days * DAY_S,
    )
    size = sum(n.pool.gpu_count for n in nodes)
    return Options(
        spec, seed, days, size, Quirks.of(quirk, seed), every_s, sample_every_s, warm_up_s
    )


def _parse_placement(text: str) -> Policy:
    return next(policy for policy in POLICIES if policy == text)


def _parse_ticks(option: str, text: str, most_s: int) -> float:
    length = parse_duration(text)
    seconds = length.total_seconds()
    if seconds % TICK_S or not TICK_S <= seconds <= most_s:
        raise UsageError(
            f"{option} {text} is no multiple of {TICK_S} s up to {timedelta(seconds=most_s)}",
            hint="such as 30s, 5m or 1h",
        )
    return seconds


def _build_nodes(texts: Iterable[str]) -> tuple[SimulatedNode, ...]:
    counts: dict[str, int] = {}
    for text in texts:
        name, _, count = text.partition("=")
        if name not in read_pools() or not count.isdecimal():
            raise UsageError(
                f"--pool {text!r} is not POOL=NODES", hint=f"pools: {', '.join(read_pools())}"
            )
        counts[name] = counts.get(name, 0) + int(count)
    if counts and not sum(counts.values()):
        raise UsageError("a fleet of no nodes", hint="--pool h100=4")
    return build_nodes(counts)


def _parse_shares(texts: Iterable[str]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for text in texts:
        name, _, share = text.partition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            raise UsageError(
                f"--mix {text!r} is not CATEGORY=SHARE", hint="such as day-notebook=0.2"
            ) from None
    return shares
