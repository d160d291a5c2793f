"""Leases in the PostgreSQL catalog: which process does a work that only one may do.

A lease is valid until it expires by the clock of the database, and its holder renews it long before
that. An embedded warehouse has one writing process and needs none.
"""

import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import duckdb
import msgspec

from fallow.errors import TemporaryError
from warehouse.catalog import quote_literal
from warehouse.failures import explain_errors
from warehouse.steps import load_step

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

ATTEMPTS = 5
"""Claims that PostgreSQL refuses because another process claims at the same moment."""
_CATALOG = "'__ducklake_metadata_lake'"
_CONFLICTS = ("could not serialize", "duplicate key", "deadlock detected")
_NO_TABLE = '"fallow_lease" does not exist'


class CatalogLease(msgspec.Struct, frozen=True):
    """A lease: its holder, what the holder says about itself (JSON), and whether it is valid."""

    name: str
    holder: str
    facts: str
    renewed_at: datetime
    valid: bool
    age_s: float
    """Seconds since the last renewal."""


def claim_lease(
    warehouse: "Warehouse", name: str, holder: str, facts: str, *, seconds: float, ended: str = ""
) -> CatalogLease:
    """Take or renew a lease, and return it as it is then: its `holder` may be another process.

    `ended`: a holder that is known to have ended; its lease is free before it expires.

    Raises:
        TemporaryError: PostgreSQL is not reachable.
        WarehouseError: it refuses.
    """
    parameters = {"name": name, "holder": holder, "facts": facts, "ended": ended}
    sql = _bind(load_step("leases/claim"), {**parameters, "seconds": seconds})
    for attempt in range(ATTEMPTS):
        try:
            _execute(warehouse, sql)
            break
        except duckdb.Error as error:
            text = str(error)
            if _NO_TABLE in text:
                with suppress(duckdb.Error):  # another process may create it now
                    _execute(warehouse, load_step("leases/create"))
            elif not any(conflict in text for conflict in _CONFLICTS) or attempt == ATTEMPTS - 1:
                with explain_errors(warehouse.place.name):
                    raise
    for lease in read_leases(warehouse, name):
        if lease.name == name:
            return lease
    raise TemporaryError(
        f"the lease {name} could not be taken: other processes claim it at the same moment",
        hint="try again",
    )


def release_lease(warehouse: "Warehouse", name: str, holder: str) -> None:
    """Give a lease back; harmless when another process holds it.

    Raises: as `claim_lease`.
    """
    with explain_errors(warehouse.place.name):
        _execute(warehouse, _bind(load_step("leases/release"), {"name": name, "holder": holder}))


def read_leases(warehouse: "Warehouse", prefix: str) -> tuple[CatalogLease, ...]:
    """Return the leases whose name begins with `prefix`; none in an embedded warehouse.

    Raises: as `claim_lease`.
    """
    if warehouse.place.embedded:
        return ()
    sql = _bind(load_step("leases/leases"), {"prefix": prefix})
    select_sql = f"SELECT * FROM postgres_query({_CATALOG}, {quote_literal(sql)})"
    with explain_errors(warehouse.place.name):
        try:
            with warehouse.catalog_cursor() as cursor:
                rows = cursor.execute(select_sql).to_arrow_table().to_pylist()
        except duckdb.Error as error:
            if _NO_TABLE in str(error):  # no process has claimed one yet
                return ()
            raise
    return tuple(CatalogLease(**row) for row in rows)


def _execute(warehouse: "Warehouse", sql: str) -> None:
    with warehouse.catalog_cursor() as cursor:
        cursor.execute(f"CALL postgres_execute({_CATALOG}, {quote_literal(sql)})")


def _bind(sql: str, parameters: dict[str, str | float]) -> str:
    """Return the text with its `$name` parameters as literals: postgres_execute takes none."""

    def write(matched: re.Match[str]) -> str:
        value = parameters[matched[1]]
        return quote_literal(value) if isinstance(value, str) else repr(float(value))

    return re.sub(r"\$([a-z_]+)", write, sql)
