"""openb's queue waits (scheduled - creation): how far a replay of the trace reproduces them.

The trace is a sample of task shapes that holds at most 65.6 of 6,212 GPUs at a time, so none of its
waits comes from capacity: the replay cannot have the long ones, and says that it is not to be
trusted.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from collectors.openb import EPOCH, import_openb
from fallow.window import Window
from runtime.operations.what_if.calibration import judge_replay
from runtime.operations.what_if.past import build_past
from runtime.operations.what_if.replay import replay
from tests.analyzers.conftest import Memory
from warehouse.queue_history.history import read_history


@pytest.mark.real_data
def test_the_replay_has_no_wait_of_openb_and_says_that_it_is_not_to_be_trusted(
    shared_data: Callable[[str], Path],
) -> None:
    views = Memory()
    views.put(
        *import_openb(
            shared_data("openb/openb_node_list_gpu_node.csv"),
            shared_data("openb/openb_pod_list_default.csv"),
        )
    )
    window = Window(EPOCH, datetime.fromisoformat("2023-05-31T00:00Z"))
    past = build_past(read_history(views, window, None))
    result = replay(past.site)
    views.engine.close()
    calibration = judge_replay(past, result)
    figures = {figure.figure: figure for figure in calibration.figures}
    p50, p95 = figures["wait p50"], figures["wait p95"]
    assert (p50.recorded, p50.replayed, p50.within) == (2, 0, True)
    assert p95.recorded == pytest.approx(276.9)
    assert (p95.replayed, p95.within) == (0, False)
    assert calibration.trust == "not to be trusted"
    assert figures["utilisation by hour"].within
