"""A warehouse whose every page has something to show: the demo's fleet, and hostile neighbours."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from fallow.settings import Settings
from fallow.settings.actions import ActionsSettings
from fallow.window import Window
from runtime.experiments import demo, demo_plants
from runtime.operations.accounting import pipeline
from runtime.operations.analysis import analyzer_runs
from tests.dashboards import acted
from tests.dashboards.drawing import DAYS, GPUS, HOSTILE, hostile_rows
from tests.demo_homes import copy_demo
from warehouse.lake import Warehouse


def settle(factory: pytest.TempPathFactory, home: Path) -> Settings:
    """Fill a warehouse and return its settings."""
    made = live(copy_demo(factory, home, days=DAYS, gpus=GPUS), days=DAYS)
    with Warehouse.open(made, write=True, clock=lambda: demo.END) as warehouse:
        move_in(warehouse)
    return made


def alone(home: Path, *, days: int, gpus: int) -> Settings:
    """Fill a warehouse with the demo's fleet only, policies in force, and return its settings."""
    demo.run_demo(
        days=days,
        gpus=gpus,
        seed=1,
        progress=lambda _what, _part: None,
        home=home,
        acts=False,
        has_history=True,
    )
    return live(home, days=days)


def live(home: Path, *, days: int) -> Settings:
    """Let policies be in force on a demo's fleet; return the settings."""
    actions = ActionsSettings(policies=home / "policies")
    made = Settings(home=home, cluster=demo_plants.CLUSTER, actions=actions)
    acted.policies(made, ("idle-inference", "idle-notebooks"))
    with Warehouse.open(made, write=True, clock=lambda: demo.END) as warehouse:
        held = Window(demo.END - timedelta(days=days), demo.END)
        pipeline.analyze(warehouse, held, analyzer_runs.load_analyzers(made))
        acted.lived(made, warehouse, demo.END)
    return made


def move_in(warehouse: Warehouse) -> None:
    """Add clusters, teams, pools and workloads of hostile names; nobody knows their price."""
    for batch in hostile_rows(HOSTILE):
        rows = batch.rows
        if batch.table == "ledger":
            nothing = pa.nulls(rows.num_rows, rows["usd"].type)
            for name in ("usd", "usd_gpu"):
                rows = _with(rows, name, nothing)
            rows = _with(rows, "priced", pa.repeat(False, rows.num_rows))
        # They are what the condition selects: the ledger's totals follow it.
        warehouse.replace(
            batch.table, rows, "list_contains($names, cluster)", {"names": [*HOSTILE]}
        )


def _with(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def given(settings: Settings, **more: object) -> dict[str, object]:
    """Return what `fallow.yaml` says of a warehouse, and more."""
    policies = {"policies": str(settings.actions.policies)}
    return {"home": str(settings.home), "cluster": settings.cluster, "actions": policies, **more}
