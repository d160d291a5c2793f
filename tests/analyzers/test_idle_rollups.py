"""Long windows are judged from five-minute rollups: the same answers up to a bucket."""

from datetime import timedelta
from typing import Any

import pytest

from analyzers.idle import samples
from analyzers.idle.analyzer import IdleAnalyzer
from fallow.models import Finding
from fallow.settings import Settings
from fallow.tables import Batch, get_schema
from fallow.window import Window
from warehouse.lake import Warehouse
from warehouse.rollup import roll_up

Site = Any


@pytest.fixture
def both(site: Site, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that finds from raw looks and from the rollups of a real warehouse."""

    def found() -> tuple[list[Finding], list[Finding]]:
        window = Window(site.start, site.start + timedelta(days=1))
        analyzer = IdleAnalyzer(settings.idle)
        raw = analyzer.find(site.views, window)
        with Warehouse.open_in_memory(settings) as warehouse:
            sample = site.views.query("SELECT * FROM sample ORDER BY device, ts")
            warehouse.ingest([Batch("sample", sample.cast(get_schema("sample")))])
            roll_up(warehouse)
            rolled = warehouse.query("SELECT * FROM rollup_5m")
        site.views.put(Batch("rollup_5m", rolled.cast(get_schema("rollup_5m"))))
        monkeypatch.setattr(samples, "MOST_SAMPLES", 0)
        coarse = analyzer.find(site.views, window)
        assert {f.details["read_from"] for f in raw} <= {"sample"}
        assert {f.details["read_from"] for f in coarse} <= {"rollup_5m"}
        return raw, coarse

    return found


def test_rollups_give_the_same_findings_up_to_a_bucket(site: Site, both: Any) -> None:
    blip = [0.0] * 100 + [0.9] + [0.0] * 100
    end = [0.9, 0.9, 0.9]
    site.device("GPU-a", [0.7] * 7 + blip + end + [0.0] * 83, power_w=100.0)
    site.device("GPU-b", [0.0, 0.2, 0.9] * 90, power_w=300.0)
    site.device("GPU-c", [{"gr_engine_active": 0.0, "gpu_util_pct": 99.0}] * 240, power_w=500.0)
    for name in "abc":
        site.holds(name, [f"GPU-{name}"])
    raw, coarse = both()
    assert [f.subject.workload for f in coarse] == [f.subject.workload for f in raw] == ["a", "a"]
    for exact, rough in zip(raw, coarse, strict=True):
        assert abs(exact.window.start - rough.window.start) <= timedelta(minutes=5)
        assert abs(exact.window.end - rough.window.end) <= timedelta(minutes=5)
        assert exact.evidence == rough.evidence


def test_partly_idle_ranks_are_found_from_rollups_too(site: Site, both: Any) -> None:
    for n in range(4):
        site.device(f"GPU-{n}", [0.9 if n else 0.0] * 240)
    site.holds("train", [f"GPU-{n}" for n in range(4)])
    raw, coarse = both()
    assert [f.kind for f in raw] == [f.kind for f in coarse] == ["over_allocated_ranks"]


def test_energy_of_buckets_confirms_like_the_counter(site: Site, both: Any) -> None:
    used = [{"gr_engine_active": 0.0, "energy_mj": n * 100 * 60 * 1000} for n in range(240)]
    site.device("GPU-a", used)
    site.holds("a", ["GPU-a"])
    raw, coarse = both()
    assert [f.evidence for f in raw] == [f.evidence for f in coarse] == ["confirmed"]
    assert coarse[0].details["power_w"] == pytest.approx(100, abs=1)
