"""openb's queue waits (scheduled - creation): how far a replay of the trace reproduces them.

The trace is a sample of task shapes that holds at most 65.6 of 6,212 GPUs at a time, so none of its
waits comes from its capacity: the replay cannot have the long ones, and says that it is not to be
trusted. Neither a scheduler that binds so many pods a second has them, nor do fewer nodes. Pods
without GPUs do not wait long: the long waits come from GPUs which pods hold that the sample lacks.
"""

import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow.csv
import pytest

from capacity.history.queue_history import read_history
from capacity.replay.calibration import judge_replay
from capacity.replay.past import PastSite, build_past
from capacity.replay.replay import replay
from collectors.openb import EPOCH, import_openb
from fallow.window import Window
from tests.analyzers.conftest import Memory


def read_past(shared_data: Callable[[str], Path]) -> PastSite:
    """Return the site of the trace: its nodes with GPUs and its pods."""
    views = Memory()
    views.put(
        *import_openb(
            shared_data("openb/openb_node_list_gpu_node.csv"),
            shared_data("openb/openb_pod_list_default.csv"),
        )
    )
    window = Window(EPOCH, datetime.fromisoformat("2023-05-31T00:00Z"))
    past = build_past(read_history(views, window, None))
    views.engine.close()
    return past


@pytest.mark.real_data
def test_the_replay_has_no_wait_of_openb_and_says_that_it_is_not_to_be_trusted(
    shared_data: Callable[[str], Path],
) -> None:
    past = read_past(shared_data)
    calibration = judge_replay(past, replay(past.site))
    figures = {figure.figure: figure for figure in calibration.figures}
    p50, p95 = figures["wait p50"], figures["wait p95"]
    assert (p50.recorded, p50.replayed, p50.within) == (2, 0, True)
    assert p95.recorded == pytest.approx(276.9)
    assert (p95.replayed, p95.within) == (0, False)
    assert calibration.trust == "not to be trusted"
    assert figures["utilisation by hour"].within


@pytest.mark.real_data
def test_fewer_of_openb_s_nodes_give_hours_of_waiting_or_none(
    shared_data: Callable[[str], Path],
) -> None:
    """The nodes in an order by chance: 38 GPUs give hours of waiting, 68 GPUs none at all."""
    site = read_past(shared_data).site
    nodes = list(site.nodes)
    random.Random(1).shuffle(nodes)
    p95 = {}
    for count in (10, 16):
        result = replay(msgspec.structs.replace(site, nodes=tuple(nodes[:count]), preempts=False))
        waits = [u.start_s - u.unit.arrival_s for u in result.units if u.start_s is not None]
        gpus = sum(node.capacity.gpus for node in nodes[:count])
        p95[gpus] = round(float(np.quantile(waits, 0.95)))
    assert p95 == {38: 9767, 68: 0}


Seconds = npt.NDArray[np.float64]
RETRY_S = 34.6
"""The time between two tries, as the waits show it."""
LAST_STARTS = 100
HALF_S = 133 * 86_400
"""Half of the pods were created before this second of the trace."""


def read_trace(
    shared_data: Callable[[str], Path],
) -> tuple[Seconds, Seconds, npt.NDArray[np.bool_]]:
    """Return creation and wait of each pod that was scheduled, and whether it has GPUs."""
    rows = pyarrow.csv.read_csv(shared_data("openb/openb_pod_list_default.csv"))
    rows = rows.filter(rows["scheduled_time"].is_valid()).sort_by("creation_time")
    created, scheduled = (
        rows[name].to_numpy().astype(np.float64) for name in ("creation_time", "scheduled_time")
    )
    return created, scheduled - created, rows["num_gpu"].to_numpy() > 0


def serve(created: Seconds, pod_s: float) -> Seconds:
    """Return the waits if one scheduler binds the pods one after the other, each in `pod_s`."""
    place = np.arange(len(created))
    free: Seconds = np.maximum.accumulate(created - place * pod_s) + (place + 1) * pod_s
    return free - created


@pytest.mark.real_data
def test_no_rate_of_binding_gives_both_percentiles_of_openb_s_waits(
    shared_data: Callable[[str], Path],
) -> None:
    created, waits, on_gpu = read_trace(shared_data)
    halves = slice(0, len(created) // 2), slice(len(created) // 2, None)
    recorded = [np.quantile(waits[half][on_gpu[half]], (0.5, 0.95)) for half in halves]
    assert [q.tolist() for q in recorded] == [[1, 174], [3, pytest.approx(314)]]

    def predict(half: slice, pod_s: float) -> list[float]:
        served = serve(created[half], pod_s)[on_gpu[half]]
        return [float(q) for q in np.quantile(served, (0.5, 0.95))]

    tried = [*np.arange(0.2, 1, 0.2), *np.arange(1, 150)]
    first = {pod_s: predict(halves[0], pod_s) for pod_s in tried}
    for nth, expected in ((0, (1, [1, 1])), (1, (70, [70, pytest.approx(306, abs=1)]))):
        fitted = min(tried, key=lambda pod_s: abs(first[pod_s][nth] - recorded[0][nth]))
        assert (fitted, predict(halves[1], fitted)) == (pytest.approx(expected[0]), expected[1])
    within = [
        pod_s for pod_s in tried if np.allclose(predict(halves[1], pod_s), recorded[1], rtol=0.1)
    ]
    assert within == []


@pytest.mark.real_data
def test_openb_s_waits_are_tries_again_of_a_cause_that_the_trace_has_not(
    shared_data: Callable[[str], Path],
) -> None:
    created, waits, on_gpu = read_trace(shared_data)
    some = waits[on_gpu & (waits > 20) & (waits < 300)]
    near = np.abs(some - np.round(some / RETRY_S) * RETRY_S) <= 4
    # By chance 9 of 34.6 s are so near.
    assert near.mean() == pytest.approx(0.93, abs=0.005)
    late = np.flatnonzero(on_gpu & (waits > 100))
    scheduled = created + waits
    passed = [bool((scheduled[i + 1 :] < scheduled[i]).any()) for i in late]
    assert (len(late), sum(passed)) == (851, 431)
    rows = pyarrow.csv.read_csv(shared_data("openb/openb_pod_list_default.csv"))
    assert rows["gpu_spec"].null_count == len(rows), "no pod names a model"


@pytest.mark.real_data
def test_the_last_hundred_starts_have_openb_s_waits_and_know_nothing_of_policies(
    shared_data: Callable[[str], Path],
) -> None:
    """Each pod waits as the hundred of its QoS did that were scheduled before it was created.

    That is the record itself, a little later: the first half's waits are not those of the second,
    and the answer would be the same under every policy. So the product does not add them.
    """
    rows = pyarrow.csv.read_csv(shared_data("openb/openb_pod_list_default.csv"))
    rows = rows.filter(rows["scheduled_time"].is_valid()).sort_by("scheduled_time")
    by_qos: dict[str, list[tuple[int, int]]] = {}
    for row in rows.to_pylist():
        if row["num_gpu"]:
            pair = row["creation_time"], row["scheduled_time"]
            by_qos.setdefault(row["qos"], []).append(pair)
    expected = {"BE": ((0, 280.5), (0, 278)), "LS": ((3, 247), (3, 248))}
    for qos, (recorded, predicted) in expected.items():
        created, scheduled = np.array(by_qos[qos], float).T
        waits = scheduled - created
        before = np.searchsorted(scheduled, created, "left")
        later = np.flatnonzero(before >= LAST_STARTS)
        last = np.concatenate([waits[before[i] - LAST_STARTS : before[i]] for i in later])
        assert np.quantile(waits[later], (0.5, 0.95)) == pytest.approx(recorded, abs=0.1)
        assert np.quantile(last, (0.5, 0.95)) == pytest.approx(predicted)
        halves = [waits[created <= HALF_S], waits[created > HALF_S]]
        early, late = (float(np.quantile(half, 0.95)) for half in halves)
        assert late / early > 1.2


@pytest.mark.real_data
def test_pods_without_gpus_do_not_wait_long_in_openb(
    shared_data: Callable[[str], Path],
) -> None:
    """The long waits are not the scheduler's: it has the same for pods without GPUs."""
    _, waits, on_gpu = read_trace(shared_data)
    long = waits > 60
    assert (long[~on_gpu].sum(), (~on_gpu).sum()) == (1, 1052)
    assert long[on_gpu].mean() == pytest.approx(0.182, abs=0.001)
    assert np.quantile(waits[~on_gpu], (0.5, 0.95)).tolist() == [3, 36]
    assert np.quantile(waits[on_gpu], (0.5, 0.95)).tolist() == [2, pytest.approx(277, abs=0.5)]
