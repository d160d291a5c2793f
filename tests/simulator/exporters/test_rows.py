"""Closed doors give the very rows that scraping the open ones gives, whatever quirks are on."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from simulator.exporters.device_rows import build_rows
from simulator.exporters.quirks import Quirks, read_quirks
from simulator.models import DeviceAllocation
from tests.simulator.exporters import fleet
from tests.simulator.exporters.conftest import Row, Scraped

TICKS = (3, 8, 9, 10, 11, 12, 30, 31)
SHARERS = tuple(
    DeviceAllocation(fleet.HOLDERS[n], (5, 6), fleet.START.timestamp() - 600, end, 0.5)
    for n, end in ((fleet.FRAUD, np.inf), (fleet.SWEEP, fleet.START.timestamp() + 330))
)


def often(names: Iterable[str]) -> list[str]:
    """Return quirks that strike so often that a small fleet sees them come and go."""
    found = []
    for name in names:
        values = read_quirks()[name].values
        more = ",every_s=600,length_s=240" if "every_s" in values else ""
        more += ",again_s=0" if "again_s" in values else ""
        found.append(f"{name}:rate=0.5{more}")
    return found


def moving() -> Any:
    """Return twenty minutes in which a pod leaves GPU 4 to another and GPU 2 to nobody."""
    shown = fleet.block(40)
    shown.holder[4, 8:] = fleet.CAROL
    shown.holder[2, 10:] = -1
    shown.xid[0, 20:] = 31
    return shown


def by_key(found: list[Row]) -> dict[tuple[Any, ...], Row]:
    names = ("ts", "device", "namespace", "pod") if "share" in found[0] else ("ts", "device")
    return {tuple(r[n] for n in names): r for r in found}


def same(mine: list[Row], theirs: list[Row]) -> None:
    one, other = by_key(mine), by_key(theirs)
    assert one.keys() == other.keys()
    for key, row in other.items():
        for name, value in row.items():
            assert one[key][name] == (
                pytest.approx(value, rel=1e-6, abs=1e-6) if isinstance(value, float) else value
            ), (key, name)


@pytest.mark.parametrize("quirk", ["", *read_quirks(), "all"])
def test_rows_are_what_scraping_gives(quirk: str, scrape: Callable[..., Scraped]) -> None:
    names = [] if not quirk else often(list(read_quirks()) if quirk == "all" else [quirk])
    one = scrape(*names, seed=3, shown=moving(), tenures=SHARERS)
    scraped = one.batches(TICKS)
    block, on = one.world.block, Quirks.of(names, 3)
    straight = [
        batch
        for tick in TICKS
        for batch in build_rows(
            block, on, cluster="sim", allocations=SHARERS, first=tick, last=tick + 1
        )
    ]
    for table in ("sample", "holding"):
        theirs = [r for b in scraped if b.table == table for r in b.rows.to_pylist()]
        mine = [r for b in straight if b.table == table for r in b.rows.to_pylist()]
        if theirs or mine:
            same(mine, theirs)


def test_blocks_cut_in_two_give_the_rows_of_the_whole() -> None:
    # What an exporter remembers goes back to the beginning of its block.
    names = [n for n in read_quirks() if n not in {"stale-series", "held-power"}]
    quirks = Quirks.of(often(names), 5)
    whole = fleet.block(40)
    late = fleet.block(20, fleet.START + timedelta(seconds=30 * 20))
    late.energy_mj[:] = whole.energy_mj[:, 20:]
    for name in (
        "gr_engine_active",
        "sm_active",
        "tensor_active",
        "fp32_active",
        "dram_active",
        "power_w",
    ):
        getattr(late, name)[:] = getattr(whole, name)[:, 20:]
    for name in ("gpu_util_pct", "temp_c", "mem_used_mib"):
        getattr(late, name)[:] = getattr(whole, name)[:, 20:]
    for name in ("pcie_rx_bytes", "pcie_tx_bytes", "nvlink_bytes"):
        getattr(late, name)[:] = getattr(whole, name)[:, 20:]
    of_whole = [
        r for b in build_rows(whole, quirks, cluster="c", first=20) for r in b.rows.to_pylist()
    ]
    of_late = [r for b in build_rows(late, quirks, cluster="c") for r in b.rows.to_pylist()]
    assert of_late == of_whole


def test_a_silence_is_a_scrape_that_failed_and_not_a_row() -> None:
    quirks = Quirks.of(["exporter-down:rate=1,every_s=1200,length_s=300"], 1)
    found = list(build_rows(fleet.block(40), quirks, cluster="c"))
    scrapes = [r for b in found if b.table == "scrape" for r in b.rows.to_pylist()]
    samples = [r for b in found if b.table == "sample" for r in b.rows.to_pylist()]
    down = [r for r in scrapes if not r["up"]]
    assert {r["target"] for r in down} == {
        f"http://{n}:9400/metrics" for n in (fleet.A, fleet.B, fleet.C)
    }
    for sample in down:
        inside = [
            s for s in samples
            if s["node"] in sample["target"] and sample["ts"] <= s["ts"] < sample["until"]
        ]  # fmt: skip
        assert not inside
    heard = sum((r["until"] - r["ts"]).total_seconds() for r in scrapes)
    assert heard == 3 * 40 * 30
