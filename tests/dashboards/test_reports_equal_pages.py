"""A report says what the page that it names says, over one warehouse: one test per kind of report.

The warehouse: three days of two clusters, a team whose job runs in two pools, an idle finding and a
sizing one, which saves hours in use.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analyzers.waterfall import add_savings, build_waterfall
from dashboards.figures import reconciliation, savings, spend, waterfall
from dashboards.figures.query import Filters
from dashboards.text import format_money
from fallow.models import Claim, Finding, Recommendation, State, Subject, compute_finding_id
from fallow.settings import Settings
from fallow.tables import Batch
from runtime.cli import run
from runtime.operations.analysis import findings
from runtime.operations.answers import reports
from tests.dashboards.drawing import Draw, texts
from tests.reports import small
from warehouse.lake import Warehouse

TEAM = "vision"
IDLE_HOURS = 6.0
VETOED_HOURS = 1.5


def finding(analyzer: str, state: State, gpu_hours: float, usd: Decimal | None = None) -> Finding:
    """Return a finding that claims hours of a state of the team's job in cluster alpha."""
    subject = Subject("alpha", f"ns-{TEAM}", "Job", f"job-{TEAM}", team=TEAM, models=("H100",))
    claim = Claim("alpha", f"ns-{TEAM}", "Job", f"job-{TEAM}", None, state, gpu_hours, usd)
    return Finding(
        id=compute_finding_id(analyzer, "kind", subject, small.WINDOW.start),
        analyzer=analyzer,
        kind="kind",
        subject=subject,
        window=small.WINDOW,
        verdict="wasteful",
        evidence="confirmed",
        confidence=0.9,
        gpu_hours=gpu_hours,
        usd=usd,
        details={"why": "planted"},
        recommendations=(Recommendation("change", TEAM, "planted", True, claims=(claim,)),),
    )


def vetoed() -> Finding:
    """Return an idle finding of another team that advises nothing, for a veto took it back."""
    made = finding("idle", "idle", VETOED_HOURS)
    subject = Subject("alpha", "ns-speech", "Job", "job-speech", team="speech", models=("H100",))
    name = compute_finding_id("idle", "kind", subject, small.WINDOW.start)
    return msgspec.structs.replace(
        made, id=name, subject=subject, verdict="idle", recommendations=()
    )


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of the warehouse above."""
    return judge(tmp_path_factory.mktemp("judged") / "home")


def judge(home: Path) -> Settings:
    """Write the warehouse above."""
    tables = {name: rows for name, rows in small.rows().items() if name != "finding"}
    for row in tables["ledger"]:
        held = row["state"] in small.HELD
        row["effective"] = 0.25 if held and row["team"] == TEAM else None
        row["pool"] = "old" if row["node"] == "g-0" else "gpu"
    settings = small.fill(home, tables)
    with Warehouse.open(settings, write=True) as warehouse:
        found = [
            finding("idle", "idle", IDLE_HOURS),
            finding("sizing", "low", 3.0, Decimal("1.25")),
            vetoed(),
        ]
        made = add_savings(found, build_waterfall(warehouse, small.WINDOW, found))
        warehouse.ingest([findings.build_rows(made, found_at=small.END)])
    return settings


@pytest.fixture
def views(judged: Settings) -> Iterator[Warehouse]:
    with Warehouse.open(judged) as warehouse:
        yield warehouse


Report = Callable[..., str]


@pytest.fixture
def report(views: Warehouse) -> Report:
    """Return what makes a report as Markdown."""

    def made(audience: str, team: str | None = None) -> str:
        return reports.produce(
            views, Settings(), audience=audience, window=small.WINDOW, fmt="md", team=team,
            now=small.END + timedelta(hours=2),
        ).body.decode()  # fmt: skip

    return made


def figures(text: str) -> dict[str, tuple[str, str]]:
    """Return the headline figures of a report by their labels."""
    found = re.findall(r"^\| (.+?) \| \*\*(.+?)\*\* \| (.*) \|$", text, re.MULTILINE)
    return {label: (plain(value), plain(about)) for label, value, about in found}


def plain(text: str) -> str:
    """Return a text without the marks of Markdown and around names."""
    return re.sub(r"[\\\u2068\u2069\u2060]", "", text)


def metrics(page: Any) -> dict[str, tuple[str, str]]:
    return {
        m.label: (plain(str(m.value)), plain(m.proto.delta_description or str(m.delta)))
        for m in page.metric
    }


def cells(text: str, section: str) -> list[dict[str, str]]:
    """Return the rows of a section's table, the line of sums last."""
    table = re.search(rf"^## {re.escape(section)}\n.*?(^\|.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    assert table, section
    head, _, *rows = table.group(1).splitlines()
    names = [name.strip() for name in head.strip("|").split("|")]
    return [
        dict(
            zip(
                names,
                [plain(c.strip()).replace("**", "") for c in row.strip("|").split("|")],
                strict=True,
            )
        )
        for row in rows
    ]


def three(usd: str) -> str:
    """Return a report's dollars as a page writes them, with three digits."""
    return plain(format_money(Decimal(usd.replace("$", "").replace(",", ""))))


def said(text: str, words: str) -> str:
    (line,) = {plain(line).removeprefix("- ") for line in text.splitlines() if words in line}
    return line


def test_the_overview_says_busy_time_and_effective_utilisation_of_each_team(
    judged: Settings, draw: Draw
) -> None:
    teams = draw("overview", judged, window="3d").dataframe[-1].value.set_index("name")
    assert teams["effective_pct"][[TEAM, "total"]].to_list() == [25.0, 25.0]
    assert teams["effective_pct"].drop([TEAM, "total"]).isna().all(), "not measured is no zero"
    assert teams["busy_pct"].drop("(platform)").between(1, 99).all()


def test_finance_s_report_equals_the_overview(report: Report, judged: Settings, draw: Draw) -> None:
    shown, text = metrics(draw("overview", judged, window="3d")), report("finance")
    made = figures(text)
    assert three(made["Paid"][0]) == shown["Paid"][0]
    hours = metrics(draw("gpu_hours", judged, window="3d"))
    assert made["Worked"][0] == hours["Productive hours"][0]
    assert three(made["Wasted"][0]) == shown["Wasted"][0]
    assert three(made["Could be saved"][0]) == shown["Could be saved"][0]
    assert made["Could be saved"][1].endswith(f"; {shown['Could be saved'][1]}")
    assert three(made["Cash"][0]) == shown["Cash"][0]
    notes = plain("\n".join(texts(draw("overview", judged, window="3d"))))
    assert f"Paid = {three(made['Used'][0])} used" in notes
    assert three(made["Verified saved"][0]) == shown["Verified saved"][0]
    assert "- Paid: change unknown: no data of the 3d before" in text
    assert "effective utilisation 25.0%" in made["Worked"][1]
    of_bill, _, rest = made["Wasted"][1].partition(" of the bill; ")
    assert shown["Wasted"][1] == f"{of_bill} of bill"
    assert rest.endswith("of the hours"), "each beside the figure it is a share of"
    notes = plain("\n".join(texts(draw("gpu_hours", judged, window="3d"))))
    for words in ("idle, no finding", "that could be saved"):
        assert said(text, words) in notes


def test_a_team_s_report_equals_its_statement_and_counts_workloads_not_rows(
    report: Report, judged: Settings, draw: Draw
) -> None:
    page, text = draw("chargeback", judged, window="3d", team=TEAM), report("team", TEAM)
    shown = metrics(page)
    statement = {row["line"]: row["USD"] for row in cells(text, "Statement")}
    assert statement["fully loaded"] == shown["Fully loaded"][0]
    assert statement["GPU only"] == shown["GPU only"][0]
    assert statement["shared"] == shown["Shared"][0]
    assert statement["of it idle"] == shown["Idle"][0]
    assert figures(text)["Idle"][1].startswith(shown["Idle"][1].partition(" own")[0])
    lines = page.dataframe[-1].value.iloc[1:]  # the first is their total
    *rows, total = cells(text, "Workloads")
    # The job runs in both clusters, and in two pools of one of them.
    assert len(lines) == 3
    assert len(rows) == 2
    assert figures(text)["Held"][1] == "2 workloads"
    assert total["USD"] == f"${sum(lines['usd_loaded']):,.2f}"
    dearest = max(Decimal(row["USD"].replace("$", "").replace(",", "")) for row in rows)
    of_two_pools = sum(lines[lines["pool"] != "old"]["usd_loaded"])
    assert dearest < sum(lines["usd_loaded"])
    assert dearest > max(lines["usd_loaded"]), f"a workload, not a row of {of_two_pools}"
    assert f"${dearest:,.0f}" in said(text, "**Most of it**")
    assert {row["effective"] for row in rows} == {"25.0 %"}
    assert set(lines["effective_pct"]) == {25.0}


def test_the_sre_s_report_equals_fleet_now_and_the_inbox(
    report: Report, judged: Settings, draw: Draw
) -> None:
    now, inbox = (metrics(draw(view, judged, window="3d")) for view in ("fleet", "findings"))
    text = report("sre")
    made = figures(text)
    for label in ("Idle", "Free"):
        gpus, paid = now[{"Idle": "Allocated, idle"}.get(label, label)]
        usd, now_gpus = made[f"{label} now"]
        assert f"{three(usd.removesuffix(' an hour'))} per hour" == paid
        assert now_gpus == f"{gpus} GPUs"
    assert three(made["Could be saved"][0]) == inbox["Could be saved"][0]
    *rows, total = cells(text, "Findings by dollars over disruption")
    # Two findings of one job are one row, as on the page.
    assert made["Could be saved"][1] == (
        f"$0.00 in cash, {made['Could be saved'][0]} of GPUs that others can use; "
        "at most $1.25 more in hours in use; 1 saving finding"
    )
    assert inbox["Findings"] == ("2", "1 save; 1 workload")
    assert [row["findings"] for row in rows] == ["2"]
    assert three(total["saves"]) == inbox["Could be saved"][0]
    notes = plain("\n".join(texts(draw("gpu_hours", judged, window="3d"))))
    for words in ("idle, no finding", "that could be saved"):
        assert said(text, words) in notes


def test_savings_and_idle_hours_are_reconciled_and_their_parts_add_up(
    views: Warehouse, judged: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    made = waterfall.compute_waterfall(views, small.WINDOW, Filters())
    stages = savings.read_stages(views, small.WINDOW, Filters())
    totals = spend.read_totals(views, small.WINDOW, Filters())
    sums = reconciliation.reconcile(made, totals, stages, Filters())
    assert sums is not None
    idle = next(step.gpu_hours for step in made.steps if step.state == "idle")
    assert sums.idle_claimed_gpu_hours == IDLE_HOURS + VETOED_HOURS
    assert sums.idle_claimed_gpu_hours + sums.idle_without_finding_gpu_hours == idle
    assert (sums.in_use_usd, sums.in_use_by) == (Decimal(), ())
    assert (sums.at_most_usd, sums.at_most_by) == (Decimal("1.25"), ("sizing",))
    line = sums.savings(lambda usd: f"${usd:,.2f}")
    whole, of_waste, wasted, bound = (Decimal(x) for x in re.findall(r"\$([0-9.]+[0-9])", line))
    assert whole == of_waste
    assert of_waste <= wasted
    assert bound == Decimal("1.25")
    assert line.endswith("Hours in use: at most $1.25 more (sizing), a bound that is in no sum.")
    one, claimed, rest = (Decimal(x) for x in re.findall(r"([0-9.]+) GPU-h", sums.idle()))
    assert one == claimed + rest

    until = f"{small.WINDOW.start:%Y-%m-%d}/{small.END:%Y-%m-%d}"
    code = run(["spend", "--home", str(judged.home), "--window", until, "-o", "json"])
    out, err = capsys.readouterr()
    assert code == 0
    body = json.loads(out)["reconciliation"]
    assert body["idle_claimed_gpu_hours"] == IDLE_HOURS + VETOED_HOURS
    assert body["idle_gpu_hours"] == pytest.approx(
        body["idle_claimed_gpu_hours"] + body["idle_without_finding_gpu_hours"], abs=1e-6
    )
    assert body["saves_usd"] == pytest.approx(body["of_waste_usd"] + body["in_use_usd"], abs=1e-9)
    assert line in err, "the command line says the sentence of the pages"
    assert sums.idle() in err


def test_without_prices_hours_are_reconciled(views: Warehouse) -> None:
    made = waterfall.compute_waterfall(views, small.WINDOW, Filters())
    stages = savings.read_stages(views, small.WINDOW, Filters())
    totals = spend.read_totals(views, small.WINDOW, Filters())
    sums = reconciliation.reconcile(made, totals, stages, Filters())
    assert sums is not None
    bare = msgspec.structs.replace(
        sums, saves_usd=None, wasted_usd=None, in_use_usd=None, at_most_usd=None
    )
    assert bare.savings(str).startswith("Of 6.0 GPU-h that could be saved 6.0 GPU-h are part of")
    assert "Hours in use: at most 3.0 GPU-h more (sizing)" in bare.savings(str)


@pytest.mark.parametrize("filters", [Filters(pool="old"), Filters(view="gpu")])
def test_what_is_not_counted_alike_is_not_reconciled(views: Warehouse, filters: Filters) -> None:
    made = waterfall.compute_waterfall(views, small.WINDOW, filters)
    stages = savings.read_stages(views, small.WINDOW, filters)
    totals = spend.read_totals(views, small.WINDOW, filters)
    assert reconciliation.reconcile(made, totals, stages, filters) is None


def journal(*events: tuple[str, dict[str, Any]]) -> Batch:
    """Return the journal's rows of one action on the idle finding."""
    return Batch.of(
        "action",
        {
            "cluster": ["alpha"] * len(events),
            "seq": [*range(1, len(events) + 1)],
            "ts": [small.END.replace(tzinfo=None) - timedelta(hours=1)] * len(events),
            "kind": [kind for kind, _ in events],
            "about": ["a0"] * len(events),
            "actor": ["somebody"] * len(events),
            "document": [json.dumps(document) for _, document in events],
            "hash": [""] * len(events),
        },
    )


@pytest.mark.parametrize("reversal", [False, True])
def test_what_was_acted_upon_cannot_be_saved_again_unless_it_was_reversed(
    tmp_path: Path, draw: Draw, capsys: pytest.CaptureFixture[str], *, reversal: bool
) -> None:
    settings = judge(tmp_path / "home")
    name = finding("idle", "idle", IDLE_HOURS).id
    events: list[tuple[str, dict[str, Any]]] = [
        ("intent", {"action": {"id": "a0", "decision": {"finding": name}}}),
        ("outcome", {"action": "a0", "result": "done"}),
    ]
    with Warehouse.open(settings, write=True) as warehouse:
        stages = savings.read_stages(warehouse, small.WINDOW, Filters())
        warehouse.ingest([journal(*events, *[("reversed", {"by": "ann"})] * reversal)])
    assert stages.saveable_usd is not None
    left = stages.saveable_usd if reversal else Decimal()

    made = metrics(draw("overview", settings, window="3d"))["Could be saved"]
    listed = metrics(draw("findings", settings, window="3d"))
    about = "1 saving finding" if reversal else "0 saving findings; 1 acted upon"
    assert made == (three(f"${left:,.2f}"), about)
    assert listed["Could be saved"][0] == made[0]
    until = f"{small.WINDOW.start:%Y-%m-%d}/{small.END:%Y-%m-%d}"
    assert run(["spend", "--home", str(settings.home), "--window", until, "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["reconciliation"]["saves_usd"] == pytest.approx(float(left), abs=0.01)
    assert body["total"]["saves_usd"] == pytest.approx(float(left), abs=0.01)
    # The idle hours of the finding are still those of a finding.
    assert body["reconciliation"]["idle_claimed_gpu_hours"] == IDLE_HOURS + VETOED_HOURS
    with Warehouse.open(settings) as warehouse:
        stages = savings.read_stages(warehouse, small.WINDOW, Filters())
        sums = reconciliation.read_reconciliation(warehouse, small.WINDOW, Filters())
        text = reports.produce(
            warehouse, Settings(), audience="finance", window=small.WINDOW, fmt="md", team=None,
            now=small.END + timedelta(hours=2),
        ).body.decode()  # fmt: skip
    assert sums is not None
    assert sums.saves_usd == left
    assert sums.idle_claimed_gpu_hours == IDLE_HOURS + VETOED_HOURS
    assert three(figures(text)["Could be saved"][0]) == made[0]


def test_the_total_above_all_teams_is_the_bill(
    judged: Settings, views: Warehouse, draw: Draw
) -> None:
    drawn = draw("chargeback", judged, window="3d")
    bill = spend.read_totals(views, small.WINDOW, Filters())
    total, teams = drawn.dataframe[0].value.iloc[0], drawn.dataframe[0].value.iloc[1:]
    assert total["team"] == "total, the bill"
    assert total["total_usd"] == sum(teams["total_usd"]) == bill.usd
    assert total["gpu_hours"] == pytest.approx(bill.gpu_hours)
    assert total["idle_gpu_hours"] == pytest.approx(bill.idle_gpu_hours)
    # The download has teams only: nobody books a total as a team.
    (box,) = [box for box in drawn.selectbox if box.label.endswith("Chargeback by team")]
    assert not [name for name in box.options if name.startswith("total")]
