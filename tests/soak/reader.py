"""A reader beside the service: python -m tests.soak.reader CONFIG NOTES.

It writes to NOTES, one JSON line each, what the warehouse has answered: the rows that are there
(`seen`), the count of the rows of before the soak (`before`), or why there was no answer (`error`).
A row that a reader has seen must be there at the end.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fallow.errors import FallowError
from fallow.settings import load
from warehouse.lake import Warehouse

EVERY_S = 1.5
RECENT = timedelta(seconds=30)
SEEN = "SELECT device, energy_mj FROM sample WHERE ts >= $since AND energy_mj IS NOT NULL"
BEFORE = "SELECT count(*) AS n, sum(gpu_util_pct) AS total FROM sample WHERE energy_mj IS NULL"


def read(config: Path, notes: Path, began: datetime) -> None:
    """Ask again and again until the process is ended."""
    settings = load(file=config, environ={}).settings
    with notes.open("a", buffering=1) as out:
        while True:
            try:
                with Warehouse.open(settings) as warehouse:
                    while True:
                        _ask(warehouse, out, began)
                        time.sleep(EVERY_S)
            except FallowError as error:
                print(json.dumps({"error": type(error).__name__, "text": str(error)}), file=out)
            time.sleep(EVERY_S)


def _ask(warehouse: Warehouse, out: object, began: datetime) -> None:
    recent = warehouse.query(SEEN, {"since": max(began, datetime.now(UTC) - RECENT)})
    print(json.dumps({"seen": [list(row.values()) for row in recent.to_pylist()]}), file=out)  # type: ignore[call-overload]
    rows = warehouse.query(BEFORE).to_pylist()
    print(json.dumps({"before": list(rows[0].values())}), file=out)  # type: ignore[call-overload]


if __name__ == "__main__":
    read(Path(sys.argv[1]), Path(sys.argv[2]), datetime.fromisoformat(sys.argv[3]))
