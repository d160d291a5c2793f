"""What every installed plugin must do, ours and third parties': one contract per seam."""

import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fallow import tables
from fallow.plugins import find_installed, load
from fallow.protocols import Analyzer, Collector, PriceSource
from fallow.settings import Settings
from fallow.settings import load as load_settings
from fallow.window import Window
from warehouse.lake import Warehouse

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WINDOW = Window(NOW - timedelta(minutes=10), NOW)


def _dead_port() -> int:
    """Return a port that refuses: bound once, then closed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _settings(home: Path) -> Settings:
    dead = f"http://127.0.0.1:{_dead_port()}"
    flags = {
        "home": home,
        "cluster": "contract",
        "exporters.targets": [f"{dead}/metrics"],
        "jupyter.servers": [f"team-a/notebook-0={dead}/"],
        "prometheus.url": dead,
        "prometheus.retries": 0,
        "kubernetes.enabled": True,
    }
    return load_settings(environ={}, flags=flags).settings


def _kubernetes(settings: Settings) -> Any:
    from kubernetes import client

    from fallow.kube.api import ApiConnection, BackOff  # noqa: PLC0415

    configuration = client.Configuration(host=settings.prometheus.url)
    configuration.retries = False
    api = ApiConnection(client.ApiClient(configuration), pause=BackOff(sleep=lambda _: None))
    plugin = load("collectors", "kubernetes")
    return plugin(settings.kubernetes, "contract", lambda: NOW, api=api)


COLLECTORS: dict[str, Callable[[Settings], Any]] = {
    "exporters": lambda s: load("collectors", "exporters")(s.exporters, "contract", lambda: NOW),
    "jupyter": lambda s: load("collectors", "jupyter")(s.jupyter, "contract", lambda: NOW),
    "kubernetes": _kubernetes,
    "nvml": lambda s: load("collectors", "nvml")(s.nvml, "contract", lambda: NOW),
    "prometheus": lambda s: load("collectors", "prometheus")(s.prometheus, "contract", lambda: NOW),
}


def _theirs(seam: str, name: str) -> Callable[..., Any]:
    """Return how a third party's plugin is made: as the service makes it."""
    given: dict[str, Any] = {"cluster": "contract"} if seam == "collectors" else {}
    return lambda *_: load(seam, name)(**given)


PRICES: dict[str, Callable[[], Any]] = {
    "rate-card": load("prices", "rate-card"),
    "on-prem": lambda: load("prices", "on-prem")(capex_usd=Decimal(280_000), gpus=8),
}
ELSEWHERE = {"aws"}
"""Needs a cloud's answers; tests/prices holds it to a stand-in."""


@pytest.mark.parametrize("name", find_installed("collectors"))
def test_a_collector_whose_source_is_dead_says_so_in_a_row_and_never_raises(
    name: str, tmp_path: Path
) -> None:
    make: Callable[[Settings], Any] = COLLECTORS.get(name) or _theirs("collectors", name)
    collector = make(_settings(tmp_path))
    assert isinstance(collector, Collector)
    batches = list(collector.collect(WINDOW))
    assert {b.table for b in batches} <= set(tables.list_table_names())
    samples = [row for b in batches if b.table == "scrape" for row in b.rows.to_pylist()]
    assert samples, f"{name} kept silent about a dead source"
    assert all(sample["up"] is False and sample["error"] for sample in samples), samples
    assert all("\n" not in sample["error"] for sample in samples)
    others = [b for b in batches if b.table not in ("scrape", "cursor")]
    assert not sum(b.rows.num_rows for b in others), "rows from a source that is not there"


@pytest.mark.parametrize("name", sorted(set(find_installed("prices")) - ELSEWHERE))
def test_a_price_has_a_date_a_reference_and_parts_that_sum_to_the_node(name: str) -> None:
    source = PRICES.get(name, _theirs("prices", name))()
    assert isinstance(source, PriceSource)
    batch = source.rates(WINDOW)
    assert batch.table == "rate"
    rows = batch.rows.to_pylist()
    assert rows
    keys = [tuple(row[k] for k in tables.get_key("rate")) for row in rows]
    assert len(keys) == len(set(keys))
    for row in rows:
        assert row["as_of"] is not None, row
        assert row["reference"], row
        if row["node_usd_h"] is None:
            continue
        assert row["node_usd_h"] > 0
        parts = [
            (row["gpu_usd_h"], row["gpu_count"]),
            (row["cpu_usd_h"], row["vcpu"]),
            (row["memory_usd_h"], row["memory_gib"]),
        ]
        if all(price is not None and amount is not None for price, amount in parts):
            amounts = [Decimal(str(amount)) for _, amount in parts]
            total = sum(price * n for (price, _), n in zip(parts, amounts, strict=True))
            # Unit prices have eight decimals: each may be off by one of the last per unit.
            assert abs(total - row["node_usd_h"]) <= sum(amounts) * Decimal("0.00000001"), row


@pytest.mark.parametrize("name", find_installed("analyzers"))
def test_an_analyzer_finds_nothing_in_an_empty_warehouse(name: str, tmp_path: Path) -> None:
    analyzer = load("analyzers", name)()
    assert isinstance(analyzer, Analyzer)
    with Warehouse.open(_settings(tmp_path), write=True) as warehouse:
        assert list(analyzer.find(warehouse, WINDOW)) == []


def test_every_plugin_of_ours_is_under_contract() -> None:
    assert set(COLLECTORS) == _ours("collectors")
    assert set(PRICES) | ELSEWHERE == _ours("prices")


def _ours(seam: str) -> set[str]:
    points = find_installed(seam).items()
    return {name for name, point in points if point.dist is None or point.dist.name == "fallow"}
