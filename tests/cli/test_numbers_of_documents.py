"""Every `-o json` that has money or hours: dollars in cents, hours in six decimals, no noise."""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runtime.rendering.tables import document, render
from tests.demo_homes import copy_demo

Fallow = Callable[..., Any]
PER_UNIT = re.compile(r"usd_h$|usd_per_(?!day$|week$|month$|year$)")


def numbers(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every number of a document as its text, under the name that it stands under."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, key)
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part, name)
    elif isinstance(value, Figure):
        yield name, value.text


class Figure:
    """A number as a document spells it."""

    def __init__(self, text: str) -> None:
        self.text = text


def noisy(text: str) -> list[tuple[str, str]]:
    """Return the figures of a JSON text with more digits than money and hours have."""
    found = []
    for name, answer in numbers(json.loads(text, parse_float=Figure, parse_int=Figure)):
        parts = name.split("_")
        if "usd" not in parts and "hours" not in parts:
            continue
        most = 6 if "hours" in parts or PER_UNIT.search(name) else 2
        if "e" in answer.lower() or len(answer.partition(".")[2]) > most:
            found.append((name, answer))
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home with a day of the demo's fleet."""
    folder = tmp_path_factory.mktemp("numbers")
    return copy_demo(tmp_path_factory, folder / "home", days=1, gpus=24, seed=3)


def test_every_document_with_money_or_hours(fallow: Fallow, home: Path) -> None:
    at = ("--home", home, "-o", "json")
    span = ("--window", "24h")
    policies = Path(__file__).parents[2] / "policies"
    answer = {"analyze": fallow("analyze", *span, *at)}
    assert answer["analyze"].code == 0, answer["analyze"].err
    finding = json.loads(answer["analyze"].out)["findings"][0]
    for by in ("state", "team", "workload", "node"):
        answer[f"spend --by {by}"] = fallow("spend", *span, "--by", by, *at)
    answer["explain"] = fallow("explain", finding["id"], *at)
    answer["plan"] = fallow("plan", "--policies", policies, *at)
    answer["saved"] = fallow("saved", *at)
    answer["baseline"] = fallow("baseline", "save", "one", *span, *at)
    answer["baselines"] = fallow("baseline", "list", *at)
    answer["compare"] = fallow("baseline", "compare", "one", *span, *at)
    counted = 0
    for words, ran in answer.items():
        assert ran.code == 0, (words, ran.err)
        assert noisy(ran.out) == [], words
        counted += len(re.findall(r'"[a-z_]*(?:usd|hours)[a-z_]*": -?[0-9]', ran.out))
    assert counted > 100


@pytest.mark.parametrize("noun", ["plan", "backtest", "simulation", "actions", "cases", "ledger"])
def test_whatever_the_document_is_called(noun: str) -> None:
    rows = [
        {
            "gpu_hours": 896.0000000000003, "usd": Decimal("0E-8"), "usd_per_day": 57.600000000001,
            "node_usd_h": Decimal("98.32000000"), "usd_per_gpu_hour": 2.1234567891,
            "hours_between_failures": 1 / 3, "fraction": 1 / 3,
        }
    ]  # fmt: skip
    for text in (render(rows, "json", noun=noun), document(noun, {"one": rows[0]})):
        assert noisy(text) == []
        assert '"usd": 0.00' in text
        assert '"node_usd_h": 98.320000' in text
        assert str(1 / 3) in text, "what is neither money nor hours keeps its digits"


def test_what_is_not_a_number_stays_what_it_is() -> None:
    result = document("plan", {"usd": None, "hours": float("nan"), "usd_per_day": "2.40"})
    assert json.loads(result) == {
        "schema": "fallow.plan/v1", "usd": None, "hours": None, "usd_per_day": "2.40",
    }  # fmt: skip
