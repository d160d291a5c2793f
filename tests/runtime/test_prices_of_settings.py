"""Prices that the settings name reach the ledger, and what they stop naming is taken back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fallow.errors import SettingsError, UsageError
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.prices import read_configured_rates
from warehouse.lake import Warehouse

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = Window(NOW - timedelta(hours=2), NOW - timedelta(hours=1))
OWNED = {"capex_usd": 280000, "gpus": 8, "kw": 10.2, "running_pct_per_year": 12}
RESERVED = {
    "name": "h100-1y", "provider": "aws", "instance_type": "p5.48xlarge", "nodes": 4,
    "gpus_per_node": 8, "usd_per_node_hour": 32, "start": "2026-01-01T00:00:00Z",
    "end": "2027-01-01T00:00:00Z",
}  # fmt: skip


def settings(home: Path, **prices: object) -> Settings:
    file = home / "fallow.yaml"
    file.write_text(f"prices: {prices}\n")
    return load(file=file, environ={}, flags={"home": home / "home", "cluster": "test"}).settings


def fleet(capacity_type: str, hour: Window) -> list[Batch]:
    start = hour.start.replace(tzinfo=None)
    seen = {"first_seen": [start], "last_seen": [hour.end.replace(tzinfo=None)]}
    node: dict[str, object] = {
        "cluster": ["test"], "node": ["n1"], "provider": ["aws" if capacity_type else ""],
        "instance_type": ["p5.48xlarge" if capacity_type else ""], "gpu_count": [1],
        "capacity_type": [capacity_type or None], **seen,
    }  # fmt: skip
    samples: dict[str, object] = {
        "cluster": ["test"] * 60, "ts": [start + timedelta(minutes=i) for i in range(60)],
        "device": ["GPU-1"] * 60, "node": ["n1"] * 60, "interval_s": [60.0] * 60,
        "model": ["NVIDIA H100 80GB HBM3"] * 60, "gpu_util_pct": [90.0] * 60,
    }  # fmt: skip
    return [Batch.of("node", node), Batch.of("sample", samples)]


def priced(said: Settings, capacity_type: str, hour: Window = HOUR) -> float:
    """Account an hour, and return the dollars of all hours."""
    with Warehouse.open(said, write=True, clock=lambda: NOW) as warehouse:
        pipeline.price(warehouse, read_configured_rates(said, NOW))
        pipeline.ingest(warehouse, fleet(capacity_type, hour))
        assert pipeline.account(warehouse, hour)[1] == []
        return float(warehouse.query("SELECT sum(usd) AS usd FROM ledger")["usd"][0].as_py())


def test_an_owned_server_prices_hours_until_it_is_named_no_more(tmp_path: Path) -> None:
    assert priced(settings(tmp_path, on_prem=[OWNED]), "") == pytest.approx(1.675, abs=0.001)
    later = Window(HOUR.end, HOUR.end + timedelta(hours=1))
    assert priced(settings(tmp_path), "", later) == pytest.approx(1.675 + 6.88, abs=0.001)


def test_a_new_price_restates_the_hours_that_it_names(tmp_path: Path) -> None:
    priced(settings(tmp_path), "")
    later = Window(NOW + timedelta(days=3), NOW + timedelta(days=3, hours=1))
    for answer, usd in (
        (settings(tmp_path, usd_per_gpu_hour=2), 6.88),
        (settings(tmp_path, usd_per_gpu_hour=2, valid_from="2026-11-20T10:30:00Z"), 4.44),
        (settings(tmp_path, usd_per_gpu_hour=2, valid_from="2026-11-01T00:00:00Z"), 2.0),
    ):
        with Warehouse.open(answer, write=True, clock=lambda: later.end) as warehouse:
            pipeline.price(warehouse, read_configured_rates(answer, later.end))
            assert pipeline.account(warehouse, later)[1] == []
            total = warehouse.query("SELECT sum(usd) AS usd FROM ledger")["usd"][0].as_py()
            assert float(total) == pytest.approx(usd)
            # Saying the same again changes nothing, so nothing is owed.
            again = read_configured_rates(answer, later.end + timedelta(hours=1))
            pipeline.price(warehouse, again)
            assert warehouse.query("FROM unposted").num_rows == 0


def test_reserved_nodes_cost_their_commitment(tmp_path: Path) -> None:
    assert priced(settings(tmp_path, commitments=[RESERVED]), "reserved") == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        ({"on_prem": [{**OWNED, "gpu": 8}]}, ["prices.on_prem.0.gpu", "legal here", "capex_usd"]),
        ({"on_prem": [{**OWNED, "pue": 0.9}]}, ["prices.on_prem.0.pue", "fallow.yaml"]),
        ({"commitments": [{**RESERVED, "end": "soon"}]}, ["prices.commitments.0.end"]),
        ({"commitments": [{"name": "x"}]}, ["prices.commitments.0.provider"]),
        ({"valid_from": "soon"}, ["prices.valid_from", "valid datetime or date"]),
        ({"valid_from": "2011-12-31T23:59:59Z"}, ["prices.valid_from", "2011", "2012"]),
        ({"on_prem": [{**OWNED, "valid_from": "2026-13-01"}]}, ["prices.on_prem.0.valid_from"]),
    ],
)
def test_what_is_no_price_is_named_with_its_place(
    tmp_path: Path, prices: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(SettingsError) as refused:
        settings(tmp_path, **prices)
    answer = f"{refused.value} {refused.value.hint or ''}"
    assert all(word in answer for word in words), answer


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        ({"valid_from": "2026-11-20T12:00:01Z"}, "prices.valid_from is 2026-11-20T12:00Z, in the"),
        (
            {"on_prem": [OWNED, {**OWNED, "valid_from": "2027-01-01T00:00:00Z"}]},
            "prices.on_prem.1.valid_from is 2027-01-01",
        ),
        ({"on_prem": [OWNED, {**OWNED, "kw": 11}]}, "two prices from one time on: on-prem"),
        ({"commitments": [RESERVED, {**RESERVED, "nodes": 5}]}, "commitment h100-1y"),
    ],
)
def test_prices_that_do_not_hold_yet_or_twice_are_refused(
    tmp_path: Path, prices: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        read_configured_rates(settings(tmp_path, **prices), NOW)


def test_the_earliest_price_and_servers_that_became_cheaper_are_prices(tmp_path: Path) -> None:
    now = settings(tmp_path, valid_from="2012-01-01T00:00:00Z")
    assert read_configured_rates(now, NOW)[0].rows.num_rows
    cheaper = {**OWNED, "capex_usd": 140000, "valid_from": "2026-11-20T10:30:00Z"}
    both = settings(tmp_path, on_prem=[OWNED, cheaper])
    half = 1.67495303 - 0.5 * (280000 - 140000) * (1 / (35040 * 8 * 0.97) + 0.12 / (8760 * 8))
    assert priced(both, "") == pytest.approx(half, abs=1e-6)
