"""Rows that are judged in parts are the rows that are judged at once."""

from datetime import timedelta
from typing import Any

import pytest

from analyzers.idle import judge
from analyzers.idle.judge import IdleJudgements, judge_window
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from tests.analyzers.conftest import START, Memory, Site

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LENGTH_H = 10
IDLE: dict[str, Any] = {"gr_engine_active": 0.0, "power_w": 118.0, "mem_used_bytes": 4_000_000_000}
BUSY: dict[str, Any] = {"gr_engine_active": 0.8, "power_w": 600.0, "mem_used_bytes": 4_000_000_000}
KINDS = ("Notebook", "Job", "Deployment")


@pytest.fixture
def fleet() -> Memory:
    """Six workloads that rest twice, with hosts and servers, and one that never rests."""
    memory = Memory()
    site = Site(memory, MINUTE)
    first = START.replace(tzinfo=None)
    for n in range(7):
        rest = [IDLE] * (60 * (2 + n % 3) + n)
        readings = [BUSY] * 600 if n == 6 else [*rest, *[BUSY] * (20 + n), *[IDLE] * 600]
        for d in range(1 + n % 2):
            site.device(f"GPU-{n}-{d}", readings[: LENGTH_H * 60 - n])
        site.holds(
            f"w{n}", [f"GPU-{n}-{d}" for d in range(1 + n % 2)], kind=KINDS[n % 3],
            length=LENGTH_H * HOUR, workload_uid=f"top-{n}",
        )  # fmt: skip
        site.notebook(f"w{n}-0", busy_kernels=n % 2)
        memory.rows(
            "pod_sample",
            [
                {
                    "cluster": "c", "ts": first + m * 10 * MINUTE, "namespace": "ns",
                    "pod": f"w{n}-0", "interval_s": 600.0, "net_rx_bps": 1.0, "net_tx_bps": 1.0,
                    "cpu_cores": 3.0 if m % 9 == n else 0.01 * n,
                }
                for m in range(LENGTH_H * 6)
            ],
        )  # fmt: skip
    site.price("4")
    return memory


def judged(fleet: Memory, *, over: bool = False) -> IdleJudgements:
    times = [START + n * 30 * MINUTE for n in range(1, 2 * LENGTH_H + 1)]
    window = Window(START, times[-1])
    return judge_window(fleet, window, times[-1:] if over else times, IdleSettings(), over=over)


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("most", [2, 30])
def test_rows_judged_in_parts_are_those_judged_at_once(
    fleet: Memory, monkeypatch: pytest.MonkeyPatch, most: int, over: bool
) -> None:
    whole = judged(fleet, over=over)
    assert len(judge._cut_rows(whole.rows.with_columns(owner="case"))) == 1
    monkeypatch.setattr(judge, "MOST_ROWS", most)
    assert len(judge._cut_rows(whole.rows.with_columns(owner="case"))) > 1 or over
    parts = judged(fleet, over=over)
    assert parts.rows.equals(whole.rows, null_equal=True)
    assert parts.judgements == whole.judgements
    assert whole.rows["workload"].n_unique() == 6
