"""The hours of workloads are those of a loop over allocations, hours and samples of pods."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyzers.queries import compose_steps
from tests.analyzers.queried import HOUR, T, at, query, us
from warehouse.steps import SERVING_LOAD

HOURS = 4
BOUNDS = {"since": T, "until": T + HOURS * HOUR, "before": T + HOURS * HOUR,
          "exit_threshold": 0.1, "models": ["H100"], "limits_w": [80.0]}  # fmt: skip
ORIGIN = us(0) // 3_600_000_000
"""The hours from 1970 to the first one."""

ALLOCATIONS = st.lists(
    st.tuples(
        st.sampled_from("vw"),
        st.sampled_from("de"),
        st.sampled_from("pq"),
        st.sampled_from([-90, 0, 1, 60, 120]),
        st.sampled_from([59, 60, 120, 179, 240, 300, None]),
    ),
    max_size=4,
)
ROLLED = st.lists(
    st.tuples(
        st.sampled_from("de"),
        st.integers(-1, HOURS),
        st.sampled_from([None, 0.0, 0.099, 0.1, 0.5]),
        st.sampled_from([0.0, 1.0]),
        st.sampled_from([None, 80.0, 80.1]),
    ),
    max_size=10,
    unique_by=lambda row: row[:3],
)
SERVED = st.lists(st.tuples(st.sampled_from("pq"), st.integers(-10, 60 * HOURS + 10)), max_size=3)


@given(ALLOCATIONS, ROLLED, SERVED)
@example(
    [("v", "d", "p", 0, None)], [("d", 1, None, 0.0, None), ("d", 2, 0.1, 0.0, 80.0)], [("p", 60)]
)
@settings(max_examples=40)
def test_the_hours_of_workloads_are_those_of_a_loop(
    held: list[Any], rolled: list[Any], served: list[tuple[str, int]]
) -> None:
    found = query(
        compose_steps(SERVING_LOAD, "idle/workload_hours"),
        BOUNDS,
        allocation=[
            {
                "cluster": "c", "namespace": "ns", "workload_kind": "Job", "workload": workload,
                "device": device, "pod": pod, "pod_uid": pod, "start": at(start),
                "end": None if end is None else at(end),
            }
            for workload, device, pod, start, end in held
        ],
        rollup_1h=[
            {
                "cluster": "c", "device": device, "node": "n", "namespace": "", "pod": str(n),
                "bucket": T + hour * HOUR, "act_n": 0 if most is None else 9, "act_max": most,
                "conflict_s": conflict_s, "act_mean": None if most is None else most / 9,
                "power_w_max": power_w,
            }
            for n, (device, hour, most, conflict_s, power_w) in enumerate(rolled)
        ],
        device=[{"cluster": "c", "device": "d", "gpu_model": "H100"}],
        pod_sample=[
            {"cluster": "c", "namespace": "ns", "pod": pod, "ts": at(minute), "requests_per_s": 1.0}
            for pod, minute in served
        ],
    )  # fmt: skip
    assert {row["workload"]: sorted(row["hours"]) for row in found} == _list_hours(
        held, rolled, served
    )


def _list_hours(
    held: list[Any], rolled: list[Any], served: list[tuple[str, int]]
) -> dict[str, list[int]]:
    """Return the items of `hours` by workload, each hour and allocation by itself."""
    last = 60 * HOURS
    held = [(*row[:3], row[3], last if row[4] is None else row[4]) for row in held]
    held = [row for row in held if row[3] < last and row[4] > 0]
    active: dict[str, dict[int, bool]] = {}
    for workload, device, _, start, end in held:
        for name, hour, most, conflict_s, power_w in rolled:
            whole = start <= 60 * hour and end >= 60 * hour + 60 and 0 <= hour < HOURS
            if name == device and whole and most is not None:
                hours = active.setdefault(workload, {})
                confirmed = name == "e" or power_w is None or power_w > 80
                is_active = most >= 0.1 and conflict_s == 0 and confirmed
                hours[hour] = hours.get(hour, False) or is_active
    for workload, _, pod, _, _ in held:
        for name, minute in served:
            if name == pod and 0 <= minute < last and minute // 60 in active.get(workload, {}):
                active[workload][minute // 60] = True
    return {
        workload: sorted(2 * (ORIGIN + hour) + is_active for hour, is_active in hours.items())
        for workload, hours in active.items()
    }
