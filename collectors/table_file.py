"""Open a Parquet or CSV file as a lazy frame, and read timestamps and numbers from its columns."""

from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from polars.exceptions import PolarsError

from fallow.errors import UsageError
from fallow.input_files import open_input

NOTHING = ["", "null", "NULL", "None", "NaN", "nan", "NA", "N/A", "[N/A]", "n/a", "-"]
"""How CSV files write a missing value."""
_ISO = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M")
# Unix time in seconds, milliseconds or microseconds; beyond are nanoseconds. As seconds, the
# first limit is the year 5138; as milliseconds it is 1973. So on by thousands.
_UNITS = ((1e11, 1_000_000.0), (1e14, 1000.0), (1e17, 1.0))


class TableFile(msgspec.Struct, frozen=True):
    """A file's columns by name and its rows, not read yet."""

    path: Path
    columns: dict[str, Any]
    frame: Any


def open_table(path: Path) -> TableFile:
    """Open a file by its first bytes: Parquet, else CSV with a header line.

    Raises:
        UsageError: no such file, or neither of the two.
    """
    with open_input(path) as file:
        head = file.read(4)
    if not head:
        raise UsageError(f"{path} is empty")
    parquet = head == b"PAR1" or path.suffix in {".parquet", ".pq"}
    try:
        if parquet:
            frame = pl.scan_parquet(path)
        else:
            frame = pl.scan_csv(path, infer_schema=False, null_values=NOTHING, glob=False)
        columns = dict(frame.collect_schema())
    except (PolarsError, OSError) as error:
        raise explain_unreadable(path, error) from error
    return TableFile(path, columns, frame)


def explain_unreadable(path: Path, error: Exception) -> UsageError:
    """Return the error of a damaged file."""
    detail = str(error).strip().partition("\n")[0]
    if path.suffix in {".parquet", ".pq"}:
        return UsageError(
            f"{path} is not a whole Parquet file: {detail}", hint="is the copy complete?"
        )
    return UsageError(f"{path} cannot be read as CSV: {detail}", hint="legal: .parquet, .csv")


def read_timestamps(file: TableFile, column: str) -> pl.Expr:
    """Return a column as naive UTC microseconds; what no calendar has is null."""
    ts = _read_timestamps(file, column)
    return pl.when(ts.dt.year().is_between(1, 9999)).then(ts)


def _read_timestamps(file: TableFile, column: str) -> pl.Expr:
    kind = file.columns[column]
    raw = pl.col(column)
    if isinstance(kind, pl.Datetime):
        zoned = raw if kind.time_zone is None else raw.dt.convert_time_zone("UTC")
        return zoned.dt.replace_time_zone(None).cast(pl.Datetime("us"))
    if kind == pl.Date:
        return raw.cast(pl.Datetime("us"))
    if kind.is_integer():
        return _convert_unix(raw.cast(pl.Int64, strict=False))
    if kind.is_numeric():
        return _convert_unix(raw.cast(pl.Float64))
    if kind != pl.String:
        return pl.lit(None, pl.Datetime("us"))
    text = raw.str.strip_chars()
    zoned = text.str.to_datetime("%+", strict=False, time_unit="us").dt.replace_time_zone(None)
    plain = [text.str.to_datetime(f, strict=False, time_unit="us") for f in _ISO]
    unix_values = _convert_unix(text.cast(pl.Int64, strict=False))
    return pl.coalesce(
        unix_values, _convert_unix(text.cast(pl.Float64, strict=False)), zoned, *plain
    )


def _convert_unix(value: pl.Expr) -> pl.Expr:
    micros = value // 1000
    for limit, factor in reversed(_UNITS):
        micros = pl.when(value.abs() < limit).then(value * factor).otherwise(micros)
    # Cast only values that a calendar can represent: infinities and NaN become null.
    return micros.round().cast(pl.Int64, strict=False).cast(pl.Datetime("us"))


def read_numbers(file: TableFile, column: str, name: str) -> pl.Expr:
    """Return a column as floats; text that is no number is null.

    Raises:
        UsageError: the column's type is neither numeric nor text.
    """
    kind = file.columns[column]
    if kind == pl.Boolean or kind.is_numeric():
        return pl.col(column).cast(pl.Float64)
    if kind != pl.String:
        raise UsageError(
            f"{file.path}: column {column!r} ({name}) holds {kind}, not numbers",
        )
    return pl.col(column).str.strip_chars().cast(pl.Float64, strict=False)
