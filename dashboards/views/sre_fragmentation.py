"""Free GPUs that the next pod cannot use: where, why, and the plan that gives them back."""

from collections.abc import Mapping
from typing import Any

import altair as alt

from dashboards import charts, choosing, data, links, maps, page
from dashboards.figures import fleet, fragmentation
from dashboards.figures.fragmentation import Pool
from dashboards.page import Asked, hours, money
from dashboards.views.sre_fleet import now

TITLE, ICON, ORDER = "Fragmentation", ":material/extension:", 40

ANALYZERS = ("fragmentation",)
HELD = dict.fromkeys(("productive", "low", "idle", "startup", "lost"), "held")
COLOURS = {
    "held": charts.BLUE,
    "free": charts.GREY,
    "stranded": charts.RED,
    "unavailable": charts.STATE_COLOURS["unavailable"],
    "unknown": charts.VIOLET,
}
POOLS = {
    "name": page.name("pool and model"),
    "unusable_gpus": page.number("free, not usable"),
    "idle_gpus": page.number("free GPUs"),
    "whole_free_gpus": page.number("whole free GPUs"),
    "largest_job_gpus": page.number("largest job that fits, GPUs"),
    "usd": page.usd("USD of the window"),
    "gpu_hours": page.number("GPU-hours"),
    "cause": page.name("most are lost to"),
    "evidence": page.name("evidence", "small"),
    "why": page.name("why", "large"),
    "id": page.name("finding", "small"),
}
MOVES = {
    "pool": page.name("pool and model"),
    "pod": page.name("pod", "large"),
    "gpus": page.number("GPUs"),
    "source": page.name("from"),
    "target": page.name("to"),
}
CAUSERS = {
    "workload": page.name("workload", "large"),
    "timeline": links.column(),
    "gpus_lost": page.number("GPUs lost to others"),
    "by_its_cpu": page.number("by its CPU"),
    "by_its_gpus": page.number("by its GPUs"),
    "pods": page.number("pods"),
    "pool": page.name("pool and model"),
}
PACKING = {
    "pool": page.name("pool and model"),
    "size": page.number("job of so many GPUs"),
    "fit": page.number("fit now"),
    "used_pct": page.percent("of the free GPUs that they would use"),
}
CUTS = {
    "name": page.name("pool and model"),
    "boards": page.number("boards"),
    "held": page.name("held"),
    "free": page.name("free"),
    "cut_again": page.name("cut again as"),
}


def show(asked: Asked) -> None:
    """Draw the page."""
    page.card(headline, asked)
    page.card(drawn, asked, height=400)
    page.card(plan, asked)
    page.card(more, asked)


def headline(asked: Asked) -> None:
    """Say what is free and cannot be used."""
    made = data.ask(fragmentation.pools, asked.window, asked.filters)
    if not made:
        page.none(
            asked,
            ANALYZERS,
            "No fragmentation was found in this window.",
            "The `fragmentation` analyzer says so when free GPUs cannot serve the pods that come; "
            "it needs the inventory of nodes and pods.",
        )
        return
    priced = [pool.usd for pool in made if pool.usd is not None]
    free = sum(pool.idle_gpus for pool in made)
    lost = sum(pool.unusable_gpus for pool in made)
    moved = sum(pool.plan.restarts for pool in made)
    slots = sum(pool.plan.slots_freed for pool in made)
    page.metrics(
        (
            "Free in these pools",
            f"{free:,.1f}",
            f"{sum(p.whole_free_gpus for p in made):,.0f} of them whole",
        ),
        ("Not usable", f"{lost:,.1f}", "by the next GPU pod"),
        (
            "Cost of it",
            money(sum(priced, page.exact(0)) if priced else None),
            hours(sum(pool.gpu_hours for pool in made)),
        ),
        ("The plan", f"{slots:,} slots", f"for {moved:,} restarts"),
    )
    page.note(
        f"As the last analysis found it, at {made[0].found_at:%Y-%m-%d %H:%M} UTC, in pools whose "
        "free GPUs the next pods cannot use; elsewhere what is free can be used."
    )


def drawn(asked: Asked) -> None:
    """Draw what is held and what is free, and where the plan moves pods."""
    rows = data.ask(fleet.cells, now(asked), asked.filters).to_pylist()
    if not rows:
        page.nobody(asked)
        return
    roles = _roles(data.ask(fragmentation.pools, asked.window, asked.filters))
    order = [*COLOURS]
    told = [
        {
            **row,
            "state": HELD.get(row["state"], row["state"]),
            "role": roles.get((row["cluster"], row["node"]), ""),
        }
        for row in rows
    ]
    told.sort(key=lambda r: (r["cluster"], r["pool"], r["node"], order.index(r["state"])))
    used = [state for state in order if any(row["state"] == state for row in told)]
    scale = alt.Scale(domain=used, range=[COLOURS[state] for state in used])
    page.chart(
        maps.cells(
            told, colours=scale, told=(("model", "model"), ("role", "in the plan")), outlined="role"
        ),
        "GPUs node by node: held, free, stranded; nodes of the plan are outlined",
    )
    if roles:
        page.note(
            "Outlined: green, nodes that the plan empties; amber, nodes that take what was there."
        )


def plan(asked: Asked) -> None:
    """List the moves."""
    made = data.ask(fragmentation.pools, asked.window, asked.filters)
    if not made:
        return
    page.heading("The defragmentation plan")
    rows = [
        {"pool": pool.name, "pod": m.pod, "gpus": m.gpus, "source": m.source, "target": m.target}
        for pool in made
        for m in pool.plan.moves
    ]
    if not rows:
        page.nothing("No move would help now.", " ".join(_stand(pool) for pool in made[:3]))
        return
    page.table(rows, MOVES, called="Pods that the plan would restart elsewhere")
    told = " ".join(_told(pool) for pool in [p for p in made if p.plan.moves][:3])
    page.note(f"{told} Nothing moves by itself: a policy and its approvals decide.")


def more(asked: Asked) -> None:
    """Show the pools, what fits into them, whose place it is, or boards in MIG mode."""
    parts = {"pools": pools, "what fits": fits, "whose place": causers, "MIG boards": cuts}
    choosing.one_of(parts, asked)


def pools(asked: Asked) -> None:
    """List the pools."""
    made = data.ask(fragmentation.pools, asked.window, asked.filters)
    if not made:
        _none(asked)
        return
    rows = [
        {
            **{name: getattr(p, name) for name in POOLS if name != "cause"},
            "cause": fragmentation.CAUSES[p.causes[0][0]] if p.causes else "",
        }
        for p in made
    ]
    page.table(rows, POOLS, called="Pools by free GPUs that cannot be used")


def fits(asked: Asked) -> None:
    """List which jobs fit into what is free."""
    made = data.ask(fragmentation.pools, asked.window, asked.filters)
    rows = [
        {"pool": p.name, "size": size, "fit": fit, "used_pct": None if u is None else 100 * u}
        for p in made
        for size, fit, u in p.packing
    ]
    if not rows:
        _none(asked)
        return
    page.table(rows, PACKING, called="Jobs that fit into what is free")


def causers(asked: Asked) -> None:
    """List the workloads whose place costs others theirs."""
    made = data.ask(fragmentation.pools, asked.window, asked.filters)
    rows = [
        {
            **one,
            "pool": pool.name,
            "workload": _name(one),
            "timeline": links.timeline(cluster=pool.cluster, workload=_name(one)),
        }
        for pool in made
        for one in pool.caused_by
    ]
    if not rows:
        _none(asked)
        return
    page.table(rows, CAUSERS, called="Workloads that keep free GPUs from being used")


def cuts(asked: Asked) -> None:
    """List the layouts of MIG boards that strand slices."""
    made = data.ask(fragmentation.cuts, asked.window, asked.filters)
    if not made:
        _none(asked)
        return
    rows = [{name: getattr(cut, name) for name in CUTS} for cut in made]
    page.table(rows, CUTS, called="Layouts of MIG boards that strand slices")


def _none(asked: Asked) -> None:
    page.none(asked, ANALYZERS, "Nothing of this was found in this window.", "Choose a longer one.")


def _roles(made: tuple[Pool, ...]) -> dict[tuple[str, str], str]:
    roles = {(pool.cluster, move.target): "takes pods" for pool in made for move in pool.plan.moves}
    emptied = {(pool.cluster, move.source) for pool in made for move in pool.plan.moves}
    return roles | dict.fromkeys(emptied, "is emptied")


def _told(pool: Pool) -> str:
    asked = pool.plan
    least = ""
    if asked.fewest is not None:
        least = ", proven the fewest" if asked.proven else f", at least {asked.fewest} are needed"
    gain = f"; {asked.gained_gpus:,.1f} GPUs become usable" if asked.gained_gpus else ""
    return (
        f"{page.plain(pool.name)}: {asked.slots_freed} whole slots of {asked.slot_gpus} GPUs for "
        f"{asked.restarts} restarts{least}{gain}."
    )


def _stand(pool: Pool) -> str:
    stay = ", ".join(f"{n} {page.plain(why)}" for why, n in pool.plan.stay.items())
    because = page.plain(pool.plan.why or "enough whole slots are free", 200)
    return f"{page.plain(pool.name)}: {because}{f' (pods that stay: {stay})' if stay else ''}."


def _name(one: Mapping[str, Any]) -> str:
    return "/".join(str(one.get(name) or "") for name in ("namespace", "workload_kind", "workload"))
