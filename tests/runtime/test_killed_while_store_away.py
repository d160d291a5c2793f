"""SIGKILL of `fallow up` while the archive's S3 store is away: rows are stored once, days move."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallow.settings import Settings
from runtime.operations.accounting.ledger_totals import verify_warehouse
from tests.archived import DAYS, build, on_s3
from tests.runtime.test_roles import rest, until, up
from tests.servers import s3
from tests.soak.exporters import CountingExporter, number_of
from tests.soak.proxy import Proxy
from warehouse.lake import Warehouse

ARCHIVED = "SELECT count(*) AS n FROM sample WHERE energy_mj IS NULL"


@pytest.fixture
def exporter() -> Iterator[CountingExporter]:
    made = CountingExporter("n1", 1)
    yield made
    made.close()


def read_numbers(settings: Settings, exporter: CountingExporter) -> list[int]:
    """Return the number of the answer that each stored row is from; archived days are not read."""
    day = min(exporter.answers.values(), default=time.time()) - 3600
    sql = "SELECT energy_mj FROM sample WHERE ts >= make_timestamp(($since * 1e6)::BIGINT)"
    with Warehouse.open(settings) as lake:
        energies = lake.query(f"{sql} AND energy_mj IS NOT NULL", {"since": day})["energy_mj"]
    return [number_of(energy) for energy in energies.to_pylist()]


# make test has its parts: tests/cli/test_cold_store_away.py (a move does nothing while the store is
# away), tests/warehouse/test_lake_kill.py and test_tiers.py (a kill at each step).
@pytest.mark.long
def test_rows_are_stored_once_and_days_move_when_the_store_is_back(
    tmp_path: Path, exporter: CountingExporter
) -> None:
    pytest.importorskip("moto.server")
    with s3.serving() as endpoint:
        s3.make_bucket(endpoint, "cold")
        proxy = Proxy(int(endpoint.rpartition(":")[2]))
        settings, config = build(tmp_path, **on_s3(f"http://127.0.0.1:{proxy.port}"))
        environ = {
            "FALLOW_EXPORTERS__TARGETS": json.dumps([exporter.url]),
            "FALLOW_SERVICE__COLLECT_EVERY": "1s",
            "FALLOW_SERVICE__ROLLUP_EVERY": "3s",
            "FALLOW_SERVICE__MAINTAIN_EVERY": "2s",
            "AWS_MAX_ATTEMPTS": "1",
        }
        words = ("--config", str(config), "--role", "collector", "--role", "analyzer")
        proxy.close_port()
        with up(tmp_path, *words, **environ) as first:
            assert until(first, "job failed, will try again")["job"] == "maintain"
            until(first, "collected")
            until(first, "accounted")
            stored = read_numbers(settings, exporter)
            assert stored
            os.kill(first.pid, signal.SIGKILL)
            first.wait(60)
        after_kill = read_numbers(settings, exporter)
        assert set(stored) <= set(after_kill)
        with up(tmp_path, *words, **environ) as second:
            until(second, "collected")
            proxy.open_port()
            until(second, "maintained")
            until(second, "collected")
            second.send_signal(signal.SIGTERM)
            answer = rest(second)
            assert second.wait(60) == 0, answer
        numbers = read_numbers(settings, exporter)
        assert len(numbers) == len(set(numbers)), "a row is stored twice"
        assert set(after_kill) < set(numbers) <= set(exporter.answers)
        with Warehouse.open(settings) as lake:
            assert lake.query(ARCHIVED).to_pylist() == [{"n": DAYS * 144}]
            moved = lake.query("SELECT count(DISTINCT path) AS n FROM cold_file").to_pylist()
            assert moved[0]["n"] > 7, "days that were due moved once the store was back"
            failed = [row for row in verify_warehouse(lake) if row["status"] == "failed"]
        assert failed == []
