"""What is found of spend and waste out of the usual, and what never is."""

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from analyzers.anomalies.analyzer import AnomaliesAnalyzer
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError
from fallow.models import Finding
from fallow.settings import load
from fallow.settings.anomalies import AnomaliesSettings
from runtime.operations.analysis.findings import document

GOLDEN = Path(__file__).parent / "golden"
Books = Any


def found(books: Books, **chosen: Any) -> list[Finding]:
    settings = AnomaliesSettings.model_validate(chosen)
    return AnomaliesAnalyzer(settings).find(books.views, books.window)


@pytest.mark.parametrize("name", sorted(p.name for p in GOLDEN.iterdir()))
def test_golden(name: str, make_books: Any) -> None:
    books = make_books()
    site = json.loads((GOLDEN / name / "site.json").read_text())
    books.rest(site["free"])
    for post in site["posts"]:
        since, until = post.pop("from", -(10**9)), post.pop("until", 0)
        books.post(**post, skip=lambda h, a=since, b=until: not a <= h < b)
    made = found(books)
    documents = [document(f) for f in made]
    golden = GOLDEN / name / "findings.json"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(json.dumps(documents, indent=2) + "\n")
    assert documents == json.loads(golden.read_text())
    fallen = build_waterfall(books.views, books.window, made)
    assert fallen.saved().gpu_hours <= fallen.bill.gpu_hours
    assert found(books) == made


def test_what_is_wasted_beyond_the_usual_is_claimed_of_who_wastes_it(make_books: Any) -> None:
    books = make_books()
    books.rest()
    books.post("vision", {"productive": 8.0, "idle": 1.0})
    books.post("vision", {"idle": 6.0}, workload="forgotten", skip=lambda h: not -60 <= h < -12)
    waste = next(f for f in found(books) if f.kind == "waste_anomaly")
    assert waste.subject.team == "vision"
    assert waste.usd == Decimal("6.88") * 6 * 48
    assert waste.gpu_hours == 6 * 48
    (claim,) = waste.recommendations[0].claims
    assert (claim.workload, claim.state, claim.gpu_hours) == ("forgotten", "idle", 6 * 48)


def test_a_dearer_price_is_price_alone(make_books: Any) -> None:
    books = make_books()
    books.rest()
    books.post("vision", {"productive": 10.0}, price=lambda h: "2" if h < -72 else "3")
    (spend,) = found(books)
    assert spend.details["because"] == {"quantity": 0, "mix": 0, "price": 720.0}
    assert spend.gpu_hours == 0
    assert spend.recommendations[0].claims == ()


def night(hour: int) -> float:
    return 20.0 if hour % 24 < 8 else 4.0


@pytest.mark.parametrize(
    ("what", "post"),
    [
        ("the same every night", {"states": {"idle": night}}),
        ("telemetry gone for two days", {"states": {
            "idle": lambda h: 0.0 if -80 <= h < -32 else 10.0,
            "unknown": lambda h: 10.0 if -80 <= h < -32 else 0.0,
        }}),
        ("telemetry gone for most of the history, and back", {"states": {
            "idle": lambda h: 10.0 if h >= -100 else 0.0,
            "unknown": lambda h: 10.0 if h < -100 else 0.0,
        }, "price": lambda _: "0.01"}),
    ],
)  # fmt: skip
def test_no_alarm(what: str, post: Any, make_books: Any) -> None:
    books = make_books()
    books.rest()
    books.post("vision", **post)
    assert found(books, min_usd=1) == [], what


@pytest.mark.parametrize("silent", [range(-1000, -30), range(-70, -30)])
def test_no_alarm_when_the_books_come_back_from_a_silence(silent: range, make_books: Any) -> None:
    """Hours that nobody wrote down are no usual that today is dear beside."""
    books = make_books()
    whole = len(silent) > 100
    books.rest(5.0, skip=lambda h: whole and h in silent)
    books.post("vision", {"idle": 30.0, "productive": 60.0}, skip=lambda h: h in silent)
    books.post("speech", {"productive": 5.0}, skip=lambda h: h in silent and (whole or h % 3 > 0))
    assert found(books) == []
    reports = AnomaliesAnalyzer().unjudged(books.views, books.window)
    assert any("less than the usual fleet" in why for doubt in reports for why in doubt.reasons)


def test_too_little_history_is_not_judged_and_said(make_books: Any) -> None:
    books = make_books(weeks=2)
    books.rest()
    books.post("vision", {"idle": lambda h: 90.0 if h > -20 else 1.0})
    assert found(books) == []
    (reports,) = AnomaliesAnalyzer().unjudged(books.views, books.window)
    assert reports.reasons == ("168 of 168 hours: fewer than 3 weeks of history before them",)


def test_without_a_price_gpu_hours_are_judged(make_books: Any) -> None:
    books = make_books()
    books.rest(price=lambda _: None)
    books.post("vision", {"lost": lambda h: 9.0 if h >= -20 else 1.0}, price=lambda _: None)
    waste = next(f for f in found(books) if f.kind == "waste_anomaly")
    assert waste.usd is None
    assert waste.gpu_hours == 8 * 20
    assert "no price" in waste.details["assumed"][0]


def test_a_planned_change_is_kept_quiet_and_told(make_books: Any) -> None:
    books = make_books()
    books.rest()
    books.post("vision", {"productive": lambda h: 30.0 if h >= -48 else 4.0})
    known = [{"name": "vision", "start": books.window.start, "end": books.window.end}]
    assert found(books)
    assert found(books, known_changes=known) == []
    settings = AnomaliesSettings.model_validate({"known_changes": known})
    result = AnomaliesAnalyzer(settings).summary(books.views, books.window)
    assert [p["subject"] for p in result["planned"]] == ["vision"]


def test_a_fall_is_told_but_no_finding(make_books: Any) -> None:
    books = make_books()
    books.rest()
    books.post("vision", {"productive": lambda h: 2.0 if h >= -48 else 9.0})
    assert found(books) == []
    falls = AnomaliesAnalyzer().summary(books.views, books.window)["falls"]
    assert [(f["subject"], f["change"]) for f in falls] == [("vision", -7 * 48 * 6.88)]


def test_nothing_is_found_of_nothing(make_books: Any) -> None:
    books = make_books()
    assert found(books) == []
    assert AnomaliesAnalyzer().unjudged(books.views, books.window) == []


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("weeks", 2, "greater than or equal to 3"),
        ("spike", 1, "greater than or equal to 2"),
        ("slack", 0, "greater than 0"),
        ("coverage", 1.5, "less than or equal to 1"),
        ("min_share", -1, "greater than or equal to 0"),
    ],
)
def test_a_bad_threshold_names_the_legal_range(key: str, value: float, legal: str) -> None:
    with pytest.raises(SettingsError, match=legal):
        load(flags={f"anomalies.{key}": value})
