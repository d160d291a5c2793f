"""Free GPUs that the next pod cannot use: where, why, and the plan that gives them back."""

from collections.abc import Mapping
from typing import Any

import altair as alt

from dashboards import charts, data, links, maps, page, tabs
from dashboards.figures import fleet, fragmentation
from dashboards.figures.fragmentation import PoolFragmentation
from dashboards.page import PageRequest, format_hours, format_money
from dashboards.views.fleet import get_time

ANALYZERS = ("fragmentation",)
ALLOCATED_STATES = dict.fromkeys(("productive", "low", "idle", "startup", "lost"), "allocated")
COLOURS = {
    "allocated": charts.ALLOCATED,
    **{s: charts.STATE_COLOURS[s] for s in ("free", "stranded", "unavailable", "unknown")},
}
POOLS = page.read_columns("capacity_fragmentation/pools")
MOVES = page.read_columns("capacity_fragmentation/moves")
CAUSERS = page.read_columns("capacity_fragmentation/causers")
PACKING = page.read_columns("capacity_fragmentation/packing")
CUTS = page.read_columns("capacity_fragmentation/cuts")


def show(request: PageRequest) -> None:
    """Draw the tab."""
    page.show_card(show_headline, request)
    page.show_card(show_pool_map, request, height=400)
    page.show_card(plan, request)
    page.show_card(show_more, request)


def show_headline(request: PageRequest) -> None:
    """Show how much is free and cannot be used."""
    pools_found = data.query(fragmentation.read_pools, request.window, request.filters)
    if not pools_found:
        page.show_no_findings(
            request,
            ANALYZERS,
            "No fragmentation was found in this window.",
            "The `fragmentation` analyzer says so when free GPUs cannot serve the pods that come; "
            "it needs the inventory of nodes and pods.",
        )
        return
    priced = [pool.usd for pool in pools_found if pool.usd is not None]
    free = sum(pool.idle_gpus for pool in pools_found)
    lost = sum(pool.unusable_gpus for pool in pools_found)
    moved = sum(pool.plan.restarts for pool in pools_found)
    slots = sum(pool.plan.slots_freed for pool in pools_found)
    page.show_metrics(
        (
            "Free in these pools",
            f"{free:,.1f}",
            f"{sum(p.whole_free_gpus for p in pools_found):,.0f} of them whole",
        ),
        ("Not usable", f"{lost:,.1f}", "by the next GPU pod"),
        (
            "Cost of it",
            format_money(sum(priced, page.convert_exact(0)) if priced else None),
            format_hours(sum(pool.gpu_hours for pool in pools_found)),
        ),
        ("The plan", f"{slots:,} slots", f"for {moved:,} restarts")
        if moved
        else ("The plan", "none", "no move would help now"),
    )
    page.note(
        f"As the last analysis found it, at {pools_found[0].found_at:%Y-%m-%d %H:%M} UTC, in "
        "pools whose "
        "free GPUs the next pods cannot use; elsewhere what is free can be used."
    )


def show_pool_map(request: PageRequest) -> None:
    """Draw allocated and free GPUs, and where the plan moves pods."""
    rows = data.query(fleet.read_cells, get_time(request), request.filters).to_pylist()
    if not rows:
        page.show_no_data(request)
        return
    roles = _assign_roles(data.query(fragmentation.read_pools, request.window, request.filters))
    order = [*COLOURS]
    pool_texts = [
        {
            **row,
            "state": ALLOCATED_STATES.get(row["state"], row["state"]),
            "role": roles.get((row["cluster"], row["node"]), ""),
        }
        for row in rows
    ]
    pool_texts.sort(key=lambda r: (r["cluster"], r["pool"], r["node"], order.index(r["state"])))
    pool_texts = _merge_states(pool_texts)
    used = [state for state in order if any(row["state"] == state for row in pool_texts)]
    scale = alt.Scale(domain=used, range=[COLOURS[state] for state in used])
    page.chart(
        maps.draw_cells(
            pool_texts,
            colours=scale,
            roles=(("model", "model"), ("role", "in the plan")),
            outlined="role",
        ),
        "GPUs node by node: allocated, free, stranded; nodes of the plan are outlined",
    )
    if roles:
        page.note(
            "Outlined: green, nodes that the plan empties; amber, nodes that take what was there."
        )


def _merge_states(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per node and state of a large fleet, whose rows have no device."""
    merged: list[dict[str, Any]] = []
    for row in rows:
        last = merged[-1] if merged else None
        names = ("cluster", "pool", "node", "state")
        if last is None or row["device"] is not None or any(row[n] != last[n] for n in names):
            merged.append(row)
            continue
        prices = (last["usd_h"], row["usd_h"])
        merged[-1] = {
            **last,
            "gpus": last["gpus"] + row["gpus"],
            "usd_h": None if None in prices else sum(prices),
            "workload": last["workload"] if row["workload"] == last["workload"] else None,
        }
    return merged


def plan(request: PageRequest) -> None:
    """List the moves."""
    pools_found = data.query(fragmentation.read_pools, request.window, request.filters)
    if not pools_found:
        return
    page.show_heading("The defragmentation plan")
    rows = [
        {
            "pool": pool.name,
            "cluster": pool.cluster,
            "pod": m.pod,
            "gpus": m.gpus,
            "source": m.source,
            "target": m.target,
        }
        for pool in pools_found
        for m in pool.plan.moves
    ]
    if not rows:
        page.show_nothing(
            "No move of a running pod would help now.",
            " ".join(_format_state(pool) for pool in pools_found[:3]),
        )
        return
    page.show_table(rows, MOVES, table_name="Pods that the plan would restart elsewhere")
    plan_texts = " ".join(_plan_text(pool) for pool in [p for p in pools_found if p.plan.moves][:3])
    page.note(f"{plan_texts} Nothing moves by itself: a policy and its approvals decide.")


def show_more(request: PageRequest) -> None:
    """Show the pools, what fits into them, the workloads in the way, or GPUs in MIG mode."""
    parts = {
        "pools": show_pools,
        "what fits": show_fits,
        "workloads in the way": show_causers,
        "MIG GPUs": show_cuts,
    }
    tabs.choose_tab(parts, request)


def show_pools(request: PageRequest) -> None:
    """List the pools."""
    pools_found = data.query(fragmentation.read_pools, request.window, request.filters)
    if not pools_found:
        _show_nothing(request)
        return
    rows = [
        {
            **{name: getattr(p, name) for name in ("cluster", *POOLS) if name != "cause"},
            "cause": fragmentation.CAUSES[p.causes[0][0]] if p.causes else "",
        }
        for p in pools_found
    ]
    page.show_table(rows, POOLS, table_name="Pools by free GPUs that cannot be used")


def show_fits(request: PageRequest) -> None:
    """List which jobs fit into the free GPUs."""
    pools_found = data.query(fragmentation.read_pools, request.window, request.filters)
    rows = [
        {
            "pool": p.name,
            "cluster": p.cluster,
            "size": size,
            "fit": fit,
            "used_pct": None if u is None else 100 * u,
        }
        for p in pools_found
        for size, fit, u in p.packing
    ]
    if not rows:
        _show_nothing(request)
        return
    page.show_table(rows, PACKING, table_name="Jobs that fit into what is free")


def show_causers(request: PageRequest) -> None:
    """List the workloads whose placement makes other GPUs unusable."""
    pools_found = data.query(fragmentation.read_pools, request.window, request.filters)
    rows = [
        {
            **workload,
            "pool": pool.name,
            "cluster": pool.cluster,
            "workload": _name(workload),
            "timeline": links.build_timeline_link(cluster=pool.cluster, workload=_name(workload)),
        }
        for pool in pools_found
        for workload in pool.caused_by
    ]
    if not rows:
        _show_nothing(request)
        return
    page.show_table(rows, CAUSERS, table_name="Workloads that keep free GPUs from being used")


def show_cuts(request: PageRequest) -> None:
    """List the layouts of GPUs in MIG mode that strand slices."""
    layouts = data.query(fragmentation.read_cuts, request.window, request.filters)
    if not layouts:
        _show_nothing(request)
        return
    rows = [{name: getattr(cut, name) for name in ("cluster", *CUTS)} for cut in layouts]
    page.show_table(rows, CUTS, table_name="Layouts of MIG GPUs that strand slices")


def _show_nothing(request: PageRequest) -> None:
    page.show_no_findings(
        request, ANALYZERS, "Nothing of this was found in this window.", "Choose a longer one."
    )


def _assign_roles(pools_found: tuple[PoolFragmentation, ...]) -> dict[tuple[str, str], str]:
    roles = {
        (pool.cluster, move.target): "takes pods"
        for pool in pools_found
        for move in pool.plan.moves
    }
    emptied = {(pool.cluster, move.source) for pool in pools_found for move in pool.plan.moves}
    return roles | dict.fromkeys(emptied, "is emptied")


def _plan_text(pool: PoolFragmentation) -> str:
    defrag_plan = pool.plan
    proof_text = ""
    if defrag_plan.fewest is not None:
        proof_text = (
            ", proven the fewest"
            if defrag_plan.proven
            else f", at least {defrag_plan.fewest} are needed"
        )
    gain = f"; {defrag_plan.gained_gpus:,.1f} GPUs become usable" if defrag_plan.gained_gpus else ""
    return (
        f"{page.escape(pool.name)}: {defrag_plan.slots_freed} whole slots of "
        f"{defrag_plan.slot_gpus} GPUs for "
        f"{defrag_plan.restarts} restarts{proof_text}{gain}."
    )


def _format_state(pool: PoolFragmentation) -> str:
    stay = ", ".join(f"{n} {page.escape(why)}" for why, n in pool.plan.stay.items())
    reason = page.escape(pool.plan.why or "enough whole slots are free", 200)
    return f"{page.escape(pool.name)}: {reason}{f' (pods that stay: {stay})' if stay else ''}."


def _name(workload: Mapping[str, Any]) -> str:
    return "/".join(
        str(workload.get(name) or "") for name in ("namespace", "workload_kind", "workload")
    )
