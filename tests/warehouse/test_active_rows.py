"""Rows at a time are found by bisection as by a scan of all."""

from hypothesis import given
from hypothesis import strategies as st

from warehouse.placement.active_rows import ActiveRows

TIMES = st.integers(0, 12)
SPANS = st.lists(st.tuples(TIMES, TIMES), max_size=8)


@given(spans=SPANS, times=st.lists(st.integers(-1, 13), max_size=20))
def test_rows_at_a_time_are_those_that_a_scan_of_all_finds(
    spans: list[tuple[int, int]], times: list[int]
) -> None:
    rows = [f"row {n}" for n in range(len(spans))]
    active = ActiveRows(rows, spans)
    for at in times:
        expected = tuple(
            row for row, (start, end) in zip(rows, spans, strict=True) if start < at <= end
        )
        assert active.at(at) == expected
        assert active.summarize(at, len) == len(expected)
        assert active.summarize(at, "+".join) == "+".join(expected)
