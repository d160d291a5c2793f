"""`fallow what-if` on a stored site whose figures are known by hand."""

import hashlib
import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from capacity.replay.answer import answer_what_if
from capacity.replay.changes import parse_changes
from collectors.inventory import build_batches
from fallow.settings import load
from fallow.window import Window
from runtime.operations.answers.fleet_answers import FleetAnswers
from runtime.rendering.untrusted import MARK
from tests.analyzers.conftest import Memory
from tests.cli.conftest import Fallow
from tests.cli.conftest import fallow as fallow  # noqa: PLC0414  (a fixture)
from warehouse.lake import Warehouse

START = datetime(2026, 11, 16)  # noqa: DTZ001  (as the tables have it)
BOUNDS = "2026-11-16T00:00Z/2026-11-18T00:00Z"


def at(hours: float | None) -> datetime | None:
    return None if hours is None else START + timedelta(hours=hours)


def build_pod(
    name: str, created: float, placed: float | None, ended: float | None, **more: Any
) -> dict[str, Any]:
    """Return a row of a pod of one GPU; times in hours after the window's start."""
    return {
        "cluster": "c", "uid": name, "namespace": "lab", "pod": name, "team": "vision",
        "node": None if placed is None else "n0", "phase": "Running", "workload_kind": "Job",
        "workload": name, "gpu_resource": "nvidia.com/gpu", "gpu_request": 1.0,
        "created_at": at(created), "scheduled_at": at(placed), "started_at": at(placed),
        "finished_at": at(ended), "first_seen": at(created),
        "last_seen": at(48 if ended is None else ended), **more,
    }  # fmt: skip


def build_node(name: str, **more: Any) -> dict[str, Any]:
    return {
        "cluster": "c", "node": name, "gpu_model": "NVIDIA-H100-80GB-HBM3",
        "gpu_count": 1, "gpu_allocatable": 1,
        "first_seen": at(-1), "last_seen": at(48), **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return two nodes: x 0-4, y 1-3, z came at 2 and ran 3-5; b waits 10-20 h for long ones."""
    folder = tmp_path_factory.mktemp("home")
    pods = [
        build_pod("x", 0, 0, 4), build_pod("y", 1, 1, 3), build_pod("z", 2, 3, 5),
        build_pod("l0", 8, 8, 20), build_pod("l1", 8, 8, 22),
        build_pod("b", 10, 20, 21, team="bio"),
        build_pod("open", 30, 30, None), build_pod("nightly", 31, 31, 32),
    ]  # fmt: skip
    settings = load(environ={}, flags={"home": folder}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.ingest(build_batches("pod", pods))
        warehouse.ingest(build_batches("node", [build_node("n0"), build_node("n1")]))
    return folder


def ask(fallow: Fallow, home: Path, *options: str) -> dict[str, Any]:
    ran = fallow("what-if", "--home", home, "--window", BOUNDS, "-o", "json", *options)
    assert ran.code == 0, ran
    answer: dict[str, Any] = json.loads(ran.out)
    return answer


def test_the_past_is_replayed_as_it_was_and_a_priority_ends_a_wait(
    fallow: Fallow, home: Path
) -> None:
    answer = ask(fallow, home, "--priority", "bio=10")
    assert answer["schema"] == "fallow.what-if/v1"
    bio, vision = answer["what-if"]
    assert (bio["wait_p50_s"], bio["wait_p50_after_s"]) == (36000, 0)
    # b evicts l1, the younger of two equals by name, at 10 for an hour.
    assert (vision["preemptions"], vision["preemptions_after"]) == (0, 1)
    assert answer["after"]["lost_gpu_hours"] == 2
    # x 4, y 2, z 2, l0 12, l1 14, b 1, open 18, nightly 1 = 54 of 96 GPU-hours.
    assert answer["before"]["utilisation"] == pytest.approx(54 / 96)
    assert answer["before"]["by_hour"][:6] == [0.5, 1, 1, 1, 0.5, 0]
    assert answer["dollars"] == {
        "kind": "none", "usd": 0, "lost_work_usd": None, "gpu_hours": 0,
    }  # fmt: skip
    assert "1 units had not ended: they run until the end of the replay" in answer["notes"]
    # No queue has 30 waits: it is not known whether waits are reproduced.
    assert answer["calibration"]["trust"] == "unknown"
    (hours,) = answer["calibration"]["figures"]
    assert (hours["figure"], hours["difference"]) == ("utilisation by hour", 0)


def test_another_pool_changes_the_waits_and_the_bill(fallow: Fallow, home: Path) -> None:
    answer = ask(fallow, home, "--pool", "H100=3")
    bio, _ = answer["what-if"]
    assert bio["wait_p50_after_s"] == 0
    assert answer["after"]["capacity_gpu_hours"] == 144
    assert answer["dollars"] == {
        "kind": "cash", "usd": None, "lost_work_usd": None, "gpu_hours": 48,
    }  # fmt: skip
    smaller = ask(fallow, home, "--pool", "H100=1")
    assert smaller["after"]["waits"]["p95_s"] > smaller["before"]["waits"]["p95_s"]


def test_a_quota_makes_a_team_wait_for_itself(fallow: Fallow, home: Path) -> None:
    answer = ask(fallow, home, "--quota", "vision=1")
    bio, vision = answer["what-if"]
    assert bio["wait_p50_after_s"] == 0
    assert vision["wait_p95_after_s"] > vision["wait_p95_s"]


def test_a_quota_holds_from_the_first_second_on(fallow: Fallow, tmp_path: Path) -> None:
    """a, b 0-4 and c 1-2; with a quota of one GPU b begins at 4 and c at 8: waits 0, 4, 7 h.

    `held` ran when the window began and goes on: it takes the GPU of `bio` until 2.
    """
    pods = [
        build_pod("a", 0, 0, 4), build_pod("b", 0, 0, 4), build_pod("c", 1, 1, 2),
        build_pod("held", -1, -1, 2, team="bio"), build_pod("next", 0, 0, 1, team="bio"),
    ]  # fmt: skip
    settings = load(environ={}, flags={"home": tmp_path}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        warehouse.ingest(build_batches("pod", pods))
        warehouse.ingest(build_batches("node", [build_node("n0", gpu_count=5, gpu_allocatable=5)]))
    answer = ask(fallow, tmp_path, "--quota", "vision=1", "--quota", "bio=1")
    bio, vision = answer["what-if"]
    assert (vision["wait_p50_s"], vision["wait_p50_after_s"]) == (0, 4 * 3600)
    assert (bio["wait_p50_s"], bio["wait_p50_after_s"]) == (0, 2 * 3600)


def test_evicted_work_is_one_job_that_waited_once_and_runs_as_long_as_its_last_attempt() -> None:
    # low-0 runs 0-1 and is evicted by high (1-3); low-1 does its work again, 3-7.
    views = Memory()
    views.rows("pod", [
        build_pod("low-0", 0, 0, 1, workload="low", workload_uid="w", phase="Failed"),
        build_pod("high", 1, 1, 3, priority=9, team="bio"),
        build_pod("low-1", 1, 3, 7, workload="low", workload_uid="w"),
    ])  # fmt: skip
    views.rows("node", [build_node("n0")])
    views.rows("event", [{
        "cluster": "c", "uid": "e", "ts": at(1), "namespace": "lab", "kind": "Pod",
        "name": "low-0", "reason": "Preempted", "count": 1,
    }])  # fmt: skip
    window = Window(START.replace(tzinfo=UTC), START.replace(tzinfo=UTC) + timedelta(hours=48))
    answer = answer_what_if(views, window, parse_changes(priority=["bio=0"]), None)
    bio, vision = answer.before.teams
    assert (bio.waits.mean_s, vision.waits.mean_s) == (0, 0)
    assert (vision.units, vision.preemptions, vision.lost_gpu_hours) == (1, 1, 1)
    assert answer.before.gpu_hours == 7
    (hours,) = answer.calibration.figures
    assert hours.difference == 0
    # Without the priority low runs 0-4 and high waits for it.
    assert [team.waits.mean_s for team in answer.after.teams] == [3 * 3600, 0]
    assert (answer.after.preemptions, answer.after.gpu_hours) == (0, 6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "a what-if needs a setting to try"),
        (("--quota", "nobody=4"), "there is no team or queue 'nobody'"),
        (("--quota", "vision=-1"), "--quota vision=-1 is no number of GPUs"),
        (("--quota", "vision=nan"), "--quota vision=nan is no number of GPUs"),
        (("--quota", "vision"), "has not the shape team=GPUs"),
        (("--quota", "vision=1", "--quota", "vision=2"), "names vision twice"),
        (("--pool", "B200=8"), "the site has no GPU of this model"),
        (("--pool", "H100=1.5"), "is no whole number"),
        (("--priority", "vision=high"), "is no whole number"),
        (("--priority", "nobody=1"), "there is no team or queue 'nobody'"),
    ],
)
def test_a_setting_that_the_site_does_not_have_is_refused(
    fallow: Fallow, home: Path, options: tuple[str, ...], said: str
) -> None:
    ran = fallow("what-if", "--home", home, "--window", BOUNDS, *options)
    assert ran.code == 2
    assert said in ran.err


def test_a_window_without_arrivals_has_nothing_to_replay(fallow: Fallow, home: Path) -> None:
    window = "2026-11-17T10:00Z/2026-11-17T20:00Z"
    ran = fallow("what-if", "--home", home, "--window", window, "--quota", "vision=1")
    assert ran.code == 2
    assert "arrived in the window" in ran.err


def test_the_assistant_s_answer_is_that_of_the_command(fallow: Fallow, home: Path) -> None:
    settings = load(environ={}, flags={"home": home}).settings
    answers = FleetAnswers(settings, {"home": str(home)})
    told = answers.what_if(priority=["bio=10"], window=BOUNDS, rows=50)
    program, *words = shlex.split(told["proof"]["command"][MARK])
    assert program == "fallow"
    ran = fallow(*words)
    assert hashlib.sha256(ran.out.encode()).hexdigest() == told["proof"]["sha256"]
    rows = json.loads(ran.out)["what-if"]
    assert [row["wait_p50_after_s"] for row in told["answer"]["what-if"]] == [
        row["wait_p50_after_s"] for row in rows
    ]
