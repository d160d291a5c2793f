"""The steps that write: each on a small home, in a process of its own, with what it may leave.

    python -m tests.warehouse.write_steps

starts a parent that has everything imported. A line `STEP HOME` on its stdin begets a child, which
waits for a line `go` and does the step: its answer is `PID`, then `EXIT-CODE WORDS`.
"""

import io
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from actions.journal import Journal
from fallow.errors import FallowError
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime import cli
from runtime.operations.accounting import pipeline
from warehouse import catalog, tiers
from warehouse.lake import Warehouse
from warehouse.relocation import connect_moved
from warehouse.rollup import roll_up

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TODAY = datetime(2026, 11, 20, 9)  # noqa: DTZ001  (tables hold naive UTC)
LONG_AGO = datetime(2026, 11, 1, 9)  # noqa: DTZ001
JOURNAL = "journal.sqlite"
ACKNOWLEDGED = "acknowledged"
"""A file beside the home that a step writes once what it did is durable."""
PR_SET_PTRACER, ANY = 0x59616D61, 2**64 - 1
LONGEST_S = 120
"""A step that hangs is ended by a signal, and is a failure."""
State = dict[str, Any]


class WriteStep(msgspec.Struct, frozen=True):
    """One step that writes, and what it needs."""

    prepare: Callable[[Path], None]
    do: Callable[[Path], int | None]
    whole: bool = True
    """It is one transaction: what it leaves is the state of before or the state of after."""
    repeatable: bool = True
    """Done twice it leaves the same as done once."""


def open_home(home: Path) -> Warehouse:
    settings = Settings(home=home, cluster="test", warehouse={"threads": 1})
    return Warehouse.open(settings, write=True, clock=lambda: NOW)


def build_samples(start: datetime, count: int = 60, devices: int = 2) -> Batch:
    pairs = [
        (start + timedelta(minutes=k), f"GPU-{d}") for k in range(count) for d in range(devices)
    ]
    n = len(pairs)
    return Batch.of(
        "sample",
        {
            "cluster": ["test"] * n,
            "ts": [ts for ts, _ in pairs],
            "device": [device for _, device in pairs],
            "node": ["node-1"] * n,
            "interval_s": [60.0] * n,
            "gpu_util_pct": [float(k % 90) for k in range(n)],
        },
    )


def build_others(start: datetime) -> list[Batch]:
    """Return a scrape's other rows: appended to a table, and merged into one."""
    return [
        Batch.of(
            "scrape",
            {
                "cluster": ["test"],
                "ts": [start],
                "collector": ["x"],
                "target": ["t"],
                "samples": [9],
            },
        ),
        Batch.of("node", {"cluster": ["test"], "node": ["node-1"], "last_seen": [start]}),
    ]


def acknowledge(home: Path) -> None:
    """Write that the step is done, by a call that no step writes with: it is never made to fail."""
    file = os.open(home.with_name(ACKNOWLEDGED), os.O_WRONLY | os.O_CREAT)
    os.writev(file, [b"done"])
    os.close(file)


def prepare_new(home: Path) -> None:
    """Leave no home at all."""


def create(home: Path) -> None:
    with open_home(home):
        acknowledge(home)


def prepare_ingest(home: Path) -> None:
    with open_home(home) as warehouse:
        warehouse.ingest([build_samples(TODAY), *build_others(TODAY)])


def ingest(home: Path) -> None:
    later = TODAY + timedelta(minutes=30)  # half of the rows are stored already
    with open_home(home) as warehouse:
        warehouse.ingest([build_samples(later), *build_others(later)])
        acknowledge(home)


def do_roll_up(home: Path) -> None:
    with open_home(home) as warehouse:
        roll_up(warehouse)
        acknowledge(home)


def account(home: Path) -> None:
    with open_home(home) as warehouse:
        window = Window(NOW - timedelta(hours=3), NOW)
        _, failures = pipeline.account(warehouse, window)
        if failures:
            raise FallowError(f"the ledger's audit failed: {failures}")
        acknowledge(home)


def prepare_move(home: Path) -> None:
    with open_home(home) as warehouse:
        warehouse.ingest([build_samples(TODAY), build_samples(LONG_AGO)])


def move(home: Path) -> None:
    with open_home(home) as warehouse:
        tiers.move_to_cold(warehouse, NOW)
        acknowledge(home)


def prepare_upgrade(home: Path) -> None:
    """Make what version 1 of the schema left: event types of before, and fewer columns."""
    with open_home(home) as warehouse:
        old = {"cluster": ["c"], "seq": [1], "kind": ["noticed"]}
        warehouse.ingest([Batch.of("action", old), build_samples(TODAY)])
        with warehouse.transaction() as cursor:
            cursor.execute("DELETE FROM schema_version WHERE version > 1")
            cursor.execute("ALTER TABLE device DROP COLUMN weight")
            cursor.execute("DROP TABLE disruption_budget")


def upgrade(home: Path) -> int:
    code = cli.run(["warehouse", "upgrade", "-o", "json", "--home", str(home)])
    if code == 0:
        acknowledge(home)
    return code


def prepare_journal(home: Path) -> None:
    with Journal.open(home / JOURNAL, lambda: NOW) as journal:
        for number in range(40):
            journal.append("seen", f"before-{number}", {"text": "x" * 200})


def append(home: Path) -> None:
    with Journal.open(home / JOURNAL, lambda: NOW) as journal:
        journal.extend([("seen", f"after-{k}", {"text": "y" * 3000}) for k in range(5)])
        acknowledge(home)


STEPS = {
    "creation": WriteStep(prepare_new, create, whole=False),
    "ingest": WriteStep(prepare_ingest, ingest),
    # Each part is a transaction; the marks of what is left stay.
    "roll-up": WriteStep(prepare_ingest, do_roll_up, whole=False),
    "accounting": WriteStep(prepare_ingest, account, whole=False),
    "tier move": WriteStep(prepare_move, move),
    "migration": WriteStep(prepare_upgrade, upgrade),
    "journal": WriteStep(prepare_journal, append, repeatable=False),
}


def read_state(home: Path) -> State:
    """Return all that a step may change in a home, as values to compare."""
    state: State = {}
    if (home / JOURNAL).exists():
        with Journal.open(home / JOURNAL, lambda: NOW, write=False) as journal:
            assert journal.verify() is None
            state["journal"] = [row.key for row in journal.entries()]
    if (home / catalog.CATALOG_FILE).exists():
        state |= _read_lake(home)
    return state


def _read_lake(home: Path) -> State:
    """Return tables, columns, options and rows; also of a home that an older Fallow wrote."""
    settings = Settings(home=home, cluster="test", warehouse={"threads": 1})
    connection = connect_moved(settings, catalog.locate_catalog(settings), write=False)
    try:
        connection.execute("BEGIN TRANSACTION READ ONLY")
        connection.execute("USE lake")
        shape = connection.execute(
            "SELECT table_name, list(column_name ORDER BY column_name) FROM duckdb_columns()"
            " WHERE database_name = 'lake' AND schema_name = 'main' GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        options = connection.execute(
            "SELECT option_name, value, scope, scope_entry FROM ducklake_options('lake')"
            " ORDER BY ALL"
        ).fetchall()
        tables = {table for table, _ in shape}
        archived = connection.execute("FROM cold_file").fetchall() if "cold_file" in tables else []
        rows = {}
        for table in sorted(tables & _list_written(connection)):
            files = [path for noun, _, path, *_ in archived if noun == table]
            rows[table] = connection.execute(_hash_rows(table, files)).fetchone()
        return {
            "shape": shape,
            "options": options,
            "rows": {table: value for table, value in rows.items() if value and value[0]},
            "archived": [(noun, day, count) for noun, day, _, count, *_ in archived],
        }
    finally:
        connection.close()


def _list_written(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the tables that may have rows: to read the forty others takes most of the time."""
    rows = connection.execute(
        "SELECT table_name FROM __ducklake_metadata_lake.ducklake_table"
        " SEMI JOIN __ducklake_metadata_lake.ducklake_data_file USING (table_id)"
    ).fetchall()
    return {name for (name,) in rows} | {"dirty", "watermark", "unposted", "cold_file", "audit"}


def _hash_rows(table: str, files: list[str]) -> str:
    # When a migration ran and the path of an archived file differ between two runs.
    left_out = {"schema_version": " EXCLUDE (applied_at)", "cold_file": " EXCLUDE (path, sha256)"}
    source = f'SELECT *{left_out.get(table, "")} FROM "{table}"'
    if files:
        listed = ", ".join(map(catalog.quote_literal, files))
        source += f" UNION ALL BY NAME FROM read_parquet([{listed}], hive_partitioning = false)"
    return f"SELECT count(*), sum(hash(t)::HUGEINT) FROM ({source}) t"


def serve() -> None:
    """Do steps in children, one at a time, as stdin says."""
    # A child need not load the engine's code again. The accounting is left out: it starts threads
    # of other libraries, which a child would wait for.
    with tempfile.TemporaryDirectory() as folder:
        for step in ("ingest", "roll-up", "tier move"):
            home = Path(folder) / step / "home"
            STEPS[step].prepare(home)
            STEPS[step].do(home)
    for line in sys.stdin:
        name, home = json.loads(line)
        with tempfile.TemporaryFile() as errors:
            gate, opener = os.pipe()
            pid = os.fork()
            if not pid:
                os.close(opener)
                _do(name, Path(home), gate, errors.fileno())
            os.close(gate)
            _answer(str(pid))
            sys.stdin.readline()
            os.write(opener, b"g")
            os.close(opener)
            _, status = os.waitpid(pid, 0)
            errors.seek(0)
            text = errors.read().decode()
        _answer(json.dumps([os.waitstatus_to_exitcode(status), text]))


def _answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _do(name: str, home: Path, gate: int, errors: int) -> None:
    code = 99
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    signal.alarm(LONGEST_S)
    try:
        os.read(gate, 1)
        code = STEPS[name].do(home) or 0
    except FallowError as error:
        sys.stderr.write(f"{error}\n")
        code = error.exit_code
    except BaseException:  # noqa: BLE001  (it is printed, and the process ends)
        traceback.print_exc()
    finally:
        os.writev(errors, [sys.stderr.getvalue().encode()])
        os._exit(code)


if __name__ == "__main__":
    import ctypes

    # Where only a process's ancestors may trace it: its children inherit nothing but this.
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(ANY), 0, 0, 0)
    serve()
