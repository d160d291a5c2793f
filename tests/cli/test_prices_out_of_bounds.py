"""Money from outside: what no price can be is refused by name, before anything is stored."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fallow = Callable[..., Any]

SERVER = {"capex_usd": "250000", "gpus": "8"}
RESERVED = {
    "name": "c", "provider": "aws", "instance_type": "p5.48xlarge", "nodes": "1",
    "gpus_per_node": "8", "usd_per_node_hour": "55", "start": "2023-01-01T00:00:00Z",
    "end": "2033-01-01T00:00:00Z",
}  # fmt: skip
HUGE, TINY = "1e30", "1e-12"
CARD = (
    "provider,region,instance_type,gpu_model,gpu_count,vcpu,memory_gib,term,usd_per_hour,as_of,"
    "reference,confirmed\n"
    "x,r,x8,H100,{gpu_count},{vcpu},{memory_gib},on-demand,{usd_per_hour},"
    "2026-01-01,own,yes\n"
)
OFFER = {"gpu_count": "8", "vcpu": "96", "memory_gib": "1024", "usd_per_hour": "50"}


@pytest.fixture
def samples(tmp_path: Path) -> list[str]:
    """Return the words that import a table of a GPU's hour."""
    table = tmp_path / "samples.csv"
    rows = "".join(f"p,GPU-1,2023-11-14T22:{minute:02}:00Z,50\n" for minute in range(60))
    table.write_text(f"pod,device,ts,util\n{rows}")
    columns = "workload=pod,device=device,ts=ts,gpu_util_pct=util"
    return ["import", "samples", str(table), "--columns", columns, "--interval", "60s"]


def check_refused(ran: Any, *words: str) -> None:
    assert (ran.code, ran.out) == (2, ""), ran.err
    lines = ran.err.splitlines()
    assert lines[0].startswith("fallow: "), ran.err
    assert all(line.startswith("hint: ") for line in lines[1:]), ran.err
    for word in words:
        assert word in ran.err
    assert "defect" not in ran.err


@pytest.mark.parametrize(
    "settings",
    [
        "usd_per_gpu_hour: 1e308",
        f"usd_per_gpu_hour: {HUGE}",
        "usd_per_gpu_hour: 1000000",
        f"usd_per_gpu_hour: {TINY}",
        "usd_per_gpu_hour: .inf",
        "usd_per_gpu_hour: .nan",
        "usd_per_gpu_hour: -1",
        "by_model: {H100: 1e308}",
        f"by_model: {{H100: {TINY}}}",
        "discount_pct: 1e30",
        "discount_pct: .nan",
        "discount_pct: 99.99999999999",
        *(
            f"on_prem: [{{{', '.join(f'{k}: {v}' for k, v in {**SERVER, **bad}.items())}}}]"
            for bad in [
                {"capex_usd": HUGE}, {"capex_usd": "1e308"}, {"capex_usd": TINY},
                {"gpus": "1" + "0" * 30}, {"years": TINY}, {"years": HUGE},
                {"residual_usd": HUGE}, {"availability": TINY}, {"kw": HUGE}, {"pue": HUGE},
                {"kw": "10", "usd_per_kwh": HUGE}, {"running_pct_per_year": HUGE},
                {"capex_usd": "999999999", "years": "0.1", "gpus": "1", "availability": "0.01"},
            ]
        ),
        *(
            f"commitments: [{{{', '.join(f'{k}: {v}' for k, v in {**RESERVED, **bad}.items())}}}]"
            for bad in [
                {"usd_per_node_hour": HUGE}, {"usd_per_node_hour": TINY},
                {"usd_per_node_hour": "1e308"}, {"nodes": "1" + "0" * 30},
                {"gpus_per_node": "1" + "0" * 30},
            ]
        ),
    ],
)  # fmt: skip
def test_a_setting_that_no_price_can_be_is_refused(
    fallow: Fallow, tmp_path: Path, samples: list[str], settings: str
) -> None:
    (tmp_path / "fallow.yaml").write_text(f"prices: {{{settings}}}\n")
    check_refused(fallow(*samples), settings.split(":", maxsplit=1)[0])


@pytest.mark.parametrize("settings", ["usd_per_month: 1e30", "teams_usd_per_month: {a: 1e30}"])
def test_a_budget_out_of_bounds_is_refused(fallow: Fallow, tmp_path: Path, settings: str) -> None:
    (tmp_path / "fallow.yaml").write_text(f"finance: {{{settings}}}\n")
    check_refused(fallow("spend"), settings.split(":", maxsplit=1)[0])


@pytest.mark.parametrize("rate", ["1e308", HUGE, "1000000", TINY, "nan", "inf", "-1", "0", "x"])
def test_a_rate_of_an_import_that_no_price_can_be_is_refused(
    fallow: Fallow, samples: list[str], rate: str
) -> None:
    check_refused(fallow(*samples, "--rate", rate), "--rate", rate)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        *((column, HUGE) for column in OFFER),
        ("usd_per_hour", "1000000"),
        ("usd_per_hour", TINY),
        ("usd_per_hour", "NaN"),
        ("gpu_count", "0"),
    ],
)
def test_a_line_of_a_rate_card_that_no_price_can_be_is_refused(
    fallow: Fallow, tmp_path: Path, samples: list[str], column: str, text: str
) -> None:
    (tmp_path / "card.csv").write_text(CARD.format(**{**OFFER, column: text}))
    (tmp_path / "fallow.yaml").write_text("prices: {rate_card: card.csv}\n")
    check_refused(fallow(*samples), "card.csv, line 2", column, text)
    (tmp_path / "fallow.yaml").unlink()
    stored = fallow("warehouse", "query", "SELECT count(*) AS n FROM sample", "-o", "csv")
    assert stored.out == "n\n0\n"
