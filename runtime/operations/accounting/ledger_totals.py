"""Read spend, savings and checks from the ledger for commands. Nothing here writes on stdout."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from dashboards.figures import extent, reconciliation, savings
from dashboards.figures.query import Filters
from dashboards.figures.reconciliation import Reconciliation
from fallow import money
from fallow.errors import WarehouseError
from fallow.models import CLUSTER_SCOPED
from fallow.window import Window
from runtime.operations.accounting import reconcile, windows
from warehouse import audit_results, audits, restatements, verification
from warehouse.spend import read_spend, write_estimate_notes
from warehouse.stages.audit_stage import run_audits_stage

if TYPE_CHECKING:
    from warehouse.coverage import WindowCoverage
    from warehouse.lake import Warehouse


OWNER_KEYS = frozenset(savings.OWNER_KEYS)
USE_COLUMNS = ("busy_gpu_hours", "known_gpu_hours", "effective_gpu_hours", "measured_gpu_hours")
"""Columns of `warehouse.spend` that become percentages."""
ESTIMATES = ("estimated_gpu_hours", "estimated_usd")
"""Of what the note on estimated prices is written."""
USD_COLUMNS = ("usd", "idle_usd", "saves_usd")
HOUR = timedelta(hours=1)
MOST_SPANS = 5
"""Stretches of hours without accounting that are named; the others are counted."""
MIN_SHARE = 0.001
"""Share of the allocated hours from which missing effective utilisation is worth a note."""


class SpendTable(msgspec.Struct, frozen=True):
    """Rows of a spend table, their sum, and the notes beside them.

    `window` is the whole hours that were summed.
    """

    window: Window
    rows: list[dict[str, Any]]
    total: dict[str, Any]
    notes: list[str]
    coverage: "WindowCoverage"
    reconciliation: dict[str, Any] | None = None
    """How savings relate to waste and idle hours to findings; None where no savings are shown."""


def read_total_spend(
    warehouse: "Warehouse",
    window: str | None,
    *,
    now: datetime,
    cluster: str | None,
    by: Sequence[str],
    view: str,
    share_unallocated: bool,
    team: str | None = None,
) -> SpendTable:
    """Return GPU-hours and dollars of a window, whose sum is the capacity and the bill.

    `busy_pct`: hours with work, over allocated hours with known use; `effective_pct`: effective
    utilisation of `measured_gpu_hours`; null = not measured. `saves_gpu_hours` and `saves_usd` are
    what the stored findings would save; null where nothing is analysed, by what findings are not
    known by (model, pool, node, state), or where the dollars are not the fully loaded ones in which
    savings are counted. By workload, namespace,
    pool or node the rows of several clusters have their `cluster` too: equal names are different.

    Raises:
        UsageError: the window has no data, or none of this team.
    """
    span = windows.find_ledger_hours(warehouse, window, now, cluster)
    chosen, filters = span.window, Filters(cluster=cluster, team=team)
    extent.require_names(warehouse, chosen, team=team)

    def read(keys: Sequence[str]) -> list[dict[str, Any]]:
        table = read_spend(
            warehouse,
            chosen,
            by=keys,
            view=view,
            share_unallocated=share_unallocated,
            cluster=cluster,
            team=team,
        )
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def read_savings(keys: Sequence[str]) -> list[dict[str, Any]]:
        return savings.read_by_owner(warehouse, chosen, filters, keys)

    keys = [*by, "cluster"] if CLUSTER_SCOPED.intersection(by) else by
    rows = read(keys)
    bills = _sum_clusters(rows) if "cluster" in keys else read(["cluster"])
    by = _choose_identity(rows, by)
    notes = [
        *span.notes,
        *filter(None, [audits.format_banner(audit_results.read_failures(warehouse, chosen))]),
        *restatements.write_notes(warehouse, chosen, cluster),
    ]
    sums = None
    if view == "loaded" and not share_unallocated:
        sums = reconciliation.read_reconciliation(warehouse, chosen, filters)
        # Where nothing is accounted, the window's own note says so: findings do not matter.
        notes += _write_savings_notes(sums, by) if rows else []
    is_analyzed = sums is not None and sums.saves_gpu_hours is not None
    is_known = is_analyzed and OWNER_KEYS.issuperset(by)
    _add_savings(bills, ["cluster"], read_savings(["cluster"]) if is_known else None)
    _add_savings(rows, by, read_savings(by) if is_known else None)
    round_usd(rows, bills)
    total = sum_rows(rows, by)
    if not rows:
        return SpendTable(chosen, rows, total, notes, span.coverage)
    if sums is not None:
        total |= {"saves_gpu_hours": sums.saves_gpu_hours, "saves_usd": sums.saves_usd}
    notes += write_estimate_notes(*(total[name] for name in ESTIMATES))
    notes += _write_unmeasured_notes(total)
    notes += _write_owner_notes(rows, by)
    visible_rows = [_add_use(row, by) for row in rows]
    body = None if sums is None else reconcile.document(sums)
    return SpendTable(chosen, visible_rows, _add_use(total, by), notes, span.coverage, body)


def _sum_clusters(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each cluster's bill and its idle part, exactly, from rows that name their cluster."""
    bills: dict[str, dict[str, Any]] = {}
    for row in rows:
        bill = bills.setdefault(row["cluster"], {"cluster": row["cluster"]})
        for name in ("usd", "idle_usd"):
            bill[name] = money.sum_known((bill.get(name), row[name]))
    return list(bills.values())


def _choose_identity(rows: list[dict[str, Any]], by: Sequence[str]) -> list[str]:
    """Return what the rows are grouped by: with the cluster, if it is `CLUSTER_SCOPED`.

    Of one cluster its column is removed, unless it was asked for.
    """
    if not CLUSTER_SCOPED.intersection(by) or "cluster" in by:
        return list(by)
    if len({row["cluster"] for row in rows}) > 1:
        return [*by, "cluster"]
    for row in rows:
        del row["cluster"]
    return list(by)


def _write_savings_notes(sums: Reconciliation | None, by: Sequence[str]) -> list[str]:
    if sums is None or sums.saves_gpu_hours is None:
        hint = "fallow analyze with the same --window finds and stores them"
        return [f"savings are not shown: no analysis of this window is stored ({hint})"]
    finer = " and ".join(name for name in by if name not in OWNER_KEYS)
    notes = []
    if sums.found_at is not None:
        until = f"{sums.found_at:%Y-%m-%d %H:%M} UTC"
        notes.append(f"savings are those of the findings stored until {until}")
    if finer:
        notes.append(f"savings by {finer} are not known: a finding is about its owner's GPUs")
    return [*notes, *reconcile.format_lines(sums)]


def _add_savings(
    rows: list[dict[str, Any]], by: Sequence[str], saved: Sequence[Mapping[str, Any]] | None
) -> None:
    """Add to each row what the stored findings would save of it; None = not known.

    An owner that paid for nothing, such as a quota's object, gets a row.
    """
    parts = {tuple(part[name] for name in by): part for part in saved or ()}
    for row in rows:
        part = parts.pop(tuple(row[name] for name in by), None)
        none = None if saved is None else 0.0
        row["saves_gpu_hours"] = part["gpu_hours"] if part else none
        row["saves_usd"] = part["usd"] if part else (None if none is None else Decimal())
    unpaid = {name: Decimal() if "usd" in name else 0.0 for row in rows[:1] for name in row}
    for part in (part for part in parts.values() if part["gpu_hours"]):
        names = {name: part[name] for name in by}
        savings_only = {"saves_gpu_hours": part["gpu_hours"], "saves_usd": part["usd"]}
        rows.append({**unpaid, "price_as_of": None, **names, **savings_only})


def round_usd(rows: list[dict[str, Any]], bills: Sequence[Mapping[str, Any]]) -> None:
    """Round dollars to cents that sum to the clusters' bills, each of which is rounded once."""
    by_cluster: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        by_cluster.setdefault(row.get("cluster"), []).append(row)
    for cluster, unordered in by_cluster.items():
        # Of equal dollars the same ones get the cent, whatever the rows are ordered by.
        own = sorted(unordered, key=_get_cent_order)
        of = [bill for bill in bills if cluster in (None, bill["cluster"])]
        wholes = {name: money.sum_bills([bill[name] for bill in of]) for name in USD_COLUMNS}
        exact = {name: [row[name] for row in own] for name in USD_COLUMNS}
        before = [row.pop("own_usd", row["usd"]) for row in own]
        usd, idle = money.split(before, exact["idle_usd"], (wholes["usd"], wholes["idle_usd"]))
        moved = [
            None if now is None else now - was
            for now, was in zip(exact["usd"], before, strict=True)
        ]
        shared = money.round_shares(before, moved, usd)
        usd = [money.sum_known(row) for row in zip(usd, shared, strict=True)]
        saves = money.apportion(exact["saves_usd"], wholes["saves_usd"])
        for row, *amounts in zip(own, usd, idle, saves, strict=True):
            row |= dict(zip(USD_COLUMNS, amounts, strict=True))


def _get_cent_order(row: Mapping[str, Any]) -> tuple[float, list[str]]:
    return -(row.get("gpu_hours") or 0.0), [name for name in row.values() if isinstance(name, str)]


def _add_use(row: dict[str, Any], by: Sequence[str]) -> dict[str, Any]:
    """Return a row with its shares: of all hours, busy time, effective utilisation."""
    names = {name: row[name] for name in by}
    shares = {"gpu_hours": row["gpu_hours"], "share_pct": row["share_pct"]}
    rest = {name: v for name, v in row.items() if name not in (*USE_COLUMNS, ESTIMATES[1])}
    return {
        **names,
        **shares,
        **rest,
        "busy_pct": _compute_percent(row["busy_gpu_hours"], row["known_gpu_hours"]),
        "effective_pct": _compute_percent(row["effective_gpu_hours"], row["measured_gpu_hours"]),
        "measured_gpu_hours": row["measured_gpu_hours"],
    }


def _write_owner_notes(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[str]:
    """Return which rows save more dollars than they paid, and why, if there are any."""
    above = [
        "/".join(str(row[name]) for name in by)
        for row in rows
        if row["usd"] is not None and (row["saves_usd"] or 0) > row["usd"]
    ]
    if not above:
        return []
    note = (
        f"{', '.join(above)} saves more than it paid: advice on a pool or a quota is its owner's, "
        "and other owners pay a part of these hours"
    )
    return [note]


def _write_unmeasured_notes(total: Mapping[str, Any]) -> list[str]:
    """Return how much of the allocated time has no effective utilisation, if there is any."""
    missing = (total["known_gpu_hours"] or 0.0) - (total["measured_gpu_hours"] or 0.0)
    if missing <= MIN_SHARE * (total["known_gpu_hours"] or 0.0):
        return []
    note = (
        f"effective utilisation is not measured for {missing:,.1f} of "
        f"{total['known_gpu_hours']:,.1f} GPU-hours held: their exporters show neither tensor nor "
        "SM activity, or the hours were accounted before it was"
    )
    return [note]


def _compute_percent(part: float | None, whole: float | None) -> float | None:
    return 100 * part / whole if part is not None and whole else None


def sum_rows(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> dict[str, Any]:
    """Return the row of sums, named `total` in its first column; texts and times have none."""
    total: dict[str, Any] = dict.fromkeys(by, "")
    total[by[0]] = "total"
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows if row[name] is not None]
        if name not in total:
            summed = values and not isinstance(values[0], (str, bool)) and "as_of" not in name
            total[name] = sum(values[1:], values[0]) if summed else None
    return total


def verify_warehouse(warehouse: "Warehouse") -> list[dict[str, Any]]:
    """Read everything back and run every audit; one row per check.

    `status` is ok, failed, or "not checked" for hours whose accounting is not done.
    """
    rows = [
        _check(item.subject, item.detail, ok=item.ok)
        for item in verification.verify_warehouse(warehouse)
    ]
    try:
        # A running service marks and accounts hours meanwhile: named is what was left out at the
        # beginning or at the end.
        hours = set(audits.list_unaccounted_hours(warehouse))
        failures = {failure.audit: str(failure) for failure in run_audits_stage(warehouse)}
        hours |= set(audits.list_unaccounted_hours(warehouse))
        accounted = audits.has_accounted_hours(warehouse)
    except WarehouseError as error:
        # The damaged file named above prevents the audits from reading.
        return [*rows, _check("audits", str(error), ok=False)]
    for name in audits.list_audits():
        row = _check(f"audit {name}", failures.get(name), ok=name not in failures)
        if hours and name in audits.AGAINST_LEDGER and name not in failures:
            row["detail"] = "without the hours that are not accounted yet"
            row["status"] = "ok" if accounted else "not checked"
        rows.append(row)
    if hours:
        detail = format_unaccounted(sorted(hours))
        rows.append({"check": "hours", "status": "not checked", "detail": detail})
    return rows


def format_unaccounted(hours: Sequence[tuple[str, datetime]]) -> str:
    """Return the sentence that names hours, ascending, which audits of the ledger left out.

    Each has its cluster, "" = all clusters.
    """
    spans: list[tuple[str, datetime, datetime]] = []
    for cluster, hour in hours:
        if spans and (spans[-1][0], spans[-1][2]) == (cluster, hour):
            spans[-1] = (cluster, spans[-1][1], hour + HOUR)
        else:
            spans.append((cluster, hour, hour + HOUR))
    named = [
        f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}{f' of {cluster}' if cluster else ''}"
        for cluster, start, end in spans[:MOST_SPANS]
    ]
    more = len(spans) - MOST_SPANS
    others = f" and {more} more stretches" if more > 0 else ""
    number = len({hour for _, hour in hours})
    count = "1 hour" if number == 1 else f"{number} hours"
    return (
        f"{count} not accounted yet: {', '.join(named)}{others} (UTC); left out by the audits "
        f"{' and '.join(audits.AGAINST_LEDGER)}; the next accounting step writes them"
    )


def _check(name: str, detail: str | None, *, ok: bool) -> dict[str, Any]:
    return {"check": name, "status": "ok" if ok else "failed", "detail": detail}
