"""`fallow simulate`: both worlds measured, bad input named, doors opened and shut."""

import io
import json
import socket
import threading
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actions.loop.protocols import TurnReport
from actions.loop.recheck import Recheck
from actions.policy.model import Policy
from actions.policy.parser import read_policies as policies
from fallow.action_models import Facts
from fallow.errors import UsageError
from runtime.cli import run
from runtime.experiments.simulation.enforcer import OWN_POLICIES, Enforcer
from runtime.experiments.simulation.options import Options, read
from runtime.experiments.simulation.run import measure_worlds, simulate
from runtime.experiments.simulation.servers import serve
from runtime.experiments.world_inventory import isolate_settings
from simulator.models import STATES
from simulator.work.behaviours import Script
from simulator.world import World
from warehouse.lake import Warehouse

pytestmark = pytest.mark.xdist_group("simulate")  # its worlds are simulated once
GPUS = 16
HOUR, DAY = 3600.0, 86_400.0
SMALL: dict[str, Any] = {
    "days": 2,
    "gpus": GPUS,
    "seed": 5,
    "every": "6h",
    "mix": ["day-notebook=0.3", "train=0.2", "forgotten=0", "night=0"],
}


QUICK = OWN_POLICIES / "reclaim-idle.yaml"


def hasty(folder: Path) -> tuple[Policy, ...]:
    """Return the simulation's own policy with an hour's notice: a day is short."""
    path = folder / "hasty.yaml"
    path.write_text(QUICK.read_text().replace("grace: 4h", "grace: 1h"))
    return policies([path])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose settings name a warehouse of the site's own."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "fallow.yaml").write_text(f"warehouse: {{data: {folder / 'data'}}}\n")
    return folder


@pytest.fixture(scope="module")
def found(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    rules = hasty(tmp_path_factory.mktemp("policy"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(site)
        return simulate(read(**SMALL), lambda _what, _part: None, rules)


@pytest.mark.usefixtures("found")
def test_nothing_simulated_enters_the_warehouse_of_the_site(site: Path) -> None:
    assert [path.name for path in site.iterdir()] == ["fallow.yaml"]


@pytest.mark.slow
def test_both_worlds_pay_for_the_same_devices_and_their_states_add_up(
    found: dict[str, Any],
) -> None:
    for name in ("baseline", "enforced"):
        world = found[name]
        assert set(world["states"]) == set(STATES)
        assert sum(world["states"].values()) == pytest.approx(GPUS * 48, rel=1e-4)
        assert world["paid_gpu_hours"] <= GPUS * 48 + 0.01
        assert world["usd"] > world["paid_gpu_hours"] * 0.5
        assert 0 < world["effective_utilisation"] < 1
        assert world["queue_wait_p95_s"] >= world["queue_wait_p50_s"] >= 0
        assert world["job_completion_p50_s"] > 0


@pytest.mark.slow
def test_what_is_stopped_is_measured_against_the_truth(found: dict[str, Any]) -> None:
    did = found["enforced"]["enforcer"]
    assert did["actions"] > 0
    assert 0 < did["recall"] <= 1
    assert 0 <= did["precision"] <= 1
    assert did["harm"] == {
        "harmful_stops": 0,
        "causes": {"active": 0, "work lost": 0, "files lost": 0, "memory lost": 0},
        "lost_gpu_hours": 0.0,
    }
    assert did["open"] == 0
    # A wish of the truth, not of the ledger: what an oracle releases, and the part of it released.
    assert did["released_gpu_hours"] == did["true_gpu_hours"]
    assert did["oracle_gpu_hours"] > 0
    share = did["released_gpu_hours"] / did["oracle_gpu_hours"]
    assert did["released_share"] == pytest.approx(share, abs=1e-4)
    by_category = did["by_category"]
    order = sorted(by_category, key=lambda name: (-by_category[name]["oracle_gpu_hours"], name))
    assert list(by_category) == order
    parts = by_category.values()
    for name in ("oracle_gpu_hours", "released_gpu_hours"):
        assert sum(part[name] for part in parts) == pytest.approx(did[name], abs=0.01)
    # The books know only rows; the truth knows when each workload would have come back.
    assert did["saved_gpu_hours"] == pytest.approx(did["true_gpu_hours"], rel=0.05)
    assert sum(did["saved_usd"].values()) > 0
    idle = {name: found[name]["states"]["idle"] for name in ("baseline", "enforced")}
    assert idle["enforced"] < idle["baseline"]


def test_while_it_only_watches_the_actor_has_no_turn(tmp_path: Path) -> None:
    options = small()
    world = World(options.spec, options.seed)
    home = isolate_settings(tmp_path, threads=1)
    turns: list[float] = []
    with (
        Warehouse.open(
            home, write=True, clock=lambda: datetime.fromtimestamp(world.now_s, UTC)
        ) as warehouse,
        Enforcer(
            warehouse,
            world,
            options.quirks,
            home,
            hasty(tmp_path),
            sample_every_s=300,
            warm_up_s=2 * HOUR,
        ) as enforcer,
    ):

        def turn(**_: object) -> TurnReport:
            turns.append(world.now_s)
            return TurnReport(enforcer.now(), dry_run=False)

        enforcer.actor = SimpleNamespace(turn=turn)  # type: ignore[assignment]
        for hours in (1, 2, 3):
            enforcer.turn(options.spec.start_s + hours * HOUR, options.end_s)
    assert turns == [options.spec.start_s + hours * HOUR for hours in (2, 3)]


@pytest.mark.slow
def test_it_says_what_the_admin_did_and_how_early_owners_came_back(found: dict[str, Any]) -> None:
    did = found["enforced"]["enforcer"]
    assert did["admin"] == {
        "namespaces": 0,
        "trusted": ["reclaim-idle"],
        "approved": 0,
        "thawed": 0,
    }
    early = did["early_returns"]
    assert set(early) == {"*", "reclaim-idle"}
    assert early["*"]["stops"] == did["actions"]
    assert early["*"]["within_min_expected_rest"] <= early["*"]["within_24h"] <= did["actions"]
    low, high = early["*"]["interval"]
    assert low <= early["*"]["within_24h"] / did["actions"] <= high


@pytest.mark.slow
def test_the_service_takes_every_step_that_its_back_test_promises_and_no_other(
    found: dict[str, Any],
) -> None:
    kept = found["enforced"]["enforcer"]["backtest"]
    # Single idle ranks beside busy ones are not replayed (docs/planning.md): nothing stops them.
    ranks = [text for text in kept["differences"] if "/idle-rank-" in text]
    assert kept["differences"] == ranks
    assert all(text.endswith(" notify lived: no case") for text in ranks)
    assert kept["promised"] == kept["both"] == kept["lived"] - len(ranks) > 10


@pytest.mark.slow
def test_the_document_names_the_shares_of_the_mix(found: dict[str, Any]) -> None:
    assert found["mix"]["day-notebook"] > found["mix"]["train"] > 0
    assert found["mix"]["night"] == 0


# From exporters over HTTP: tests/actions/loop/test_last_readings.py; the limits: test_recheck.py.
@pytest.mark.long
def test_a_terminal_that_was_used_65_s_before_an_act_is_read_again_through_the_same_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop of `--days 4 --gpus 24 --seed 5`, as a script: the mean over hours hid it."""
    options = read(days=1, gpus=8, seed=1, mix=["day-notebook=0.6", "train=0"])
    world = World(options.spec, options.seed)
    home = isolate_settings(tmp_path, threads=1)
    with (
        Warehouse.open(
            home, write=True, clock=lambda: datetime.fromtimestamp(world.now_s, UTC)
        ) as warehouse,
        Enforcer(
            warehouse,
            world,
            options.quirks,
            home,
            hasty(tmp_path),
            sample_every_s=300,
            warm_up_s=DAY,
        ) as enforcer,
    ):
        evidence = enforcer.evidence
        idle: list[Facts] = []
        for hours in range(3, 24, 3):
            enforcer.turn(options.spec.start_s + hours * HOUR, options.end_s)
            found = [f for f in evidence.cases(enforcer.now()) if f.pods]
            idle = [f for f in found if f.finding.kind == "idle_notebook" and _acts(f)]
            if idle:
                break
        assert idle, "no notebook rests in this world: choose another seed"
        case = idle[0]
        rested = evidence.again(case, enforcer.now())
        assert rested is not None
        assert evidence.recheck(rested, enforcer.now()) == Recheck()

        enforcer._fresh_s = -1.0  # the next turn
        used_s = world.now_s + 300 - 65
        monkeypatch.setattr(Script, "terminal_last", lambda _script, ticks: ticks * 0 + used_s)
        again = evidence.again(case, enforcer.now()) or rested
        checked = evidence.recheck(again, enforcer.now())
        assert any(text.startswith("terminal active 1m5s ago") for text in checked.active)


def _acts(case: Facts) -> bool:
    return case.finding.details["actionable"] is True


@pytest.mark.slow
def test_people_see_both_worlds_side_by_side(found: dict[str, Any]) -> None:
    several = measure_worlds([found, {**found, "seed": 6}])
    assert [row["seed"] for row in several] == sorted(row["seed"] for row in several)
    assert {row["seed"] for row in several} == {5, 6}
    assert "seed" not in measure_worlds([found])[0]
    rows = {row["measure"]: row for row in measure_worlds([found])}
    assert rows["idle GPU-hours"]["without"] > rows["idle GPU-hours"]["with"]
    assert rows["harmful stops"] == {"measure": "harmful stops", "without": None, "with": 0}


def test_one_seed_prints_one_document_that_names_its_schema(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["simulate", "--days", "1", "--pool", "h100-single=2", "--every", "12h"]
    words += ["--interval", "15m", "-o", "json"]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("schema") == "fallow.simulation/v1"
    assert run([*words, "--seed", "7", "--seed", "8", "--seed", "7"]) == 0
    several = json.loads(capsys.readouterr().out)
    assert several["schema"] == "fallow.simulations/v1"
    assert [world["seed"] for world in several["worlds"]] == [7, 8]
    assert several["worlds"][0] == document
    assert (document["seed"], document["days"], document["gpus"]) == (7, 1, 2)
    assert set(document) >= {"baseline", "enforced"}


@pytest.mark.parametrize(
    ("words", "named", "legal"),
    [
        (["--pool", "h900=2"], "h900", "l4-shared"),
        (["--pool", "h100"], "h100", "POOL=NODES"),
        (["--pool", "h100=0"], "no nodes", "h100=4"),
        (["--mix", "mining=0.2"], "mining", "day-notebook"),
        (["--mix", "train=much"], "train=much", "CATEGORY=SHARE"),
        (["--quirk", "gremlins"], "gremlins", "stale-series"),
        (["--quirk", "sentinels:often=1"], "often=1", "rate"),
        (["--placement", "worst"], "worst", "best-fit"),
        (["--failures", "-1"], "-1", "0 = never"),
        (["--every", "7m"], "7m", "5m"),
        (["--interval", "45s"], "45s", "30 s"),
        (["--days", "2", "--warm-up", "2d"], "2d", "more days"),
        (["--policies", "nowhere"], "nowhere", "folder"),
        (["--serve", "--speed", "4000", "--gpus", "2"], "4000", "3600"),
        (["--serve", "--seed", "1", "--seed", "2", "--gpus", "2"], "--serve", "--seed once"),
    ],
)
def test_bad_input_is_one_line_with_what_is_legal(
    words: list[str], named: str, legal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *words]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    lines = answer.err.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("fallow: "))
    assert named in lines[first]
    assert legal in " ".join(lines[first:])
    assert len(lines[first:]) <= 2


def small(**more: Any) -> Options:
    return read(days=1, gpus=8, seed=1, **more)


def test_doors_open_and_leave_nothing_running_when_told_to_stop() -> None:
    answer = io.StringIO()
    opened, stop = threading.Event(), threading.Event()

    def say(line: str) -> None:
        answer.write(line + "\n")
        if "Ctrl-C" in line:
            opened.set()

    before = set(threading.enumerate())
    world = threading.Thread(
        target=serve, args=(small(),), kwargs={"speed": 3600, "port": 0, "say": say, "stop": stop}
    )
    world.start()
    assert opened.wait(30)
    urls = dict(line.rsplit(None, 1) for line in answer.getvalue().splitlines() if "http" in line)
    exporters = urls["exporters"].replace("/nodes/NODE/metrics", "")
    assert b"DCGM_FI" in _get(f"{exporters}/nodes/h100-0/metrics")
    assert json.loads(_get(f"{exporters}/sd"))
    pods = json.loads(_get(urls["Kubernetes API"] + "/api/v1/pods"))
    assert {p["spec"]["nodeName"] for p in pods["items"]} == {"h100-0"}
    # Its node controller writes after a cordon, as a real one does.
    node = urls["Kubernetes API"] + "/api/v1/nodes/h100-0"
    cordon = urllib.request.Request(
        node,
        data=b'{"spec": {"unschedulable": true}}',
        headers={"Content-Type": "application/merge-patch+json"},
        method="PATCH",
    )
    urllib.request.urlopen(cordon, timeout=10).close()
    taints = json.loads(_get(node))["spec"]["taints"]
    assert "node.kubernetes.io/unschedulable" in {t["key"] for t in taints}
    stop.set()
    world.join(30)
    assert not world.is_alive()
    assert {t for t in threading.enumerate() if not t.daemon} <= before
    assert answer.getvalue().endswith("closed\n")
    with pytest.raises(OSError, match="refused"):
        _get(f"{exporters}/sd")


@pytest.mark.parametrize("taken", [0, 1])
def test_a_port_in_use_is_named(taken: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=str(port)):
            serve(small(), speed=60, port=port - taken, say=_quiet(), stop=threading.Event())


def _quiet() -> Callable[[str], None]:
    return lambda _line: None


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        body: bytes = answer.read()
    return body
