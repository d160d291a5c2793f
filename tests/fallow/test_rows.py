"""A query's rows become typed records at its edge, or it is said what does not fit."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from fallow.rows import Row, RowShapeError, decode_rows

AT = datetime(2026, 11, 1, 6, tzinfo=UTC)


class Stretch(Row, frozen=True):
    node: str
    at: datetime
    usd: Decimal | None
    models: list[str]
    idle_for: timedelta
    gpu_hours: float


def table(**changes: pa.Array) -> pa.Table:
    columns = {
        "node": pa.array(["gpu-0"]),
        "at": pa.array([AT], pa.timestamp("us", "UTC")),
        "usd": pa.array([None], pa.decimal128(18, 8)),
        "models": pa.array([["H100"]]),
        "idle_for": pa.array([timedelta(hours=2)], pa.duration("us")),
        "gpu_hours": pa.array([16.0]),
    }
    return pa.table({k: v for k, v in (columns | changes).items() if v is not None})


def test_rows_become_records() -> None:
    rows = decode_rows(table(), Stretch)
    assert rows == [
        Stretch(
            node="gpu-0",
            at=AT,
            usd=None,
            models=["H100"],
            idle_for=timedelta(hours=2),
            gpu_hours=16.0,
        )
    ]
    assert decode_rows(table(usd=pa.array([Decimal("1.25")])), Stretch)[0].usd == Decimal("1.25")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node": None}, "no column 'node'"),
        ({"nodes": pa.array(["a"])}, "unknown column 'nodes'"),
        ({"node": pa.array([None], pa.string())}, "got `null`"),
        ({"gpu_hours": pa.array(["16"])}, "Expected `float`, got `str`"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, pa.Array], message: str) -> None:
    with pytest.raises(RowShapeError, match="rows of Stretch") as error:
        decode_rows(table(**changes), Stretch)
    assert message in str(error.value)


def test_columns_are_compared_when_there_are_no_rows() -> None:
    with pytest.raises(RowShapeError, match="no column 'usd'"):
        decode_rows(table(usd=None).slice(0, 0), Stretch)
