"""Shared homes: the situations of a test file, imported as clusters and asked once."""

import importlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.ingestion import imports
from runtime.operations.ingestion.import_stores import OpenStore
from tests.field.front import serve_front
from tests.field.site import Answer, Fallow, ago, write_time
from tests.field.situation import Situation
from warehouse.lake import Warehouse

FOLDER = Path(__file__).parent
DIMENSIONS = ("cluster", "namespace", "team", "workload", "model", "node", "state")

DUE = frozenset({"trusted", "first-sight", "notice", "grace", "approval", "budget", "concurrent"})
"""Gates that open by time, by a person or for other cases."""
POLICY = """
name: stop-what-rests
mode: enforce
match: {{analyzer: idle, evidence: confirmed}}
allow: {{namespaces: [ml], kinds: [Deployment, StatefulSet, Job, Notebook]{held_by}}}
stages: [observe, notify, {{grace: 1h}}, {{act: [suspend, scale]}}]
budgets: [{{workloads: 1000, per: 1d}}]
max_resources: 100%
"""


@cache
def load_situations() -> Mapping[str, Situation]:
    """Return the situations of all folders by name."""
    situations = {}
    for name in sorted(path.parent.name for path in FOLDER.glob("*/inputs.py")):
        inputs = importlib.import_module(f"tests.field.{name}.inputs")
        situations[name] = inputs.SITUATION
        if hasattr(inputs, "TWIN"):
            situations[f"{name}_twin"] = inputs.TWIN
    return situations


def list_parameters(choose: Callable[[Situation], bool]) -> list[Any]:
    """Return the situations of one home as parameters of a test, with their marks."""
    return [
        pytest.param(
            name,
            id=f"{situation.kind}-{name}",
            marks=[
                *([pytest.mark.long] if situation.long else []),
                *(
                    [pytest.mark.xfail(strict=True, reason=situation.fails, run=situation.runs)]
                    if situation.fails
                    else []
                ),
            ],
        )
        for name, situation in load_situations().items()
        if choose(situation)
    ]


def list_names(request: pytest.FixtureRequest) -> list[str]:
    """Return the situations that the file of a fixture is asked about and that can be tried."""
    names = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    return sorted(name for name in names if load_situations()[name].runs)


class Homes:
    """The homes of a test file: one of each kind, made when its first situation is asked."""

    def __init__(
        self, fallow: Fallow, folder: Path, names: Iterable[str], prometheus: str = ""
    ) -> None:
        self._fallow, self._folder, self._prometheus = fallow, folder, prometheus
        self._names: dict[str, list[str]] = defaultdict(list)
        for name in names:
            self._names[_get_home_name(name)].append(name)
        self._homes: dict[str, Home] = {}

    def get(self, name: str) -> "Home":
        """Return the home that has a situation's cluster."""
        kind = _get_home_name(name)
        if kind not in self._homes:
            folder, names = self._folder / kind, self._names[kind]
            self._homes[kind] = Home(self._fallow, folder, names, self._prometheus)
        return self._homes[kind]


def _get_home_name(name: str) -> str:
    """Return its kind; what waits is asked at once in a home of its own: quotas get old."""
    situation = load_situations()[name]
    return name if situation.waits else situation.kind


class Home:
    """One home with several clusters, and what it answers for each."""

    def __init__(
        self, fallow: Fallow, folder: Path, names: Iterable[str], prometheus: str = ""
    ) -> None:
        self._fallow, self._folder, self._home = fallow, folder, folder / "home"
        self._rows: dict[int, list[dict[str, Any]]] = {}
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self._plans: dict[str, Any] = {}
        self._findings: dict[int, list[dict[str, Any]]] = {}
        self.imports: dict[str, list[tuple[Answer, str]]] = defaultdict(list)
        with pytest.MonkeyPatch.context() as patch:
            # Each import accounts for the hours of all clusters; here it is done once, after them.
            patch.setattr(OpenStore, "account", lambda *_: [])
            for name in names:
                for command, refused in load_situations()[name].write(folder / name):
                    self.imports[name].append((self.run(name, *command), refused))
                if prometheus:
                    self._import_prometheus(name, prometheus)
                if any(answer.code == 0 for answer, _ in self.imports[name]):
                    # Each would compare the list of prices, which are those of all clusters.
                    patch.setattr(imports, "read_configured_rates", lambda *_: [])
        with Warehouse.open(Settings(home=self._home), write=True) as warehouse:
            _, failures = pipeline.account(warehouse, Window(ago(1), ago(0)))
        assert not failures

    def _import_prometheus(self, name: str, url: str) -> None:
        situation = load_situations()[name]
        config = self._folder / name / "fallow.yaml"
        config.write_text(f"""prometheus: {{selector: 'situation="{name}"'}}\n""")
        words = ("import", "prometheus", "--since", situation.since, "--config", config)
        front = serve_front(url, situation.front) if situation.front else nullcontext(url)
        with front as address:
            self.imports[name].append((self.run(name, *words, "--url", address), situation.refused))

    def run(self, cluster: str, *words: str | Path) -> Answer:
        """Run a command for a cluster."""
        return self._fallow(*words, "--home", self._home, "--cluster", cluster)

    def sum_spend(self, cluster: str, window_hours: int, by: str, column: str) -> dict[str, float]:
        """Return one column of `fallow spend` of a cluster by dimensions, of all that is not 0."""
        if window_hours not in self._rows:
            words = ("spend", "--by", ",".join(DIMENSIONS), "--window", _write_window(window_hours))
            self._rows[window_hours] = self._read(*words)["spend"]
        sums: dict[str, float] = defaultdict(float)
        for row in self._rows[window_hours]:
            if row["cluster"] == cluster:
                key = ",".join(str(row[part]) for part in by.split(","))
                sums[key] += float(row[column] or 0)
        return {key: value for key, value in sums.items() if value}

    def list_findings(self, cluster: str, window_hours: int) -> dict[str, dict[str, Any]]:
        """Return the idle findings of a cluster by namespace and workload."""
        if window_hours not in self._findings:
            words = ("analyze", "idle", "--window", _write_window(window_hours))
            self._findings[window_hours] = [
                {**row, **row["subject"], **row["details"]}
                for row in self._read(*words)["findings"]
            ]
        return {
            f"{row['namespace']}/{row['workload']}": row
            for row in self._findings[window_hours]
            if row["cluster"] == cluster
        }

    def query(self, cluster: str, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a statement that are of a cluster."""
        if sql not in self._tables:
            self._tables[sql] = self._read("warehouse", "query", sql)["rows"]
        return [row for row in self._tables[sql] if row["cluster"] == cluster]

    def read_plan(self, cluster: str, held_by: str = "") -> dict[str, list[str]]:
        """Return what keeps each idle workload of a cluster from being stopped, by its name.

        Notice, trust and approval are not told: with them a stop is due.
        """
        if held_by not in self._plans:
            policy, config = self._folder / "policy.yaml", self._folder / "plan.yaml"
            policy.write_text(POLICY.format(held_by=f", held_by: {held_by}" if held_by else ""))
            config.write_text("idle: {service_duration: 2h, min_expected_rest: null}\n")
            words = ("--policies", str(policy), "--config", str(config), "--at", write_time(ago(0)))
            self._plans[held_by] = self._read("plan", *words)
        plan = self._plans[held_by]
        return {
            case["subject"][3]: [
                reason["text"] for reason in case["reasons"] if reason["gate"] not in DUE
            ]
            for case in (*plan["decisions"], *plan["refused"])
            if case["subject"][0] == cluster and case["policy"]
        }

    def read_queue(self) -> dict[str, dict[str, Any]]:
        """Return what waits, by namespace and name."""
        return {row["workload"].partition("/")[2]: row for row in self._read("queue")["queue"]}

    def _read(self, *words: str) -> Any:
        answer = self._fallow(*words, "-o", "json", "--home", self._home)
        assert answer.code == 0, answer.err
        return json.loads(answer.out)


def _write_window(hours: int) -> str:
    return f"{write_time(ago(hours))}/{write_time(ago(0))}"


def check_situation(homes: Homes, name: str) -> None:
    """Compare what a home answers for a situation's cluster with the answer by hand."""
    situation, home = load_situations()[name], homes.get(name)
    printed = "".join(f"{answer.out}{answer.err}" for answer, _ in home.imports[name])
    assert "Traceback" not in printed
    for answer, refused in home.imports[name]:
        assert answer.code == (2 if refused else 0), printed
        assert refused in answer.err
    for word in situation.words:
        assert word in printed
    check_spend(home, name)
    check_tables(home, name)
    if situation.stops:
        check_stops(home, name)
    if situation.findings is not None:
        rows = home.list_findings(name, situation.window_hours)
        assert rows.keys() == situation.findings.keys(), rows
        for key, wanted in situation.findings.items():
            assert {column: rows[key][column] for column in wanted} == wanted, rows[key]
    if situation.waits:
        check_queue(home, situation)
    if situation.doctor:
        report = home.run(name, "doctor", "-o", "json")
        for word in situation.doctor:
            assert word in report.out


def check_queue(home: Home, situation: Situation) -> None:
    """Compare why workloads wait, and which ways in hold."""
    queue = home.read_queue()
    assert queue.keys() == situation.waits.keys()
    for workload, wanted in situation.waits.items():
        row = queue[workload]
        states = {way["way"]: way["state"] for way in row["ways"]}
        reasons = {reason["reason"] for reason in row["reasons"]}
        ways = {name: state for name, state in wanted.items() if name != "reason"}
        assert {name: states.get(name, "none") for name in ways} == ways, row
        assert wanted.get("reason", "") in {*reasons, ""}, row
    printed = json.dumps(queue)
    for words in situation.says:
        assert words in printed


def check_spend(home: Home, name: str) -> None:
    """Compare hours and dollars."""
    situation = load_situations()[name]
    for column, expected in (("gpu_hours", situation.hours), ("usd", situation.dollars)):
        for by, values in expected.items():
            sums = home.sum_spend(name, situation.window_hours, by, column)
            wanted = pytest.approx(
                {**dict.fromkeys(sums, 0.0), **values},
                abs=situation.tolerance_hours,
                rel=situation.tolerance_share,
            )
            assert {**dict.fromkeys(values, 0.0), **sums} == wanted, (by, column)


def check_tables(home: Home, name: str) -> None:
    """Compare nodes, pods and what statements return."""
    situation = load_situations()[name]
    for table, key, rows in (("node", "node", situation.nodes), ("pod", "pod", situation.pods)):
        if rows:
            stored = {row[key]: row for row in home.query(name, f"select * from {table}")}
            for subject, columns in rows.items():
                assert {c: stored[subject][c] for c in columns} == pytest.approx(columns)
    for sql, wanted_rows in situation.answers.items():
        rows_found = [
            {column: value for column, value in row.items() if column != "cluster"}
            for row in home.query(name, sql)
        ]
        assert rows_found == list(wanted_rows)


def check_stops(home: Home, name: str) -> None:
    """Compare who would be stopped, and why the others are not."""
    situation = load_situations()[name]
    plan = home.read_plan(name)
    for workload, words in situation.stops.items():
        if words == "no finding":
            assert workload not in plan, plan[workload]
        elif words:
            assert words in "; ".join(plan[workload]), (workload, plan[workload])
        else:
            assert plan[workload] == [], workload
    held_by, released = situation.lifted
    if held_by:
        plan = home.read_plan(name, held_by)
        for workload, words in situation.stops.items():
            is_due = workload in released.split() or not words
            assert (plan.get(workload) == []) == is_due, (workload, plan.get(workload))
