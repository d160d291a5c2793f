"""Sharded collection over a real PostgreSQL: one process per shard, and a lost one is said."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.figures import data_health
from fallow.errors import TemporaryError, UsageError
from fallow.settings import Settings, load
from fallow.shards import Shard, count_targets
from runtime.operations.doctor.shards import check_shards
from runtime.operations.ingestion.collection import load_collectors
from runtime.operations.ingestion.sharding import list_targets, select_targets
from runtime.service.loop import serve
from runtime.service.metrics import SelfMetrics
from runtime.service.roles import ServiceRole
from runtime.service.shard_leases import ShardLeases, hold_shard, is_ended, name_process
from tests.cli.test_acting_whole import Exporter
from tests.cli.test_acting_whole import exporter as exporter  # noqa: PLC0414  (a fixture)
from tests.runtime.test_roles import until, up
from tests.servers import postgres
from warehouse.lake import Warehouse
from warehouse.shards import read_shards

TARGETS = [f"http://10.0.0.{n}:9400/metrics" for n in range(40)]
SHORT_S = 0.5
"""Length of a lease that a test lets expire."""


@pytest.fixture
def shared(database_server: postgres.Server, tmp_path: Path) -> Settings:
    """Return settings of a catalog of the test's own, with 40 targets."""
    catalog = database_server.catalog(f"lake{abs(hash(tmp_path)) % 10**9}")
    return load(
        environ={"FALLOW_HOME": str(tmp_path / "home"), "FALLOW_WAREHOUSE__CATALOG": catalog},
        flags={"exporters.targets": TARGETS, "cluster": "c"},
    ).settings


@pytest.fixture
def lake(shared: Settings) -> Iterator[Warehouse]:
    with Warehouse.open(shared, write=True) as warehouse:
        yield warehouse


def claim(
    lake: Warehouse, settings: Settings, number: int, count: int, host: str, *, seconds: float = 30
) -> ShardLeases:
    """Claim a shard as a process of another host, which nobody can look at."""
    holder = f"{host} process 1 {number}"
    leases = ShardLeases(lake, settings, Shard(number, count), seconds=seconds, holder=holder)
    leases.claim(threading.Event())
    return leases


def test_each_shard_loads_its_own_targets_and_together_they_load_all(shared: Settings) -> None:
    settings = shared.model_copy(
        update={"prometheus": shared.prometheus.model_copy(update={"url": "http://prometheus"})}
    )
    parts = [select_targets(settings, Shard(number, 3)) for number in (1, 2, 3)]
    assert sorted(t for part in parts for t in list_targets(part)) == sorted(list_targets(settings))
    assert all(0 < len(part.exporters.targets) < len(TARGETS) for part in parts)
    assert sorted(name for part in parts for name in load_collectors(part)) == [
        *["exporters"] * 3,
        "prometheus",
    ]


@pytest.mark.parametrize(
    ("shard", "said"),
    [("3/2", "must be 1 to 2, it is 3"), ("0/8", "must be 1 to 8, it is 0"), ("8", "NUMBER/COUNT")],
)
def test_a_shard_that_is_none_is_said_first(tmp_path: Path, shard: str, said: str) -> None:
    """Who typed it has settings without sources too, and would look for the fault there."""
    settings = load(environ={}, flags={"home": tmp_path, "service.shard": shard}).settings
    with pytest.raises(UsageError, match=said) as refused:
        serve(settings)
    assert refused.value.hint == "write NUMBER/COUNT, such as 2/8: the second of eight shards"


def test_a_lost_shard_is_named_with_its_targets_by_doctor_page_and_metric(
    lake: Warehouse, shared: Settings
) -> None:
    assert (read_shards(lake), [*check_shards(lake)]) == ((), [])
    first = claim(lake, shared, 1, 3, "a")
    second = claim(lake, shared, 2, 3, "b", seconds=SHORT_S)
    by_hand = [sum(Shard(n, 3).owns(t) for t in TARGETS) for n in (1, 2, 3)]
    wait_until_lost(lake, 2)
    states = read_shards(lake)
    assert [(s.shard.number, s.targets, s.running) for s in states] == [
        (1, by_hand[0], True),
        (2, by_hand[1], False),
        (3, by_hand[2], False),
    ]
    (row,) = check_shards(lake)
    assert (row.status, row.next_step) == ("bad", "fallow up --role collector --shard 2/3")
    lost = by_hand[1] + by_hand[2]
    assert f"2 of 3 do not run; nobody collects {lost} of 40 targets: shard 2/3 (" in row.finding
    assert f"3/3 ({by_hand[2]} targets, never started)" in row.finding
    metrics = SelfMetrics([ServiceRole.collector])
    metrics.record_shards(states)
    for number, count in zip((1, 2, 3), (0, *by_hand[1:]), strict=True):
        line = f'fallow_shard_uncollected_targets{{shard="{number}/3"}} {float(count)}\n'
        assert line in metrics.text().decode()
    page_rows = data_health.read_shards(lake, None).to_pylist()
    assert [(r["shard"], r["state"], r["targets"], r["uncollected"]) for r in page_rows] == [
        ("2/3", "lost", by_hand[1], by_hand[1]),
        ("3/3", "lost", by_hand[2], by_hand[2]),
        ("1/3", "collected", by_hand[0], 0),
    ]
    # The collector that comes back is seen at once; the others stay lost.
    claim(lake, shared, 3, 3, "c")
    claim(lake, shared, 2, 3, "d")
    (row,) = check_shards(lake)
    assert row.status == "ok"
    assert row.finding.startswith("c: all 3 run and collect 40 targets (")
    assert "d process 1 2" in row.finding
    first.release()
    assert [s.running for s in read_shards(lake)] == [False, True, True]
    second.renew()
    assert second.loss is not None
    assert "shard 2/3 of cluster c is collected by d process 1 2" in second.loss.message


def wait_until_lost(lake: Warehouse, number: int) -> None:
    pause = threading.Event()
    while any(s.running for s in read_shards(lake) if s.shard.number == number):
        pause.wait(0.05)


def test_of_two_processes_that_claim_a_shard_the_second_goes(
    lake: Warehouse, shared: Settings
) -> None:
    first = claim(lake, shared, 1, 2, "a")
    renewing = threading.Event()

    def renew() -> None:
        while not renewing.wait(0.05):
            first.renew()

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(TemporaryError, match="shard 1/2 of cluster c is collected by a proc"):
            claim(lake, shared, 1, 2, "b")
        with pytest.raises(UsageError, match="shard 1/4 counts 4 shards, but a process 1 1 coll"):
            claim(lake, shared, 1, 4, "b")
        claim(lake, shared, 2, 2, "b")
    finally:
        renewing.set()
        thread.join()
    assert first.loss is None


def test_a_shard_of_a_process_that_was_killed_is_taken_over(
    lake: Warehouse, shared: Settings
) -> None:
    claim(lake, shared, 1, 1, "a", seconds=SHORT_S)
    assert claim(lake, shared, 1, 1, "b").loss is None  # its lease ran out
    (state,) = read_shards(lake)
    assert (state.running, state.holder) == (True, "b process 1 1")


@pytest.mark.parametrize(
    ("holder", "ended"),
    [
        ("h process 1 aa", True),  # our own number: the container was started again
        ("h process 999999999 aa", True),
        ("other process 1 aa", False),
        ("h process 2 ours", False),
        ("", False),
    ],
)
def test_a_process_of_our_host_that_ended_is_known(holder: str, ended: bool) -> None:
    ours = "h process 1 ours"
    assert is_ended(holder.replace(" 2 ours", f" {threading.get_native_id()} x"), ours) is ended


def test_one_of_several_collectors_accounts_and_another_takes_over(
    lake: Warehouse, shared: Settings
) -> None:
    first, second = claim(lake, shared, 1, 2, "a"), claim(lake, shared, 2, 2, "b")
    assert (first.accounts(), second.accounts()) == (True, False)
    assert (first.accounts(), second.accounts()) == (True, False)
    first.release()
    assert (second.accounts(), first.accounts()) == (True, False)


def test_a_shard_of_an_embedded_warehouse_is_refused(settings: Settings) -> None:
    sharded = settings.model_copy(
        update={
            "exporters": settings.exporters.model_copy(update={"targets": TARGETS}),
            "service": settings.service.model_copy(
                update={"shard": "2/8", "listen": "127.0.0.1:0"}
            ),
        }
    )
    with pytest.raises(UsageError, match="shard 2/8 needs a catalog that several collectors"):
        serve(sharded, threading.Event(), roles=[ServiceRole.collector, ServiceRole.analyzer])
    with pytest.raises(UsageError, match="shard '2/8' is of a collector; this process is analyzer"):
        serve(sharded, threading.Event(), roles=[ServiceRole.analyzer])


def test_a_held_shard_is_given_back_at_the_end(lake: Warehouse, shared: Settings) -> None:
    result: list[int] = []
    stop = threading.Event()
    with hold_shard(
        lake, shared, Shard(1, 2), stop, on_states=lambda states: result.append(len(states))
    ) as accounts:
        assert accounts()
        assert name_process().partition(" process ")[0] in (read_shards(lake)[0].holder or "")
    assert [s.running for s in read_shards(lake)] == [False, False]
    assert result[0] == 2
    assert not stop.is_set()


# The tests above: each lease and each reader of it, without processes.
@pytest.mark.long
@pytest.mark.slow
def test_processes_divide_the_targets_and_a_killed_one_is_named(
    database_server: postgres.Server, tmp_path: Path, exporter: Exporter
) -> None:
    exporter.labels = {"node": "n1", "space": "a", "pod": "p"}
    targets = [f"{exporter.url}?target={n}" for n in range(8)]
    parts = count_targets(targets, 2)
    environ = {
        "FALLOW_HOME": str(tmp_path / "home"),
        "FALLOW_WAREHOUSE__CATALOG": database_server.catalog("processes"),
        "FALLOW_WAREHOUSE__DATA": str(tmp_path / "data"),
        "FALLOW_EXPORTERS__TARGETS": json.dumps(targets),
        "FALLOW_SERVICE__COLLECT_EVERY": "1s",
    }
    second = {**environ, "FALLOW_HOME": str(tmp_path / "second")}
    settings = load(environ=environ).settings
    shards = ("--role", "collector", "--shard")
    with up(tmp_path, *shards, "1/2", **environ) as first:
        until(first, "collected")
        with Warehouse.open(settings) as lake:
            states = read_shards(lake)
            assert [s.uncollected for s in states] == [0, parts[1]]
            with up(tmp_path, *shards, "2/2", **second) as other:
                until(other, "collected")
                assert {s.running for s in read_shards(lake)} == {True}
                rows = lake.query("SELECT DISTINCT target FROM scrape").to_pylist()
                assert len(rows) == len(targets)
                with up(tmp_path, *shards, "2/2", **second) as third:
                    answer = third.stderr.read() if third.stderr else ""
                    assert (
                        third.wait(),
                        "shard 2/2 of cluster default is collected" in answer,
                    ) == (
                        75,
                        True,
                    ), answer
                other.kill()
                wait_until_lost(lake, 2)
            (row,) = check_shards(lake)
            assert (row.status, row.next_step) == (
                "bad",
                "fallow up --role collector --shard 2/2",
            )
            assert f"nobody collects {parts[1]} of 8 targets: shard 2/2" in row.finding
