"""What the ledger has written about a bucket decides what its samples may be called."""

from typing import Any

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from analyzers.idle.samples import FROZEN, LOW, NAMED, _find_states, add_states
from analyzers.idle.spans import MEASURES
from warehouse.signals.frozen import extend_repeats
from warehouse.signals.runs import (
    BUSY,
    CONFLICT,
    IDLE,
    MICRO,
    DeviceSamples,
)

BUCKET = 300 * MICRO


def samples(at_s: list[int], device: list[int], kind: list[int], **columns: Any) -> DeviceSamples:
    n = len(at_s)
    measures = {name: np.full(n, np.nan) for name in MEASURES} | {"activity": np.zeros(n)}
    return DeviceSamples(
        device=np.array(device, dtype=np.int64),
        at=np.array(at_s, dtype=np.int64) * MICRO,
        validity=np.full(n, 60 * MICRO),
        gap=np.full(n, 180 * MICRO),
        kind=np.array(kind, dtype=np.int8),
        sample_count=np.ones(n, dtype=np.int64),
        interval_s=np.full(n, 60.0),
        measures=measures | columns.get("measures", {}),
        bucketed=columns.get("bucketed", False),
    )


def states(*rows: tuple[int, int, bool, bool]) -> Any:
    """Return rows of `states.sql` for the device, the bucket's number, frozen, low."""
    schema = {"device": pl.Int32, "five_minutes": pl.Int32, "bits": pl.UInt8}
    data = [(d, b, NAMED + LOW * low + FROZEN * frozen) for d, b, frozen, low in rows]
    return pl.DataFrame(data, schema=schema, orient="row").to_arrow()


def read(made: DeviceSamples, *rows: tuple[int, int, bool, bool], until: int = 10) -> Any:
    return add_states(made, states(*rows), (0, until * BUCKET))


TWO = ([0, 299, 300, 0, 300], [0, 0, 0, 1, 1], [IDLE] * 5)
"""Two samples of device 0's first bucket, one of its second, and one of each of device 1's."""


def test_the_samples_of_a_low_bucket_are_not_idle_and_those_beside_it_are() -> None:
    made = read(samples(*TWO), (0, 0, False, True), (1, 1, False, False))
    assert made.kind.tolist() == [CONFLICT, CONFLICT, IDLE, IDLE, IDLE]
    assert made.still is not None
    assert made.still.tolist() == [False] * 5
    made = read(samples(*TWO), (0, 1, False, True), (1, 0, False, True))
    assert made.kind.tolist() == [IDLE, IDLE, CONFLICT, CONFLICT, IDLE]


def test_activity_in_a_bucket_with_a_state_is_no_idle_time() -> None:
    busy = samples([0, 60, 300, 360], [0] * 4, [BUSY, IDLE, BUSY, IDLE])
    assert read(busy, (0, 0, False, False)).kind.tolist() == [CONFLICT, IDLE, BUSY, IDLE]
    whole = samples([0, 300], [0] * 2, [IDLE] * 2, bucketed=True)
    assert read(whole, (0, 1, False, False)).kind.tolist() == [IDLE, CONFLICT]


def test_a_frozen_bucket_repeats_old_values_and_stays_what_it_is() -> None:
    made = read(samples(*TWO), (0, 0, True, True), (1, 1, True, False))
    assert made.still is not None
    assert made.still.tolist() == [True, True, False, False, True]
    assert made.kind.tolist() == [IDLE] * 5


def test_what_follows_a_frozen_bucket_repeats_it_while_it_reads_the_same() -> None:
    """The newest hour is not accounted yet: its samples go on where the frozen ones ended."""
    power = np.array([90.0, 100.5, 100.5, 100.5, 99.0, 100.5])
    at_s, device = [0, 240, 300, 600, 900, 1200], [0] * 6
    measures = {"power_w": power, "still_w": power}
    made = samples(at_s, device, [IDLE] * 6, measures=measures)
    got = read(made, (0, 1, True, False), until=2)
    assert extend_repeats(got, got.still).tolist() == [False, False, True, True, False, False]
    other = samples(at_s, [0, 0, 0, 1, 1, 1], [IDLE] * 6, measures=measures)
    got = read(other, (0, 1, True, False), until=2)
    assert extend_repeats(got, got.still).tolist() == [False, False, True, False, False, False]


def test_activity_is_known_only_outside_of_the_time_that_was_accounted() -> None:
    made = samples([0, 300, 600, 900], [0] * 4, [IDLE] * 4)
    inside = add_states(made, states(), (BUCKET, 3 * BUCKET))
    assert np.isnan(inside.measures["activity"]).tolist() == [False, True, True, False]
    assert inside.kind.tolist() == [IDLE] * 4
    never = add_states(made, states((0, 0, False, True)), (5, 5))
    assert never.kind.tolist() == [IDLE] * 4
    assert not np.isnan(never.measures["activity"]).any()


def test_states_of_buckets_without_samples_change_nothing() -> None:
    made = read(samples([600], [0], [IDLE]), (0, 0, False, True), (0, 1, False, True))
    assert made.kind.tolist() == [IDLE]
    made = read(samples([600], [0], [IDLE]), (0, 2, False, True), (0, 3, False, True))
    assert made.kind.tolist() == [CONFLICT]
    assert len(read(samples([], [], []), (0, 0, False, True))) == 0


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), min_size=1),
    st.lists(st.tuples(st.integers(0, 12), st.integers(-3, 15), st.booleans(), st.booleans())),
)
def test_states_are_placed_as_by_a_loop_over_the_rows(
    places: list[tuple[int, int]], rows: list[tuple[int, int, bool, bool]]
) -> None:
    """Devices may lack samples, rows or both; a bucket may have a row of each holder."""
    places = sorted(places)
    made = samples([300 * b for _, b in places], [d for d, _ in places], [IDLE] * len(places))
    found = _find_states(made, states(*rows))
    bits: dict[tuple[int, int], int] = {}
    for device, bucket, frozen, low in rows:
        place = device, bucket
        bits[place] = bits.get(place, 0) | NAMED | LOW * low | FROZEN * frozen
    assert found.tolist() == [bits.get(place, 0) for place in places]
