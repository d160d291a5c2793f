"""Data in an S3 store, the catalog in PostgreSQL, and commits whose answer is lost."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pytest

from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from fallow.settings.groups import S3
from tests.servers import s3
from tests.servers.postgres import Server, serving
from tests.soak.proxy import Proxy
from tests.warehouse import test_stages
from tests.warehouse.test_postgres import look
from tests.warehouse.test_stages import assert_equal, build_samples, get_now, read_rolled
from warehouse import maintenance
from warehouse.cold_storage import ColdBucket
from warehouse.data_files import SECOND_NAMES
from warehouse.data_objects import DataObjects
from warehouse.lake import Warehouse
from warehouse.place_marks import MARK
from warehouse.runners.local import LocalRunner
from warehouse.stages.rollup_stage import roll_up_stage
from warehouse.steps import load_step
from warehouse.verification import verify_warehouse

pytest.importorskip("moto.server")

S = TypeVar("S")
T = TypeVar("T")
sampled = test_stages.sampled
small_slices = test_stages.small_slices
whole = test_stages.whole

COUNT = "SELECT count(*) AS n FROM sample"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.serving() as url:
        yield url


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def proxy(postgres: Server) -> Proxy:
    return Proxy(postgres.port)


@pytest.fixture
def site(postgres: Server, proxy: Proxy, endpoint: str, tmp_path: Path) -> Settings:
    """Return settings with a bucket of the test's own, and the catalog behind a proxy."""
    name = f"lake{abs(hash(tmp_path)) % 10**9}"
    s3.make_bucket(endpoint, name)
    flags = {
        "home": tmp_path / "home",
        "cluster": "test",
        "warehouse.catalog": postgres.catalog(name).replace(str(postgres.port), str(proxy.port)),
        "warehouse.data": f"s3://{name}/the lake/data",
        "warehouse.s3.endpoint": endpoint,
        "warehouse.s3.region": "us-east-1",
        "warehouse.s3.access_key_id": "test",
        "warehouse.s3.secret_access_key": "test",
    }
    return load(environ={}, flags=flags).settings


def list_objects(settings: Settings) -> set[str]:
    """Return the paths of all objects below the data."""
    root = settings.warehouse.data
    store = ColdBucket(root, settings.warehouse.s3)
    return {address.removeprefix(f"{root}/") for address, _ in store.listed()} - {MARK}


def list_named(warehouse: Warehouse) -> set[str]:
    """Return the paths that the catalog names."""
    with warehouse.snapshot() as cursor:
        rows = cursor.execute(load_step("maintenance/files_of_lake")).fetchall()
    return {path for path, _, _ in rows}


def test_a_commit_whose_answer_is_lost_keeps_its_objects(
    site: Settings, proxy: Proxy, now: datetime
) -> None:
    with Warehouse.open(site, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([look(0)])
        proxy.lose_answer(b"COMMIT")
        with pytest.raises(TemporaryError, match="the catalog cannot be reached"):
            warehouse.ingest([look(1)])
        assert proxy.has_lost_answer
    # PostgreSQL has the commit: its objects are read, and its rows are not stored again.
    with Warehouse.open(site, write=True, clock=lambda: now) as warehouse:
        assert [check for check in verify_warehouse(warehouse) if not check.ok] == []
        assert warehouse.ingest([look(1), look(2)]).added == 20
        assert warehouse.query(COUNT).to_pylist() == [{"n": 60}]
        assert list_named(warehouse) == list_objects(site)


class LosesAnswer:
    """A runner of one process; the store's answer to its first such request is lost."""

    concurrency = 1

    def __init__(self, proxy: Proxy, request: bytes) -> None:
        self._proxy, self._request = proxy, request

    def map(self, task: Callable[[S], T], slices: Sequence[S]) -> list[T]:
        self._proxy.lose_answer(self._request)
        runner = LocalRunner(1)
        try:
            return runner.map(task, slices)
        finally:
            runner.close()

    def close(self) -> None:
        pass

    def __call__(self, _: Settings) -> "LosesAnswer":
        return self


def test_a_slice_is_stored_once_when_its_upload_has_no_answer(
    site: Settings, endpoint: str, whole: tuple[dict[str, pl.DataFrame], Any]
) -> None:
    proxy = Proxy(int(endpoint.rpartition(":")[2]))
    store = site.warehouse.s3.model_copy(update={"endpoint": f"http://127.0.0.1:{proxy.port}"})
    place = site.warehouse.model_copy(update={"s3": store})
    behind = site.model_copy(update={"warehouse": place})
    with Warehouse.open(behind, write=True, clock=get_now) as warehouse:
        warehouse.ingest([build_samples("one", range(150)), build_samples("two", range(30))])
        assert roll_up_stage(warehouse, LosesAnswer(proxy, b"PUT /")) > 0
        assert proxy.has_lost_answer
        assert_equal(whole[0], read_rolled(warehouse))
        assert list_named(warehouse) <= list_objects(site)
        assert roll_up_stage(warehouse, LosesAnswer(proxy, b"PUT /")) == 0


def test_a_merge_whose_answer_is_lost_keeps_its_objects(
    site: Settings, proxy: Proxy, now: datetime
) -> None:
    with Warehouse.open(site, write=True, clock=lambda: now) as warehouse:
        for number in range(3):
            warehouse.ingest([look(number)])

        def lose_answer(step: str) -> None:
            if step == "merge_adjacent_files sample done":
                proxy.lose_answer(b"COMMIT")

        with pytest.raises(TemporaryError, match="the catalog cannot be reached"):
            maintenance.compact_warehouse(warehouse, on_step=lose_answer)
        assert [check for check in verify_warehouse(warehouse) if not check.ok] == []
        warehouse.ingest([look(3)])
        assert warehouse.query(COUNT).to_pylist() == [{"n": 80}]
        assert list_named(warehouse) <= list_objects(site)


def test_objects_of_a_commit_that_failed_go_with_the_next_one(
    site: Settings, proxy: Proxy, now: datetime
) -> None:
    with Warehouse.open(site, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([look(0)])
        with ExitStack() as stack:
            cursor = stack.enter_context(warehouse.transaction())
            cursor.execute("INSERT INTO sample BY NAME SELECT 'test' AS cluster, 'GPU-9' AS device")
            proxy.close_port()
            with pytest.raises(TemporaryError, match="the catalog cannot be reached"):
                stack.close()
    assert [path for path in list_objects(site) if path.startswith(SECOND_NAMES)] != []
    proxy.open_port()
    with Warehouse.open(site, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([look(1)])
        assert warehouse.query(COUNT).to_pylist() == [{"n": 40}]
        assert list_named(warehouse) == list_objects(site)


def test_objects_that_could_not_be_put_back_at_once_come_with_the_next_commit(
    site: Settings, proxy: Proxy, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Warehouse.open(site, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([look(0)])
        with monkeypatch.context() as patch:
            # The process ends, or the store goes away, between the failure and the repair.
            patch.setattr(DataObjects, "put_back", lambda _: None)
            proxy.lose_answer(b"COMMIT")
            with pytest.raises(TemporaryError, match="the catalog cannot be reached"):
                warehouse.ingest([look(1)])
            assert list_named(warehouse) - list_objects(site) != set(), "the engine removed them"
    with Warehouse.open(site, write=True, clock=lambda: now) as warehouse:
        assert list_named(warehouse) <= list_objects(site)
        assert warehouse.ingest([look(2)]).added == 20
        assert [check for check in verify_warehouse(warehouse) if not check.ok] == []
        assert list_named(warehouse) == list_objects(site)


def test_nothing_is_committed_where_the_store_makes_no_copy(
    site: Settings, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Warehouse.open(site, write=True, clock=lambda: now) as warehouse:
        warehouse.ingest([look(0)])
        with monkeypatch.context() as patch:
            patch.setenv("AWS_MAX_ATTEMPTS", "1")
            away = ColdBucket("s3://away/data", S3(endpoint="http://127.0.0.1:9"))
            patch.setattr(ColdBucket, "copy", lambda *_: away.check())
            with pytest.raises(TemporaryError, match="object store"):
                warehouse.ingest([look(1)])
        assert warehouse.query(COUNT).to_pylist() == [{"n": 20}]
        assert warehouse.ingest([look(1)]).added == 20
        assert list_named(warehouse) == list_objects(site)
