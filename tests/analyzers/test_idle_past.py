"""The past told at once is what the analyzer would have said at every moment."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from actions.backtest.as_of import AsOf
from analyzers.idle.analyzer import IdleAnalyzer
from fallow.errors import UsageError
from fallow.models import Finding
from fallow.settings.idle import IdleSettings
from fallow.window import Window
from tests.analyzers.conftest import START, Memory, Site

pytestmark = pytest.mark.slow

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LENGTH = 9
"""Hours of each site."""
FRESH = timedelta(minutes=10)

IDLE: dict[str, Any] = {"gr_engine_active": 0.0, "power_w": 118.0, "mem_used_bytes": 4_000_000_000}
BUSY: dict[str, Any] = {"gr_engine_active": 0.8, "power_w": 600.0, "mem_used_bytes": 4_000_000_000}
LOOKS = {
    "idle": IDLE,
    "busy": BUSY,
    "warm": IDLE | {"power_w": 240.0},
    "unseen": {"gr_engine_active": None},
    "liar": {"gr_engine_active": 0.0, "gpu_util_pct": 60.0},
}


def spell() -> st.SearchStrategy[tuple[str, int]]:
    """Return a strategy of what a device shows for how many looks: idle mostly, long mostly."""
    mostly = st.sampled_from(["idle", "idle", "idle", "busy", "busy", "warm", "unseen", "liar"])
    return st.tuples(mostly, st.sampled_from([1, 1, 2, 3, 20, 45, 90, 200, 400]))


def shown(spells: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    values = [LOOKS[what] for what, count in spells for _ in range(count)]
    return (values + [BUSY] * (LENGTH * 60))[: LENGTH * 60]


@st.composite
def sites(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "devices": [draw(st.lists(spell(), min_size=2, max_size=8)) for _ in range(3)],
        "late": draw(st.integers(0, 200)),
        "gone": draw(st.integers(250, LENGTH * 60)),
        "kind": draw(st.sampled_from(["Notebook", "Deployment", "Job"])),
        "shared": draw(st.booleans()),
        "kernels": draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=9, max_size=54)),
        "cores": draw(st.lists(st.sampled_from([0.01, 0.01, 0.01, 2.0]), min_size=9, max_size=54)),
        "away": draw(st.one_of(st.none(), st.integers(0, LENGTH * 60))),
    }


def build(told: dict[str, Any]) -> Memory:
    """Two workloads: one of two devices, the second of them taken later, and one of one."""
    memory = Memory()
    site = Site(memory, MINUTE)
    for n, spells in enumerate(told["devices"]):
        site.device(f"GPU-{n}", shown(spells))
    length = told["gone"] * MINUTE
    site.holds("a", ["GPU-0"], kind=told["kind"], length=length, workload_uid="top-a")
    late = min(told["late"], told["gone"] - 1) * MINUTE
    site.holds("a", ["GPU-1"], kind=told["kind"], pod="a-1", begin=late, length=length - late)
    site.holds(
        "b", ["GPU-2"], length=LENGTH * HOUR, share=0.5 if told["shared"] else 1.0,
        attribution="estimated" if told["shared"] else "exact",
    )  # fmt: skip
    first = START.replace(tzinfo=None)
    for pod in ("a-0", "a-1"):
        memory.rows(
            "notebook_sample",
            [
                {
                    "cluster": "c", "ts": first + n * timedelta(minutes=10), "namespace": "ns",
                    "pod": pod, "kernels": 1, "busy_kernels": busy, "terminals": 0,
                    "last_kernel_activity": first - timedelta(hours=9),
                }
                for n, busy in enumerate(told["kernels"])
            ],
        )  # fmt: skip
    memory.rows(
        "pod_sample",
        [
            {
                "cluster": "c", "ts": first + n * timedelta(minutes=10), "namespace": "ns",
                "pod": "b-0", "interval_s": 600.0, "cpu_cores": cores, "net_rx_bps": 1.0,
                "net_tx_bps": 1.0,
            }
            for n, cores in enumerate(told["cores"])
        ],
    )  # fmt: skip
    if told["away"] is not None:
        memory.rows(
            "event",
            [
                {
                    "cluster": "c", "uid": "e", "ts": first + told["away"] * MINUTE,
                    "kind": "Node", "name": "n1", "reason": "NodeNotReady",
                }
            ],
        )  # fmt: skip
    memory.rows("node", [{"cluster": "c", "node": "n1", "ready": True}])
    site.price("4")
    return memory


class Alike(float):
    """A number of four digits that equals its neighbour."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 1.5e-4

    __hash__ = None  # type: ignore[assignment]


def alike(finding: Finding) -> Any:
    """Return a finding to compare: a rounded-off millionth of a dollar is the same dollar.

    Sums over one's looks in another order differ by their last bit, which may turn the last of the
    four digits of a confidence.
    """
    usd = None if finding.usd is None else round(finding.usd + Decimal("0.0000005"), 5)
    confidence = Alike(finding.confidence)
    return finding.id, finding.window, finding.evidence, confidence, usd, finding.details


def asked(analyzer: IdleAnalyzer, views: Any, at: datetime) -> dict[str, Any]:
    found = analyzer.find(AsOf(views, at), Window(START, at))
    return {f.id: alike(f) for f in found if f.verdict == "idle" and f.window.end >= at - FRESH}


@pytest.mark.slow
@settings(
    max_examples=2,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(told=sites())
def test_the_past_is_what_was_found_at_each_moment(told: dict[str, Any]) -> None:
    memory = build(told)
    try:
        analyzer = IdleAnalyzer(IdleSettings(service_duration=timedelta(hours=3)))
        instants = [START + n * timedelta(minutes=30) for n in range(3, 2 * LENGTH + 1)]
        past = analyzer.replay(memory, Window(START, instants[-1]), instants)
        rows = past.rows.to_pylist()
        for k, at in enumerate(instants):
            known = [past.finding(n) for n, row in enumerate(rows) if row["k"] == k]
            assert {f.id: alike(f) for f in known} == asked(analyzer, memory, at)
    finally:
        memory.engine.close()


def roll_notebook(views: Memory, buckets: Iterable[int], busy: int = -1) -> None:
    """Store buckets of five minutes of a notebook that does not compute but in one of them."""
    site = Site(views, MINUTE)
    first = START.replace(tzinfo=None)
    site.device("GPU-0", [])
    site.holds(
        "nb", ["GPU-0"], kind="Notebook", first_seen=first, last_seen=first + timedelta(days=1)
    )
    site.notebook("nb-0", busy_kernels=0)
    views.rows(
        "rollup_5m",
        [
            {
                "cluster": "c", "bucket": first + n * timedelta(minutes=5), "device": "GPU-0",
                "namespace": "ns", "pod": "nb-0", "node": "n1", "interval_s": 60.0, "n": 5,
                "covered_s": 300.0, "conflict_s": 0.0, "act_n": 5, "power_w_n": 5,
                "act_min": 0.8 * (n == busy), "act_mean": 0.8 * (n == busy),
                "act_max": 0.8 * (n == busy),
                "power_w_mean": 118.0, "mem_used_bytes_max": 4_000_000_000,
            }
            for n in buckets
        ],
    )  # fmt: skip


def test_what_is_only_read_from_rollups_is_told_the_same(views: Memory) -> None:
    roll_notebook(views, range(100), busy=40)
    analyzer = IdleAnalyzer()
    instants = [START + n * HOUR for n in range(1, 9)]
    past = analyzer.replay(views, Window(START, instants[-1]), instants)
    rows = past.rows.to_pylist()
    assert len({row["case"] for row in rows}) == 2
    for k, at in enumerate(instants):
        known = [past.finding(n) for n, row in enumerate(rows) if row["k"] == k]
        assert {f.id: alike(f) for f in known} == asked(analyzer, views, at)


def test_a_stretch_that_missing_buckets_end_stays_known_beside_the_next_one(views: Memory) -> None:
    """A case may go on over silence: live verdicts have both parts, and so does the past."""
    roll_notebook(views, [*range(40), *range(52, 100)])
    instants = [START + n * HOUR for n in range(1, 9)]
    rows = IdleAnalyzer().replay(views, Window(START, instants[-1]), instants).rows.to_pylist()
    evaluations = [[row["k"] for row in rows if row["case"] == case] for case in (0, 1)]
    assert evaluations == [[*range(8)], [5, 6, 7]]


def test_moments_that_are_not_equally_far_apart_are_refused(site: Site) -> None:
    instants = [START + HOUR, START + 2 * HOUR, START + 5 * HOUR]
    with pytest.raises(UsageError, match="equally far apart"):
        IdleAnalyzer().replay(site.views, Window(START, instants[-1]), instants)


def test_a_site_without_holders_has_no_past(views: Memory) -> None:
    past = IdleAnalyzer().replay(views, Window(START, START + HOUR), [START + HOUR])
    assert past.rows.num_rows == 0


@pytest.mark.parametrize("first_hour", [1, 25])
def test_a_download_of_the_day_before_says_nothing_of_today_live_and_in_the_past(
    views: Memory, first_hour: int
) -> None:
    """One sample of the host at hour 3 shows 1 GB/s: for a day its mean is work, then it is not."""
    site = Site(views, timedelta(minutes=5))
    site.device("GPU-0", [IDLE] * 12 * 40)
    site.holds("server", ["GPU-0"], length=40 * HOUR, workload_uid="top")
    first = START.replace(tzinfo=None)
    views.rows(
        "pod_sample",
        [
            {
                "cluster": "c", "ts": first + n * timedelta(minutes=10), "namespace": "ns",
                "pod": "server-0", "interval_s": 600.0, "cpu_cores": 0.01, "net_tx_bps": 1.0,
                "net_rx_bps": 1e9 if n == 18 else 1.0, "requests_per_s": 0.0,
            }
            for n in range(40 * 6)
        ],
    )  # fmt: skip
    analyzer = IdleAnalyzer()
    instants = [START + n * HOUR for n in range(first_hour, 41)]
    past = analyzer.replay(views, Window(START, instants[-1]), instants)
    rows = past.rows.to_pylist()
    for hour, evidence in ((5, "suspected"), (26, "suspected"), (28, "confirmed")):
        if hour < first_hour:
            continue
        k = hour - first_hour
        (known,) = [past.finding(n) for n, row in enumerate(rows) if row["k"] == k]
        assert known.evidence == evidence
        assert {known.id: alike(known)} == asked(analyzer, views, instants[k])


def test_a_slow_exporter_keeps_only_its_own_stretches_open() -> None:
    memory = Memory()
    fast, slow = Site(memory, MINUTE), Site(memory, 15 * MINUTE)
    fast.device("GPU-0", [IDLE] * 240 + [BUSY] * 60)
    slow.device("GPU-1", [IDLE] * 16 + [BUSY] * 4)
    fast.holds("fast", ["GPU-0"], length=5 * HOUR)
    slow.holds("slow", ["GPU-1"], length=5 * HOUR)
    times = [START + 4 * HOUR + n * 10 * MINUTE for n in range(6)]
    past = IdleAnalyzer(IdleSettings(min_expected_rest=None)).replay(
        memory, Window(START, START + 5 * HOUR), times
    )
    known = {(r["workload"], r["k"]) for r in past.rows.to_pylist()}
    # Both ended after four hours: 10 minutes are the least, two scrapes are half an hour.
    assert sorted(k for name, k in known if name == "fast") == [0, 1]
    assert sorted(k for name, k in known if name == "slow") == [0, 1, 2, 3]
