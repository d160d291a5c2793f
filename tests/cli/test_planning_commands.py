"""`fallow plan`, `why-not` and `backtest` through the command line, on a stored past."""

import csv
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from actions.journal import Journal, JournalState
from fallow.settings import load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.acting.live_evidence import LiveEvidence
from tests.actions.backtest.scenario import HOUR, HOURS, FleetScenario, rests
from tests.analyzers.conftest import START
from warehouse.lake import Warehouse
from warehouse.rollup import roll_up

pytestmark = pytest.mark.slow

Fallow = Callable[..., Any]
END = START + HOURS * HOUR
AT = f"{END:%Y-%m-%dT%H:%M}"
SPAN = f"{START:%Y-%m-%d}/{AT}"
POLICY = """
name: {name}
mode: enforce
match: {{analyzer: idle, kind: [idle_job, idle_notebook]}}
allow: {{namespaces: [ns]}}
stages: [observe, notify, {{grace: 3h}}, {{act: suspend}}]
budgets: [{{workloads: 5, per: 1d}}]
reversals: {{rate: {rate}, within: 24h}}
max_resources: 100%
"""


class Rows:
    """Takes rows as the towns of tests give them, for a warehouse of its own."""

    def __init__(self) -> None:
        self.taken: dict[str, list[Mapping[str, object]]] = {}

    def rows(self, table: str, rows: Iterable[Mapping[str, object]]) -> None:
        self.taken.setdefault(table, []).extend(rows)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home whose warehouse holds two days of a job that rests and one that comes back.

    Its inventory begins on the second day: of a pod that was over by then only telemetry tells.
    """
    home = tmp_path_factory.mktemp("stored")
    with FleetScenario() as scenario:
        kept = Rows()
        scenario.views.rows = kept.rows  # type: ignore[method-assign]
        scenario.site.price("2.40")
        scenario.add("resting")
        scenario.add("back", rests((10, 12)))
        scenario.add("gone-0", kind="unresolved", hours=20, pod="gone-0")
        scenario.place()
    first = START.replace(tzinfo=None) + 24 * HOUR
    pods, kept.taken["pod"] = kept.taken["pod"], []
    kept.rows("pod", [{**row, "first_seen": first} for row in pods if row["pod"] != "gone-0"])
    settings = load(environ={}, flags={"home": home, "cluster": "c"}).settings
    with Warehouse.open(settings, write=True, clock=lambda: END) as warehouse:
        for table, rows in kept.taken.items():
            names = {name: None for row in rows for name in row}
            batch = Batch.of(table, {n: [row.get(n) for row in rows] for n in names})
            if table == "allocation":
                warehouse.replace(table, pa.Table.from_batches(batch.rows.to_batches()))
            else:
                warehouse.ingest([batch])
        roll_up(warehouse)
    return home


@pytest.fixture
def fallow(fallow: Fallow, tmp_path: Path) -> Fallow:
    """Two days of three jobs cannot say when one is wanted again: that is not asked."""
    (tmp_path / "fallow.yaml").write_text("idle: {min_expected_rest: null}\n")
    return fallow


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    folder = tmp_path / "rules"
    folder.mkdir()
    for name, rate in (("strict", "1%"), ("easy", "98%")):
        (folder / f"{name}.yaml").write_text(POLICY.format(name=name, rate=rate))
    return folder


def test_a_plan_is_a_diff_with_reasons(fallow: Fallow, stored: Path, rules: Path) -> None:
    ran = fallow("plan", "--home", stored, "--policies", rules / "easy.yaml", "--at", AT)
    assert ran.code == 0, ran.err
    assert "Job/ns/resting" in ran.out
    assert "~  notify  allow" in ran.out
    assert "nothing would be acted upon now" in ran.err


def test_a_plan_as_a_document(fallow: Fallow, stored: Path, rules: Path) -> None:
    ran = fallow(
        "plan", "--home", stored, "--policies", rules / "easy.yaml", "--at", AT, "-o", "json"
    )
    document = json.loads(ran.out)
    assert document["schema"] == "fallow.plan/v1"
    assert {tuple(d["subject"]) for d in document["decisions"]} == {
        ("c", "Job", "ns", "resting"), ("c", "Job", "ns", "back"),
    }  # fmt: skip
    assert {d["usd_per_day"] for d in document["decisions"]} == {57.6}
    assert document["saves"]["workloads"] == 0


def test_what_has_no_resolved_owner_is_refused_with_that_reason(
    fallow: Fallow, stored: Path, rules: Path
) -> None:
    policy = POLICY.format(name="any", rate="98%").replace(", kind: [idle_job, idle_notebook]", "")
    (rules / "any.yaml").write_text(policy)
    then = f"{START + 19 * HOUR:%Y-%m-%dT%H:%M}"
    words = ("--home", stored, "--policies", rules / "any.yaml", "--at", then)
    ran = fallow("plan", *words, "-o", "json")
    acted = {d["subject"][3] for d in json.loads(ran.out)["decisions"]}
    assert acted == {"resting", "back"}
    document = json.loads(fallow("why-not", "gone-0", *words, "-o", "json").out)
    assert document["workload"] == "unresolved/ns/gone-0"
    (gate,) = [row for row in document["why_not"] if row["gate"] == "resolved"]
    assert (gate["answer"], gate["refusal"]) == ("no", "the top owner: unknown")


def test_a_plan_of_an_old_past_says_so(fallow: Fallow, stored: Path, rules: Path) -> None:
    ran = fallow("plan", "--home", stored, "--policies", rules / "easy.yaml")
    assert ran.code == 0, ran.err
    assert "nothing can be acted upon (--at 2026-11-03T00:00 shows the plan of then)" in ran.err


def test_a_plan_ends_at_the_wall_clock_and_holds_nothing_of_a_week_ago(
    fallow: Fallow, stored: Path, rules: Path
) -> None:
    later = END + timedelta(days=7)
    words = ("--home", stored, "--policies", rules / "easy.yaml")
    then = fallow("plan", *words, "--at", f"{later:%Y-%m-%dT%H:%M}", "-o", "json")
    document = json.loads(then.out)
    assert (document["decisions"], document["at"]) == ([], f"{later:%Y-%m-%dT%H:%M:%S}Z")
    assert "the last sample is 7d old: nothing can be acted upon" in then.out
    now = fallow("plan", *words, "--at", AT, "-o", "json")
    assert len(json.loads(now.out)["decisions"]) == 2


def test_cases_and_budgets_of_acting_end_at_the_wall_clock(stored: Path) -> None:
    settings = load(environ={}, flags={"home": stored, "cluster": "c"}).settings
    idle = settings.idle.model_copy(update={"min_expected_rest": None})
    settings = settings.model_copy(update={"idle": idle})
    later = END + timedelta(days=7)
    with Warehouse.open(settings, clock=lambda: later) as warehouse:
        for at, cases, gpus in ((END, 2, 3), (later, 0, None)):
            evidence = LiveEvidence(warehouse, settings, lambda _now: None, lambda at=at: at)  # type: ignore[misc]
            idling = [f for f in evidence.cases(at) if f.finding.analyzer == "idle"]
            assert len(idling) == cases
            assert evidence.fleet(at).fleet_gpus == gpus


def test_why_not_lists_the_gates_that_are_shut(fallow: Fallow, stored: Path, rules: Path) -> None:
    words = ("why-not", "resting", "--home", stored, "--policies", rules, "--at", AT)
    ran = fallow(*words, "--policy", "easy")
    assert ran.code == 0, ran.err
    assert "trusted" in ran.out
    assert "`fallow backtest POLICY`" in ran.out
    document = json.loads(fallow(*words, "-o", "json").out)
    assert document["schema"] == "fallow.why_not/v1"
    assert document["workload"] == "Job/ns/resting"
    assert {row["policy"] for row in document["why_not"]} == {"strict", "easy"}


def test_the_stops_of_a_policy_free_capacity_in_the_replayed_past(
    fallow: Fallow, stored: Path, rules: Path
) -> None:
    """Two jobs hold a GPU each for 96 h at 2.40 USD. Both are stopped 5 h after they began.

    One is never used again: 5 h. The other is, 6 h later. As live, it is then left alone for a day
    and stopped again: 29 h. So 192 - 34 = 158 GPU-hours are free.
    """
    window = f"{START - timedelta(days=4):%Y-%m-%d}/{AT}"
    words = ("what-if", "--policy", rules / "easy.yaml", "--home", stored, "--window", window)
    ran = fallow(*words, "-o", "json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert (told["before"]["gpu_hours"], told["after"]["gpu_hours"]) == (2 * 96, 5 + 5 + 24)
    assert (told["after"]["stopped"], told["after"]["return_wait_p95_s"]) == (1, 0)
    assert (told["after"]["stops"], told["after"]["released_gpu_hours"]) == (3, 158)
    assert told["dollars"]["kind"] == "released capacity"
    assert told["dollars"]["gpu_hours"] == 158
    assert told["dollars"]["usd"] == pytest.approx(158 * 2.40)
    assert "has 3 stops of workloads, the replay 3 stops of their units" in str(told["notes"])


def test_a_proved_rate_is_trusted_and_one_that_is_not_exits_with_3(
    fallow: Fallow, stored: Path, rules: Path
) -> None:
    # Trust stays in the journal, which others read too: a policy of this test's own.
    (rules / "own.yaml").write_text(POLICY.format(name="own", rate="98%"))
    words = ("--home", stored, "--policies", rules, "--since", SPAN)
    missed = fallow("backtest", "strict", *words)
    assert missed.code == 3, missed.err
    assert "1 of 2 within 1.0%: upper end 97.5%; that is more than it declares" in missed.err
    assert "declared 1.0%: NOT met" in missed.err
    assert "not counted as met, asked at each act: evidence, awake" in missed.err
    met = fallow("backtest", "own", *words, "-o", "json")
    assert met.code == 0, met.err
    document = json.loads(met.out)
    assert document["schema"] == "fallow.backtest/v1"
    assert (document["stopped"], document["reversals"]["met"]) == (3, True)
    assert {"evidence", "awake", "reverted"} <= {*document["unknown"]}
    assert "approval" not in document["unknown"]
    assert document["reversals"]["upper_end_95"] == pytest.approx(0.974679, abs=1e-6)
    with Journal.open(stored / "journal.sqlite", lambda: END, write=False) as journal:
        record = JournalState(journal).catch_up()
        assert record.trusted["own"].fingerprint == document["fingerprint"]
        assert "strict" not in record.trusted
        noted = [e.key for e in journal.entries("backtested")]
        assert [name for name in noted if name in {"strict", "own"}] == ["strict", "own"]
        assert journal.verify() is None


def test_a_back_test_names_the_cases_of_which_no_inventory_tells_the_owner(
    fallow: Fallow, stored: Path, rules: Path
) -> None:
    words = ("--home", stored, "--policies", rules, "--since", SPAN, "--dry-run")
    ran = fallow("backtest", "easy", *words)
    assert "the identity of 1 case could not be resolved" in ran.err
    (line,) = [line for line in ran.err.splitlines() if "unresolved/ns/gone-0" in line]
    assert "20.0 GPU-hours: it was over before the first inventory" in line
    assert "gone-0" not in ran.out
    (case,) = json.loads(fallow("backtest", "easy", *words, "-o", "json").out)["unresolved"]
    assert (case["workload"], case["gpu_hours"]) == ("unresolved/ns/gone-0", pytest.approx(20))
    assert case["why"].startswith("it was over before the first inventory (2026-11-02")


@pytest.mark.parametrize(("within", "trusted"), [("23h", False), ("24h", True)])
def test_a_back_test_that_forgives_sooner_than_the_policy_earns_no_trust(
    fallow: Fallow, stored: Path, rules: Path, within: str, *, trusted: bool
) -> None:
    name = f"lax-{within}"
    (rules / f"{name}.yaml").write_text(POLICY.format(name=name, rate="98%"))
    words = ("--home", stored, "--policies", rules, "--since", SPAN, "--within", within)
    ran = fallow("backtest", name, *words)
    assert ran.code == 0, ran.err
    assert ("not for the journal: --within 23h is shorter" in ran.err) is not trusted
    listed = json.loads(fallow("policy", "list", rules, "--home", stored, "-o", "json").out)
    (row,) = [row for row in listed["policies"] if row["policy"] == name]
    assert (row["trust"] == "backtest") is trusted


def test_who_trusts_a_policy_by_hand_stands_in_every_plan(
    fallow: Fallow, stored: Path, rules: Path
) -> None:
    name = "by-hand"  # the journal is other tests' too: a policy of this test's own
    (rules / f"{name}.yaml").write_text(POLICY.format(name=name, rate="1%"))
    where = ("--home", stored, "--policies", rules, "--at", AT)
    trust = ("policy", "trust", name, rules, "--home", stored)
    given = fallow(*trust, "--by", "ann", "--reason", "two weeks of notices, no complaint")
    assert given.code == 0, given.err
    answer = "two weeks of notices, no complaint"
    assert "is trusted by hand by ann on " in given.err
    plan = fallow("plan", *where)
    assert f"policy {name} is trusted by hand by ann on " in plan.err
    assert answer in plan.err
    document = json.loads(fallow("plan", *where, "-o", "json").out)
    (by,) = document["trusted_by_hand"]
    assert (by["policy"], by["by"], by["reason"]) == (name, "ann", answer)
    listed = json.loads(fallow("policy", "list", rules, "--home", stored, "-o", "json").out)
    (row,) = [row for row in listed["policies"] if row["policy"] == name]
    assert row["trust"] == "by hand"
    assert row["why"].endswith(answer)
    back = fallow(*trust, "--revoke", "--by", "bob")
    assert back.code == 0, back.err
    assert "trusted by hand" not in fallow("plan", *where).err
    assert fallow(*trust, "--revoke").code == 2
    assert fallow(*trust).code == 2, "trust needs a reason"


def test_a_dry_run_writes_nothing(fallow: Fallow, stored: Path, rules: Path) -> None:
    path = stored / "journal.sqlite"
    before = path.read_bytes() if path.exists() else None
    ran = fallow(
        "backtest", "easy", "--home", stored, "--policies", rules, "--since", SPAN, "--dry-run"
    )
    assert ran.code == 0, ran.err
    assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["backtest", "nobody"], 2, "no policy called 'nobody'"),
        (["backtest", "easy", "--since", "2031-01-01/2031-02-01"], 2, "no data from 2031-01-01"),
        (["backtest", "easy", "--since", "2026-01-01/2026-02-01"], 2, "no data from 2026-01-01"),
        (["backtest", "easy", "--since", "soon"], 2, "'soon' is not a duration"),
        (["backtest", "easy", "--since", SPAN, "--step", "7m"], 2, "no multiple of 5m"),
        (["backtest", "easy", "--since", SPAN, "--step", "9d"], 2, "shorter than a step"),
        (["plan", "--at", "2031-01-01"], 2, "--at 2031-01-01 lies in the future"),
        (["plan", "--at", "2026-01-01"], 2, "no data before 2026-01-01 00:00 UTC"),
        (["plan", "--policies", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["why-not", "nobody", "--at", AT], 2, "no workload 'nobody' was seen lately"),
        (["why-not", "resting", "--at", AT, "--policy", "x"], 2, "no policy called 'x'"),
    ],
)
def test_bad_input_is_one_line(  # noqa: PLR0917  (fixtures and a row)
    fallow: Fallow, stored: Path, rules: Path, words: list[str], code: int, said: str
) -> None:
    given = ["--policies", rules] if "--policies" not in words else []
    ran = fallow(*words, "--home", stored, *given)
    assert ran.code == code, ran.err
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) <= 2
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("words", [["plan"], ["why-not", "x"], ["backtest", "easy"]])
def test_without_a_warehouse_there_is_nothing_to_say(
    fallow: Fallow, tmp_path: Path, rules: Path, words: list[str]
) -> None:
    ran = fallow(*words, "--home", tmp_path / "none", "--policies", rules)
    assert ran.code == 1
    assert "there is no warehouse" in ran.err


def test_an_empty_warehouse_has_no_past(fallow: Fallow, tmp_path: Path, rules: Path) -> None:
    settings = load(environ={}, flags={"home": tmp_path / "empty", "cluster": "c"}).settings
    with Warehouse.open(settings, write=True):
        pass
    ran = fallow("backtest", "easy", "--home", tmp_path / "empty", "--policies", rules)
    assert ran.code == 2
    assert "the warehouse holds no telemetry" in ran.err
    assert Window(START, END).seconds == HOURS * 3600


def test_a_plan_and_why_not_say_since_when_it_idles(
    fallow: Fallow, stored: Path, rules: Path
) -> None:
    """The stretch is two days long, and a verdict rests on the last 25 hours of it."""
    policy = ("--home", stored, "--policies", rules / "easy.yaml", "--at", AT)
    document = json.loads(fallow("plan", *policy, "-o", "json").out)
    (decided,) = (d for d in document["decisions"] if d["subject"][3] == "resting")
    (case,) = (c for c in document["cases"] if c["id"] == decided["finding"])
    assert case["since"] == "2026-11-01T00:00:00Z"
    assert case["gpu_hours"] == pytest.approx(HOURS, abs=0.01)
    ran = fallow("plan", *policy, "-o", "csv")
    assert "Job/ns/resting,2026-11-01" in ran.out
    ran = fallow("why-not", "resting", *policy)
    assert "idle since 2026-11-01 00:00 UTC (2d)" in ran.out


def test_every_id_that_a_list_prints_is_explained(
    fallow: Fallow, stored: Path, rules: Path, tmp_path: Path
) -> None:
    home = ("--home", shutil.copytree(stored, tmp_path / "home"))
    policy = ("--policies", rules / "easy.yaml", "--at", AT)
    printed = [
        fallow("analyze", *home, "-o", "csv").out,
        fallow("plan", *home, *policy, "-o", "csv").out,
        fallow("analyze", *home, "--threshold", "0.01", "--window", "20h", "-o", "csv").out,
    ]
    rows = [row for text in printed for row in csv.DictReader(text.splitlines())]
    plan = json.loads(fallow("plan", *home, *policy, "-o", "json").out)
    settings = tmp_path / "explain.yaml"
    settings.write_text(f"actions: {{policies: {rules}}}\n")
    ids = {row["id"] for row in rows} | {decision["id"] for decision in plan["decisions"]}
    assert len(ids) > len(plan["decisions"]) > 0
    for name in sorted(ids):
        ran = fallow("explain", name, *home, "--config", settings)
        assert ran.code == 0, (name, ran.err)
