"""Parameters of a query: values where the engine's own tokens say that a name stands."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.errors import UsageError
from fallow.settings import Settings
from warehouse.lake import Warehouse

Row = dict[str, Any]
ODD = """SELECT
    'don''t $since é' AS said, -- not $since either, nor $what
    $$ nor $what $$ AS quoted, /* $since */
    "$what" - -$what AS less,
    $since::VARCHAR AS at
FROM (SELECT $what + 1 AS "$what")
"""


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a warehouse that holds nothing, open for reading."""
    settings = Settings(home=tmp_path_factory.mktemp("reading") / "home")
    with Warehouse.open(settings, write=True):
        pass
    with Warehouse.open(settings) as opened:
        yield opened


def test_what_looks_like_a_parameter_in_a_text_or_a_comment_is_none(views: Warehouse) -> None:
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    (row,) = views.query(ODD, {"since": at, "what": -3}).to_pylist()
    assert row == {
        "said": "don't $since é",
        "quoted": " nor $what ",
        "less": -5,
        "at": "2026-11-01 12:00:00",
    }


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(
    text=TEXTS | st.sampled_from(["'; DROP TABLE sample; --", "$other", "\\'", "$$"]),
    number=st.integers(-(2**62), 2**62),
    share=st.floats(allow_nan=False, allow_infinity=False),
    money=st.decimals(-(10**9), 10**9, places=8),
    several=st.lists(TEXTS, max_size=3),
    none=st.none() | st.booleans(),
)
def test_values_come_back_as_they_went_in(views: Any, **values: Any) -> None:
    sql = ", ".join(f"${name} AS {name}" for name in values)
    (row,) = views.query(f"SELECT {sql}", values).to_pylist()
    assert row == values


@pytest.mark.parametrize(
    ("sql", "given_", "said"),
    [
        ("SELECT $a + $b", {"a": 1}, "parameter $b has no value"),
        ("SELECT $a", {"a": 1, "b": 2, "c": 3}, "there is no parameter $b in the statement"),
        ("SELECT $a FROM nowhere", {"a": 1}, "nowhere"),
    ],
)
def test_a_name_without_a_value_and_a_value_without_a_place_are_refused(
    views: Warehouse, sql: str, given_: Row, said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        views.query(sql, given_)
    assert said in refused.value.message
