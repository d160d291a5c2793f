"""Run `fallow up` with a wall clock that can be stepped: python -m tests.soak.service CLOCK CONFIG.

The file CLOCK holds seconds that are added to the time of day. Nothing else is changed, and the
monotonic clock is as it is: a step of the clock of a machine does the same.
"""

import ctypes
import datetime as dt
import gc
import sys
import time
from pathlib import Path
from typing import Any


def step_clock(file: Path) -> None:
    """Let `datetime.now` and `time.time` of this process be off by what the file says."""
    now, seconds = dt.datetime.now, time.time

    def offset() -> float:
        try:
            return float(file.read_text() or 0)
        except (OSError, ValueError):  # it is being written
            return 0.0

    def stepped(_cls: type, tz: dt.tzinfo | None = None) -> dt.datetime:
        return now(tz) + dt.timedelta(seconds=offset())

    fields: Any = gc.get_referents(dt.datetime.__dict__)[0]
    fields["now"] = classmethod(stepped)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(dt.datetime))
    time.time = lambda: seconds() + offset()


if __name__ == "__main__":
    step_clock(Path(sys.argv[1]))
    from runtime.cli import main

    sys.argv = ["fallow", "up", "--config", sys.argv[2]]
    main()
