"""Reports say what pages say, to the cent; names in them stay text; bad input is a line."""

import csv
import io
import json
import re
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("typst", reason="PDF is an extra: fallow[reports]")
pytest.importorskip("vl_convert", reason="pictures are an extra: fallow[reports]")

from dashboards.figures import chargeback, inbox, savings, spend, waterfall
from dashboards.figures.query import Filters
from fallow.errors import UsageError
from fallow.money import round_to_cents
from fallow.settings import Settings
from fallow.window import Window
from runtime.cli import run
from runtime.operations.answers import reports
from tests.reports.small import END, HOSTILE, WINDOW, fill, rows
from warehouse.lake import Warehouse

ALL = Filters()


def _made(views: Warehouse, audience: str, fmt: str, team: str | None = None) -> reports.Report:
    return reports.produce(
        views,
        Settings(),
        audience=audience,
        window=WINDOW,
        fmt=fmt,
        team=team,
        now=END + timedelta(hours=2),
    )


def _tidy(report: reports.Report) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(report.body.decode()))]


def _sum(cells: list[dict[str, str]], section: str, measure: str) -> Decimal:
    mine = [c for c in cells if c["section"] == section and c["measure"] == measure]
    assert mine
    return sum((Decimal(c["value"]) for c in mine), Decimal())


def test_finance_says_what_the_pages_say(views: Warehouse) -> None:
    cells = _tidy(_made(views, "finance", "csv"))
    totals = spend.read_totals(views, WINDOW, ALL)
    assert None not in (totals.usd, totals.used_usd, totals.wasted_usd)
    bill = totals.usd
    unknown = totals.state_usd.get("unknown") or 0
    assert bill == totals.used_usd + totals.wasted_usd + unknown  # type: ignore[operator]
    assert _sum(cells, "What was paid, and what the GPUs did", "USD") == bill
    assert _sum(cells, "Chargeback by team", "fully loaded") == bill
    assert _sum(cells, "Waste by owner", "wasted") == totals.wasted_usd
    identified = savings.read_stages(views, WINDOW, ALL).identified_usd
    assert identified is not None
    assert _sum(cells, "What to do", "saves") == round_to_cents(identified)


def test_advice_sums_to_what_the_waterfall_would_save(views: Warehouse) -> None:
    listed = inbox.list_workloads(views, WINDOW, ALL, inbox.FindingChoice(snoozed=True)).to_pylist()
    made = waterfall.compute_waterfall(views, WINDOW, ALL)
    assert sum(row["usd_all"] for row in listed) == sum(s.usd or 0 for s in made.savings)
    cells = _tidy(_made(views, "finance", "csv"))
    saves = [c["value"] for c in cells if (c["section"], c["measure"]) == ("What to do", "saves")]
    assert [Decimal(usd) for usd in saves] == sorted(map(Decimal, saves), reverse=True)


def test_teams_statement_is_its_chargeback_line(views: Warehouse) -> None:
    cells = {
        c["item"]: Decimal(c["value"])
        for c in _tidy(_made(views, "team", "csv", "vision"))
        if c["section"] == "Statement" and c["unit"] == "USD"
    }
    lines = chargeback.read_statement(views, WINDOW, ALL).to_pylist()
    line = next(row for row in lines if row["team"] == "vision")
    assert cells["fully loaded"] == line["total_usd"] == cells["own, loaded"] + cells["shared"]
    assert cells["GPU only"] == line["total_usd_gpu"]
    assert cells["of it idle"] == line["idle_usd"]
    assert cells["own, loaded"] == cells["own GPUs"] + cells["their nodes"]


@pytest.mark.parametrize(
    ("audience", "team", "fmt"),
    [
        ("finance", None, "html"),
        ("finance", None, "pdf"),
        ("sre", None, "md"),
        ("sre", None, "pdf"),
        ("team", "speech", "csv"),
        ("team", "speech", "html"),
    ],
)
def test_every_report_is_written_the_same_twice(
    views: Warehouse, audience: str, team: str | None, fmt: str
) -> None:
    first, again = (_made(views, audience, fmt, team) for _ in range(2))
    assert first == again
    assert re.fullmatch(r"[A-Za-z0-9._-]+", first.name)
    assert first.name.endswith(f".{fmt}")
    assert {"html": b"<!doc", "pdf": b"%PDF-", "md": b"# GPU", "csv": b"secti"}[fmt] == first.body[
        :5
    ]
    bill = spend.read_totals(views, WINDOW, ALL).usd
    assert bill is not None
    if fmt in ("html", "md") and audience == "finance":
        assert f"{bill:,.2f}" in first.body.decode()
    assert first.summary.count("\n") > 5


class Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href", "data")]
        self.links += [v or "" for k, v in attrs if k.startswith("on")]
        self.ids += [v or "" for k, v in attrs if k == "id"]


@pytest.mark.parametrize("audience", ["finance", "sre"])
def test_html_stands_alone_whatever_names_hold(hostile: Warehouse, audience: str) -> None:
    text = _made(hostile, audience, "html").body.decode()
    page = Tags(text)
    assert not page.tags & {"script", "link", "iframe", "img", "object", "form", "a"}
    assert [link for link in page.links if not link.startswith("#")] == []
    assert len(page.ids) == len(set(page.ids))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\u202e" not in text
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    assert "svg" in page.tags
    assert "prefers-color-scheme: dark" in text


def test_markdown_and_pdf_keep_names_as_text(hostile: Warehouse) -> None:
    text = _made(hostile, "finance", "md").body.decode()
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert re.search(r"(?<!\\)\[a\]\(", text) is None
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line[:1] == "|"]
    assert all(width >= 4 for width in widths)
    assert _made(hostile, "team", "pdf", HOSTILE[0]).body.startswith(b"%PDF-")


def test_spreadsheets_run_no_name_as_a_formula(hostile: Warehouse) -> None:
    cells = _tidy(_made(hostile, "finance", "csv"))
    text = [c[name] for c in cells for name in ("item", "whose")]
    assert "'=cmd()|' '!A0" in text
    assert not [cell for cell in text if cell[:1] in ("=", "@", "+")]


def test_files_of_hostile_teams_have_harmless_names(hostile: Warehouse) -> None:
    made = _made(hostile, "team", "csv", HOSTILE[0])
    assert made.name == reports.build_file_name("team", HOSTILE[0], WINDOW, "csv")
    for team in HOSTILE:
        name = reports.build_file_name("team", team, WINDOW, "csv")
        assert re.fullmatch(r"fallow-team[A-Za-z0-9._-]*", name)
        assert len(name) < 120


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nobody"], 2, "report 'nobody' is none of: finance, sre, team"),
        (["finance", "-o", "doc"], 2, "-o 'doc' is none of: html, pdf"),
        (["finance", "--format", "md"], 2, "hint: fallow report finance -o md\n"),
        (["sre", "-o", "a b.pdf"], 2, "hint: fallow report sre --file 'a b.pdf'\n"),
        (["sre", "--format", "md", "-o", "-"], 2, "hint: fallow report sre -o md --file -\n"),
        (["team"], 2, "needs a team's name"),
        (["team", "--team", "nobody"], 2, "no team 'nobody' held a GPU"),
        (["finance", "--team", "vision"], 2, "--team goes with the team's report"),
        (["sre", "--cluster", "gamma"], 2, "no data of cluster 'gamma'"),
        (["sre", "--window", "soon"], 2, "'soon' is not a duration"),
        (["sre", "--window", "2026-11-14/2026-11-14"], 2, "the window ends"),
        (["sre", "--window", "2025-01-01/2025-02-01"], 2, "no data from 2025-01-01"),
        (["sre", "--window", "2199-01-01/2199-02-01"], 2, "no data from 2199-01-01"),
        (["finance", "-o", "focus", "--focus-version", "0.5"], 2, "none of: 1.2, 1.0"),
        (["sre", "-o", "md", "--file", "/nowhere/at/all.md"], 1, "cannot write /nowhere/at/all"),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_line(
    fleet: Settings, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    wanted = ["--window", f"{WINDOW.start:%Y-%m-%d}/{WINDOW.end:%Y-%m-%d}"]
    window = [] if "--window" in words else wanted
    assert run(["report", *words, *window, "--home", str(fleet.home)]) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert "Traceback" not in shown.err


def test_warehouse_without_data_says_what_brings_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Warehouse.open(Settings(home=tmp_path), write=True):
        pass
    assert run(["report", "finance", "--home", str(tmp_path)]) == 0
    assert "fallow collect --once" in capsys.readouterr().err


def test_missing_extra_says_how_to_install_it(
    views: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, fmt in (("typst", "pdf"), ("vl_convert", "html")):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, name, None)
            with pytest.raises(UsageError, match=r"not installed|typesets it") as refused:
                _made(views, "finance", fmt)
            assert "'.[reports]'" in (refused.value.hint or "")


def test_command_writes_files_and_stdout(fleet: Settings, tmp_path: Path) -> None:
    window = f"{WINDOW.start:%Y-%m-%d}/{WINDOW.end:%Y-%m-%d}"
    base = [sys.executable, "-m", "runtime", "report", "finance", "--window", window]
    code = "import sys; from runtime.cli import main; main(sys.argv[1:])"
    base = [sys.executable, "-c", code, *base[3:], "--home", str(fleet.home)]
    shown = subprocess.run([*base, "-o", "md"], capture_output=True, check=True, text=True)
    assert shown.stdout.startswith("# GPU spend and waste")
    words = ["report", "finance", "--window", window, "--home", str(fleet.home)]
    assert run([*words, "--file", str(tmp_path / "r.focus.parquet")]) == 0
    assert (tmp_path / "r.focus.parquet").read_bytes()[:4] == b"PAR1"
    assert run([*words, "-o", "csv", "--file", str(tmp_path)]) == 0
    assert (tmp_path / "fallow-finance-20261113-20261116.csv").exists()


def test_unpriced_fleet_is_told_in_hours(tmp_path: Path) -> None:
    tables = rows(days=1)
    for row in tables["ledger"]:
        row |= {"usd": None, "usd_gpu": None, "priced": False}
    for row in tables["finding"]:
        row["usd"] = None
        row["document"] = json.dumps(
            {**json.loads(row["document"]), "recommendations": [{"marginal_gpu_hours": 2.0}]}
        )
    settings = fill(tmp_path / "home", tables)
    with Warehouse.open(settings) as warehouse:
        for audience in ("finance", "sre"):
            made = reports.produce(
                warehouse,
                settings,
                audience=audience,
                window=Window(END - timedelta(days=1), END),
                fmt="html",
                now=END,
            )
            assert "no price" in made.summary
            assert "unknown: no price</td>" in made.body.decode()
            assert ">-</td>" not in made.body.decode()
