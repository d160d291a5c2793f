"""What counts as a fault in a dashboard's log."""

import pytest

from tests.browser.serving import faults

TIMER = (
    "Exception in thread Thread-7:",
    "Traceback (most recent call last):",
    '  File "threading.py", line 1045, in _bootstrap_inner',
    "    raise StopException()",
    "streamlit.runtime.scriptrunner_utils.exceptions.StopException",
)
OURS = (
    "Traceback (most recent call last):",
    '  File "overview.py", line 1, in show',
    "ZeroDivisionError: division by zero",
)


def woven(*several: tuple[str, ...]) -> str:
    """Return texts whose lines come by turns, as threads write them."""
    longest = max(map(len, several))
    lines = [each[n] for n in range(longest) for each in several if n < len(each)]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize(
    ("several", "count"),
    [((TIMER,), 0), ((TIMER, TIMER), 0), ((OURS,), 1), ((TIMER, OURS), 1), ((OURS, OURS), 2)],
)
def test_a_timer_of_a_page_that_was_left_is_no_fault(
    several: tuple[tuple[str, ...], ...], count: int
) -> None:
    assert faults(woven(*several)) == count
