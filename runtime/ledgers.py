"""What commands ask of the books: spend, savings, checks. Nothing here writes on stdout."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from fallow import money
from fallow.errors import WarehouseError
from fallow.window import Window
from runtime import analyzing, windows

if TYPE_CHECKING:
    from analyzers.waterfall import Waterfall
    from warehouse.coverage import Coverage
    from warehouse.lake import Warehouse


Saved = tuple["Waterfall", datetime]


class Spent(msgspec.Struct, frozen=True):
    """Rows of a spend table, their sum, and what must be said beside them.

    `window` is the whole hours that were added up.
    """

    window: Window
    rows: list[dict[str, Any]]
    total: dict[str, Any]
    notes: list[str]
    coverage: "Coverage"


def spent(
    warehouse: "Warehouse",
    window: str | None,
    *,
    now: datetime,
    cluster: str | None,
    by: Sequence[str],
    view: str,
    share_unallocated: bool,
) -> Spent:
    """Return GPU-hours and dollars of a window, whose sum is the capacity and the bill.

    `saves_gpu_hours` and `saves_usd` are what the stored findings would save of them; null where
    no finding is stored, or where the dollars are not the loaded ones that savings are counted in.
    """
    from warehouse import audits  # noqa: PLC0415  (the engine loads in 0.3 s)
    from warehouse.spend import spend  # noqa: PLC0415

    settings = warehouse.settings
    span = windows.figures(
        warehouse,
        window,
        now,
        cluster,
        lag=settings.ledger.max_lag,
        every=settings.service.collect_every,
    )
    chosen = span.window
    table = spend(
        warehouse,
        chosen,
        by=list(by),
        view=view,
        share_unallocated=share_unallocated,
        cluster=cluster,
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    notes = [
        *span.notes,
        *filter(None, [audits.banner(audits.run(warehouse, chosen))]),
    ]
    saved = None
    if view == "loaded" and not share_unallocated:
        saved = analyzing.saved(warehouse, chosen, cluster)
        notes.append(_told(saved))
    _add_savings(rows, by, saved)
    _round(rows)
    return Spent(chosen, rows, _total(rows, by), notes, span.coverage)


def _told(saved: "Saved | None") -> str:
    if saved is None:
        return "savings are not shown: no finding is stored (fallow analyze finds and stores them)"
    return f"savings are those of the findings stored until {saved[1]:%Y-%m-%d %H:%M} UTC"


def _add_savings(rows: list[dict[str, Any]], by: Sequence[str], saved: "Saved | None") -> None:
    """Say beside each row what the stored findings would save of it."""
    sums = {}
    if saved is not None:
        sums = {tuple(r[n] for n in by): r for r in saved[0].by(*by, named=True)}
    for row in rows:
        part = sums.get(tuple(row[n] for n in by))
        none = None if saved is None else 0.0
        row["saves_gpu_hours"] = part["gpu_hours"] if part else none
        row["saves_usd"] = part["usd"] if part else (None if none is None else Decimal(0))


def _round(rows: list[dict[str, Any]]) -> None:
    """Write dollars in cents that sum to the bill's, which is rounded once."""
    usd, idle = money.split([r["usd"] for r in rows], [r["idle_usd"] for r in rows])
    saves = money.apportion([row["saves_usd"] for row in rows])
    for row, *amounts in zip(rows, usd, idle, saves, strict=True):
        row["usd"], row["idle_usd"], row["saves_usd"] = amounts


def _total(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> dict[str, Any]:
    total: dict[str, Any] = dict.fromkeys(by, "")
    total[by[0]] = "total"
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows if row[name] is not None]
        if name not in total:
            summed = values and not isinstance(values[0], (str, bool)) and "as_of" not in name
            total[name] = sum(values[1:], values[0]) if summed else None
    return total


def verified(warehouse: "Warehouse") -> list[dict[str, Any]]:
    """Read everything back and run every audit; one row per check, `status` is ok or failed."""
    from warehouse import audits  # noqa: PLC0415
    from warehouse.verification import verify  # noqa: PLC0415

    rows = [_check(item.subject, item.detail, ok=item.ok) for item in verify(warehouse)]
    try:
        failures = {failure.audit: str(failure) for failure in audits.run(warehouse)}
    except WarehouseError as error:
        # A file that is named above keeps the audits from reading.
        return [*rows, _check("audits", str(error), ok=False)]
    return rows + [
        _check(f"audit {name}", failures.get(name), ok=name not in failures)
        for name in audits.names()
    ]


def _check(name: str, detail: str | None, *, ok: bool) -> dict[str, Any]:
    return {"check": name, "status": "ok" if ok else "failed", "detail": detail}
