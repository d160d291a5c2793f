"""Reserved capacity: how much of it is used, what it covers, when it ends, whether it pays."""

from decimal import Decimal

from dashboards import data, page
from dashboards.figures import commitments
from dashboards.page import Asked, money, share

TITLE, ICON, ORDER = "Commitments", ":material/handshake:", 60
SOON_DAYS = 60

COLUMNS = {
    "name": page.name("commitment"),
    "instance_type": page.name("of"),
    "nodes": page.number("nodes"),
    "utilisation_pct": page.percent("utilisation", "committed node-hours that ran"),
    "coverage_pct": page.percent("coverage", "of the node-hours of this kind that ran"),
    "break_even_pct": page.percent("break-even", "used less than this, on demand is cheaper"),
    "held_pct": page.percent("held", "of the committed node-hours: somebody had its GPUs"),
    "used_pct": page.percent("worked", "of the committed node-hours: GPUs worked"),
    "committed_usd": page.usd("committed, USD"),
    "unused_usd": page.usd("did not run, USD", "a shared cost, nobody's in particular"),
    "end": page.moment("ends"),
    "days_left": page.number("days left"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(listed, asked)


def listed(asked: Asked) -> None:
    """List every commitment that runs in the window or later."""
    promised = tuple(asked.settings.prices.commitments)
    if not promised:
        page.nothing(
            "No commitment is configured.",
            "Name reserved capacity under `prices.commitments`: name, provider, instance_type, "
            "nodes, gpus_per_node, usd_per_node_hour, start, end.",
        )
        return
    made = data.ask(commitments.commitments, asked.window, asked.filters, promised)
    if not made:
        page.nothing("Every commitment ended before this window.", "Choose an earlier window.")
        return
    whole = sum((c.committed_usd for c in made), Decimal())
    unused = sum((c.unused_usd for c in made), Decimal())
    hours = sum(c.committed_node_hours for c in made)
    ran = sum(c.running_node_hours for c in made)
    soon = [c for c in made if 0 <= c.days_left <= SOON_DAYS]
    page.metrics(
        ("Committed", money(whole), f"{hours:,.0f} node-hours"),
        ("Utilisation", share(ran, hours), f"{ran:,.0f} node-hours ran"),
        ("Did not run", money(unused), share(unused, whole)),
        ("End within 60 days", str(len(soon)), f"of {len(made)}"),
    )
    page.table([_row(one) for one in made], COLUMNS, called="Commitments")
    too_little = [one for one in made if _too_little(one)]
    if too_little:
        page.note(
            f"{len(too_little)} of {len(made)} run less than their break-even: so little use would "
            "be cheaper on demand."
        )
    page.note(
        "A reclaimed GPU of a commitment saves no cash until demand fills it or the term ends: it "
        "is released capacity. Savings are told apart as cash, capacity and commitment everywhere."
    )


def _too_little(one: commitments.Commitment) -> bool:
    known = one.utilisation is not None and one.break_even is not None
    return known and (one.utilisation or 0.0) < (one.break_even or 0.0)


def _row(one: commitments.Commitment) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(one, name) for name in one.__struct_fields__}
    for name in ("utilisation", "coverage", "break_even"):
        value = getattr(one, name)
        row[f"{name}_pct"] = None if value is None else 100 * value
    whole = one.committed_node_hours
    row["held_pct"] = 100 * one.held_node_hours / whole if whole else None
    row["used_pct"] = 100 * one.used_node_hours / whole if whole else None
    return row
