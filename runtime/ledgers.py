"""What commands ask of the books: spend, idle findings, checks. Nothing here writes on stdout."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from fallow.errors import TemporaryError, WarehouseError
from fallow.nouns import Finding
from fallow.settings import Settings
from fallow.window import Window
from runtime import findings, windows

if TYPE_CHECKING:
    from warehouse.lake import Warehouse


class Spent(msgspec.Struct, frozen=True):
    """Rows of a spend table, their sum, and what must be said beside them."""

    window: Window
    rows: list[dict[str, Any]]
    total: dict[str, Any]
    notes: list[str]


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
    """Return GPU-hours and dollars of a window, whose sum is the capacity and the bill."""
    from warehouse import audits  # noqa: PLC0415  (the engine loads in 0.3 s)
    from warehouse.spend import spend  # noqa: PLC0415

    chosen, note = windows.choose(warehouse, window, now, cluster)
    table = spend(
        warehouse,
        chosen,
        by=list(by),
        view=view,
        share_unallocated=share_unallocated,
        cluster=cluster,
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    notes = [note, *(f"AUDIT FAILED: {failure}" for failure in audits.run(warehouse, chosen))]
    return Spent(chosen, rows, _total(rows, by), notes)


def _total(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> dict[str, Any]:
    total: dict[str, Any] = dict.fromkeys(by, "")
    total[by[0]] = "total"
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows if row[name] is not None]
        if name not in total:
            summed = values and not isinstance(values[0], (str, bool)) and "as_of" not in name
            total[name] = sum(values[1:], values[0]) if summed else None
    return total


def find_idle(
    warehouse: "Warehouse",
    settings: Settings,
    window: str | None,
    *,
    now: datetime,
    cluster: str | None,
) -> tuple[Window, list[str], list[Finding]]:
    """Find idle workloads in the window asked for (see `windows.choose`)."""
    from actions.recommend import advised  # noqa: PLC0415
    from analyzers.idle import IdleAnalyzer  # noqa: PLC0415  (frames load in 0.5 s)

    chosen, note = windows.choose(warehouse, window, now, cluster)
    found = advised(IdleAnalyzer(settings.idle).find(warehouse, chosen))
    return chosen, [note], [f for f in found if cluster in (None, f.subject.cluster)]


def keep(settings: Settings, found: Sequence[Finding], window: Window) -> str | None:
    """Store findings, so that `fallow explain` knows them; return why not where that failed."""
    from warehouse.lake import Warehouse  # noqa: PLC0415

    if not found:
        return None
    try:
        with Warehouse.open(settings, write=True) as warehouse:
            warehouse.ingest([findings.rows(found, found_at=window.end)])
    except TemporaryError as error:
        return f"findings are not stored ({error.message}); fallow up stores its own"
    return None


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
