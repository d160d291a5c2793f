"""The last hours of a window, judged with the whole stretches that they belong to."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from analyzers.idle import history
from analyzers.idle.analyzer import IdleAnalyzer
from analyzers.idle.evidence import UNACTIONABLE
from fallow.errors import UsageError
from fallow.models import Finding
from fallow.settings.idle import IdleSettings
from fallow.window import Window

if TYPE_CHECKING:
    Memory = Any
    Site = Any

HOUR = timedelta(hours=1)
BRIEF = 2 * HOUR


def latest(site: "Site", brief: timedelta = BRIEF, hours: int = 12) -> list[Finding]:
    window = Window(site.start, site.start + hours * HOUR)
    return IdleAnalyzer(IdleSettings()).find_latest(site.views, window, brief)


def spans(site: "Site", **how: Any) -> list[tuple[str, float, float]]:
    """Return workloads and hours of the findings, in their order."""
    return [
        (
            f.subject.workload,
            (f.window.start - site.start) / HOUR,
            (f.window.end - site.start) / HOUR,
        )
        for f in latest(site, **how)
    ]


def rest(site: "Site", name: str, *parts: tuple[float, int]) -> None:
    """Let a job show activities for so many minutes each."""
    site.device(f"GPU-{name}", [value for value, count in parts for _ in range(count)])
    site.holds(name, [f"GPU-{name}"], kind="PyTorchJob")


def test_a_stretch_that_fills_the_last_hours_is_returned_whole(site: "Site") -> None:
    rest(site, "long", (0.9, 60), (0.0, 660))
    rest(site, "short", (0.9, 630), (0.0, 90))
    rest(site, "over", (0.0, 480), (0.9, 240))
    assert spans(site) == [("long", 1, 12), ("short", 10.5, 12)]
    assert spans(site, brief=12 * HOUR)[1:] == [("over", 0, 8), ("short", 10.5, 12)]


def test_a_stretch_may_begin_a_bucket_after_the_last_hours_do(site: "Site") -> None:
    rest(site, "early", (0.0, 599), (0.9, 6), (0.0, 115))
    rest(site, "late", (0.0, 599), (0.9, 7), (0.0, 114))
    # What ended in the last hours belongs to them; what ended before does not.
    assert spans(site) == [("early", 605 / 60, 12), ("late", 606 / 60, 12)]


def test_a_stretch_that_ended_when_the_last_hours_began_is_none_of_them(
    views: "Memory", site: "Site"
) -> None:
    """A cell ran for a moment at ten o'clock: the rest before it is over."""
    site.device("GPU-0", [0.0] * 720, power_w=100.0)
    site.holds("nb", ["GPU-0"], kind="Notebook")
    site.notebook("nb-0", busy_kernels=0)
    ten = (site.start + 10 * HOUR).replace(tzinfo=None)
    answer = "UPDATE notebook_sample SET last_kernel_activity = $at WHERE ts > $at"
    views.engine.execute(answer, {"at": ten})
    assert spans(site) == [("nb", 10, 12)]


def test_a_short_stretch_has_its_history_and_a_long_one_that_of_its_whole_length(
    site: "Site",
) -> None:
    """Both rested before: 100 minutes, and now 90; 200 minutes, and now 240."""
    rest(site, "short", (0.9, 300), (0.0, 100), (0.9, 230), (0.0, 90))
    rest(site, "long", (0.9, 60), (0.0, 200), (0.9, 220), (0.0, 240))
    found = {f.subject.workload: f for f in latest(site)}
    vetoed = UNACTIONABLE["recurrent"]
    for name, longest in (("short", "1h40m"), ("long", "3h20m")):
        assert found[name].details["longest_rest"] == longest
        assert vetoed in found[name].details["reasons"]
    assert found["long"].window.seconds == 4 * 3600


def test_workloads_that_will_be_judged_over_more_time_are_not_compared_with_earlier_times(
    site: "Site", monkeypatch: pytest.MonkeyPatch
) -> None:
    rest(site, "short", (0.9, 630), (0.0, 90))
    rest(site, "long", (0.9, 60), (0.0, 660))
    rest(site, "never", (0.0, 720))
    counts: list[int] = []
    read = history.read_ended_stretches

    def note(*arguments: Any) -> Any:
        counts.append(arguments[7]["owner"].n_unique())
        return read(*arguments)

    monkeypatch.setattr(history, "read_ended_stretches", note)
    assert [name for name, _, _ in spans(site)] == ["never", "long", "short"]
    assert counts == [1, 2]


@pytest.mark.parametrize(("minutes", "refused"), [(59, True), (60, False)])
def test_a_window_is_at_least_three_samples(site: "Site", minutes: int, *, refused: bool) -> None:
    site.interval = timedelta(minutes=20)
    site.device("GPU-0", [0.0] * 36)
    site.holds("w", ["GPU-0"])
    if not refused:
        assert latest(site, brief=timedelta(minutes=minutes))
        return
    with pytest.raises(UsageError, match="idle window 59m is shorter than 3 samples of 20m"):
        latest(site, brief=timedelta(minutes=minutes))


@pytest.mark.parametrize("slow_devices", [1, 3])
def test_a_slow_exporter_has_a_least_duration_of_its_own(site: "Site", slow_devices: int) -> None:
    """Three samples of 15 minutes are 45; beside them half an hour of 30-second samples is idle."""
    for name, idle in (("fast", 60), ("brief", 59)):
        site.interval = timedelta(seconds=30)
        site.device(f"GPU-{name}", [0.9] * (24 * 60 - idle) + [0.0] * idle)
        site.holds(name, [f"GPU-{name}"], kind="PyTorchJob")
    for n in range(slow_devices):
        for name, idle in (("slow", 3), ("hasty", 2)):
            site.interval = timedelta(minutes=15)
            site.device(f"GPU-{name}-{n}", [0.9] * (48 - idle) + [0.0] * idle)
            site.holds(f"{name}-{n}", [f"GPU-{name}-{n}"], kind="PyTorchJob")
    analyzer = IdleAnalyzer(IdleSettings(min_duration=HOUR / 2))
    made = analyzer.find(site.views, Window(site.start, site.start + 12 * HOUR))
    found = {f.subject.workload: f.window.seconds / 3600 for f in made}
    assert found == {"fast": 0.5} | {f"slow-{n}": 0.75 for n in range(slow_devices)}
