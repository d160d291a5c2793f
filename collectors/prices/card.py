"""Read a rate card: one CSV row is one instance type's dated price in one region."""

import csv
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal, get_args

import msgspec

from collectors.prices.parts import QUANTUM
from fallow.errors import UsageError
from fallow.gpu_models import read_gpu_models
from fallow.money import MOST_USD_H
from fallow.resources import read_text
from fallow.settings.prices import check_price_time
from fallow.system.input_files import read_text_input

Term = Literal["on-demand", "spot", "reserved", "amortised"]
TERMS: tuple[str, ...] = get_args(Term)
NO_PRICE = {Decimal(700)}
"""Catalogues have this value where they have no price (SkyPilot's GCP file)."""


class CardRow(msgspec.Struct, frozen=True):
    """One line of a rate card; `usd_per_hour` is the whole node's, null = not offered."""

    provider: str
    region: str
    instance_type: str
    gpu_model: str
    gpu_count: int
    vcpu: Decimal
    memory_gib: Decimal
    term: str
    usd_per_hour: Decimal | None
    as_of: datetime
    reference: str
    confirmed: bool
    valid_from: datetime | None = None
    """From when on it holds; null = of an offer's later rows `as_of`, of the first one not said."""

    @property
    def dated(self) -> datetime:
        """Return the time by which the rows of an offer are ordered."""
        return self.valid_from or self.as_of

    @property
    def offer(self) -> tuple[str, str, str, str]:
        """Return the key that two rows of the same offer share."""
        return (self.provider, self.region, self.instance_type, self.term)


OPTIONAL = "valid_from"
COLUMNS = tuple(name for name in CardRow.__struct_fields__ if name != OPTIONAL)


def read_built_in() -> tuple[CardRow, ...]:
    """Return the rate card that ships with Fallow."""
    text = read_text("collectors.prices", "rate_card.csv")
    return read(text.splitlines(), "the built-in rate card")


def read_card_file(path: Path) -> tuple[CardRow, ...]:
    """Read a site's own rate card.

    Raises:
        UsageError: the file cannot be read, or a line is not a legal row; line and value are named.
    """
    return read(read_text_input(path, "the rate card").splitlines(), str(path))


def read(lines: Iterable[str], where: str) -> tuple[CardRow, ...]:
    """Parse and check the lines of a rate card; `where` names it in errors.

    Raises:
        UsageError: a column is missing or unknown, a value is not legal, an offer occurs twice.
    """
    reader = csv.DictReader(lines)
    header = [name for name in reader.fieldnames or () if name != OPTIONAL]
    if set(header) != set(COLUMNS) or len(header) != len(COLUMNS):
        missing, unknown = set(COLUMNS) - set(header), set(header) - set(COLUMNS)
        raise UsageError(
            f"the header of {where} does not fit: missing {sorted(missing)}, "
            f"unknown {sorted(unknown)}",
            hint=f"the columns are {','.join(COLUMNS)}, and {OPTIONAL} where it is known",
        )
    rows: list[CardRow] = []
    lines_by_key: dict[tuple[object, ...], int] = {}
    for record in _read_records(reader, where):
        line = reader.line_num
        row = _parse_row(record, f"{where}, line {line}")
        offer = (*row.offer, row.dated)
        if offer in lines_by_key:
            raise UsageError(
                f"{where}, line {line}: {' '.join(row.offer)} as of {row.dated.date()} "
                f"stands on line {lines_by_key[offer]} already",
                hint="keep one of the two lines",
            )
        lines_by_key[offer] = line
        rows.append(row)
    if not rows:
        raise UsageError(f"{where} has no rows", hint="leave prices.rate_card empty instead")
    return tuple(rows)


def _read_records(reader: "csv.DictReader[str]", where: str) -> Iterator[dict[str, str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise UsageError(f"{where}, line {reader.line_num}: {error}") from error


def _parse_row(record: dict[str, str], at: str) -> CardRow:
    if None in record or None in record.values():
        raise UsageError(f"{at}: the line does not have {len(record.keys() - {None})} values")
    values = {name: value.strip() for name, value in record.items()}
    for name in ("provider", "instance_type", "reference"):
        if not values[name]:
            raise UsageError(f"{at}: {name} is empty", hint="every price has all three")
    models = [m.gpu_model for m in read_gpu_models()]
    _check_one_of(at, "gpu_model", values["gpu_model"], models)
    _check_one_of(at, "term", values["term"], TERMS)
    _check_one_of(at, "confirmed", values["confirmed"], ("yes", "no"))
    count = _parse_number(at, "gpu_count", values["gpu_count"])
    if count != int(count):
        raise UsageError(f"{at}: gpu_count is {values['gpu_count']!r}, not a whole number of GPUs")
    price = (
        _parse_number(at, "usd_per_hour", values["usd_per_hour"])
        if values["usd_per_hour"]
        else None
    )
    if price in NO_PRICE:
        raise UsageError(
            f"{at}: usd_per_hour is {price}, which catalogues print for 'no price'",
            hint="leave it empty where there is no offer; write 700.01 if it really costs that",
        )
    return CardRow(
        provider=values["provider"],
        region=values["region"],
        instance_type=values["instance_type"],
        gpu_model=values["gpu_model"],
        gpu_count=int(count),
        vcpu=_parse_number(at, "vcpu", values["vcpu"], zero=True),
        memory_gib=_parse_number(at, "memory_gib", values["memory_gib"], zero=True),
        term=values["term"],
        usd_per_hour=price,
        as_of=_parse_date(at, "as_of", values["as_of"]),
        reference=values["reference"],
        confirmed=values["confirmed"] == "yes",
        valid_from=_parse_valid_from(at, values.get(OPTIONAL, "")),
    )


def _parse_valid_from(at: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        return check_price_time(_parse_date(at, OPTIONAL, text))
    except ValueError as error:
        raise UsageError(f"{at}: {OPTIONAL}: {error}") from error


def _parse_number(at: str, name: str, text: str, *, zero: bool = False) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    least = 0 if zero else QUANTUM
    if not number.is_finite() or not least <= number < MOST_USD_H:
        minimum_text = "zero or more" if zero else "more than zero"
        raise UsageError(
            f"{at}: {name} is {text!r}, not a number of {minimum_text}, below {MOST_USD_H:,}"
        )
    return number


def _parse_date(at: str, name: str, text: str) -> datetime:
    try:
        date_read = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{at}: {name} is {text!r}, not a date", hint="write it as 2026-07-20"
        ) from error
    return date_read.replace(tzinfo=UTC) if date_read.tzinfo is None else date_read.astimezone(UTC)


def _check_one_of(at: str, name: str, value: str, legal: Iterable[str]) -> None:
    legal = tuple(legal)
    if value not in legal:
        raise UsageError(f"{at}: {name} is {value!r}", hint=f"legal: {', '.join(legal)}")
