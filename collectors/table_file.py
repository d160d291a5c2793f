"""Open a Parquet or CSV file as a lazy frame, and read timestamps and numbers from its columns.

A CSV file may have blanks around its commas and units beside its numbers, as nvidia-smi writes it.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from polars.exceptions import PolarsError

from fallow.errors import UsageError
from fallow.resources import read_table
from fallow.system.input_files import GZIP, UTF_16, open_input

NOTHING = ["", "null", "NULL", "None", "NaN", "nan", "NA", "N/A", "n/a", "-", "ERR!"]
"""How CSV files write a missing value, beside a reason in brackets, such as `[Not Supported]`."""
_REASON = r"^\[[^\]]*\]$"
_ISO = (
    *("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"),
    *("%Y/%m/%d %H:%M:%S%.f", "%Y/%m/%d %H:%M"),
)
_SMI_LOG = (
    "nvidia-smi --query-gpu=timestamp,uuid,name,utilization.gpu,memory.used,power.draw"
    " --format=csv -l 60 > smi.csv"
)
_FOREIGN = (
    (UTF_16, "is UTF-16 text", "iconv -f UTF-16 -t UTF-8 {0} > {0}.utf8"),
    (GZIP, "is compressed by gzip", "gunzip -k {0}"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd", "unzstd {0}"),
    (b"PK\x03\x04", "is a ZIP or Excel file", "export it as CSV"),
    (b"# gp", "is a report of nvidia-smi dmon", _SMI_LOG),
    (b"#Dat", "is a report of nvidia-smi dmon", _SMI_LOG),
)
"""First bytes of what is no table that we read, what it is, and what makes one of it."""
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
    for start, what, remedy in _FOREIGN:
        if head.startswith(start):
            raise UsageError(f"{path} {what}", hint=remedy.format(shlex.quote(str(path))))
    parquet = head == b"PAR1" or path.suffix in {".parquet", ".pq"}
    try:
        frame = pl.scan_parquet(path) if parquet else _scan_csv(path)
        columns = dict(frame.collect_schema())
    except (PolarsError, OSError) as error:
        raise explain_unreadable(path, error) from error
    return TableFile(path, columns, frame)


def _scan_csv(path: Path) -> pl.LazyFrame:
    """Return a CSV file's texts without the blanks around them; what says "missing" is null.

    Raises:
        UsageError: two columns differ by blanks only.
    """
    frame = pl.scan_csv(path, infer_schema=False, glob=False)
    names = {name: name.strip() for name in frame.collect_schema().names()}
    if len({*names.values()}) < len(names):
        raise UsageError(f"{path}: two columns of its header differ by blanks only")
    text = pl.all().str.strip_chars()
    is_missing = text.is_in(NOTHING) | text.str.contains(_REASON)
    return frame.rename(names).with_columns(pl.when(~is_missing).then(text))


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


def read_numbers(file: TableFile, column: str, name: str, unit: str) -> pl.Expr:
    """Return a column as floats in a unit; text that is no number, or of another kind, is null.

    A unit stands behind the number, or in brackets at the end of the column's name.

    Raises:
        UsageError: the column's type is neither numeric nor text, or its name has a foreign unit.
    """
    kind = file.columns[column]
    if kind == pl.Boolean or kind.is_numeric():
        return pl.col(column).cast(pl.Float64)
    if kind != pl.String:
        raise UsageError(f"{file.path}: column {column!r} ({name}) holds {kind}, not numbers")
    factors = {
        row["text"]: float(row["factor"])
        for row in read_table("collectors", "value_units.csv")
        if row["unit"] == unit
    }
    named = re.search(r"\[([^\]]+)\]$", column)
    if named and named[1] not in factors:
        raise UsageError(
            f"{file.path}: column {column!r} is not in a unit of {name} ({unit})",
            hint=f"legal: {', '.join(factors) or 'none'}",
        )
    parts = pl.col(column).str.extract_groups(r"^(\S+?)\s*([%A-Za-z/]*)$")
    plain = pl.col(column).cast(pl.Float64, strict=False)
    value = parts.struct[0].cast(pl.Float64, strict=False)
    factor = parts.struct[1].replace_strict(factors, default=None, return_dtype=pl.Float64)
    return pl.coalesce(plain * factors.get(named[1] if named else "", 1.0), value * factor)
