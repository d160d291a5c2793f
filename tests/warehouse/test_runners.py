"""Every runner returns each slice's result once and in order, also when workers die."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import duckdb
import pytest

from fallow.errors import SettingsError, TemporaryError, WarehouseError
from fallow.settings import Settings, load
from tests.warehouse.stage_tasks import (
    SLICES,
    DiesOnce,
    DiesWithAnother,
    count_hour,
    count_hour_elsewhere,
    fail_at_two,
)
from warehouse.runners import ray_cluster
from warehouse.runners.choice import is_sliced, open_runner
from warehouse.runners.local import LocalRunner
from warehouse.runners.ray_cluster import RayRunner
from warehouse.runners.slices import Runner, StageError, fail_stage


@pytest.fixture(
    scope="module",
    # `.ci/ray` runs that of Ray, which is no part of the tests' environment.
    params=["local", pytest.param("ray", marks=pytest.mark.long)],
)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    made: Runner
    if request.param == "ray":
        made = RayRunner(request.getfixturevalue("ray_nodes"), tasks=2)
    else:
        made = LocalRunner(2)
    yield made
    made.close()


def test_results_come_in_the_order_of_the_slices_from_other_processes(runner: Runner) -> None:
    results = runner.map(count_hour_elsewhere, SLICES)
    assert [hour for hour, _ in results] == [0, 1, 2, 3]
    assert os.getpid() not in {process for _, process in results}
    assert runner.concurrency == 2
    assert runner.map(count_hour, []) == []


def test_the_slice_of_a_killed_worker_runs_again(runner: Runner, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    assert runner.map(DiesOnce(marker), SLICES) == [0, 1, 2, 3]
    assert marker.exists()
    assert runner.map(count_hour, SLICES) == [0, 1, 2, 3], "and the runner goes on"


def test_the_slices_of_two_workers_killed_at_once_run_again(runner: Runner, tmp_path: Path) -> None:
    assert runner.map(DiesWithAnother(tmp_path), SLICES) == [0, 1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_a_slice_that_fails_three_times_fails_the_stage_and_is_named(runner: Runner) -> None:
    with pytest.raises(StageError) as caught:
        runner.map(fail_at_two, SLICES)
    assert caught.value.message.startswith(
        "a slice failed 3 times, nothing of its stage is stored "
        "(cluster c, 2026-11-01 02:00 to 2026-11-01 03:00): "
    )
    assert "no memory" in caught.value.message
    assert caught.value.exit_code == 1
    assert "memory" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("error", "help_wanted"),
    [
        (duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate 1 MB"), "memory"),
        (BrokenProcessPool("A process in the process pool was terminated abruptly"), "processes"),
        (OSError(errno.ENOSPC, "No space left on device"), "free some space"),
        (TemporaryError("it is away", hint="start it"), "start it"),
        (ValueError("odd"), "fallow doctor"),
    ],
)
def test_the_hint_and_the_exit_code_of_a_failed_stage_are_those_of_its_cause(
    error: Exception, help_wanted: str
) -> None:
    failed = fail_stage("slice 1", error)
    hint = str(failed.hint)
    assert isinstance(failed, StageError)
    assert failed.exit_code == (75 if help_wanted in {"free some space", "start it"} else 1)
    assert help_wanted in hint
    assert "the next turn" in hint
    assert ("memory" in hint) == (help_wanted in {"memory", "processes"})


def test_an_embedded_default_is_not_sliced(settings: Settings) -> None:
    assert not is_sliced(settings)
    for changed in ({"processes": 2}, {"workers": "ray"}):
        wanted = settings.warehouse.model_copy(update=changed)
        assert is_sliced(settings.model_copy(update={"warehouse": wanted}))


def test_without_the_extra_ray_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError) as caught:
        RayRunner("head:6379")
    assert str(caught.value) == (
        "warehouse.workers is ray, and the extra is not installed "
        "(hint: in Fallow's checkout: pip install '.[ray]', or set warehouse.workers to local)"
    )


@pytest.mark.parametrize(
    ("flags", "is_legal"),
    [
        ({}, False),
        ({"warehouse.catalog": "postgres:dbname=x"}, False),
        ({"warehouse.data": "s3://bucket/x"}, False),
        ({"warehouse.ray_address": "local"}, True),
        ({"warehouse.catalog": "postgres:dbname=x", "warehouse.data": "s3://bucket/x"}, True),
    ],
)
def test_a_warehouse_that_rays_workers_cannot_open_is_refused(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, str], *, is_legal: bool
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    settings = load(environ={}, flags={"warehouse.workers": "ray", **flags}).settings
    refusal = "the extra is not installed" if is_legal else "its workers cannot open this warehouse"
    with pytest.raises(SettingsError, match=refusal), open_runner(settings):
        pass


def test_an_address_that_does_not_answer_is_said_and_temporary() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(TemporaryError) as caught:
        ray_cluster._check_address(address)
    assert caught.value.message.startswith(f"Ray at {address} does not answer: ")
    assert "ray status" in str(caught.value.hint)
    assert caught.value.exit_code == 75


@pytest.mark.parametrize(
    ("answer", "why"),
    [(None, "timed out"), (b"", "it is no Ray head"), (b"HTTP/1.1 400", "is no Ray head")],
)
def test_a_port_on_which_no_ray_head_greets_is_said_and_temporary(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None, why: str
) -> None:
    monkeypatch.setattr(ray_cluster, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"ray://127.0.0.1:{server.getsockname()[1]}"
        with ThreadPoolExecutor(1) as other:
            if answer is not None:
                other.submit(answer_once, server, answer)
            with pytest.raises(TemporaryError, match=why) as caught:
                ray_cluster._check_address(address)
    assert caught.value.message.startswith(f"Ray at {address} does not answer: ")


def answer_once(server: socket.socket, answer: bytes) -> None:
    with server.accept()[0] as connection:
        connection.recv(100)
        connection.sendall(answer)


def test_a_head_that_greets_is_no_stranger() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as other:
        other.submit(answer_once, server, bytes([0, 0, 24, 4, 0, 0, 0, 0, 0]))
        ray_cluster._check_address(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("address", ["head", "ray://head", "http://head", ":6379", "head:x"])
def test_an_address_without_host_and_port_is_a_setting_to_mend(address: str) -> None:
    with pytest.raises(SettingsError, match="is no address of a Ray head") as caught:
        ray_cluster._check_address(address)
    assert caught.value.exit_code == 2
    assert "ray://HOST:PORT" in str(caught.value.hint)


MINE = {"fallow": "0.1.0", "python": "3.11", "duckdb": "1.5.5", "lacks": "httpfs"}


@pytest.mark.parametrize(
    ("theirs", "refusal"),
    [
        ({}, None),
        ({"lacks": ""}, None),
        ({"duckdb": "9.9"}, "the Ray worker on n-1 has duckdb 9.9, this process 1.5.5"),
        ({"python": "3.15"}, "the Ray worker on n-1 has python 3.15, this process 3.11"),
        ({"fallow": "0.2.0"}, "the Ray worker on n-1 has fallow 0.2.0, this process 0.1.0"),
        ({"lacks": "ducklake"}, "the Ray worker on n-1 lacks the engine's extension ducklake"),
    ],
)
def test_a_worker_that_could_answer_otherwise_is_refused(
    theirs: dict[str, str], refusal: str | None
) -> None:
    if refusal is None:
        ray_cluster.check_versions("n-1", MINE, {**MINE, **theirs})
        return
    with pytest.raises(WarehouseError) as caught:
        ray_cluster.check_versions("n-1", MINE, {**MINE, **theirs})
    assert caught.value.message == refusal
    assert caught.value.hint
