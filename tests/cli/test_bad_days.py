"""Days on which something is missing: commands say so in a line and what to do, no traceback."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fallow.settings import load
from runtime.cli import run
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]
COLUMNS = ["--columns", "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "60s"]
FUTURE = "2031-01-01/2031-01-08"
NOWHERE = "http://127.0.0.1:9"
POLICIES = Path(__file__).resolve().parents[2] / "policies"
OLD = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a warehouse with two hours of one idle pod, long ago."""
    folder = tmp_path_factory.mktemp("bad-days")
    instants = [OLD + timedelta(minutes=n) for n in range(120)]
    rows = {"pod": ["a"] * 120, "ts": [m.timestamp() for m in instants], "util": [0.0] * 120}
    pq.write_table(pa.table(rows), folder / "samples.parquet")
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("FALLOW_")}
    words = ["import", "samples", str(folder / "samples.parquet"), *COLUMNS]
    assert run([*words, "--rate", "2", "--home", str(folder / "home")]) == 0
    os.environ.update(kept)
    return folder / "home"


def said(ran: Any) -> str:
    """Return what a command said, once it is sure that it is no traceback and no defect."""
    assert "Traceback" not in ran.err
    assert "defect of Fallow" not in ran.err, ran.err
    return str(ran.out + ran.err)


NO_DATA = (
    (["spend"], 0, "fallow collect"),
    (["analyze"], 0, "fallow collect"),
    (["explain", "abc"], 2, "abc"),
    (["plan"], 0, "fallow collect"),
    (["why-not", "Job/a/b"], 0, "fallow collect"),
    (["saved"], 0, ""),
    (["warehouse", "status"], 0, ""),
)


@pytest.mark.parametrize(("words", "code", "word"), NO_DATA, ids=lambda v: str(v)[:20])
def test_a_warehouse_that_holds_nothing_yet(
    *,
    fallow: Fallow,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    word: str,
) -> None:
    monkeypatch.setenv("FALLOW_ACTIONS__POLICIES", str(POLICIES))
    home = tmp_path / "home"
    with Warehouse.open(load(environ={}, flags={"home": home}).settings, write=True):
        pass
    ran = fallow(*words, "--home", home)
    assert (ran.code, word in said(ran)) == (code, True), ran.err


def test_one_source_that_is_down_is_a_row_and_the_others_are_kept(
    fallow: Fallow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FALLOW_EXPORTERS__TARGETS", f'["{NOWHERE}/metrics"]')
    monkeypatch.setenv("FALLOW_JUPYTER__SERVERS", f'["ml/nb-0={NOWHERE}/"]')
    ran = fallow("collect", "--once", "--home", tmp_path / "home", "-o", "json")
    document = json.loads(ran.out)["scrapes"]
    assert ran.code == 75
    assert [sample["up"] for sample in document] == [False, False]
    assert all(sample["error"] for sample in document)
    said(ran)
    ran = fallow("spend", "--home", tmp_path / "home")
    assert (ran.code, "fallow collect" in said(ran)) == (0, True)


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        (["warehouse", "compact"], 75, "try again"),
        (["import", "samples", "none.parquet", *COLUMNS], 2, "none.parquet"),
        (["spend"], 0, ""),
        (["warehouse", "status"], 0, ""),
        (["analyze", "idle"], 0, "findings are not stored"),
    ],
    ids=lambda v: str(v)[:24],
)
def test_a_warehouse_in_use(
    fallow: Fallow, filled: Path, words: list[str], code: int, word: str
) -> None:
    settings = load(environ={}, flags={"home": filled}).settings
    with Warehouse.open(settings, write=True):
        ran = fallow(*words, "--home", filled)
    assert (ran.code, word in said(ran)) == (code, True), ran.err


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        (["warehouse", "compact"], {75}),
        (["spend"], {0}),
        (["doctor"], {1, 75}),
    ],
    ids=lambda v: str(v)[:24],
)
def test_an_object_store_that_does_not_answer(
    fallow: Fallow, filled: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], codes: set[int]
) -> None:
    monkeypatch.setenv("FALLOW_WAREHOUSE__COLD", "s3://away/cold")
    monkeypatch.setenv("FALLOW_WAREHOUSE__S3__ENDPOINT", NOWHERE)
    monkeypatch.setenv("FALLOW_WAREHOUSE__S3__ACCESS_KEY_ID", "x")
    monkeypatch.setenv("FALLOW_WAREHOUSE__S3__SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("FALLOW_DASHBOARD__LISTEN", "127.0.0.1:0")
    ran = fallow(*words, "--home", filled)
    text = said(ran)
    assert ran.code in codes, ran.err
    if words != ["spend"]:
        assert "127.0.0.1:9" in text or "s3://away" in text
