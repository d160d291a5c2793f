"""The signals of idleness behind a real Prometheus: what is acted on, and what is only suspected.

Every workload lies in one real Prometheus, under the names that exporters give their series. Our
collector reads them into a warehouse; the plan of that moment, with a policy that is trusted and
whose notice and grace are over, says which workloads would be stopped now.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from actions.loop import recheck
from actions.loop.recheck import ActivityLimits
from actions.plan import RefusedCase, plan
from actions.policy.model import Allow, Match, Policy, PolicyAmount, ReversalLimit, Stage
from analyzers.idle.analyzer import IdleAnalyzer
from collectors.prometheus.collector import PrometheusCollector
from fallow.action_models import CaseHistory, Decision, Facts
from fallow.models import Finding
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.acting import plans
from runtime.operations.ingestion.collection import drain, read_cursors
from tests.actions.cases import SPENT
from tests.servers import prometheus as server
from tests.servers.idle_world import END, HOUR, MINUTE, Host, Peer, Shown, Workload, World
from warehouse.lake import Warehouse

pytestmark = pytest.mark.xdist_group("prometheus-idle-signals")
LATER = END + HOUR
RARELY = 300
"""Seconds between the scrapes of devices that last for days."""
SELDOM = 120
"""Seconds between the scrapes of their hosts and servers."""
DAYS: Mapping[str, Any] = {"every": RARELY, "hosts_every": SELDOM}


def line(*parts: tuple[timedelta, float], every: int = 60) -> Any:
    """Return a value per sample: so long, so much."""
    return np.concatenate([np.full(round(t.total_seconds() / every), v) for t, v in parts])


def host(cores: float = 0.02, **more: Any) -> tuple[Host]:
    return (Host(cores={"main": cores}, **more),)


def hosts() -> Iterator[Workload]:
    """Hosts at rest and at work, at both sides of each bound."""
    yield Workload("cores-rest", hosts=host(0.299))
    yield Workload("cores-work", hosts=host(0.301))
    yield Workload("one-core", hosts=host(1.0))
    yield Workload("small-rest", hosts=host(0.099), cpu=2.0)
    yield Workload("small-work", hosts=host(0.101), cpu=2.0)
    beside = {"main": 0.02, "istio-proxy": 0.9, "queue-proxy": 0.4}
    yield Workload("sidecars", hosts=(Host(cores=beside),))
    yield Workload("unlisted", hosts=(Host(cores={"main": 0.02, "decoder": 0.9}),))
    yield Workload("wire-rest", hosts=host(received=9_950.0, sent=40.0))
    yield Workload("wire-work", hosts=host(received=9_970.0, sent=40.0))
    yield Workload("disk-rest", hosts=host(written=9_990.0))
    yield Workload("disk-work", hosts=host(written=10_010.0))
    # Shards are merged all the time, from other nodes; a checkpoint is written at the end.
    yield Workload("shards", hosts=host(0.25, received=40e6, sent=1e6))
    yield Workload("checkpoint", hosts=host(0.25, written=300e6, last=30 * MINUTE))
    yield Workload("seen-both", hosts=(Host(), Host()))
    yield Workload("seen-one", hosts=(Host(), None))
    yield Workload("seen-none", hosts=(None,))
    yield Workload("seen-before", hosts=host(silent=15 * MINUTE))
    yield Workload("one-of-eight", hosts=(*[Host()] * 7, Host(cores={"main": 0.4})))


def servers() -> Iterator[Workload]:
    """Small servers that rest for 26 hours, or do a little all the time."""
    known: dict[str, Any] = {"kind": "Deployment", "lasts": 26 * HOUR, **DAYS}
    for name, activity, power in (("steady", 0.03, 112.0), ("in-band", 0.03, 110.6)):
        yield Workload(name, Shown(activity, power), **known)
    yield Workload("no-work", Shown(0.009, 112.0, util=0.0), **known)
    yield Workload("steady-util", Shown(0.02, 112.0, profiled=False), **known)
    yield Workload("unmeasured", **known)
    yield Workload("measured", requests=0.0, **known)
    heard = line((25 * HOUR + 45 * MINUTE, 0.0), (15 * MINUTE, np.nan), every=SELDOM)
    yield Workload("heard-before", requests=heard, **known)
    last = line((25 * HOUR + 30 * MINUTE, 0.0), (30 * MINUTE, 0.5), every=SELDOM)
    yield Workload("asked", requests=last, **known)


PEERS = {
    "pending": Peer("Pending", 3 * HOUR),
    # The kubelet took them, and pulls their images: nobody computes before they are there.
    "pulling": Peer("Pending", 3 * HOUR, started=2 * HOUR, gpus=0),
    "launcher": Peer("Pending", 3 * HOUR, gpus=0),
    "starting": Peer("Running", 15 * MINUTE, started=14 * MINUTE, gpus=0),
    "running": Peer("Running", 17 * MINUTE, started=16 * MINUTE, gpus=0),
    "done": Peer("Succeeded", 3 * HOUR, started=2 * HOUR, gpus=0),
}


def peers() -> Iterator[Workload]:
    """Gangs of two that rest, beside a peer that waits, starts or runs."""
    for name, peer in PEERS.items():
        yield Workload(name, hosts=(Host(), Host()), peers=(peer,))


def rests() -> Iterator[Workload]:
    """Jobs that went on after rests of 90 minutes, five times, or once more than a day ago."""
    for minutes in (134, 136):
        shape = [(HOUR, 0.9), *[(90 * MINUTE, 0.0), (HOUR, 0.9)] * 5, (minutes * MINUTE, 0.0)]
        yield resumed(f"resumed-{minutes}", shape, every=60, hosts_every=60)
    for minutes in (130, 140):
        shape = [(6 * HOUR, 0.9), (90 * MINUTE, 0.0), (30 * HOUR, 0.9), (minutes * MINUTE, 0.0)]
        yield resumed(f"day-ago-{minutes}", shape, **DAYS)


def resumed(name: str, shape: list[tuple[timedelta, float]], **scraped: Any) -> Workload:
    busy = line(*shape, every=scraped["every"])
    lasts = sum((t for t, _ in shape), timedelta())
    return Workload(name, Shown(busy, watts(busy)), lasts=lasts, **scraped)


def watts(busy: Any) -> Any:
    """Return a power that moves in its last digits, by activity."""
    noise = np.random.default_rng(3).normal(0, 0.12, len(busy))
    return np.where(busy > 0.1, 600.0, 110.0) + noise


def frozen() -> Iterator[Workload]:
    """Exporters that repeat old values, and counters that contradict the gauge."""
    whole = watts(np.zeros(240))
    for minutes in (9, 11):
        counted = whole.copy()
        counted[240 - minutes :] = 0.0
        yield Workload(f"energy-{minutes}", Shown(watts=whole, counted=counted))
    once = watts(np.zeros(361))
    still = np.concatenate([once[:1], np.zeros(360)])
    lasts = 361 * MINUTE
    yield Workload("one-live-minute", Shown(watts=once + 8, counted=still), lasts=lasts)
    gone = np.concatenate([once[:1], np.full(360, once[1])])
    yield Workload("whole-exporter", Shown(watts=gone, counted=still), lasts=lasts)
    # The readings wander in sixteenths of a watt; the last of them stand still, as those of an idle
    # GPU do: the counter goes on.
    fine = 110 + (np.arange(240) % 7) / 16
    fine[240 - 20 :] = 110.03125
    yield Workload("power-20", Shown(watts=fine, counted=fine))
    # As little as that in the middle takes these minutes away, and leaves what is around them.
    middle = whole.copy()
    middle[90:150] = 0.0
    yield Workload("energy-middle", Shown(watts=whole, counted=middle))
    yield Workload("whole-watts", Shown(watts=np.full(240, 110.0)))
    for percent in (76, 74):
        yield Workload(f"counter-{percent}", Shown(watts=whole, counted=percent / 100 * whole))


def recalled() -> Iterator[Workload]:
    """Notebooks and servers of days, some of which come back in these hours."""
    since_monday: dict[str, Any] = {"kind": "Notebook", "lasts": 97 * HOUR, **DAYS}
    work = line(
        (2 * HOUR, 0.0), (8 * HOUR, 0.9), *[(16 * HOUR, 0.0), (8 * HOUR, 0.9)] * 3,
        (15 * HOUR, 0.0), every=RARELY,
    )  # fmt: skip
    yield Workload("day-notebook", Shown(work, watts(work)), **since_monday)
    yield Workload("forgotten", **since_monday)
    yield Workload("forgotten-new", **{**since_monday, "lasts": 50 * HOUR})
    since_monday["kind"] = "Deployment"
    parts = [(2 * HOUR, 0.0), (2 * HOUR, 0.9), (46 * HOUR, 0.0), (2 * HOUR, 0.9), (45 * HOUR, 0.0)]
    served, requests = line(*parts, every=RARELY), line(*parts, every=SELDOM)
    every_other = Shown(served, watts(served))
    yield Workload("every-other-day", every_other, requests=requests, **since_monday)
    # Its requests are few and short: no device shows them, only the counter does.
    yield Workload("counter-only", requests=requests, **since_monday)
    yield Workload("never-asked", requests=0.0, **since_monday)
    yield Workload("never-asked-new", requests=0.0, **{**since_monday, "lasts": 50 * HOUR})


SPIN = {
    "DCGM_FI_PROF_SM_ACTIVE": 0.05, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.0,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.001, "DCGM_FI_PROF_PCIE_TX_BYTES": 1e4,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 1e4,
}  # fmt: skip


def used() -> Iterator[Workload]:
    """Devices whose state the ledger must tell apart: bursts, spinning ranks, nobody's."""
    rng = np.random.default_rng(7)
    zero = rng.random(480) < 0.83
    bursts = np.where(zero, 0.0, rng.uniform(0.3, 1.0, 480))
    drawn = np.where(rng.random(480) < 0.6, rng.normal(121, 2, 480), rng.uniform(140, 340, 480))
    bursty = Shown(bursts, drawn, profiled=False)
    yield Workload("bursty", bursty, hosts=(Host(cores={"main": 4.0}),), every=30)
    spinning = Shown(1.0, 180.0, more=SPIN)
    yield Workload("spinning", spinning, hosts=(Host(cores={"main": 1.0}),) * 2)
    works = {**SPIN, "DCGM_FI_PROF_SM_ACTIVE": 0.8, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.4}
    yield Workload("training", Shown(1.0, 610.0, more=works), hosts=(Host(cores={"main": 6.0}),))
    yield Workload("nobody", free=True)


WORKLOADS = [*hosts(), *servers(), *peers(), *rests(), *frozen(), *recalled(), *used()]
RULE = Policy(
    name="stop-idle",
    mode="enforce",
    match=Match(analyzer=("idle",)),
    allow=Allow(namespaces=("team-*",), kinds=("PyTorchJob", "Notebook", "Deployment")),
    stages=(
        Stage("observe"),
        Stage("notify"),
        Stage("grace", wait=30 * MINUTE),
        Stage("act", do=("suspend",), verbs=("stop", "suspend", "scale to zero")),
    ),
    min_age=10 * MINUTE,
    reversals=ReversalLimit(rate=0.10),
    concurrent=1000,
    max_resources=PolicyAmount(Decimal(1000)),
)


class Judged(msgspec.Struct, frozen=True):
    """What is known of the workloads at the end, by name."""

    acted: frozenset[str]
    """What would be stopped now, by the plan and by the last reading of every signal."""
    why: Mapping[str, str]
    """Why not: the gates' words."""
    findings: Mapping[str, Finding]
    """The last idle stretch of each."""
    doubts: Mapping[str, str]
    """What is unknown, and why."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    folder: Path = tmp_path_factory.mktemp("idle-signals")
    text = World(WORKLOADS).history.text()
    with server.serving(server.blocks(text, folder / "prometheus")) as url:
        flags = {
            "home": folder / "home", "cluster": "c", "prometheus.url": url,
            "prices.usd_per_gpu_hour": "2.00", "prometheus.chunk": "24h",
        }  # fmt: skip
        settings: Settings = load(environ={}, flags=flags).settings
        with Warehouse.open_in_memory(settings, clock=lambda: LATER) as warehouse:
            window = Window(END - 98 * HOUR, END)
            collector = PrometheusCollector(
                settings.prometheus, "c", lambda: LATER, cursors=read_cursors(warehouse)
            )
            drain(warehouse, collector, window, lambda _what, _part: None)
            assert collector.failure is None
            pipeline.account(warehouse, window)
            yield warehouse


def judged(lake: Warehouse, horizon: str | None, rule: Policy = RULE) -> Judged:
    """Return what the plan of the end would stop, and why it leaves the rest."""
    idle = lake.settings.idle.model_copy(
        update={"min_expected_rest": None if horizon is None else 4 * HOUR}
    )
    settings = lake.settings.model_copy(update={"idle": idle})
    cases, _ = plans.gather_cases(lake, settings, at=END, cluster="c", names=("idle",))
    made = plan([rule], [ready(case) for case in cases], spent(), END)
    acted = {d.subject[3] for d in made.decisions if (d.step, d.ruling) == ("act", "allow")}
    assert not made.aborted
    limits = ActivityLimits(idle.threshold, idle.host_cpu_cores, idle.min_duration)
    again = {
        c.finding.subject.workload: rechecked(lake, c, limits)
        for c in cases
        if c.finding.subject.workload in acted and c.finding.window.end == END
    }
    left: list[Decision | RefusedCase] = [*made.decisions, *made.refused]
    unjudged = IdleAnalyzer(idle).unjudged(lake, Window(END - 25 * HOUR, END))
    found = sorted((c.finding for c in cases), key=lambda f: f.window.end)
    return Judged(
        frozenset(name for name in acted if not again[name]),
        {r.subject[3]: "; ".join(f"{x.gate}: {x.text}" for x in r.reasons) for r in left}
        | {name: why for name, why in again.items() if why},
        {f.subject.workload: f for f in found},
        {u.subject.workload: "; ".join(u.reasons) for u in unjudged},
    )


def rechecked(lake: Warehouse, case: Facts, limits: ActivityLimits) -> str:
    """Return why the last readings of a case leave it alone; empty = nothing does."""
    found = recheck.judge_readings(recheck.read_signals(lake, case, END, limits), case, END, limits)
    return "; ".join((*found.active, *found.stale))


def ready(case: Facts) -> Facts:
    """Return a case whose identity the API told, and whose notice and grace are over."""
    notified = max(case.finding.window.start, END - 2 * HOUR) + MINUTE
    history = CaseHistory(first_seen=notified, notified_at=notified)
    return msgspec.structs.replace(case, uid="uid", history=history)


def spent() -> Any:
    return msgspec.structs.replace(SPENT, trusted=frozenset({RULE.name}))


@pytest.fixture(scope="module")
def now(lake: Warehouse) -> Judged:
    """Return the plan without the question when something is wanted again."""
    return judged(lake, None)


@pytest.fixture(scope="module")
def soon(lake: Warehouse) -> Judged:
    """Return the plan that asks it."""
    return judged(lake, "4h")


@pytest.fixture(scope="module")
def strict(lake: Warehouse) -> Judged:
    """Return the plan of a policy that declares 4 %."""
    regret = msgspec.structs.replace(RULE.reversals, rate=0.04)
    return judged(lake, "4h", msgspec.structs.replace(RULE, reversals=regret))


PAIRS = [
    # A host at rest, and one at work.
    ("cores-rest", "cores-work"),
    ("small-rest", "small-work"),
    ("sidecars", "unlisted"),
    ("wire-rest", "wire-work"),
    ("disk-rest", "disk-work"),
    # Hosts of all pods are known, or not.
    ("seen-both", "seen-one"),
    ("cores-rest", "seen-before"),
    # Without request metrics it is unknown whether a server is asked for something.
    ("measured", "unmeasured"),
    ("measured", "heard-before"),
    # A peer that runs for longer than the grace of a start, or has ended, and those that wait.
    ("running", "starting"),
    ("done", "pending"),
    ("done", "pulling"),
    ("done", "launcher"),
    # 1.5 times the longest rest.
    ("resumed-136", "resumed-134"),
    ("day-ago-140", "day-ago-130"),
    # Ten minutes of energy, beside power that stands still too, and a quarter less than the gauge.
    ("energy-9", "energy-11"),
    ("power-20", "whole-exporter"),
    ("whole-watts", "whole-exporter"),
    ("counter-76", "counter-74"),
]


@pytest.mark.parametrize(("stopped", "left"), PAIRS)
def test_one_is_stopped_and_the_one_beyond_the_threshold_is_not(
    now: Judged, stopped: str, left: str
) -> None:
    assert stopped in now.acted, now.why.get(stopped) or now.doubts.get(stopped)
    assert left not in now.acted


@pytest.mark.parametrize(
    "name",
    [
        "cores-work", "one-core", "small-work", "unlisted", "wire-work", "disk-work", "shards",
        "one-of-eight",
    ],
)  # fmt: skip
def test_a_host_at_work_keeps_idleness_from_being_confirmed(now: Judged, name: str) -> None:
    found = now.findings[name]
    assert (found.evidence, found.details["signals"]["host"]) == ("suspected", "busy")
    assert "the host is busy" in now.why[name]


def test_a_checkpoint_that_is_written_ends_the_rest_that_was_confirmed(now: Judged) -> None:
    """It was idle until then: the half hour in which it writes is no part of that."""
    assert "checkpoint" not in now.acted
    ended = END - now.findings["checkpoint"].window.end
    assert 30 * MINUTE <= ended <= 40 * MINUTE
    assert "fresh" in now.why["checkpoint"]


@pytest.mark.parametrize("name", ["seen-one", "seen-none"])
def test_hosts_of_only_some_pods_say_nothing(now: Judged, name: str) -> None:
    assert now.findings[name].details["signals"]["host"] == "unknown"
    assert "no signal from the host" in now.why[name]


def test_what_fell_silent_a_quarter_of_an_hour_ago_is_not_acted_on(now: Judged) -> None:
    assert "the last reading of CPU is 15m old" in now.why["seen-before"]
    assert now.why["heard-before"].startswith("the last reading of requests is 15m old")


@pytest.mark.parametrize("name", ["steady", "steady-util"])
def test_steady_low_work_above_the_idle_band_is_in_use(now: Judged, name: str) -> None:
    assert name not in now.findings
    assert name not in now.doubts


@pytest.mark.parametrize("name", ["in-band", "no-work", "unmeasured"])
def test_a_server_without_request_metrics_is_found_and_never_stopped(
    now: Judged, name: str
) -> None:
    """What is in the band, or below 1 %, is no work: that is found."""
    found = now.findings[name]
    assert (found.details["idle_band"], found.details["idle_band_w"]) == ("learned", 110.0)
    assert found.details["actionable"] is False
    assert "no request metrics tell whether it serves" in now.why[name]
    assert name not in now.acted


def test_a_server_that_is_asked_for_something_is_not_stopped(now: Judged) -> None:
    assert "asked" not in now.acted
    assert END - now.findings["asked"].window.end >= 30 * MINUTE


@pytest.mark.parametrize("name", ["pending", "pulling", "launcher", "starting"])
def test_a_peer_that_waits_or_starts_vetoes_and_is_said(now: Judged, name: str) -> None:
    found = now.findings[name]
    assert found.evidence == "suspected"
    assert found.details["vetoes"] == [
        "a pod of the workload waits or starts: the others may wait for it"
    ]


@pytest.mark.parametrize("name", ["resumed-134", "day-ago-130"])
def test_a_job_that_went_on_before_is_left_and_its_longest_rest_said(
    now: Judged, name: str
) -> None:
    assert now.findings[name].details["longest_rest"] == "1h30m"
    assert "it has rested about as long before and went on by itself" in now.why[name]


@pytest.mark.parametrize("name", ["one-live-minute", "whole-exporter"])
def test_six_frozen_hours_after_a_live_minute_are_unknown(now: Judged, name: str) -> None:
    assert name not in now.findings
    assert "the telemetry repeats an old value" in now.doubts[name]


def test_only_the_frozen_part_of_a_rest_is_unknown(now: Judged) -> None:
    assert {"energy-middle", "energy-9", "power-20"} <= now.acted
    found = now.findings["energy-middle"]
    assert END - found.window.start == pytest.approx(90 * MINUTE, abs=MINUTE)
    assert "the telemetry repeats an old value" in now.doubts["energy-middle"]
    ended = END - now.findings["energy-11"].window.end
    assert ended == pytest.approx(11 * MINUTE, abs=MINUTE)


def test_a_counter_that_tells_a_quarter_less_than_the_gauge_is_said(now: Judged) -> None:
    assert "counter-74" not in now.findings
    assert "contradict each other" in now.doubts["counter-74"]


@pytest.mark.parametrize(
    ("name", "figures", "acted"),
    [
        # Four workdays of its own, none with a return, and three horizons of each that its rest
        # lasted through (from ten, six and two o'clock): (0 + 1/2) / (4 + 12 + 1).
        ("forgotten", (0.0294, 16, 0, 4, 0), True),
        ("never-asked", (0.0294, 16, 0, 4, 0), True),
        # Two days of its own, the other's rest that had lasted 49 hours on Wednesday at nine, and
        # six such horizons: (0 + 1/2) / (2 + 1 + 6 + 1).
        ("forgotten-new", (0.05, 9, 0, 2, 0), True),
        # The same, and two servers that were asked on Wednesday after 46 hours: (2 + 1/2) / 6.
        ("never-asked-new", (0.4167, 5, 2, 2, 0), False),
        # Back on each of four mornings: (4 + 1/2) / (4 + 1). The others' nights tell nothing.
        ("day-notebook", (0.9, 4, 4, 4, 4), False),
        # Asked on two of four mornings, as the other one was after 45 hours: (3 + 1/2) / 6.
        ("counter-only", (0.5833, 5, 3, 4, 2), False),
        ("every-other-day", (0.5833, 5, 3, 4, 2), False),
    ],
)
def test_what_is_probably_wanted_soon_is_left(
    soon: Judged, name: str, figures: tuple[float, int, int, int, int], acted: bool
) -> None:
    wanted = soon.findings[name].details["wanted"]
    keys = ("probability", "exposures", "returns", "own_days", "own_returns")
    assert tuple(wanted[key] for key in keys) == figures
    assert (name in soon.acted) is acted


def test_the_probability_alone_keeps_what_all_else_would_stop(now: Judged, soon: Judged) -> None:
    held = {"counter-only": "58.3%", "never-asked-new": "41.7%"}
    assert {*held} <= now.acted
    for name, probability in held.items():
        answer = f"wanted: wanted again within 4h with a probability of {probability}, above 10.0%"
        assert soon.why[name].startswith(answer)


def test_too_little_history_is_unknown_and_says_what_is_missing(strict: Judged) -> None:
    assert "forgotten" in strict.acted
    assert strict.why["forgotten-new"] == (
        "wanted: whether it is wanted within 4h is unknown: too little history, 0 returns of 9 "
        "rests as long and days of its own (2 its own, 0 returns); needs 12 without a return for "
        "4.0%"
    )


def test_a_server_that_is_asked_every_other_day_is_left_without_that_question_too(
    now: Judged,
) -> None:
    assert "every-other-day" not in now.acted


STATES = {
    "cores-rest": "idle", "cores-work": "idle", "one-core": "idle", "steady": "low",
    "in-band": "idle", "bursty": "low", "spinning": "low", "training": "productive",
    "one-live-minute": "unknown", "whole-exporter": "unknown", "whole-watts": "idle",
}  # fmt: skip
"""The state of most of a workload's hours, by its devices' own signals: a host at work changes
nothing."""


@pytest.fixture(scope="module")
def hours(lake: Warehouse) -> Mapping[str, Mapping[str, float]]:
    """Return the GPU-hours of each workload by state."""
    rows = lake.query(
        "SELECT workload, state, sum(gpu_seconds) / 3600 AS h FROM ledger"
        " WHERE workload <> '' GROUP BY ALL"
    ).to_pylist()
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["workload"], {})[row["state"]] = row["h"]
    return found


@pytest.mark.parametrize(("workload", "state"), STATES.items())
def test_the_ledger_names_a_state_by_the_device_alone(
    hours: Mapping[str, Mapping[str, float]], workload: str, state: str
) -> None:
    shown = hours[workload]
    assert shown[state] > 0.8 * sum(shown.values()), shown


@pytest.mark.parametrize(
    ("workload", "frozen"), [("energy-middle", 1.0), ("energy-9", 0.0), ("power-20", 0.0)]
)
def test_only_the_hours_of_frozen_counters_are_unknown(
    hours: Mapping[str, Mapping[str, float]], workload: str, frozen: float
) -> None:
    assert hours[workload].get("unknown", 0.0) == pytest.approx(frozen, abs=0.1)


def test_a_device_that_nobody_holds_is_free(lake: Warehouse) -> None:
    rows = lake.query(
        "SELECT state, sum(gpu_seconds) / 3600 AS h FROM ledger"
        " WHERE node = 'nobody-n0' GROUP BY ALL"
    ).to_pylist()
    assert {r["state"]: round(r["h"], 1) for r in rows} == {"free": 4.0}


def test_no_hour_of_an_idle_finding_is_other_than_idle_in_the_ledger(lake: Warehouse) -> None:
    found = IdleAnalyzer(lake.settings.idle).find(lake, Window(END - 98 * HOUR, END))
    assert len(found) > 40
    wrong = {}
    for one in found:
        # Whole hours; a stretch begins and ends within one.
        rows = lake.query(
            "SELECT state, sum(seconds) AS s FROM ledger"
            " WHERE namespace = $namespace AND bucket >= $since"
            " AND bucket + INTERVAL 1 HOUR <= $until AND state <> 'idle' GROUP BY ALL",
            {"namespace": one.subject.namespace, **one.window.bounds()},
        ).to_pylist()
        if rows:
            wrong[one.subject.workload] = {r["state"]: r["s"] for r in rows}
    assert not wrong


def test_nothing_that_a_verdict_calls_busy_by_the_device_is_idle_in_the_ledger(
    now: Judged, hours: Mapping[str, Mapping[str, float]]
) -> None:
    for busy in ("steady", "bursty", "spinning", "training"):
        assert busy not in now.findings
        assert hours[busy].get("idle", 0.0) < 0.1, hours[busy]
