"""Stages on Ray store what one process stores, with one, two and four tasks at once (`.ci/ray`)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.copies import copied
from tests.warehouse import test_stage_kills, test_stages
from tests.warehouse.test_audit_stage import damage, make_due
from tests.warehouse.test_stage_kills import read_audits, run_stage
from tests.warehouse.test_stages import assert_equal, get_now, open_settings, read_rolled
from warehouse import audits
from warehouse.lake import Warehouse
from warehouse.runners.ray_cluster import RayRunner
from warehouse.stages.audit_stage import audit_due, run_audits_stage
from warehouse.stages.rollup_stage import roll_up_stage

pytest.importorskip("ray", reason="the extra ray is absent")
pytestmark = pytest.mark.long  # test_stages.py covers the same with processes and without

sampled = test_stages.sampled
small_slices = test_stages.small_slices
whole = test_stages.whole
demo = test_stages.demo
stage = test_stage_kills.stage
expected = test_stage_kills.expected


@pytest.fixture(scope="module", params=[1, 2, 4])
def runner(request: pytest.FixtureRequest) -> Iterator[RayRunner]:
    made = RayRunner(request.getfixturevalue("ray_nodes"), tasks=request.param)
    yield made
    made.close()


def test_ray_rolls_up_what_one_process_does(
    sampled: Path,
    tmp_path: Path,
    runner: RayRunner,
    whole: tuple[dict[str, pl.DataFrame], object],
) -> None:
    settings = open_settings(copied(sampled, tmp_path / "home"))
    with Warehouse.open(settings, write=True, clock=get_now) as wh:
        assert roll_up_stage(wh, lambda _: runner) > 0
        assert_equal(whole[0], read_rolled(wh))


def test_ray_writes_and_audits_the_ledger_of_one_process(
    demo: Path, tmp_path: Path, runner: RayRunner, stage: str, expected: dict[str, Any]
) -> None:
    with Warehouse.open(open_settings(copied(demo, tmp_path / "home")), write=True) as wh:
        run_stage(wh, stage, lambda _: runner, expected)


def test_ray_runs_all_audits_and_those_that_are_due_as_one_process(
    demo: Path, tmp_path: Path, runner: RayRunner
) -> None:
    with Warehouse.open(open_settings(copied(demo, tmp_path / "home")), write=True) as wh:
        make_due(wh)
        damage(wh)
        assert run_audits_stage(wh, lambda _: runner) == audits.run_audits(wh)
        assert (failures := audit_due(wh, lambda _: runner))
        stored = read_audits(wh)
        with wh.transaction() as cursor:
            cursor.execute("DELETE FROM audit")
        assert audit_due(wh) == failures
        assert_equal(stored, read_audits(wh))
