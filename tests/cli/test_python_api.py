"""`fallow.connect` in a notebook: the command line's own numbers, as Arrow, Polars and pandas."""

import doctest
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import fallow as api
from fallow import plugins
from fallow.errors import FallowError, SettingsError, TemporaryError, UsageError, WarehouseError
from fallow.fleet import Fleet, FleetTable
from fallow.settings import Settings, load
from fallow.window import Window
from runtime.experiments.demo import END
from runtime.experiments.demo_plants import CLUSTER
from runtime.operations.answers.fleet import WarehouseFleet
from runtime.rendering.tables import document

Fallow = Callable[..., Any]
WINDOW = Window(END - timedelta(hours=20), END - timedelta(hours=2))
TEXT = "2026-11-15T04:00/2026-11-15T22:00"


@pytest.fixture
def fleet(demo_home: Path, fallow: Fallow) -> Iterator[Fleet]:
    del fallow  # no settings of this machine apply
    with api.connect(demo_home, cluster=CLUSTER) as opened:
        yield opened


def digits(text: str) -> Any:
    """Return a JSON text whose numbers are their own digits."""
    return json.loads(text, parse_float=str, parse_int=str)


def printed(body: Any, noun: str) -> Any:
    """Return a body as the command line prints it, its numbers as digits."""
    return digits(document(noun, body))


def as_printed(table: FleetTable, noun: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = printed({noun: table.table.to_pylist()}, noun)[noun]
    return rows


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (("--by", "team"), {"by": "team"}),
        (("--by", "team,state"), {"by": ["team", "state"]}),
        (("--by", "node", "--view", "gpu"), {"by": "node", "view": "gpu"}),
        (
            ("--by", "workload", "--share-unallocated"),
            {"by": "workload", "share_unallocated": True},
        ),
    ],
)
def test_spend_is_that_of_the_command_to_the_last_digit(
    fallow: Fallow, fleet: Fleet, demo_home: Path, options: tuple[str, ...], keywords: Any
) -> None:
    ran = fallow(
        "spend", "--home", demo_home, "--cluster", CLUSTER, "--window", TEXT,
        "-o", "json", *options,
    )  # fmt: skip
    shown = digits(ran.out)
    spend = fleet.spend(window=WINDOW, **keywords)
    assert as_printed(spend, "spend") == shown["spend"]
    assert len(spend) > 2
    assert printed(spend.document, "spend") == shown
    assert spend.window == WINDOW
    assert set(spend.notes) == set(ran.err.splitlines())
    assert list(spend.table.column_names) == list(shown["spend"][0])
    total = sum((usd for usd in spend.table["usd"].to_pylist() if usd is not None), Decimal())
    assert str(total) == shown["total"]["usd"]


def test_findings_are_those_of_the_command_and_are_not_stored(
    fallow: Fallow, fleet: Fleet, demo_home: Path
) -> None:
    def count() -> str:
        sql = "SELECT count(*) AS n, max(found_at) AS last FROM finding"
        text: str = fallow("warehouse", "query", sql, "--home", demo_home, "-o", "json").out
        return text

    before = count()
    found = fleet.findings("idle", window=WINDOW)
    confirmed = fleet.findings("idle", window=TEXT, evidence="confirmed")
    assert count() == before
    wanted = ("--home", demo_home, "--cluster", CLUSTER, "--window", TEXT)
    shown = digits(fallow("analyze", "idle", *wanted, "-o", "json").out)
    assert printed(found.document, "findings") == shown
    listed = as_printed(found, "findings")
    assert [row["id"] for row in listed] == [f["id"] for f in shown["findings"]]
    for row, one in zip(listed, shown["findings"], strict=True):
        assert (row["gpu_hours"], row["usd"]) == (one["gpu_hours"], one["usd"])
        assert row["evidence"] == one["evidence"]
    ids = [f["id"] for f in shown["findings"] if f["evidence"] == "confirmed"]
    assert ids
    assert [row["id"] for row in as_printed(confirmed, "findings")] == ids


def test_an_explanation_is_that_of_the_command(
    fallow: Fallow, fleet: Fleet, demo_home: Path
) -> None:
    home = ("--home", demo_home, "--cluster", CLUSTER)
    sql = "SELECT id FROM finding WHERE analyzer = 'idle' ORDER BY usd DESC, id LIMIT 1"
    (row,) = json.loads(fallow("warehouse", "query", sql, *home, "-o", "json").out)["rows"]
    shown = digits(fallow("explain", row["id"], *home, "-o", "json").out)
    explained = fleet.explain(row["id"][:10])
    assert printed(explained.document, "explanation") == shown
    assert set(explained.tables) == {"rates", *(q["name"] for q in shown["queries"])}
    for query in shown["queries"]:
        assert as_printed(explained.tables[query["name"]], "explanation") == query["rows"]
    assert "GPU-hours x $" in repr(explained)


def test_the_ledger_has_every_digit_and_sums_to_the_bill(
    fallow: Fallow, fleet: Fleet, demo_home: Path
) -> None:
    ledger = fleet.ledger(WINDOW)
    sql = (
        "SELECT * FROM ledger WHERE bucket >= '2026-11-15 04:00' AND bucket < '2026-11-15 22:00' "
        "ORDER BY cluster, bucket, device, state, namespace, workload_kind, workload"
    )
    wanted = ("--home", demo_home, "-o", "json")
    shown = digits(fallow("warehouse", "query", sql, *wanted).out)["rows"]
    assert as_printed(ledger, "rows") == shown
    spend = fleet.spend("state", WINDOW)
    frame = ledger.to_polars()
    bill = frame["usd"].sum()
    assert round(Decimal(bill), 2) == spend.document["total"]["usd"]
    hours = frame["gpu_seconds"].sum() / 3600
    assert hours == pytest.approx(spend.document["total"]["gpu_hours"], abs=1e-6)


def test_each_result_is_arrow_polars_or_pandas(fleet: Fleet) -> None:
    spend = fleet.spend("state", WINDOW)
    arrow, frame, pandas = spend.to_arrow(), spend.to_polars(), spend.to_pandas()
    assert pa.table(spend).equals(arrow)
    assert pl.DataFrame(spend).equals(frame)
    assert frame.to_dicts() == arrow.to_pylist()
    assert frame.schema["usd"] == pl.Decimal(38, 2)
    assert list(pandas["state"]) == arrow["state"].to_pylist()
    assert sum(pandas["usd"]) == spend.document["total"]["usd"]
    assert isinstance(pandas["usd"][0], Decimal)
    text = repr(spend)
    assert text.startswith(f"{len(spend)} rows of state, gpu_hours")
    assert "18 of 18 h have data" in text


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda fleet: fleet.spend("planet"), "planet"),
        (lambda fleet: fleet.spend([]), "nothing"),
        (lambda fleet: fleet.spend(view="sunny"), "sunny"),
        (lambda fleet: fleet.spend(window="soon"), "soon"),
        (lambda fleet: fleet.spend(window="2020-01-01/2020-01-02"), "no data of"),
        (lambda fleet: fleet.ledger("2020-01-01/2020-01-02"), "data are from"),
        (lambda fleet: fleet.findings("nope"), "no analyzer called 'nope'"),
        (lambda fleet: fleet.findings(evidence="strong"), "confirmed, suspected"),
        (lambda fleet: fleet.explain("nope"), "no finding 'nope'"),
        (lambda fleet: fleet.ledger("2026-11-15/2026-11-14"), "ends"),
    ],
)
def test_a_wrong_argument_is_an_error_of_fallow(
    fleet: Fleet, call: Callable[[Fleet], Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        call(fleet)


def test_a_fleet_that_cannot_be_opened_says_why(
    fallow: Fallow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fallow
    with pytest.raises(WarehouseError, match="no warehouse"):
        api.connect(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists(), "opening creates nothing"
    with pytest.raises(SettingsError, match=r"absent\.yaml"):
        api.connect(tmp_path, config=tmp_path / "absent.yaml")
    monkeypatch.setattr("fallow.fleet.find_installed", lambda _group: {})
    with pytest.raises(UsageError, match="nothing that opens a warehouse"):
        api.connect(tmp_path)


def test_a_fleet_is_closed_at_the_end_of_its_block(demo_home: Path, fallow: Fallow) -> None:
    del fallow
    with api.connect(demo_home) as fleet:
        fleet.ledger(WINDOW)
    with pytest.raises(FallowError, match="is closed"):
        fleet.ledger(WINDOW)
    fleet.close()


def test_a_query_of_an_open_fleet_ends_at_the_deadline_of_the_settings(
    demo_home: Path, fallow: Fallow
) -> None:
    del fallow
    fleet: Any = api.connect(demo_home)
    with fleet:
        fleet._warehouse._within = timedelta(seconds=0.3)
        with pytest.raises(TemporaryError, match=r"took more than 0\.3 s and was ended"):
            fleet._warehouse.query("SELECT sum(i) FROM range(1000000000000) AS t(i)")
    assert (
        WarehouseFleet(load(flags={"home": demo_home}).settings)._warehouse._within
        == Settings().warehouse.query_within
    )


def test_the_core_finds_the_application_and_imports_nothing_of_it() -> None:
    assert (
        plugins.find_installed("connect")["warehouse"].value
        == "runtime.operations.answers.fleet:open_fleet"
    )
    heavy = "runtime warehouse analyzers actions dashboards duckdb pyarrow polars pandas pydantic"
    code = (
        "import sys, fallow\n"
        f"loaded = [m for m in '{heavy}'.split() if m in sys.modules]\n"
        "sys.exit(f'import fallow loads {loaded}' if loaded else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_s_examples_are_true(
    demo_home: Path, fallow: Fallow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    del fallow
    (tmp_path / "fleet").symlink_to(demo_home)
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).resolve().parents[2] / "docs/python.md").read_text(encoding="utf-8")
    # The fences are no part of the output.
    text = "\n".join(line for line in page.splitlines() if not line.startswith("```"))
    examples = doctest.DocTestParser().get_doctest(text, {}, "python.md", None, None)
    assert len(examples.examples) > 15
    result: list[str] = []
    doctest.DocTestRunner().run(examples, out=result.append)
    assert not result, "".join(result)
